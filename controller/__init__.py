"""The Infer-Controller: claims a generation and fences every record before it feeds the stages."""
