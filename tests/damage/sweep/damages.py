"""Ways in which the bytes of a directory can change."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

from tests.damage.sweep.judge import INDEXES, Edits, is_covered, place_of
from tests.damage.sweep.reference import Reference
from tests.support import batches

SMALL_BYTES = 1000
BLOCKS = (512, 4096)
SEGMENT_SUFFIXES = (".log", ".index", ".timeindex", ".txnindex", ".chk")

Damage = tuple[str, Edits, bool]
"""Its description, the files' new bytes, and whether it must be noticed."""


def flip(reference: Reference, name: str, bit: int) -> Damage:
    """Flip one bit of a file, counted from its first byte's lowest bit."""
    data = bytearray(reference.files[name])
    position = bit // 8
    data[position] ^= 1 << bit % 8
    covered = is_covered(reference, name, position, place_of(reference, name).sealed)
    return f"bit {bit % 8} of byte {position} of {name}", {name: bytes(data)}, covered


def flips(reference: Reference) -> list[tuple[str, int]]:
    """(file, its bits) of every file that has bytes."""
    return [(name, 8 * len(data)) for name, data in sorted(reference.files.items()) if data]


def truncations(reference: Reference) -> Iterator[Damage]:
    """Cut every small file at every byte, and `.log` files between batches and in them."""
    for name, data in sorted(reference.files.items()):
        place = place_of(reference, name)
        cuts = range(len(data)) if len(data) <= SMALL_BYTES else ()
        if place.suffix == ".log":
            starts = [header.pos for header in batches.headers(data)]
            cuts = sorted({0, *starts[::3], *(start + 30 for start in starts[::7])})
        for cut in cuts:
            covered = place.suffix != "partition.metadata" and (
                place.sealed or place.suffix in (".log", ".snapshot")
            )
            yield f"{name} cut to {cut} bytes", {name: data[:cut]}, covered


def removals(reference: Reference) -> Iterator[Damage]:
    """Remove every file in turn."""
    for name in sorted(reference.files):
        place = place_of(reference, name)
        covered = place.suffix == ".log" or (place.sealed and place.suffix in INDEXES)
        yield f"{name} removed", {name: None}, covered


def _changed(reference: Reference, edits: Edits) -> bool:
    return any(reference.files.get(name) != data for name, data in edits.items())


def zeroed(reference: Reference) -> Iterator[Damage]:
    """Fill blocks as large as a disk's with zeros."""
    for name, data in sorted(reference.files.items()):
        place = place_of(reference, name)
        for size in BLOCKS:
            for at in range(0, len(data), size):
                new = data[:at] + bytes(len(data[at : at + size])) + data[at + size :]
                sealed = place.sealed or place.suffix == ".snapshot"
                yield f"{size} zeros at {at} of {name}", {name: new}, sealed


def misdirected(reference: Reference, rng: random.Random) -> Iterator[Damage]:
    """Write a block of one `.log` over another's, and whole batches over others of one size."""
    logs = sorted(name for name in reference.files if name.endswith(".log"))
    for name in logs:
        data, sealed = reference.files[name], place_of(reference, name).sealed
        for size in BLOCKS:
            for at in range(0, len(data) - size, size):
                other = reference.files[rng.choice(logs)]
                start = rng.randrange(max(len(other) - size, 0) // 512 + 1) * 512
                new = data[:at] + other[start : start + size] + data[at + size :]
                if new != data and len(new) == len(data):
                    yield f"{size} bytes of another file at {at} of {name}", {name: new}, sealed
    yield from _same_size(reference, logs)


def _same_size(reference: Reference, logs: list[str]) -> Iterator[Damage]:
    """Batches that are whole, valid, of the right size, but in the wrong place."""
    by_size: dict[int, list[bytes]] = {}
    for name in logs:
        for header in batches.headers(reference.files[name]):
            data = reference.files[name][header.pos : header.pos + header.batch_bytes]
            by_size.setdefault(header.batch_bytes, []).append(data)
    for name in logs:
        data = reference.files[name]
        for header in list(batches.headers(data))[::5]:
            end = header.pos + header.batch_bytes
            for other in by_size[header.batch_bytes][:3]:
                # With the offset that belongs there: only its own checksum tells them apart.
                posed = data[header.pos : header.pos + 8] + other[8:]
                new = data[: header.pos] + posed + data[end:]
                if new != data:
                    sealed = place_of(reference, name).sealed
                    yield f"another batch at {header.pos} of {name}", {name: new}, sealed


def doubled(reference: Reference) -> Iterator[Damage]:
    """Repeat a batch, or leave one out."""
    for name, data in sorted(reference.files.items()):
        if name.endswith(".log"):
            sealed = place_of(reference, name).sealed
            for header in list(batches.headers(data))[::4]:
                end = header.pos + header.batch_bytes
                twice = data[:end] + data[header.pos :]
                yield f"batch at {header.pos} of {name} twice", {name: twice}, True
                without = data[: header.pos] + data[end:]
                yield f"no batch at {header.pos} of {name}", {name: without}, sealed


def swapped(reference: Reference) -> Iterator[Damage]:
    """Put a file in another's place, alone or with all files of its segment."""
    segments = sorted(
        name.removesuffix(".log")
        for name in reference.files
        if name.endswith(".log") and place_of(reference, name).sealed
    )
    for stem in segments:
        for other in segments:
            if stem == other:
                continue
            for suffix in SEGMENT_SUFFIXES:
                edits = {stem + suffix: reference.files.get(other + suffix)}
                if _changed(reference, edits):
                    yield f"{other}{suffix} as {stem}{suffix}", edits, True
            whole: Edits = {stem + s: reference.files.get(other + s) for s in SEGMENT_SUFFIXES}
            yield f"segment {other} as {stem}", whole, True
            both: Edits = whole | {
                other + s: reference.files.get(stem + s) for s in SEGMENT_SUFFIXES
            }
            yield f"segments {stem} and {other} exchanged", both, True


KINDS: dict[str, Callable[[Reference, random.Random], Iterator[Damage]]] = {
    "truncations": lambda reference, rng: truncations(reference),
    "removals": lambda reference, rng: removals(reference),
    "zeroed": lambda reference, rng: zeroed(reference),
    "misdirected": misdirected,
    "doubled": lambda reference, rng: doubled(reference),
    "swapped": lambda reference, rng: swapped(reference),
}
