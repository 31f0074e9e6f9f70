"""Kafka's own declarations: the JSON in its jars, resolved for one version of a message."""

from __future__ import annotations

import json
import re
import zipfile
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from tests.support import apache

JARS = ("clients", "metadata", "group-coordinator", "transaction-coordinator")
NO_MESSAGE = "none"
EVERY = 1 << 15

TYPES = {
    "string": "str",
    "int8": "i8",
    "int16": "i16",
    "int32": "i32",
    "int64": "i64",
    "uint16": "u16",
    "uint32": "u32",
    "float64": "f64",
    **{same: same for same in ("bool", "bytes", "uuid", "records")},
}


class Resolved(NamedTuple):
    """A field as it is in one version; ours are compared with Kafka's in this form."""

    name: str
    kind: str
    array: bool
    nullable: bool
    tag: int | None
    default: Any
    fields: tuple[Resolved, ...]


def messages() -> dict[str, dict[str, Any]]:
    """Every message that Kafka still has code for, by name.

    Raises: apache.Unavailable.
    """
    return _messages(apache.jars(), apache.VERSION, JARS)


def messages_with_zookeeper() -> dict[str, dict[str, Any]]:
    """The protocol's messages in the last Kafka that ran on ZooKeeper, by name.

    Raises: apache.Unavailable.
    """
    return _messages(apache.jars_with_zookeeper(), apache.LAST_WITH_ZOOKEEPER, JARS[:1])


@lru_cache(maxsize=2)
def _messages(folder: Path, kafka: str, jars: tuple[str, ...]) -> dict[str, dict[str, Any]]:
    found = {}
    for jar in jars:
        with zipfile.ZipFile(folder / f"kafka-{jar}-{kafka}.jar") as archive:
            for name in archive.namelist():
                if name.startswith("common/") and name.endswith(".json"):
                    lines = archive.read(name).decode().splitlines()
                    bare = (re.sub(r"^\s*//.*|(?<=[,{}\[\]])\s*//.*", "", line) for line in lines)
                    message = json.loads("\n".join(bare))
                    if message["validVersions"] != NO_MESSAGE:
                        found[message["name"]] = message
    return found


def versions(text: str | None) -> range:
    """A range of versions as Kafka writes it: 3, 0-12, 7+, none."""
    if text is None or text == NO_MESSAGE:
        return range(0)
    first, dash, last = str(text).partition("-")
    if first.endswith("+"):
        return range(int(first[:-1]), EVERY)
    return range(int(first), int(last if dash else first) + 1)


def resolve(message: dict[str, Any], version: int) -> tuple[Resolved, ...]:
    """The fields of a message in one version, in declaration order."""
    common = {each["name"]: each["fields"] for each in message.get("commonStructs", [])}

    def fields(declared: list[dict[str, Any]]) -> tuple[Resolved, ...]:
        return tuple(
            field(each)
            for each in declared
            if version in versions(each.get("versions") or each.get("taggedVersions"))
        )

    def field(each: dict[str, Any]) -> Resolved:
        array = each["type"].startswith("[]")
        bare = each["type"].removeprefix("[]")
        kind = TYPES.get(bare, "struct")
        inner = fields(each.get("fields") or common[bare]) if kind == "struct" else ()
        tagged = version in versions(each.get("taggedVersions"))
        nullable = version in versions(each.get("nullableVersions"))
        tag = each["tag"] if tagged else None
        return Resolved(each["name"], kind, array, nullable, tag, default(each, kind, array), inner)

    return fields(message.get("fields", []))


def default(each: dict[str, Any], kind: str, array: bool) -> Any:
    """A field's default: "null" for null, None if it is only the type's default."""
    given = each.get("default", "")
    if given is None:  # Kafka's generator ignores null without quotes
        given = ""
    if given == "null" or kind == "records":
        return "null"
    if array or kind in ("struct", "bytes", "uuid"):
        assert given == "", each
        return None
    if kind == "bool":
        return str(given).lower() == "true"
    if kind == "str":
        return given
    return float(given or 0) if kind == "f64" else int(str(given or 0), 0)
