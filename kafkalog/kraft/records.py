"""Metadata records as bytes, in the versions that the directory's metadata.version allows."""

import uuid
from typing import Any

from kafkalog.disk.layout import uuid_text
from kafkalog.errors import CorruptLog, KafkalogError
from kafkalog.metadata.changes import Entry
from kafkalog.metadata.configs import is_sensitive
from kafkalog.metadata.image import METADATA_VERSION, MetadataImage
from kafkalog.metadata.levels import LEVEL_NEW
from kafkalog.wire import records as wire
from kafkalog.wire.values import Struct

__all__ = [
    "decode",
    "describe",
    "encode",
    "holds_secret",
    "record_version",
]

# The lowest metadata.version for each version of a record, from 0 on.  Source: Kafka's
# MetadataVersion: 7 3.3-IV3, 8 3.4-IV0, 17 3.7-IV2 (log directories), 23 4.0-IV1 (ELR),
# 30 4.3-IV0 (cordoned log directories).
_VERSIONS: dict[str, tuple[int, ...]] = {
    "RegisterBrokerRecord": (0, 7, 8, 17, 30),
    "BrokerRegistrationChangeRecord": (0, 7, 17, 30),
    "PartitionRecord": (0, 17, 23),
    "PartitionChangeRecord": (0, 17, 23),
}


def record_version(name: str, level: int) -> int:
    """The version in which a record is written at that metadata.version."""
    return sum(level >= low for low in _VERSIONS.get(name, (0,))) - 1


def encode(name: str, fields: Any, image: MetadataImage) -> bytes:
    """A record's framed bytes.  `fields`: a mapping, or the result of `decode`."""
    version = record_version(name, image.features.get(METADATA_VERSION, LEVEL_NEW))
    if name == "BrokerRegistrationChangeRecord":
        version = min(version, _least_version(fields))
    return bytes(wire.METADATA.encode(name, version, fields))


def _least_version(fields: Any) -> int:
    """The lowest version of a BrokerRegistrationChangeRecord that has its changes, as Kafka writes
    it."""
    given = dict(fields)
    if given.get("cordoned_log_dirs") is not None:
        return 3
    return 2 if given.get("log_dirs") else int(bool(given.get("in_controlled_shutdown")))


def decode(value: bytes) -> Entry | str:
    """The record; for an unknown kind or version, a text that names it and the known ones.

    Raises: CorruptLog for bytes that are not a record.
    """
    try:
        frame, kind, version, _ = wire.METADATA.frame_of(value)
    except KafkalogError as error:
        raise CorruptLog(str(error)) from error
    if unknown := wire.METADATA.unknown(frame, kind, version):
        return unknown
    try:
        return Entry(*wire.METADATA.decode(value))
    except KafkalogError as error:
        raise CorruptLog(f"metadata record {kind} version {version}: {error}") from error


def describe(value: bytes) -> str:
    """A record in readable form: its name, version and fields, without secrets.

    Raises: CorruptLog.
    """
    entry = decode(value)
    if isinstance(entry, str):
        return entry
    hidden = "value" if _is_secret_setting(entry) else ""
    words = [f"{name}={'hidden' if name == hidden else _plain(field)}"
             for name, field in entry.fields]  # fmt: skip
    return " ".join([f"{entry.name} v{entry.version}", *words])


def holds_secret(value: bytes) -> bool:
    """True if a record has a password, a key or a credential, which `describe` leaves out.

    Raises: CorruptLog.
    """
    entry = decode(value)
    return not isinstance(entry, str) and (
        entry.name == "UserScramCredentialRecord" or _is_secret_setting(entry)
    )


def _is_secret_setting(entry: Entry) -> bool:
    return entry.name == "ConfigRecord" and is_sensitive(dict(entry.fields)["name"])


def _plain(field: Any) -> str:
    if isinstance(field, list):
        return "[" + ", ".join(_plain(one) for one in field) + "]"
    if isinstance(field, uuid.UUID):
        return uuid_text(field)
    if isinstance(field, bytes):
        return f"{len(field)} bytes"  # salts and keys are secret
    if isinstance(field, Struct):
        return "{" + " ".join(f"{name}={_plain(inner)}" for name, inner in field) + "}"
    return "null" if field is None else str(field)
