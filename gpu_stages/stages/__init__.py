"""The bundled stages."""
