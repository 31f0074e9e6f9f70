"""Content that an internal topic loses with its cut bytes: topics, settings, groups, commits."""

import os
import struct
from collections.abc import Iterable, Iterator
from typing import Any

from kafkalog.directory.manager import Manager
from kafkalog.disk.layout import METADATA_TOPIC

__all__ = ["lost_metadata", "lost_with"]

INTERNAL = (
    "__cluster_metadata-", "__consumer_offsets-", "__transaction_state-", "__share_group_state-",
)  # fmt: skip
HEADER_BYTES = 61
_LENGTH, _MAGIC, _CRC = 8, 16, 17


def lost_with(file: str, ranges: Iterable[tuple[int, int]]) -> list[str]:
    """A line for each record in those ranges of an internal topic's `.log`.

    Damaged bytes are read as far as possible.  Nothing for the topics of users.
    """
    folder = os.path.basename(os.path.dirname(os.path.abspath(file)))
    if not folder.startswith(INTERNAL):
        return []
    lines: list[str] = []
    with open(file, "rb") as source:
        for start, end in ranges:
            source.seek(start)
            data = source.read(end - start)
            while data:
                whole, data = _first(data)
                lines += _told(folder, whole)
    return lines


def lost_metadata(manager: Manager) -> list[str]:
    """The records that recovery cut from an open directory's metadata log, one per line."""
    log = manager.get(METADATA_TOPIC, 0)
    if not log.recovery.kept:
        return []
    kept = os.path.join(log.path, log.recovery.kept)
    return lost_with(kept, [(0, os.path.getsize(kept))])


def _first(data: bytes) -> tuple[bytes, bytes]:
    """The first batch and the bytes after it; all of them if its length is invalid."""
    length = int.from_bytes(data[_LENGTH : _LENGTH + 4], "big", signed=True) + 12
    if not HEADER_BYTES <= length <= len(data):
        length = len(data)
    return data[:length], data[length:]


def _told(folder: str, data: bytes) -> Iterator[str]:
    try:
        yield from _records(folder, data)
    except Exception:  # the bytes may be anything
        yield f"{len(data)} bytes that cannot be read"


def _records(folder: str, data: bytes) -> list[str]:
    from kafkalog._native import check, ffi, lib
    from kafkalog.batch.decode import body_of, decoded_records

    # With the length and checksum of its bytes, as if nothing were wrong with it.
    fixed = bytearray(data)
    fixed[_MAGIC] = 2
    struct.pack_into(">i", fixed, _LENGTH, len(fixed) - 12)
    struct.pack_into(">I", fixed, _CRC, lib.kl_crc32c(bytes(fixed[21:]), len(fixed) - 21))
    batch = ffi.new("kl_batch *")
    check(lib.kl_batch_check(bytes(fixed), len(fixed), batch))
    body = body_of(batch, bytes(fixed), 64 << 20)
    if batch.attributes & lib.KL_ATTR_CONTROL:
        return []
    lines = []
    for record in decoded_records(batch, body):
        entry = _one(folder, record.key or b"", record.value or b"")
        lines.append(f"offset {record.offset}: {entry}")
    return lines


def _one(folder: str, key: bytes, value: bytes) -> str:
    from kafkalog.errors import KafkalogError
    from kafkalog.wire.records import METADATA, OFFSETS, SHARE_STATE, TRANSACTIONS

    try:
        if folder.startswith("__cluster_metadata-"):
            name, _, fields = METADATA.decode(value)
            return f"{name} {_words(fields)}"
        kinds = OFFSETS
        for one in (SHARE_STATE, TRANSACTIONS):
            kinds = one if folder.startswith(f"{one.topic}-") else kinds
        name, _, fields = kinds.decode_key(key)
        return f"{name} {_words(fields)}" + ("" if value else ", its removal")
    except KafkalogError as problem:
        return f"a record that cannot be read: {problem}"


def _words(fields: Iterable[tuple[str, Any]]) -> str:
    # Salts and keys are not shown.
    plain = ((name, f"{len(f)} bytes" if isinstance(f, bytes) else f) for name, f in fields)
    return " ".join(f"{name}={found}" for name, found in plain)
