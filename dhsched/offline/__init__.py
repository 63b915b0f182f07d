"""Recorded streams: captured from Kafka into a file, and replayed from it."""
