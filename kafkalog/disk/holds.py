"""Retention holds: what a lagging reader wants kept for a while, in a file named after the hold.

A hold is a file next to the partitions' folders, `.kafkalog_hold.<name>`, one for all partitions
that its reader reads.  Its JSON says where the reader continues, when the hold ends and how many
bytes of a partition it may keep.  Every program that may write to the directory may hold; deletion
obeys, within these bounds.  Kafka's own broker ignores the file.
"""

import os
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from kafkalog.disk.directory import Directory
from kafkalog.disk.layout import NAME_PART
from kafkalog.errors import ArgumentError, CorruptLog, IoFailed
from kafkalog.types import TopicPartition

__all__ = ["HOLDS_MAX", "HOLD_MS_MAX", "Hold", "read_holds", "remove_hold", "write_hold"]

HOLDS_MAX = 100
"""Per directory; further ones are neither obeyed nor written."""
HOLD_MS_MAX = 7 * 24 * 3_600_000
"""How far ahead a hold may reach: even with a wrong clock, none keeps records permanently."""
FILE_BYTES_MAX = 4 << 20
"""Maximum size of one hold: about 100,000 partitions."""

_PREFIX = ".kafkalog_hold."
_VERSION = 1


class Hold(NamedTuple):
    """The offsets that one reader wants kept."""

    name: str
    until_ms: int
    """Epoch time at which it ends; its reader extends it while it runs."""
    max_bytes: int
    """Maximum bytes kept of each partition beyond its retention."""
    offsets: Mapping[TopicPartition, int]
    """The first offset wanted of each partition."""


def write_hold(root: str, hold: Hold, now_ms: int) -> None:
    """Write or replace a hold of the directory `root`; removes holds that have ended.

    Raises: ArgumentError for an invalid name, or if there are HOLDS_MAX others; NotFound,
    IoFailed.
    """
    if not NAME_PART.fullmatch(hold.name):
        raise ArgumentError(
            f"hold: found the name {hold.name!r}, wanted 1 to 200 letters, digits, '.', '_', '-'"
        )
    others = [one for one in read_holds(root, now_ms, sweep=True) if one.name != hold.name]
    if len(others) >= HOLDS_MAX:
        raise ArgumentError(f"{root}: found {len(others)} holds, wanted fewer than {HOLDS_MAX}")
    with Directory(root) as directory:
        directory.gather()  # a power cut may remove it: the next batch writes it again
        directory.replace(_PREFIX + hold.name, _render(hold))


def remove_hold(root: str, name: str) -> None:
    """Remove the hold of this name."""
    with Directory(root) as directory:
        directory.unlink(_PREFIX + name)


def read_holds(root: str, now_ms: int, sweep: bool = False) -> list[Hold]:
    """The holds of the directory `root` that count now, by name; an invalid file is reported.

    `sweep`: remove those that have ended.
    """
    with os.scandir(root) as entries:
        names = sorted(entry.name for entry in entries if entry.name.startswith(_PREFIX))
    found = []
    for name in names:
        hold = _read(root, name)
        if hold is None or hold.until_ms - now_ms > HOLD_MS_MAX:
            if hold is not None:
                _tell(root, name, f"it reaches more than {HOLD_MS_MAX} ms ahead")
        elif hold.until_ms > now_ms:
            found.append(hold)
        elif sweep:
            with suppress(OSError):
                os.unlink(os.path.join(root, name))
    for hold in found[HOLDS_MAX:]:
        _tell(root, _PREFIX + hold.name, f"there are more than {HOLDS_MAX}")
    return found[:HOLDS_MAX]


def _read(root: str, name: str) -> Hold | None:
    try:
        with Directory(root) as directory:
            data = directory.read(name, FILE_BYTES_MAX)
        return None if data is None else _parse(name.removeprefix(_PREFIX), data)
    except (CorruptLog, IoFailed, OSError, ValueError, TypeError, KeyError, AttributeError) as why:
        _tell(root, name, f"{type(why).__name__}: {why}")
        return None


def _tell(root: str, name: str, why: str) -> None:
    from kafkalog.logs.limit import limited  # slow to import; most directories have no holds

    limited(__name__).warning("%s: the hold is not obeyed: %s", os.path.join(root, name), why)


def _render(hold: Hold) -> bytes:
    import json

    offsets: dict[str, dict[str, int]] = {}
    for tp, offset in sorted(hold.offsets.items()):
        offsets.setdefault(tp.topic, {})[str(tp.partition)] = offset
    found = {
        "version": _VERSION,
        "until_ms": hold.until_ms,
        "max_bytes": hold.max_bytes,
        "offsets": offsets,
    }
    return json.dumps(found).encode()


def _parse(name: str, data: bytes) -> Hold:
    import json

    found: dict[str, Any] = json.loads(data)
    if found["version"] != _VERSION:
        raise ValueError(f"found version {found['version']!r}, wanted {_VERSION}")
    offsets = {
        TopicPartition(topic, int(partition)): int(offset)
        for topic, each in found["offsets"].items()
        for partition, offset in each.items()
    }
    return Hold(name, int(found["until_ms"]), int(found["max_bytes"]), offsets)
