"""`kafkalog dump`: shows what is inside Kafka's files, as text or as JSON lines."""

import argparse
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from kafkalog.cli.common import (
    CODECS,
    UsageError,
    json_bytes,
    json_line,
    plural,
    preview,
    show_time,
)
from kafkalog.types import Header

EXAMPLES = """\
example:
  kafkalog dump data/access-0/00000000000000000000.log --records --max-batches 2
  kafkalog dump data/access-0 --json | grep '"control":true'
"""

SUFFIXES = (".log", ".index", ".timeindex", ".txnindex", ".snapshot", ".checkpoint")
MARKERS = {
    0: "ABORT",
    1: "COMMIT",
    2: "LEADER_CHANGE",
    3: "SNAPSHOT_HEADER",
    4: "SNAPSHOT_FOOTER",
    5: "KRAFT_VERSION",
    6: "KRAFT_VOTERS",
}
MAX_SEQUENCE = (1 << 31) - 1

# A row: its kind, then its fields.
Row = dict[str, Any]


def arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    parser.add_argument(
        "path",
        nargs="+",
        help="a file of a segment, a partition's folder or a data directory; nothing is written",
    )
    parser.add_argument(
        "--records", action="store_true", help="also show each record of each batch"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object per line")
    parser.add_argument(
        "--from-offset",
        type=int,
        default=0,
        metavar="N",
        help="only batches of .log files from this offset on",
    )
    parser.add_argument(
        "--max-batches",
        type=int,
        default=None,
        metavar="N",
        help="stop after N batches of each .log file",
    )


def run(options: argparse.Namespace) -> int:
    """Dump every file; returns 1 if one could not be read to its end."""
    status = 0
    write = _write_json if options.json else _write_text
    for path in [file for given in options.path for file in files_of(Path(given))]:
        for row in rows_of(path, options):
            write(row)
            if row["kind"] == "stop":
                status = 1
    return status


def files_of(path: Path) -> list[Path]:
    """The files to dump under a path, segments in order.  Raises: UsageError, OSError."""
    from kafkalog.inspect.verify.files import find_partitions, is_partition

    if not path.is_dir():
        path.stat()
        return [path]
    files: list[Path] = []
    for folder in find_partitions(path):
        files += [folder / name for name in sorted(os.listdir(folder), key=_order) if _known(name)]
    if not is_partition(path):
        files += [path / name for name in sorted(os.listdir(path)) if name.endswith("checkpoint")]
    if not files:
        raise UsageError(f"{path}: no file of Kafka's format in it")
    return [file for file in files if file.is_file()]


def _known(name: str) -> bool:
    return name.endswith(SUFFIXES) or name == "leader-epoch-checkpoint"


def _order(name: str) -> tuple[str, int]:
    stem, suffix = os.path.splitext(name)
    return stem, SUFFIXES.index(suffix) if suffix in SUFFIXES else 0


def rows_of(path: Path, options: argparse.Namespace) -> Iterator[Row]:
    """A row for the file, then one for each entry in it.

    Raises: UsageError for a file of another kind; OSError.
    """
    suffix = path.suffix if path.suffix in SUFFIXES else ""
    name = os.path.join(path.parent.name, path.name)
    yield {"kind": "file", "file": name, "bytes": path.stat().st_size}
    if suffix in (".log", ".checkpoint"):
        rows = _log_rows(path, options)
    elif suffix:
        rows = _derived_rows(path, suffix)
    elif path.name.endswith("checkpoint"):
        rows = _checkpoint_rows(path)
    else:
        raise UsageError(f"{path}: wanted a file that ends in {', '.join(SUFFIXES)}")
    metadata = suffix == ".checkpoint" or path.parent.name == "__cluster_metadata-0"
    for row in rows:
        if metadata and row["kind"] == "record" and "marker" not in row:
            row = _metadata(row)
        yield {"kind": row.pop("kind"), "file": name, **row}


def _metadata(row: Row) -> Row:
    """The row of a metadata record with its contents; without its bytes if a secret is in them."""
    import base64

    from kafkalog.errors import CorruptLog
    from kafkalog.kraft.records import describe, holds_secret

    text = row.get("value")
    value = base64.b64decode(row.get("value_base64", "")) if text is None else text.encode()
    try:
        found = {**row, "metadata": describe(value)}
        secret = {"value", "value_base64"} if holds_secret(value) else set()
        return {name: field for name, field in found.items() if name not in secret}
    except CorruptLog as problem:
        return {**row, "metadata": f"unreadable: {problem}"}


def _stop(position: int, why: object) -> Row:
    return {"kind": "stop", "position": position, "why": str(why)}


# ---- batches -------------------------------------------------------------------------------


def _log_rows(path: Path, options: argparse.Namespace) -> Iterator[Row]:
    from kafkalog.batch.walk import BatchWalk
    from kafkalog.inspect.rawfiles import find_batch, is_zero

    position: int | None = 0
    left = options.max_batches if options.max_batches is not None else sys.maxsize
    last = -1
    while position is not None and left > 0:
        walk = BatchWalk(path, position, room=min(1024, left))
        for batch in walk.batches():
            last = int(batch.last_offset)
            if last < options.from_offset:
                continue
            yield from _batch_rows(batch, walk, options.records)
            left -= 1
            if left == 0:
                return
        if walk.stop is None:
            return
        stop = walk.stop
        if is_zero(path, stop.position):
            size = path.stat().st_size - stop.position
            yield {"kind": "zeros", "position": stop.position, "bytes": size}
            return
        yield _stop(stop.position, stop.message)
        position = find_batch(path, stop.position, last + 1, 1 << 62)
        if position is not None:
            yield {"kind": "resume", "position": position}


def batch_row(batch: Any) -> Row:
    """A batch's header as DumpLogSegments shows it."""
    attributes = int(batch.attributes)
    horizon = bool(attributes & 64)
    return {
        "kind": "batch",
        "position": int(batch.pos),
        "base_offset": int(batch.base_offset),
        "last_offset": int(batch.last_offset),
        "count": int(batch.record_count),
        "codec": CODECS[attributes & 7] if attributes & 7 < len(CODECS) else str(attributes & 7),
        "timestamp_type": "LogAppendTime" if attributes & 8 else "CreateTime",
        "timestamp": int(batch.max_timestamp),
        "leader_epoch": int(batch.leader_epoch),
        "producer_id": int(batch.producer_id),
        "producer_epoch": int(batch.producer_epoch),
        "base_sequence": int(batch.base_sequence),
        "last_sequence": int(batch.last_sequence),
        "transactional": bool(attributes & 16),
        "control": bool(attributes & 32),
        "delete_horizon": int(batch.base_timestamp) if horizon else None,
        "bytes": int(batch.batch_bytes),
        "magic": int(batch.magic),
        "crc": int(batch.crc),
        "valid": True,
    }


def _batch_rows(batch: Any, walk: Any, records: bool) -> Iterator[Row]:
    from kafkalog.errors import KafkalogError

    row = batch_row(batch)
    if not records and not row["control"]:
        yield row
        return
    if not row["control"]:
        yield row
    try:
        decoded = list(_record_rows(batch, walk.read(batch.pos, batch.batch_bytes), row))
    except KafkalogError as problem:
        if row["control"]:
            yield row
        yield _stop(row["position"], problem)
        return
    if row["control"]:
        marker = next(iter(decoded), {})
        yield {**row, **{k: marker[k] for k in ("marker", "coordinator_epoch") if k in marker}}
    if records:
        yield from decoded


def _record_rows(batch: Any, data: bytes, row: Row) -> Iterator[Row]:
    from kafkalog.batch.decode import body_of, decoded_records

    for record in decoded_records(batch, body_of(batch, data)):
        key, value, offset = record.key, record.value, record.offset
        decoded = {
            "kind": "record",
            "offset": offset,
            "timestamp": record.timestamp_ms,
            "key_bytes": -1 if key is None else len(key),
            "value_bytes": -1 if value is None else len(value),
            "sequence": _sequence(row["base_sequence"], offset - row["base_offset"]),
            "headers": _headers(record.headers),
        }
        if row["control"]:
            yield {**decoded, **_marker(key, value)}
        else:
            yield {**decoded, **json_bytes("key", key), **json_bytes("value", value)}


def _sequence(base: int, delta: int) -> int:
    """Sequences wrap from 2**31 - 1 to 0; -1 without one."""
    return -1 if base < 0 else (base + delta) & MAX_SEQUENCE


def _headers(headers: Iterable[Header]) -> list[list[str | None]]:
    return [
        [name, None if value is None else value.decode("utf-8", "backslashreplace")]
        for name, value in headers
    ]


def _marker(key: bytes | None, value: bytes | None) -> Row:
    from kafkalog.batch.control import control_kind

    kind = control_kind(key)
    if kind is None:
        return {"marker": "UNKNOWN"}
    found: Row = {"marker": MARKERS.get(kind, f"UNKNOWN {kind}")}
    if kind in (0, 1) and value is not None and len(value) >= 6:
        found["coordinator_epoch"] = int.from_bytes(value[2:6], "big", signed=True)
    return found


# ---- the other files -----------------------------------------------------------------------


def _derived_rows(path: Path, suffix: str) -> Iterator[Row]:
    from kafkalog.errors import KafkalogError
    from kafkalog.inspect import rawfiles

    base = rawfiles.segment_offset(path.name, suffix)
    if base is None:
        raise UsageError(f"{path}: wanted a name of 20 digits and {suffix}")
    data = path.read_bytes()
    if suffix in (".index", ".timeindex"):
        yield from _index_rows(data, base, suffix)
        return
    try:
        if suffix == ".txnindex":
            for abort in rawfiles.read_aborts(data):
                yield {"kind": "aborted", **abort._asdict()}
        else:
            for producer in rawfiles.read_snapshot(data):
                yield {"kind": "producer", **producer._asdict()}
    except (ValueError, KafkalogError) as problem:
        yield _stop(0, problem)


def _index_rows(data: bytes, base: int, suffix: str) -> Iterator[Row]:
    from kafkalog.inspect.rawfiles import unpack_index, unpack_time_index

    size = 8 if suffix == ".index" else 12
    whole = len(data) - len(data) % size
    used = len(data.rstrip(b"\0"))
    used = min(-(-used // size) * size, whole) if whole > size else whole
    if suffix == ".index":
        for offset, position in unpack_index(data[:used], base):
            yield {"kind": "index", "offset": offset, "position": position}
    else:
        for timestamp, offset in unpack_time_index(data[:used], base):
            yield {"kind": "timeindex", "timestamp": timestamp, "offset": offset}
    if used < whole:
        yield {"kind": "zeros", "position": used, "bytes": whole - used}
    if whole < len(data):
        yield _stop(whole, f"{len(data)} bytes, not a multiple of {size}")


def _checkpoint_rows(path: Path) -> Iterator[Row]:
    from kafkalog.disk.checkpoint import parse_offsets
    from kafkalog.errors import KafkalogError
    from kafkalog.inspect.rawfiles import read_epochs

    data = path.read_bytes()
    try:
        if path.name == "leader-epoch-checkpoint":
            for epoch, start in read_epochs(data):
                yield {"kind": "epoch", "epoch": epoch, "start_offset": start}
            return
        for (topic, partition), offset in parse_offsets(data).items():
            place = {"topic": topic, "partition": partition, "offset": offset}
            yield {"kind": "checkpoint", **place}
    except (ValueError, KafkalogError) as problem:
        yield _stop(0, problem)


# ---- output --------------------------------------------------------------------------------


def _write_json(row: Row) -> None:
    print(json_line(row))


def _write_text(row: Row) -> None:
    print(TEXT[row["kind"]](row))


def _batch_text(row: Row) -> str:
    words = [
        f"  at {row['position']}:",
        f"offsets {row['base_offset']}..{row['last_offset']}",
        f"({plural(row['count'], 'record')})",
        f"{row['bytes']} bytes {row['codec']}",
        show_time(row["timestamp"]),
        f"epoch {row['leader_epoch']}",
    ]
    if row["timestamp_type"] == "LogAppendTime":
        words.append("log-append-time")
    if row["producer_id"] >= 0:
        words.append(f"producer {row['producer_id']}/{row['producer_epoch']}")
        if row["base_sequence"] >= 0:
            words.append(f"sequence {row['base_sequence']}..{row['last_sequence']}")
    if row["transactional"]:
        words.append("transactional")
    if row["control"]:
        words.append(f"control {row.get('marker', 'emptied')}")
        if "coordinator_epoch" in row:
            words.append(f"coordinator-epoch {row['coordinator_epoch']}")
    if row["delete_horizon"] is not None:
        words.append(f"delete-horizon {show_time(row['delete_horizon'])}")
    return " ".join([*words, f"crc {row['crc']:08x} ok"])


def _record_text(row: Row) -> str:
    if "marker" in row:
        epoch = (
            f" coordinator-epoch {row['coordinator_epoch']}" if "coordinator_epoch" in row else ""
        )
        return f"    {row['offset']} {show_time(row['timestamp'])} {row['marker']}{epoch}"
    words = [f"    {row['offset']}", show_time(row["timestamp"])]
    if row["sequence"] >= 0:
        words.append(f"sequence {row['sequence']}")
    if "metadata" in row:
        return " ".join([*words, row["metadata"]])
    for name in ("key", "value"):
        size = row[f"{name}_bytes"]
        if size < 0:
            words.append(f"{name} null")
        elif name in row:
            words.append(f"{name} ({size}) {preview(row[name].encode())}")
        else:
            words.append(f"{name} ({size}) base64 {preview(row[f'{name}_base64'].encode())}")
    if row["headers"]:
        words.append("headers " + ", ".join(f"{n}={v}" for n, v in row["headers"]))
    return " ".join(words)


def _producer_text(row: Row) -> str:
    words = [f"  producer {row['producer_id']}/{row['producer_epoch']}"]
    if row["last_sequence"] >= 0:
        first = (row["last_sequence"] - row["offset_delta"]) & MAX_SEQUENCE
        words.append(f"sequence {first}..{row['last_sequence']} at offset {row['last_offset']}")
    words.append(f"last seen {show_time(row['timestamp_ms'])}")
    if row["coordinator_epoch"] >= 0:
        words.append(f"coordinator-epoch {row['coordinator_epoch']}")
    if row["txn_start_offset"] >= 0:
        words.append(f"open transaction from offset {row['txn_start_offset']}")
    return ", ".join(words)


TEXT: dict[str, Any] = {
    "file": lambda r: f"{r['file']}: {r['bytes']} bytes",
    "batch": _batch_text,
    "record": _record_text,
    "zeros": lambda r: f"  at {r['position']}: {r['bytes']} zero bytes to the end, no data",
    "stop": lambda r: f"  at {r['position']}: STOPPED: {r['why']}",
    "resume": lambda r: f"  at {r['position']}: the next good batch",
    "index": lambda r: f"  offset {r['offset']} at position {r['position']}",
    "timeindex": lambda r: f"  {show_time(r['timestamp'])} ({r['timestamp']}) offset {r['offset']}",
    "aborted": lambda r: (
        f"  producer {r['producer_id']} aborted offsets {r['first_offset']}..{r['last_offset']}, "
        f"last stable offset {r['last_stable_offset']}"
    ),
    "producer": _producer_text,
    "epoch": lambda r: f"  epoch {r['epoch']} from offset {r['start_offset']} on",
    "checkpoint": lambda r: f"  {r['topic']}-{r['partition']}: {r['offset']}",
}
