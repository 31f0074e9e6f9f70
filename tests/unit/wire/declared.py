"""What Kafka itself declares: the JSON in its jars, resolved for one version of a message."""

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
    """A field as one version has it; ours and Kafka's are compared as these."""

    name: str
    kind: str
    array: bool
    nullable: bool
    tag: int | None
    default: Any
    fields: tuple[Resolved, ...]


def messages() -> dict[str, dict[str, Any]]:
    """Every message that Kafka still codes, by name; of the metadata log those of the newest.

    Raises: apache.Unavailable.
    """
    newest = _messages(apache.jars(apache.NEWEST), apache.NEWEST, ("metadata",))
    return _messages(apache.jars(), apache.VERSION, JARS) | newest


def newest_messages() -> dict[str, dict[str, Any]]:
    """Every message that clients and brokers of the newest Kafka send, by name.

    Raises: apache.Unavailable.
    """
    return _messages(apache.jars(apache.NEWEST), apache.NEWEST, JARS[:1])


def messages_with_zookeeper() -> dict[str, dict[str, Any]]:
    """What is sent, by the last Kafka that ran on ZooKeeper.

    Raises: apache.Unavailable.
    """
    return _messages(apache.jars_with_zookeeper(), apache.LAST_WITH_ZOOKEEPER, JARS[:1])


@lru_cache(maxsize=4)
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
    """Kafka's way to write versions: 3, 0-12, 7+, none."""
    if text is None or text == NO_MESSAGE:
        return range(0)
    first, dash, last = str(text).partition("-")
    if first.endswith("+"):
        return range(int(first[:-1]), EVERY)
    return range(int(first), int(last if dash else first) + 1)


def resolve(message: dict[str, Any], version: int) -> tuple[Resolved, ...]:
    """The fields of a message in one version, in the order of the declaration."""
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
    """A field's default: "null" for null, None where there is only the type's own."""
    given = each.get("default", "")
    if given is None:  # null without quotes is no default to Kafka's generator
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
