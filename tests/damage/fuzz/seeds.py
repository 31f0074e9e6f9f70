"""First inputs, cut out of files that Kafka wrote."""

import hashlib
import random
import tempfile
from collections.abc import Iterator
from pathlib import Path

import kafkalog
from tests.damage.fuzz.engine import Target
from tests.support import batches, cases

PER_TARGET = 60
"""Real files repeat themselves; more inputs only take time to read."""
FILE_BYTES_MAX = 4 << 20


def _parts(folder: Path, suffix: str) -> Iterator[bytes]:
    for path in sorted(folder.rglob(f"*{suffix}")):
        if 0 < path.stat().st_size <= FILE_BYTES_MAX:
            yield path.read_bytes()


def _batches(folder: Path, max_bytes: int) -> Iterator[bytes]:
    for data in _parts(folder, ".log"):
        for header in batches.headers(data):
            if batches.HEADER_BYTES <= header.batch_bytes <= max_bytes:
                yield data[header.pos : header.pos + header.batch_bytes]


def _images(folder: Path, max_bytes: int) -> Iterator[bytes]:
    """The first batches of real segments."""
    for data in _parts(folder, ".log"):
        ends = [h.pos + h.batch_bytes for h in batches.headers(data)]
        end = max((end for end in ends if end <= max_bytes), default=0)
        if end:
            yield data[:end]


def _records(folder: Path, max_bytes: int) -> Iterator[bytes]:
    for data in _batches(folder, max_bytes):
        header = next(batches.headers(data))
        plain = header.magic == 2 and header.attributes & 7 == 0
        if plain and 0 < header.record_count < 256:
            yield bytes([0, header.record_count]) + data[batches.HEADER_BYTES :]


def _sidecars() -> Iterator[bytes]:
    """Kafka's files have none: from one of our own logs."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "orders-0"
        with kafkalog.Log(path, config={"segment.bytes": 2000}) as log:
            for size in (10, 300, 1900, 1500, 700):
                log.append(bytes(size))
        yield from _parts(path, ".chk")


def of(target: Target) -> Iterator[bytes]:
    """Inputs in the target's own form from real files."""
    folder = cases.folder()
    room = target.max_bytes - target.prefix_bytes
    if target.name in ("batch", "canary"):
        yield from _batches(folder, room)
    elif target.name == "records":
        yield from _records(folder, room)
    elif target.prefix_bytes:
        draw = random.Random(1)
        for image in _images(folder, room):
            yield draw.randbytes(target.prefix_bytes) + image
    elif target.name == "walk":
        yield from _images(folder, room)
    elif target.name == "index":
        yield from (b"\0" + data[: room - 1] for data in _parts(folder, ".index"))
        yield from (b"\1" + data[: room - 1] for data in _parts(folder, ".timeindex"))
    elif target.name == "aborts":
        yield from (bytes(2) + data[: 34 * 10] for data in _parts(folder, ".txnindex"))
    elif target.name == "sidecar":
        yield from _sidecars()
    elif target.name == "snapshot":
        yield from _parts(folder, ".snapshot")
    elif target.name == "epochs":
        yield from _parts(folder, "leader-epoch-checkpoint")


def write(target: Target, folder: Path, limit: int = PER_TARGET) -> int:
    """Write at most `limit` of them as files in `folder`, spread over all; returns their number."""
    found = {}
    for data in of(target):
        if len(data) <= target.max_bytes:
            found[hashlib.sha256(data).hexdigest()[:16]] = data
    names = sorted(found)
    for name in names[:limit]:
        (folder / name).write_bytes(found[name])
    return min(len(names), limit)
