"""The notation of the tables, and the fields that it is parsed into.

    Name:type(versions null tagN =default)      a field
    Name:[]type(...)                            an array of a plain type
    Name[](...){ fields }                       an array of structs
    Name(...){ fields }                         a struct

`Name` is Kafka's; in Python it is snake_case.  Types: bool i8 i16 u16 i32 u32 i64 f64 uuid str
bytes records.  `7+`, `0-12`, `3`: the versions that have the field, by default all versions of the
enclosing struct.  `null`, `null4+`: it may be null, always or in these versions.  `tag3`: a tagged
field.  `=x`: its default if it is absent, otherwise 0, false, "", empty (for records: null).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from kafkalog.wire.values import ZERO_UUID

__all__ = ["FIXED", "VERSION_END", "Field", "parse", "parse_versions", "snake_case"]

VERSION_END = 1 << 15
"""One past the largest version in an i16: the stop of an open range."""

FIXED = {
    "bool": ("?", 1),
    "i8": ("b", 1),
    "i16": ("h", 2),
    "u16": ("H", 2),
    "i32": ("i", 4),
    "u32": ("I", 4),
    "i64": ("q", 8),
    "f64": ("d", 8),
}
"""Types of fixed size: the letter of `struct`, and bytes."""

TYPES = {*FIXED, "uuid", "str", "bytes", "records"}
STRUCT = "struct"

_TOKEN = re.compile(
    r"\s*,?\s*(?:(?P<close>\})"
    r"|(?P<name>\w+)(?P<many>\[\])?(?::(?P<list>\[\])?(?P<type>\w+))?"
    r"(?:\((?P<mods>[^)]*)\))?(?P<open>\{)?)"
)
_WORDS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_VERSIONS = re.compile(r"(\d+)(\+|-(\d+))?")


class Field(NamedTuple):
    """One field of a message, over all versions."""

    name: str
    """In Python: throttle_time_ms."""
    kafka_name: str
    """In Kafka: ThrottleTimeMs."""
    kind: str
    """A type's name, or "struct"."""
    array: bool
    versions: range
    nullable: range
    tag: int | None
    default: Any
    """The default of a plain type; None also if it is null, and for arrays and structs."""
    default_null: bool
    fields: tuple[Field, ...]
    """The fields of a struct, or of the structs of an array."""


class _Modifiers(NamedTuple):
    versions: range
    nullable: range
    tag: int | None
    default: str | None


def snake_case(name: str) -> str:
    """Kafka's field name as an attribute: ThrottleTimeMs is throttle_time_ms."""
    return _WORDS.sub("_", name.replace("KRaft", "Kraft")).lower()


def parse_versions(text: str) -> range:
    """`7+`, `0-12` or `3` as a range."""
    match = _VERSIONS.fullmatch(text)
    if not match:
        raise ValueError(f"versions are written 7+, 0-12 or 3, not {text!r}")
    first = int(match[1])
    if match[2] == "+":
        return range(first, VERSION_END)
    return range(first, int(match[3] or first) + 1)


def parse(text: str, versions: range) -> tuple[Field, ...]:
    """The fields that a text of the notation declares for these versions of a message.

    Raises: ValueError for a text that is not in the notation.
    """
    return tuple(_fields(_tokens(text), versions, inside=False))


def _tokens(text: str) -> Iterator[re.Match[str]]:
    pos, end = 0, len(text.rstrip())
    while pos < end:
        match = _TOKEN.match(text, pos)
        if not match:
            raise ValueError(f"not a field: {text[pos : pos + 40].strip()!r}")
        pos = match.end()
        yield match


def _fields(tokens: Iterator[re.Match[str]], parent: range, inside: bool) -> Iterator[Field]:
    """The fields up to the closing brace, or to the end at the outermost level."""
    for token in tokens:
        if token["close"]:
            if not inside:
                raise ValueError("a } too many")
            return
        yield _field(token, tokens, parent)
    if inside:
        raise ValueError("a } is missing")


def _field(token: re.Match[str], tokens: Iterator[re.Match[str]], parent: range) -> Field:
    name, kind = token["name"], token["type"] or STRUCT
    if (kind == STRUCT) is not bool(token["open"]) or (kind != STRUCT and kind not in TYPES):
        raise ValueError(f"{name}: {kind!r} is no type")
    mods = _modifiers(name, token["mods"] or "", parent)
    array = bool(token["many"] or token["list"])
    plain = kind != STRUCT and not array
    default_null = mods.default == "null" or (kind == "records" and mods.default is None)
    if mods.default not in (None, "null") and not plain:
        raise ValueError(f"{name}: only a plain type has a default")
    return Field(
        name=snake_case(name),
        kafka_name=name,
        kind=kind,
        array=array,
        versions=mods.versions,
        nullable=mods.nullable,
        tag=mods.tag,
        default=None if default_null or not plain else _default(kind, mods.default),
        default_null=default_null,
        fields=tuple(_fields(tokens, mods.versions, inside=True)) if kind == STRUCT else (),
    )


def _modifiers(name: str, text: str, parent: range) -> _Modifiers:
    versions, nullable, tag, default = parent, range(0), None, None
    for word in text.split():
        if word.startswith("="):
            default = word[1:]
        elif word.startswith("tag"):
            tag = int(word[3:])
        elif word.startswith("null"):
            nullable = parse_versions(word[4:]) if word != "null" else versions
        else:
            versions = parse_versions(word)
            if versions.stop == VERSION_END:
                versions = range(versions.start, parent.stop)
            if not versions or versions.start < parent.start or versions.stop > parent.stop:
                raise ValueError(f"{name}: {word} is not within {parent}")
    return _Modifiers(versions, nullable, tag, default)


def _default(kind: str, text: str | None) -> Any:
    """The value of a plain type's default."""
    if kind == "bool":
        return text == "true"
    if kind == "f64":
        return float(text or 0)
    if kind in FIXED:
        return int(text or 0)
    return {"str": (text or "").strip('"'), "bytes": b"", "uuid": ZERO_UUID}[kind]
