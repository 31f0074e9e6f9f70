"""The golden vectors of docs/format.md, and the C core's structures as Python values."""

import re
from pathlib import Path
from typing import Any, NamedTuple

from kafkalog._native import check, ffi, lib

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "format.md"
HEADER_BYTES = 61
# The document's name of each header field, and the C structure's where they differ.
HEADER_FIELDS = {
    "baseOffset": "base_offset",
    "partitionLeaderEpoch": "leader_epoch",
    "magic": "magic",
    "crc": "crc",
    "attributes": "attributes",
    "lastOffsetDelta": "last_offset_delta",
    "baseTimestamp": "base_timestamp",
    "maxTimestamp": "max_timestamp",
    "producerId": "producer_id",
    "producerEpoch": "producer_epoch",
    "baseSequence": "base_sequence",
    "recordsCount": "record_count",
}


class Field(NamedTuple):
    """One line of a vector: bytes, their name, their meaning."""

    data: bytes
    name: str
    value: str


def text(name: str) -> str:
    """The block tagged `golden-<name>`."""
    blocks = re.findall(rf"^```golden-{re.escape(name)}\n(.*?)^```$", _document(), re.M | re.S)
    assert len(blocks) == 1, f"{len(blocks)} blocks named {name} in {DOCUMENT.name}"
    return str(blocks[0])


def names() -> list[str]:
    return re.findall(r"^```golden-(\S+)$", _document(), re.M)


def _document() -> str:
    return DOCUMENT.read_text(encoding="utf-8")


def fields(name: str) -> list[Field]:
    """A block of bytes, line by line."""
    found = []
    for line in text(name).splitlines():
        data, _, rest = line.partition(" ")
        field, _, value = rest.strip().partition(" ")
        found.append(Field(bytes.fromhex(data), field, value))
    return found


def data(name: str) -> bytes:
    """All bytes of a block."""
    return b"".join(field.data for field in fields(name))


def values(name: str) -> dict[str, int]:
    """The numbers of a block whose lines are all numbers."""
    return {field.name: int(field.value) for field in fields(name)}


def parse(batch: bytes) -> Any:
    """The header of a whole batch, its crc checked."""
    out = ffi.new("kl_batch *")
    check(lib.kl_batch_check(batch, len(batch), out))
    return out


class Decoded(NamedTuple):
    """A record as kl_records_decode returns it, with its bytes."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[bytes, bytes | None], ...]
    whole: bytes


def decode(header: Any, records: bytes, at_once: int = 7) -> list[Decoded]:
    """All records of a batch, a few per call."""
    pos, count = ffi.new("int64_t *"), ffi.new("int32_t *")
    out = ffi.new("kl_record[]", at_once)
    found = []
    while True:
        check(lib.kl_records_decode(header, records, len(records), pos, out, at_once, count))
        if count[0] == 0:
            return found
        found += [_decoded(records, out[i]) for i in range(count[0])]


def _decoded(records: bytes, record: Any) -> Decoded:
    end = record.record_pos + record.record_bytes
    return Decoded(
        record.offset,
        record.timestamp_ms,
        _piece(records, record.key_pos, record.key_bytes),
        _piece(records, record.value_pos, record.value_bytes),
        tuple(_headers(records[record.headers_pos : end], record.header_count)),
        records[record.record_pos : end],
    )


def _piece(data: bytes, pos: int, count: int) -> bytes | None:
    return None if count < 0 else data[pos : pos + count]


def read_varint(data: bytes, pos: int) -> tuple[int, int]:
    """The zig-zag varint at `pos` and the position after it."""
    raw = shift = 0
    while True:
        byte = data[pos]
        raw |= (byte & 0x7F) << shift
        pos, shift = pos + 1, shift + 7
        if byte < 0x80:
            return (raw >> 1) ^ -(raw & 1), pos


def _headers(data: bytes, count: int) -> Any:
    pos = 0
    for _ in range(count):
        name_bytes, pos = read_varint(data, pos)
        name, pos = data[pos : pos + name_bytes], pos + name_bytes
        value_bytes, pos = read_varint(data, pos)
        yield name, _piece(data, pos, value_bytes)
        pos += max(value_bytes, 0)
    assert pos == len(data)
