"""Keys go where Kafka's Java client sends them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalog.batch.partitioner import murmur2, partition_for_key

# Signed 32-bit values from Kafka's own test of Utils.murmur2.
JAVA = {
    b"21": -973932308,
    b"abc": 479470107,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
}


@pytest.mark.parametrize("key", JAVA)
def test_the_hash_is_that_of_the_java_client(key: bytes) -> None:
    assert murmur2(key) == JAVA[key] & 0xFFFFFFFF


@given(st.binary(max_size=64), st.integers(1, 1000))
def test_another_implementation_agrees(key: bytes, partitions: int) -> None:
    """kafka-python's port, which is independent of ours."""
    theirs = pytest.importorskip("kafka.partitioner.default").murmur2
    assert partition_for_key(key, partitions) == (theirs(key) & 0x7FFFFFFF) % partitions


def test_a_topic_without_partitions_is_refused() -> None:
    with pytest.raises(ValueError, match="partitions is 0: a topic has at least 1"):
        partition_for_key(b"key", 0)
