"""The bundled face: its parameters, visemes, idle life and drawing."""
