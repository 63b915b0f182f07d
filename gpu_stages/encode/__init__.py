"""The bundled encoders: Opus and H.264 or VP8, one pair for each live."""
