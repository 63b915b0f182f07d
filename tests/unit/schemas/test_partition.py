"""murmur2 and the partition of a key: the Java client's vectors, and aiokafka's own."""

import pytest
from aiokafka.partitioner import DefaultPartitioner
from aiokafka.partitioner import murmur2 as aiokafka_murmur2
from hypothesis import given
from hypothesis import strategies as st

from schemas.partition import murmur2, partition_of

# org.apache.kafka.common.utils.UtilsTest.testMurmur2
JAVA = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


@pytest.mark.parametrize(("key", "signed"), JAVA.items())
def test_the_java_clients_vectors(key: bytes, signed: int) -> None:
    assert murmur2(key) == signed % 2**32


@given(st.binary(max_size=140))
def test_the_same_as_aiokafka(key: bytes) -> None:
    assert murmur2(key) == aiokafka_murmur2(key) % 2**32


@given(st.binary(max_size=64), st.integers(1, 200))
def test_the_same_partition_as_aiokafkas_producer(key: bytes, count: int) -> None:
    partitions = list(range(count))
    assert partition_of(key, count) == DefaultPartitioner()(key, partitions, partitions)


def test_a_topic_without_partitions_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one partition"):
        partition_of(b"k", 0)
