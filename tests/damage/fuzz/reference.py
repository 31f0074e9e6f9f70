"""A decoder of record batches in plain Python, by docs/format.md: it shares no line with the C
core, and demands of a batch exactly what the format does.
"""

import struct
from typing import NamedTuple

HEADER = struct.Struct(">qiibIhiqqqhii")
LOG_APPEND_TIME = 8


class RefusedError(Exception):
    """The bytes are no batch; with the reason."""


class Record(NamedTuple):
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[bytes, bytes | None], ...]


def _want(condition: object, reason: str) -> None:
    if not condition:
        raise RefusedError(reason)


class Reader:
    """Takes bytes from the front, none beyond `end`."""

    def __init__(self, data: bytes, pos: int, end: int) -> None:
        self.data, self.pos, self.end = data, pos, end

    def take(self, count: int) -> bytes:
        _want(0 <= count <= self.end - self.pos, "cut off")
        self.pos += count
        return self.data[self.pos - count : self.pos]

    def number(self, bytes_max: int) -> int:
        """A zig-zag varint of at most `bytes_max` bytes; 64 bits are kept."""
        value = 0
        for place in range(bytes_max):
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << 7 * place
            if byte < 0x80:
                value &= (1 << 64) - 1
                return (value >> 1) ^ -(value & 1)
        raise RefusedError("a varint that is too long")

    def small(self) -> int:
        value = self.number(5)
        _want(-(1 << 31) <= value < 1 << 31, "a varint above 32 bits")
        return value

    def nullable(self) -> bytes | None:
        length = self.small()
        _want(length >= -1, "a length below -1")
        return None if length < 0 else self.take(length)


def _signed64(value: int) -> int:
    return (value + (1 << 63)) % (1 << 64) - (1 << 63)


def _record(outer: Reader) -> tuple[int, int, bytes | None, bytes | None, tuple, int]:
    length = outer.small()
    _want(0 <= length <= outer.end - outer.pos, "a record that passes the end")
    inner = Reader(outer.data, outer.pos, outer.pos + length)
    attributes = inner.take(1)[0]
    timestamp_delta, offset_delta = inner.number(10), inner.small()
    key, value = inner.nullable(), inner.nullable()
    headers = []
    for _ in range(_count(inner)):
        name_bytes = inner.small()
        headers.append((inner.take(name_bytes), inner.nullable()))
    _want(inner.pos == inner.end, "a record with bytes left over")
    outer.pos = inner.end
    return offset_delta, timestamp_delta, key, value, tuple(headers), attributes


def _count(inner: Reader) -> int:
    count = inner.small()
    _want(count >= 0, "a negative number of headers")
    return count


def header(data: bytes) -> tuple[int, ...]:
    """The fields of the header, checked."""
    _want(len(data) >= HEADER.size, "too short for a header")
    fields = HEADER.unpack_from(data)
    base, length, _, magic, _, attributes, last_delta, *_, count = fields
    _want(magic == 2 and length + 12 >= HEADER.size, "not a batch of magic 2")
    _want(length + 12 <= len(data), "cut off")
    _want(base >= 0 and last_delta >= 0 and base + last_delta < (1 << 63) - 1, "offsets")
    _want(0 <= count <= last_delta + 1, "a count that does not fit the offsets")
    if attributes & 7 == 0:
        _want(count <= (length + 12 - HEADER.size) // 7, "a count that does not fit the bytes")
    return fields


def records(data: bytes, body: bytes) -> tuple[list[Record], bool]:
    """The records of a batch whose body is decompressed; whether any has unknown attributes."""
    base, _, _, _, _, attributes, last_delta, first_time, max_time, *_, count = header(data)
    reader = Reader(body, 0, len(body))
    found: list[Record] = []
    before, odd = -1, False
    for _ in range(count):
        delta, time_delta, key, value, headers, record_attributes = _record(reader)
        _want(before < delta <= last_delta, "offsets that do not grow")
        before, odd = delta, odd or record_attributes >= 0x80
        time = max_time if attributes & LOG_APPEND_TIME else _signed64(first_time + time_delta)
        found.append(Record(base + delta, time, key, value, headers))
    _want(reader.pos == len(body), "bytes behind the last record")
    return found, odd
