"""Pack what this checkout writes: `python -m tests.formats.make`, once for each release.

The archive in `written/` is named after the version.  One that a release wrote is never replaced:
the promise of docs/stability.md is about its bytes.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import kafkalog
from tests.support import cases

WRITTEN = Path(__file__).resolve().parent / "written"
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
SMALL = {"segment.ms": 100_000, "index.interval.bytes": 1_024}
"""About four segments a topic, as the records are a second apart."""
START_MS = 1_767_225_600_000


def record(number: int) -> dict[str, Any]:
    """The arguments of a record."""
    return {
        "value": None if number % 50 == 7 else b"value %d " % number * 8,
        "key": b"key %d" % (number % 40),
        "timestamp_ms": START_MS + 1_000 * number,
        "headers": [("number", b"%d" % number)] if number % 3 == 0 else [],
    }


def write(path: Path) -> None:
    """A data directory: each codec in several segments, compaction, transactions, a group."""
    with kafkalog.Broker(path) as broker:
        with kafkalog.Admin(broker) as admin:
            admin.create_topics(
                [(name, 2, 1, SMALL) for name in CODECS]
                + [("compacted", 1, 1, {**SMALL, "cleanup.policy": "compact"}), "sums"]
            ).check()
        for name in (*CODECS, "compacted"):
            codec = name if name in CODECS else "none"
            with kafkalog.Producer(broker, compression=codec, batch_bytes=2_048) as producer:
                for number in range(400):
                    producer.send(name, **record(number))
        with kafkalog.Producer(broker, transactional_id="adder") as producer:
            producer.init_transactions()
            with producer.transaction():
                producer.send("sums", b"committed")
            producer.begin_transaction()
            producer.send("sums", b"aborted").result()
            producer.abort_transaction()
        with kafkalog.Consumer(
            broker, "zstd", group="readers", auto_offset_reset="earliest"
        ) as group:
            read = 0
            while read < 400:
                read += len(group.poll())
            group.commit()


def described(store: kafkalog.Store) -> dict[str, Any]:
    """Every committed record of a directory and the offsets of its group, as JSON has them."""
    with kafkalog.Admin(store) as admin:
        offsets = admin.list_group_offsets("readers")
    found = {
        topic: [
            [listed(one) for one in log.read(isolation="read_committed")] for log in store[topic]
        ]
        for topic in (*CODECS, "compacted", "sums")
    }
    return {
        "records": found,
        "offsets": sorted([topic, p, at.offset] for (topic, p), at in offsets.items()),
    }


def listed(record: kafkalog.Record) -> list[Any]:
    """A record's offset, time, key, value and headers."""
    text = [None if one is None else one.decode() for one in (record.key, record.value)]
    headers = [[name, (value or b"").decode()] for name, value in record.headers]
    return [record.offset, record.timestamp_ms, *text, headers]


def main() -> None:
    """Raises: SystemExit: the version's archive exists."""
    archive = WRITTEN / f"{kafkalog.__version__}.tar.zst"
    if archive.exists():
        sys.exit(f"{archive} exists: a released version's directory is never replaced")
    with tempfile.TemporaryDirectory() as folder:
        case = Path(folder) / kafkalog.__version__
        (case / "expected").mkdir(parents=True)
        write(case / "log")
        with kafkalog.Store(case / "log") as store:
            found = described(store)
        (case / "expected" / "said.json").write_text(json.dumps(found), encoding="utf-8")
        (case / "log" / ".lock").unlink(missing_ok=True)
        cases.pack(case, archive)


if __name__ == "__main__":
    main()
