"""Which partition a key belongs to: murmur2 as the Java client computes it.

Our own, documented function, because client libraries differ in their default: librdkafka's is
CRC32 unless it is set to `murmur2_random`. An empty key is a key like any other.

PURE.
"""

from functools import lru_cache

KEYS_REMEMBERED = 16_384
"""The same few lives are asked for again and again."""

_M = 0x5BD1E995
_MASK = 0xFFFFFFFF
_SEED = 0x9747B28C


def murmur2(key: bytes) -> int:
    """32-bit MurmurHash2 with Kafka's seed, unsigned."""
    size = len(key)
    h = _SEED ^ size
    whole = size & ~3
    for at in range(0, whole, 4):
        k = int.from_bytes(key[at : at + 4], "little") * _M & _MASK
        k = (k ^ (k >> 24)) * _M & _MASK
        h = (h * _M & _MASK) ^ k
    if whole != size:
        h = (h ^ int.from_bytes(key[whole:], "little")) * _M & _MASK
    h = (h ^ (h >> 13)) * _M & _MASK
    return h ^ (h >> 15)


@lru_cache(maxsize=KEYS_REMEMBERED)
def partition_of(key: bytes, count: int) -> int:
    """The partition of `key` in a topic of `count` partitions (the hash without its sign bit)."""
    if count < 1:
        raise ValueError(f"a topic has at least one partition, not {count}")
    return (murmur2(key) & 0x7FFFFFFF) % count
