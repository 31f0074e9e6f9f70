"""A message of the table: a request, a response, a record's key or value."""

from __future__ import annotations

import os
import struct
import sys
import threading
from collections.abc import Callable
from typing import Any

from kafkalog.errors import UnsupportedVersion
from kafkalog.wire.decoders import Classes, Decoder
from kafkalog.wire.encoders import Encoder
from kafkalog.wire.failure import decode_failure, encode_failure
from kafkalog.wire.notation import VERSION_END, Field, parse, parse_versions
from kafkalog.wire.runtime import MEMORY_BYTES_MAX, Malformed
from kafkalog.wire.source import Source
from kafkalog.wire.values import ZERO_UUID, Rows, Struct

__all__ = ["Message"]

Codec = tuple[Callable[..., Any], Source]
"""A compiled function, and the source of its lines."""

LARGE_BYTES = 8_192
"""From this size on, a value becomes a part of its own instead of being copied."""
_making = threading.Lock()
"""Held while a codec is compiled."""
_DECODE_ERRORS = (Malformed, IndexError, struct.error, UnicodeDecodeError)
_ENCODE_ERRORS = (TypeError, AttributeError, struct.error, UnicodeEncodeError)


class _Apart(bytearray):
    """Collects an encoded message, except large values, which stay where they are."""

    def __init__(self) -> None:
        self._cuts: list[tuple[int, Any]] = []

    def __iadd__(self, more: Any) -> _Apart:  # type: ignore[misc]
        if len(more) < LARGE_BYTES:
            super().__iadd__(more)
        else:
            self._cuts.append((len(self), more))
        return self

    def parts(self) -> list[memoryview]:
        """All of it, in order."""
        whole, begin = memoryview(self), 0
        found = []
        for end, large in self._cuts:
            found += [whole[begin:end], memoryview(large)]
            begin = end
        return [*found, whole[begin:]]


class Message:
    """A message in all its versions.  Text is parsed and codecs are compiled at first use."""

    def __init__(self, title: str, versions: str, flexible: int | None, text: str) -> None:
        self.title = title
        """As errors name it: "Metadata response"."""
        self.versions = parse_versions(versions)
        """The versions that can be coded."""
        self.first_flexible = VERSION_END if flexible is None else flexible
        """The first one with compact types and tagged fields (KIP-482)."""
        self._text = text
        self._decoders: dict[int, Codec] = {}
        self._encoders: dict[int, Codec] = {}
        # Not cached properties, which hold a lock of their own before Python 3.12.
        self._fields: tuple[Field, ...] | None = None
        self._classes: Classes = {}

    def __repr__(self) -> str:
        return f"<{self.title} {self.versions.start}-{self.versions.stop - 1}>"

    @property
    def fields(self) -> tuple[Field, ...]:
        """The table's fields, over all versions."""
        if self._fields is None:
            self._fields = parse(self._text, self.versions)
        return self._fields

    def decode(
        self,
        version: int,
        data: Any,
        pos: int = 0,
        memory_bytes: int = 0,
        elements: int = sys.maxsize,
    ) -> tuple[Struct, int]:
        """The message at `pos` of any bytes-like `data`, and the position after it.

        `memory_bytes`: approximate memory it may take; 0: the limit for any message.  `elements`:
        how many elements each of its arrays may have, over all the structs that contain it.

        Raises: InvalidRequest, UnsupportedVersion.
        """
        return self.decode_measured(version, data, pos, memory_bytes, elements)[:2]

    def decode_measured(
        self,
        version: int,
        data: Any,
        pos: int = 0,
        memory_bytes: int = 0,
        elements: int = sys.maxsize,
    ) -> tuple[Struct, int, int]:
        """As `decode`; the third is approximately how many bytes of memory the message takes."""
        decode, source = self._decoders.get(version) or self._make_decoder(version)
        raw = data if data.__class__ is bytes else bytes(data)
        most = memory_bytes or MEMORY_BYTES_MAX
        try:
            left = [most, *[elements] * source.arrays]
            items, end = decode(raw, pos, len(raw), left, 1)
        except _DECODE_ERRORS as error:
            raise decode_failure(source, error) from None
        return items[0], end, most - left[0] + end - pos

    def encode(self, version: int, fields: dict[str, Any] | Struct) -> bytes:
        """The message with these fields; missing ones get their defaults, and those that the
        version does not have are left out.

        Raises: TypeError for an unknown field or a value of the wrong type; ArgumentError for
        one out of its range; UnsupportedVersion.
        """
        return bytes(self._encoded(bytearray(), version, fields))

    def encode_parts(self, version: int, fields: dict[str, Any] | Struct) -> list[memoryview]:
        """As `encode`, in parts: large values are not copied, and must not change."""
        out = _Apart()
        self._encoded(out, version, fields)
        return out.parts()

    def rows(
        self,
        version: int,
        field: str,
        change: Callable[[list[Any]], list[Any]] = lambda structs: structs,
    ) -> Rows:
        """An array of structs, `field` of this message, to be encoded piece by piece; `change`:
        replaces the structs of each piece.

        Raises: UnsupportedVersion.
        """
        _, source = self._encoders.get(version) or self._make_encoder(version)
        encode = source.names[source.rows[field]]

        def add(out: bytearray, structs: list[Any]) -> int:
            structs, size = change(structs), len(out)
            try:
                encode(out, structs)
            except _ENCODE_ERRORS as error:
                del out[size:]
                raise encode_failure(source, error) from None
            return len(structs)

        return Rows(add)

    def _encoded(self, out: bytearray, version: int, fields: dict[str, Any] | Struct) -> bytearray:
        encode, source = self._encoders.get(version) or self._make_encoder(version)
        try:
            encode(out, (fields,))
        except _ENCODE_ERRORS as error:
            raise encode_failure(source, error) from None
        return out

    def _make_decoder(self, version: int) -> Codec:
        return self._make(Decoder, self._decoders, version)

    def _make_encoder(self, version: int) -> Codec:
        return self._make(Encoder, self._encoders, version)

    def _make(self, kind: type[Decoder | Encoder], made: dict[int, Codec], version: int) -> Codec:
        source = self._source(version)
        with _making:  # otherwise two threads could create two sets of classes
            if version not in made:
                if not self._classes:
                    name = "".join(word[:1].upper() + word[1:] for word in self.title.split())
                    _classes_of((), name, self.fields, self._classes)
                flexible = version >= self.first_flexible
                writer = kind(source, version, flexible, self._classes)
                made[version] = writer.compile((), self.fields), source
        return made[version]

    def _source(self, version: int) -> Source:
        if version not in self.versions:
            raise UnsupportedVersion(
                f"{self.title}: version {version}, known are "
                f"{self.versions.start} to {self.versions.stop - 1}"
            )
        return Source(f"{self.title} v{version}")


def _forked() -> None:
    """A thread that compiled a codec at the fork is not in the child."""
    global _making
    _making = threading.Lock()


os.register_at_fork(after_in_child=_forked)


def _classes_of(
    path: tuple[str, ...], name: str, fields: tuple[Field, ...], found: Classes
) -> type[Struct]:
    """The class of a struct and, before it, of the structs inside."""
    members: dict[str, Any] = {"FIELDS": tuple(field.name for field in fields)}
    mutable: list[tuple[str, type[Any]]] = []
    for field in fields:
        inner: type[Any] = list
        if field.kind == "struct":
            title = f"{name}{field.kafka_name[:1].upper()}{field.kafka_name[1:]}"
            made = _classes_of((*path, field.name), title, field.fields, found)
            inner = list if field.array else made
        if field.default_null:
            members[field.name] = None
        elif field.array or field.kind == "struct":
            mutable.append((field.name, inner))
        else:
            members[field.name] = ZERO_UUID if field.kind == "uuid" else field.default
    members["MUTABLE"] = tuple(mutable)
    found[path] = type(name, (Struct,), members)
    return found[path]
