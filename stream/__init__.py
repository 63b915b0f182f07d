"""Kafka behind a small contract: producers, custody readers, range readers."""
