"""Functions of generated codecs: numbers of variable length, arrays of plain types, errors.

A decoder reads `data` (bytes) from `pos` to `size`; `left` holds approximately how many bytes of
memory the message may still take, then how many elements each of its arrays may still have, over
all the structs that contain it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Any, NoReturn
from uuid import UUID, SafeUUID

from kafkalog.wire.values import ZERO_UUID, Rows, Struct

__all__ = [
    "HELPERS",
    "MEMORY_BYTES_MAX",
    "STRING_BYTES_MAX",
    "Malformed",
    "compact",
    "uvarint",
    "uvarint_bytes",
]

MEMORY_BYTES_MAX = 512 << 20
"""Approximate memory that one message may take: few bytes can describe many empty structs."""

STR_BYTES, UUID_BYTES, NUMBER_BYTES = 60, 130, 40
"""Approximate memory of an element of these, for that limit."""

STRING_BYTES_MAX = 32_767
"""For a string, even if its length field allows more: Kafka reads and writes no longer ones."""

SENTENCE_MAX = 4000
"""Characters of an error's message: a string holds 32,767 bytes, and names in it may be as long."""

UVARINT_BYTES_MAX = 5
UVARINT_END = 1 << 32


class Malformed(Exception):
    """The bytes are not a valid message; becomes InvalidRequest, which says where."""

    def __init__(self, found: str, wanted: str) -> None:
        super().__init__(found, wanted)
        self.found = found
        self.wanted = wanted


# ---- decoding --------------------------------------------------------------------------


def uvarint(data: bytes | bytearray, pos: int) -> tuple[int, int]:
    """An unsigned varint and the position after it.  IndexError at the end of data."""
    value = shift = 0
    for at in range(pos, pos + UVARINT_BYTES_MAX):
        byte = data[at]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value >= UVARINT_END:
                raise Malformed(f"varint {value}", "one of 32 bits")
            return value, at + 1
        shift += 7
    raise Malformed(f"varint of more than {UVARINT_BYTES_MAX} bytes", "one of 32 bits")


def compact(data: bytes, pos: int) -> tuple[int, int]:
    """The length of a compact string, bytes or array (-1: null) and the position after it."""
    value, pos = uvarint(data, pos)
    return value - 1, pos


def null() -> NoReturn:
    raise Malformed("null", "a value: it cannot be null in this version")


def short(bytes_: int, pos: int, size: int) -> NoReturn:
    raise Malformed(f"length {bytes_}", f"at most the {size - pos} bytes that are left")


def crowded(count: int, each: int, pos: int, size: int) -> NoReturn:
    raise Malformed(
        f"count {count}", f"at most {(size - pos) // each}: {size - pos} bytes are left"
    )


def long(bytes_: int) -> NoReturn:
    raise Malformed(f"a string of {bytes_} bytes", f"one of at most {STRING_BYTES_MAX}")


def many(count: int, left: int) -> NoReturn:
    """`left`: what would be left after `count` elements, which is below 0."""
    raise Malformed(f"{count} more elements", f"at most {count + left} more in one message")


def charge(left: list[int], count: int, each: int) -> None:
    """Charge `count` elements of about `each` bytes to the message's memory."""
    left[0] -= count * each
    if left[0] < 0:
        raise Malformed(
            f"{count} more elements", "no more than fit the memory that a message may take"
        )


def strange_tag(tag: int, pos: int, end: int) -> NoReturn:
    raise Malformed(f"tag {tag} ends {pos - end:+d} bytes off its size", "the size of its value")


def skip_tags(data: bytes | bytearray, pos: int, size: int, count: int) -> int:
    """The position after `count` tagged fields, none of which is known (KIP-482)."""
    for _ in range(count):
        _, pos = uvarint(data, pos)
        bytes_, pos = uvarint(data, pos)
        if bytes_ > size - pos:
            short(bytes_, pos, size)
        pos += bytes_
    return pos


def uuid(data: bytes, pos: int, size: int) -> UUID:
    if size - pos < 16:
        raise Malformed(f"{size - pos} bytes", "a uuid of 16")
    number = int.from_bytes(data[pos : pos + 16], "big")
    if not number:
        return ZERO_UUID
    # Built the way that copying builds one: the constructor, which has six forms, took a third of
    # the time of a metadata record.
    made = _new_uuid(UUID)
    _set_uuid(made, "int", number)
    _set_uuid(made, "is_safe", SafeUUID.unknown)
    return made


_new_uuid, _set_uuid = UUID.__new__, object.__setattr__


def uuids(data: bytes, pos: int, size: int, left: list[int], count: int) -> tuple[list[UUID], int]:
    if count * 16 > size - pos:
        crowded(count, 16, pos, size)
    charge(left, count, UUID_BYTES)
    end = pos + count * 16
    return [uuid(data, at, size) for at in range(pos, end, 16)], end


def strings(data: bytes, pos: int, size: int, left: list[int], count: int) -> tuple[list[str], int]:
    """An array of strings with lengths of 16 bits."""
    if count * 2 > size - pos:
        crowded(count, 2, pos, size)
    charge(left, count, STR_BYTES)
    found = []
    for _i in range(count):
        (bytes_,) = unpack_i16(data, pos)
        pos += 2
        if bytes_ < 0:
            null()
        if bytes_ > size - pos:
            short(bytes_, pos, size)
        found.append(data[pos : pos + bytes_].decode())
        pos += bytes_
    return found, pos


def compact_strings(
    data: bytes, pos: int, size: int, left: list[int], count: int
) -> tuple[list[str], int]:
    """An array of strings with lengths of variable size."""
    if count > size - pos:
        crowded(count, 1, pos, size)
    charge(left, count, STR_BYTES)
    found = []
    for _i in range(count):
        bytes_, pos = compact(data, pos)
        if bytes_ < 0:
            null()
        if bytes_ > STRING_BYTES_MAX:
            long(bytes_)
        if bytes_ > size - pos:
            short(bytes_, pos, size)
        found.append(data[pos : pos + bytes_].decode())
        pos += bytes_
    return found, pos


INDEXED = {"strings", "compact_strings", "put_strings", "put_compact_strings"}
"""Helpers whose local `_i` is the index of the element that failed."""

unpack_i16 = struct.Struct(">h").unpack_from
pack_i16 = struct.Struct(">h").pack

PACKERS_MAX = 16
"""Arrays up to this length, such as a partition's replicas, have prepared packers."""


def numbers(letter: str, each: int) -> Callable[..., tuple[list[Any], int]]:
    """The decoder of arrays of one type of number."""
    ready = [struct.Struct(f">{count}{letter}").unpack_from for count in range(PACKERS_MAX)]

    def decode(
        data: bytes, pos: int, size: int, left: list[int], count: int
    ) -> tuple[list[Any], int]:
        if count * each > size - pos:
            crowded(count, each, pos, size)
        if count < PACKERS_MAX:
            return list(ready[count](data, pos)), pos + count * each
        charge(left, count, NUMBER_BYTES)
        return list(struct.unpack_from(f">{count}{letter}", data, pos)), pos + count * each

    return decode


# ---- encoding --------------------------------------------------------------------------


def uvarint_bytes(value: int) -> bytes:
    """An unsigned varint."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def members(value: Any) -> dict[str, Any]:
    """The fields of a mapping or Struct."""
    if isinstance(value, Struct):
        return value.__dict__
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"found {value!r:.60}, wanted a mapping or Struct")


def unknown(given: dict[str, Any], names: tuple[str, ...]) -> NoReturn:
    first = next(name for name in given if name not in names)
    raise TypeError(f"there is no field {first!r} here; there are: {', '.join(names)}")


def not_null() -> NoReturn:
    raise TypeError("found None, wanted a value: it cannot be null in this version")


def sentence(text: str) -> bytes:
    """An error's message, encoded; shortened if a client's own names made it too long."""
    return (text if len(text) <= SENTENCE_MAX else f"{text[: SENTENCE_MAX - 3]}...").encode()


def not_array(value: Any) -> NoReturn:
    raise TypeError(f"found {value!r:.60}, wanted a list")


def too_long(raw: bytes) -> NoReturn:
    # Like packing a length of 16 bits.
    raise struct.error(f"found a string of {len(raw)} bytes, wanted at most {STRING_BYTES_MAX}")


def put_strings(out: bytearray, items: list[str]) -> None:
    for _i, item in enumerate(items):
        raw = item.encode()
        out += pack_i16(len(raw))
        out += raw


def put_compact_strings(out: bytearray, items: list[str]) -> None:
    for _i, item in enumerate(items):
        raw = item.encode()
        if len(raw) > STRING_BYTES_MAX:
            too_long(raw)
        out += uvarint_bytes(len(raw) + 1)
        out += raw


def put_uuids(out: bytearray, items: list[UUID]) -> None:
    for item in items:
        out += item.bytes


def put_numbers(letter: str) -> Callable[[bytearray, Any], None]:
    """The encoder of arrays of one type of number, without their count."""
    ready = [struct.Struct(f">{count}{letter}").pack for count in range(PACKERS_MAX)]

    def encode(out: bytearray, items: Any) -> None:
        count = len(items)
        if count < PACKERS_MAX:
            out += ready[count](*items)
        else:
            out += struct.pack(f">{count}{letter}", *items)

    return encode


def put_tags(out: bytearray, tags: list[tuple[int, bytearray]]) -> None:
    """The tagged fields of a struct, which are in ascending order."""
    out += uvarint_bytes(len(tags))
    for tag, raw in tags:
        out += uvarint_bytes(tag)
        out += uvarint_bytes(len(raw))
        out += raw


HELPERS: dict[str, Any] = {
    **{
        f.__name__: f
        for f in (
            *(Malformed, uvarint, compact, null, short, crowded, long, many, charge),
            *(strange_tag, skip_tags, too_long),
            *(uuid, uuids, strings, compact_strings),
            *(uvarint_bytes, members, unknown, not_null, sentence, not_array, put_strings),
            *(put_compact_strings, put_uuids, put_tags),
        )
    },
    "ZERO_UUID": ZERO_UUID,
    "MISSING": object(),
    "Rows": Rows,
    "STRUCTS": (list, tuple, Rows),
}
"""The names that generated code can use."""
