"""Which partition of an internal topic a key belongs to."""

from functools import lru_cache

__all__ = ["java_hash", "partition_for"]


CACHED_CHARACTERS_MAX = 256
"""Longer names are hashed each time: a client chooses them, and may choose many."""


def java_hash(text: str) -> int:
    """Java's String.hashCode: over UTF-16 code units, wrapped to 32 bits with a sign."""
    return _cached(text) if len(text) <= CACHED_CHARACTERS_MAX else _hash(text)


def _hash(text: str) -> int:
    if text.isascii():
        units: bytes | list[int] = text.encode("ascii")
    else:
        raw = text.encode("utf-16-be", "surrogatepass")
        units = [raw[i] << 8 | raw[i + 1] for i in range(0, len(raw), 2)]
    value = 0
    for unit in units:
        value = (value * 31 + unit) & 0xFFFFFFFF
    return value - (1 << 32) if value >> 31 else value


_cached = lru_cache(maxsize=16_384)(_hash)


def partition_for(key: str, count: int) -> int:
    """The partition of `count` that holds the state of a group or transactional id.

    Java's abs of the smallest int is 0 here, as in Kafka's Utils.abs.
    """
    value = java_hash(key)
    return (0 if value == -(1 << 31) else abs(value)) % count
