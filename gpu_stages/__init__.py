"""The GPU stage processes and the rings that join them."""
