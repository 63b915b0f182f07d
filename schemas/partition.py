"""Which partition a key belongs to: murmur2 as the Java client computes it.

Our own, documented function, because client libraries differ in their default.

PURE.
"""


def murmur2(key: bytes) -> int:
    """32-bit MurmurHash2 with Kafka's seed, unsigned."""
    raise NotImplementedError


def partition_of(key: bytes, count: int) -> int:
    """The partition of `key` in a topic of `count` partitions (org.apache.kafka toPositive)."""
    raise NotImplementedError
