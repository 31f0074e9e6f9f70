"""A znode's JSON: read with errors that name the field, written as Kafka writes it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from kafkalog.errors import BadZnode

__all__ = ["DENIED", "ZNODE_BYTES_MAX", "Document", "document"]

ZNODE_BYTES_MAX = 0xFFFFF
"""The limit of a znode: ZooKeeper's default for jute.maxbuffer."""
DENIED = b"\0denied"
"""The data of a znode that this node may not read, as a session returns it."""
TEXT_BYTES_MAX = 0x7FFF
"""Kafka's protocol sends no longer names, hosts and racks."""
TEXT = f"a string of Unicode characters, at most {TEXT_BYTES_MAX} bytes"
INT32, INT64 = range(-(2**31), 2**31), range(-(2**63), 2**63)

T = TypeVar("T")


def document(fields: Mapping[str, Any]) -> bytes:
    """A JSON document without blanks, like Kafka's."""
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode()


class Document:
    """A JSON object of the tree, or one inside it.

    Each reader raises BadZnode with the path, the field, what was found and what was wanted.
    """

    def __init__(self, path: str, fields: Mapping[str, Any], within: str = "") -> None:
        self.path = path
        self._fields = fields
        self._within = within

    @classmethod
    def parse(cls, path: str, data: bytes | None, versions: range) -> Document:
        """The document of a znode, whose `version` is one of `versions`."""
        if not data:
            raise BadZnode(f"{path}: found nothing, wanted a JSON object")
        if data == DENIED:
            raise BadZnode(
                f"{path}: ZooKeeper does not let this node read it (NoAuth): allow it by the "
                "znode's ACL"
            )
        if len(data) > ZNODE_BYTES_MAX:
            raise BadZnode(f"{path}: found {len(data)} bytes, wanted {ZNODE_BYTES_MAX} at most")
        try:
            found = json.loads(data.decode())
        except (ValueError, RecursionError) as problem:
            raise BadZnode(f"{path}: found no JSON: {problem}") from None
        if not isinstance(found, dict):
            raise BadZnode(f"{path}: found {_shown(found)}, wanted a JSON object")
        self = cls(path, found)
        version = self.whole("version")
        if version not in versions:
            wanted = f"{versions.start} to {versions.stop - 1}"
            raise self.wrong("version", version, wanted)
        return self

    def wrong(self, name: str, found: object, wanted: str) -> BadZnode:
        """The error for a field."""
        where = f"{self._within}.{name}" if self._within else name
        return BadZnode(f"{self.path}: {where}: found {_shown(found)}, wanted {wanted}")

    def has(self, name: str) -> bool:
        """True if the field exists and is not null."""
        return self._fields.get(name) is not None

    def text(self, name: str, default: str | None = None) -> str:
        """A string."""
        found = self._fields.get(name, default)
        if not isinstance(found, str) or not _is_text(found):
            raise self.wrong(name, found, TEXT)
        return found

    def whole(self, name: str, default: int | None = None, limits: range = INT32) -> int:
        """A whole number; Kafka writes some of them as strings, too."""
        return self._whole(name, self._fields.get(name, default), limits)

    def long(self, name: str, default: int | None = None) -> int:
        """A 64-bit whole number."""
        return self.whole(name, default, INT64)

    def wholes(self, name: str) -> tuple[int, ...]:
        """A list of whole numbers."""
        return self._wholes(name, self._fields.get(name))

    def texts(self, name: str) -> tuple[str, ...]:
        """A list of strings."""
        found = self._fields.get(name)
        if not isinstance(found, list) or not all(map(_is_text, found)):
            raise self.wrong(name, found, f"a list, each {TEXT}")
        return tuple(found)

    def settings(self, name: str) -> dict[str, str]:
        """An object of strings."""
        found = self._object(name)
        for key, value in found.items():
            if not isinstance(value, str) or not _is_unicode(key + value):
                raise self.wrong(f"{name}.{key}", value, "a string of Unicode characters")
        return found

    def replicas(self, name: str) -> dict[int, tuple[int, ...]]:
        """An object of lists of brokers, each once, by partitions; empty if it is missing."""
        found = self._object(name) if self.has(name) else {}
        read: dict[int, tuple[int, ...]] = {}
        for key, value in found.items():
            number = self._whole(name, key, range(INT32.stop))
            if number in read:
                raise self.wrong(name, key, "each partition once")
            read[number] = self._brokers(f"{name}.{key}", value)
        return read

    def brokers(self, name: str) -> tuple[int, ...]:
        """A list of brokers, each once."""
        return self._brokers(name, self._fields.get(name))

    def _brokers(self, name: str, found: object) -> tuple[int, ...]:
        brokers = self._wholes(name, found)
        if len({*brokers}) < len(brokers) or min(brokers, default=0) < 0:
            raise self.wrong(name, found, "brokers' ids, each once")
        return brokers

    def each(self, name: str, read: Callable[[Document], T]) -> tuple[T, ...]:
        """A list of objects."""
        found = self._fields.get(name)
        if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
            raise self.wrong(name, found, "a list of objects")
        return tuple(
            read(Document(self.path, each, f"{name}[{at}]")) for at, each in enumerate(found)
        )

    def objects(self, name: str) -> dict[str, Document]:
        """An object of objects; empty if it is missing."""
        found = self._object(name) if self.has(name) else {}
        for key, value in found.items():
            if not isinstance(value, dict):
                raise self.wrong(f"{name}.{key}", value, "an object")
        return {key: Document(self.path, value, f"{name}.{key}") for key, value in found.items()}

    def _object(self, name: str) -> dict[str, Any]:
        found = self._fields.get(name)
        if not isinstance(found, dict):
            raise self.wrong(name, found, "an object")
        return found

    def _whole(self, name: str, found: object, limits: range) -> int:
        if isinstance(found, str) and found.removeprefix("-").isdecimal() and len(found) < 21:
            found = int(found)
        if not isinstance(found, int) or isinstance(found, bool) or found not in limits:
            wanted = f"a whole number from {limits.start} to {limits.stop - 1}"
            raise self.wrong(name, found, wanted)
        return found

    def _wholes(self, name: str, found: object) -> tuple[int, ...]:
        if not isinstance(found, list):
            raise self.wrong(name, found, "a list of whole numbers")
        return tuple(self._whole(f"{name}[{at}]", each, INT32) for at, each in enumerate(found))


def _is_unicode(found: str) -> bool:
    """True if it can be sent: JSON can name surrogates, which UTF-8 does not have."""
    try:
        found.encode()
    except UnicodeEncodeError:
        return False
    return True


def _is_text(found: object) -> bool:
    return isinstance(found, str) and _is_unicode(found) and len(found.encode()) <= TEXT_BYTES_MAX


def _shown(found: object) -> str:
    shown = "nothing" if found is None else repr(found)
    return shown if len(shown) <= 80 else f"{shown[:77]}..."
