"""Wire formats: what is written to Kafka and to the store, and how it is read back."""
