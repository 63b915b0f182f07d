"""The bundled voice and what it tells of its phonemes."""
