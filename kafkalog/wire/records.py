"""Kafka's internal records: of the metadata log, of groups and transactions, control records.

`METADATA` is for `__cluster_metadata`, `OFFSETS` for `__consumer_offsets`, `TRANSACTIONS` for
`__transaction_state`, `SHARE_STATE` for `__share_group_state`, `CONTROL` for control batches, which
consumers do not see, and `CONSUMER_PROTOCOL` for what members of a classic group send each other.
All raise InvalidRequest for invalid bytes, UnsupportedVersion for an unknown version, TypeError and
ArgumentError for fields that cannot be encoded.
"""

from __future__ import annotations

import sys
from typing import Any

from kafkalog.errors import ArgumentError, InvalidRequest
from kafkalog.wire.message import Message
from kafkalog.wire.runtime import Malformed, uvarint, uvarint_bytes
from kafkalog.wire.tables.metadata_records import METADATA_RECORDS
from kafkalog.wire.tables.offsets_records import OFFSETS_RECORDS
from kafkalog.wire.tables.other_records import (
    CONSUMER_ASSIGNMENT,
    CONSUMER_SUBSCRIPTION,
    CONTROL_RECORDS,
    TRANSACTION_RECORDS,
)
from kafkalog.wire.tables.share_records import SHARE_STATE_RECORDS
from kafkalog.wire.values import Struct

__all__ = [
    "CONSUMER_PROTOCOL",
    "CONTROL",
    "METADATA",
    "OFFSETS",
    "SHARE_STATE",
    "TRANSACTIONS",
    "ConsumerProtocol",
    "ControlRecords",
    "KeyedRecords",
    "MetadataRecords",
    "Unknown",
]

Fields = dict[str, Any] | Struct

FRAME_VERSION = 1


class Unknown(Struct):
    """A record of an unknown kind: to be kept, not to fail on."""

    FIELDS = ("data",)
    data: bytes = b""
    """The bytes after its kind and version."""

    def __init__(self, data: bytes) -> None:
        self.data = data


class MetadataRecords:
    """Values of the metadata log: frame version, kind, version, then the record."""

    def __init__(self, kinds: dict[int, Message]) -> None:
        self.kinds = kinds
        """Records by number."""
        self._numbers = {message.title: kind for kind, message in kinds.items()}

    def unknown(self, frame: int, kind: int, version: int) -> str:
        """The unknown part of a record with this frame; empty if it can be decoded."""
        message = self.kinds.get(kind)
        if frame != FRAME_VERSION:
            return f"record frame {frame} (known: {FRAME_VERSION})"
        if message is None:
            known = f"records {min(self.kinds)} to {max(self.kinds)}"
            return f"record {kind} version {version} (known: {known})"
        if version in message.versions:
            return ""
        low, high = message.versions.start, message.versions.stop - 1
        return f"{message.title} version {version} (known: {low} to {high})"

    def decode(self, value: bytes) -> tuple[str, int, Struct]:
        """Name, version and fields of a record, as ("TopicRecord", 0, ...).

        An unknown number is returned as the name, with Unknown.
        """
        frame, kind, version, pos = self.frame_of(value)
        if frame != FRAME_VERSION:
            raise InvalidRequest(
                f"metadata record: frame version: found {frame}, wanted {FRAME_VERSION}"
            )
        message = self.kinds.get(kind)
        if message is None:
            return str(kind), version, Unknown(bytes(value[pos:]))
        return message.title, version, _whole(message, version, value, pos)

    @staticmethod
    def frame_of(value: bytes) -> tuple[int, int, int, int]:
        """Frame version, kind and version, and the position after them.

        Raises: InvalidRequest.
        """
        if len(value) > 2 and value[0] < 128 and value[1] < 128 and value[2] < 128:
            return value[0], value[1], value[2], 3
        try:
            frame, pos = uvarint(value, 0)
            kind, pos = uvarint(value, pos)
            return frame, kind, *uvarint(value, pos)
        except (IndexError, Malformed):
            raise InvalidRequest(
                f"metadata record: frame: found {bytes(value[:15]).hex()!r}, "
                "wanted frame version, kind and version"
            ) from None

    def encode(self, name: str, version: int, fields: Fields) -> bytes:
        """The value of a record of this name and version, with its frame."""
        kind = self._numbers.get(name)
        if kind is None:
            raise ArgumentError(f"found {name!r}, wanted the name of a metadata record")
        frame = uvarint_bytes(FRAME_VERSION) + uvarint_bytes(kind) + uvarint_bytes(version)
        return frame + self.kinds[kind].encode(version, fields)


class KeyedRecords:
    """Records of a coordinator's topic: the key begins with the kind, the value with its version.

    A kind's name is that of its messages: "OffsetCommit" has OffsetCommitKey and OffsetCommitValue.
    """

    def __init__(self, topic: str, kinds: dict[int, tuple[Message, Message]]) -> None:
        self.topic = topic
        self.kinds = kinds
        """Key and value by the kind's number."""
        self._numbers = {key.title.removesuffix("Key"): kind for kind, (key, _) in kinds.items()}

    def decode_key(self, key: bytes) -> tuple[str, int, Struct]:
        """Name and number of the kind, and the key's fields.

        For an unknown kind, its number is the name, with Unknown.
        """
        kind, _ = self._i16(key, "key", "kind")
        if kind not in self.kinds:
            return str(kind), kind, Unknown(bytes(key[2:]))
        message = self.kinds[kind][0]
        return message.title.removesuffix("Key"), kind, _whole(message, 0, key, 2)

    def decode_value(self, name: str, value: bytes) -> tuple[int, Struct]:
        """Version and fields of the value of a kind; of an unknown kind (0, Unknown)."""
        if name not in self._numbers:
            return 0, Unknown(bytes(value))
        version, pos = self._i16(value, f"{name} value", "version")
        return version, _whole(self.kinds[self._numbers[name]][1], version, value, pos)

    def encode_key(self, name: str, fields: Fields) -> bytes:
        """The key of a kind."""
        kind = self._number(name)
        return kind.to_bytes(2, "big") + self.kinds[kind][0].encode(0, fields)

    def encode_value(self, name: str, version: int, fields: Fields) -> bytes:
        """The value of a kind in a version; a tombstone has None instead."""
        message = self.kinds[self._number(name)][1]
        return version.to_bytes(2, "big") + message.encode(version, fields)

    def _number(self, name: str) -> int:
        if name not in self._numbers:
            raise ArgumentError(f"found {name!r}, wanted a kind of record of {self.topic}")
        return self._numbers[name]

    def _i16(self, data: bytes, what: str, field: str) -> tuple[int, int]:
        if len(data) < 2:
            raise InvalidRequest(f"{self.topic} {what}: {field}: found {len(data)} bytes, wanted 2")
        return int.from_bytes(data[:2], "big", signed=True), 2


class ControlRecords:
    """Key and value of a control record: the key has version and kind, the value its version."""

    def __init__(self, kinds: dict[int, tuple[str, Message]]) -> None:
        self.kinds = kinds
        """Name and value by the kind's number."""
        self._numbers = {name: kind for kind, (name, _) in kinds.items()}

    def decode(self, key: bytes, value: bytes) -> tuple[str, Struct]:
        """Name of the kind ("Commit", "LeaderChange" ...) and the value's fields.

        For an unknown kind, its number is the name, with Unknown.  A newer version is read as the
        newest known one.
        """
        if len(key) < 4 or len(value) < 2:
            raise InvalidRequest(
                f"control record: found key {bytes(key[:4]).hex()!r} and {len(value)} bytes of "
                "value, wanted version and kind, and a version"
            )
        kind = int.from_bytes(key[2:4], "big", signed=True)
        if kind not in self.kinds:
            return str(kind), Unknown(bytes(value))
        name, message = self.kinds[kind]
        version = int.from_bytes(value[:2], "big", signed=True)
        return name, message.decode(_newest(message, version), value)[0]

    def encode(self, name: str, version: int, fields: Fields) -> tuple[bytes, bytes]:
        """Key and value of a control record; its field `version` is set."""
        kind = self._numbers.get(name)
        if kind is None:
            raise ArgumentError(f"found {name!r}, wanted the name of a control record")
        value = self.kinds[kind][1].encode(version, {**dict(fields), "version": version})
        return b"\0\0" + kind.to_bytes(2, "big"), value


class ConsumerProtocol:
    """Messages between members of a group of kind "consumer", sent through the coordinator."""

    def decode_subscription(self, data: bytes, elements: int = sys.maxsize) -> tuple[int, Struct]:
        """Version and fields of a member's metadata; a newer version is read as 3.  `elements`: of
        each of its arrays."""
        return self._decode(CONSUMER_SUBSCRIPTION, data, elements)

    def encode_subscription(self, version: int, fields: Fields) -> bytes:
        """A member's metadata."""
        return version.to_bytes(2, "big") + CONSUMER_SUBSCRIPTION.encode(version, fields)

    def decode_assignment(self, data: bytes) -> tuple[int, Struct]:
        """Version and fields of a member's assignment; a newer version is read as 3."""
        return self._decode(CONSUMER_ASSIGNMENT, data)

    def encode_assignment(self, version: int, fields: Fields) -> bytes:
        """A member's assignment."""
        return version.to_bytes(2, "big") + CONSUMER_ASSIGNMENT.encode(version, fields)

    @staticmethod
    def _decode(message: Message, data: bytes, elements: int = sys.maxsize) -> tuple[int, Struct]:
        if len(data) < 2:
            raise InvalidRequest(f"{message.title}: version: found {len(data)} bytes, wanted 2")
        version = int.from_bytes(data[:2], "big", signed=True)
        if version < 0:
            raise InvalidRequest(f"{message.title}: version: found {version}, wanted 0 or more")
        newest = _newest(message, version)
        return version, message.decode(newest, data, 2, elements=elements)[0]


def _newest(message: Message, version: int) -> int:
    """The version to read it as: newer ones only add fields at the end."""
    return min(version, message.versions.stop - 1)


def _whole(message: Message, version: int, data: bytes, pos: int) -> Struct:
    """A message that must fill the data from `pos` on."""
    found, end = message.decode(version, data, pos)
    if end != len(data):
        raise InvalidRequest(
            f"{message.title} v{version}: end: found {len(data) - end} more bytes, wanted none"
        )
    return found


METADATA = MetadataRecords(METADATA_RECORDS)
"""Values of `__cluster_metadata`."""
OFFSETS = KeyedRecords("__consumer_offsets", OFFSETS_RECORDS)
"""Keys and values of `__consumer_offsets`."""
TRANSACTIONS = KeyedRecords("__transaction_state", TRANSACTION_RECORDS)
"""Keys and values of `__transaction_state`."""
SHARE_STATE = KeyedRecords("__share_group_state", SHARE_STATE_RECORDS)
"""Keys and values of `__share_group_state`."""
CONTROL = ControlRecords(CONTROL_RECORDS)
"""Markers of transactions, and Raft's control records in its log."""
CONSUMER_PROTOCOL = ConsumerProtocol()
"""Subscription and assignment of classic groups."""
