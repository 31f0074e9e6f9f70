"""Which partition a key belongs to, as Kafka's Java client decides it."""

__all__ = ["murmur2", "partition_for_key"]

_MULTIPLIER = 0x5BD1E995
_SEED = 0x9747B28C
_MASK = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """MurmurHash2 of `data`, 32 bits, unsigned, with the Java client's seed.

    Source: Austin Appleby's MurmurHash2; the seed is Kafka's.
    """
    value = _SEED ^ len(data)
    tail = len(data) & ~3
    for pos in range(0, tail, 4):
        word = int.from_bytes(data[pos : pos + 4], "little") * _MULTIPLIER & _MASK
        word = (word ^ word >> 24) * _MULTIPLIER & _MASK
        value = (value * _MULTIPLIER & _MASK) ^ word
    if tail < len(data):
        value = (value ^ int.from_bytes(data[tail:], "little")) * _MULTIPLIER & _MASK
    value = (value ^ value >> 13) * _MULTIPLIER & _MASK
    return value ^ value >> 15


def partition_for_key(key: bytes, partitions: int) -> int:
    """The partition (0 to partitions - 1) that Java's default partitioner gives `key`.

    librdkafka's default differs (CRC-32): one topic should have producers of one kind.

    Raises: ValueError when `partitions` is below 1.
    """
    if partitions < 1:
        raise ValueError(f"partitions is {partitions}: a topic has at least 1")
    return (murmur2(key) & 0x7FFFFFFF) % partitions
