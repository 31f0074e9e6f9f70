"""Apache Kafka's DumpLogSegments reads what we wrote: logs, indexes, snapshots.

All logs are written first and one JVM dumps every file; each test then checks one of them.
"""

from typing import Any, NamedTuple

import pytest

import kafkalog
from tests.support import apache, batches

pytestmark = pytest.mark.java

SUFFIXES = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")
SMALL = {"segment.bytes": 6000, "index.interval.bytes": 400}
T0 = 1_700_000_000_000


class Written(NamedTuple):
    """A record as the test wrote it, and the offset that it got."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


def rows(count, start=0):
    """Keys, values and headers in every shape: null, empty, ASCII; times out of order."""
    for i in range(start, start + count):
        yield Written(
            i,
            T0 + i * 10 - (i % 7) * 35,
            (None, b"", b"key-%d" % i)[i % 3],
            (b"value %d " % i * (1 + i % 5), None, b"")[0 if i % 11 else i % 3],
            ((), (("h", b"1"),), (("a", None), ("a", b"x"), ("", b"")))[i % 5 % 3],
        )


def append_rows(log, written, codec=None):
    """One append_many; whatever offsets the rows have, they get the log's next ones."""
    span = log.append_many(
        [row.value for row in written],
        keys=[row.key for row in written],
        timestamps_ms=[row.timestamp_ms for row in written],
        headers=[list(row.headers) for row in written],
        compression=codec,
        batch_bytes=1500,
    )
    return [row._replace(offset=span.base_offset + i) for i, row in enumerate(written)]


def write_codec(path, codec):
    with kafkalog.Log(path, config=SMALL) as log:
        done = []
        for start in range(0, 400, 50):
            done += append_rows(log, list(rows(50, start)), codec)
        assert len(log.segments) > 1 or codec != "none"
    return done


def write_one_by_one(path):
    with kafkalog.Log(path, config=SMALL) as log:
        for row in rows(120):
            offset = log.append(
                row.value, key=row.key, headers=row.headers, timestamp_ms=row.timestamp_ms
            )
            assert offset == row.offset
    return list(rows(120))


def write_cut(path):
    """Truncated in the middle of the second segment, continued, rolled, reopened, continued."""
    with kafkalog.Log(path, config=SMALL) as log:
        written = append_rows(log, list(rows(200)))
        log.truncate(111)
        written = written[: log.end_offset]
        written += append_rows(log, list(rows(60, 500)))
        log.roll()
    with kafkalog.Log(path, config=SMALL) as log:
        written += append_rows(log, list(rows(30, 700)), "lz4")
    return written


def write_transactions(path):
    """Two transactional producers, one aborts, and one is left open; an idempotent one."""
    done = []

    def send(log, producer, sequence, count, transactional=True):
        start = log.end_offset
        written = [
            Written(start + i, T0 + start + i, b"p%d" % producer, b"s%d" % (sequence + i))
            for i in range(count)
        ]
        batch = batches.batch(
            [batches.Row(w.value, w.key, w.timestamp_ms) for w in written],
            producer_id=producer, producer_epoch=3, base_sequence=sequence,
            transactional=transactional, codec="gzip" if producer == 8 else "none",
        )  # fmt: skip
        assert log.append_batches(batch).base_offset == start
        done.extend(written)

    with kafkalog.Log(path, config={"segment.bytes": 1200}) as log:
        for round_number in range(6):
            send(log, 7, round_number * 5, 5)
            send(log, 8, round_number * 3, 3)
            send(log, 9, round_number * 2, 2, transactional=False)
            log.append_marker(7, 3, round_number % 2 == 0, coordinator_epoch=4)
            log.append_marker(8, 3, round_number % 3 == 0, coordinator_epoch=4)
        send(log, 8, 18, 3)
        assert log.last_stable_offset == log.end_offset - 3
    return done


def write_append_time(path):
    config = {**SMALL, "message.timestamp.type": "LogAppendTime"}
    with kafkalog.Log(path, config=config) as log:
        written = append_rows(log, list(rows(80)))
        times = {record.offset: record.timestamp_ms for record in log.read()}
    return [row._replace(timestamp_ms=times[row.offset]) for row in written]


def write_recovered(path):
    """Not closed, with a torn batch after the end, and opened again."""
    with kafkalog.Log(path, config=SMALL) as log:
        written = append_rows(log, list(rows(150)))
    for name in path.glob("*index"):
        name.unlink()
    with max(path.glob("*.log")).open("ab") as file:
        file.write(batches.batch([batches.Row(b"torn" * 30)], base_offset=150)[:-5])
    for marker in path.glob(".kafka_cleanshutdown"):
        marker.unlink()
    with kafkalog.Log(path, config=SMALL) as log:
        assert log.recovery.truncated_bytes > 0
        written += append_rows(log, list(rows(20, 150)))
    return written


WRITERS: dict[str, Any] = {
    **{codec: (lambda path, codec=codec: write_codec(path, codec)) for codec in batches.CODECS},
    "one-by-one": write_one_by_one,
    "cut": write_cut,
    "transactions": write_transactions,
    "append-time": write_append_time,
    "recovered": write_recovered,
}


@pytest.fixture(scope="module")
def dumped(kafka_jars, tmp_path_factory):
    """Kind of log to (its folder, what was written, {file: Kafka's dump of it})."""
    root = tmp_path_factory.mktemp("dumped")
    written = {kind: writer(root / f"{kind}-0") for kind, writer in WRITERS.items()}
    files = [p for p in sorted(root.rglob("*")) if p.suffix in SUFFIXES]
    said = apache.dump(files)
    return {
        kind: (
            root / f"{kind}-0",
            written[kind],
            {p: d for p, d in said.items() if p.parent.name == f"{kind}-0"},
        )
        for kind in WRITERS
    }


KINDS = pytest.mark.parametrize("kind", WRITERS)


@KINDS
def test_kafka_finds_nothing_wrong(kind, dumped):
    """Only lines of batches, records and entries: a mismatch of an index prints other lines."""
    _, _, files = dumped[kind]
    assert {p.name: d.other for p, d in files.items() if d.other} == {}
    assert all(b.valid for d in files.values() for b in d.batches)


@KINDS
def test_kafka_reads_the_records_that_we_wrote(kind, dumped):
    _, written, files = dumped[kind]
    records = [r for p, d in sorted(files.items()) if p.suffix == ".log" for r in d.records]
    data = [r for r in records if "endTxnMarker" not in r.rest]
    assert [(r.offset, r.timestamp_ms) for r in data] == [w[:2] for w in written]
    for found, row in zip(data, written, strict=True):
        assert found.key_size == (-1 if row.key is None else len(row.key))
        assert found.value_size == (-1 if row.value is None else len(row.value))
        assert found.headers == ",".join(name for name, _ in row.headers)
        if row.value:
            assert found.rest.endswith(f" payload: {row.value.decode()}")
        if row.key:
            assert f" key: {row.key.decode()} " in found.rest + " "


@KINDS
def test_kafka_reads_the_batches_that_lie_there(kind, dumped):
    """Position, size and CRC of each batch, compared with a walk in plain Python."""
    _, _, files = dumped[kind]
    for path, said in files.items():
        if path.suffix == ".log":
            walked = [
                (h.pos, h.batch_bytes, h.crc, h.base_offset, h.last_offset, h.record_count)
                for h in batches.headers(path.read_bytes())
            ]
            assert walked == [
                (b.position, b.size, b.crc, b.base_offset, b.last_offset, b.count)
                for b in said.batches
            ]


@pytest.mark.parametrize("codec", batches.CODECS)
def test_codec_is_the_one_asked_for(codec, dumped):
    """A batch that a codec would enlarge may be stored uncompressed; most are compressed."""
    _, _, files = dumped[codec]
    codecs = [b.codec for d in files.values() for b in d.batches]
    assert set(codecs) <= {codec, "none"}
    assert codecs.count(codec) > len(codecs) / 2


def test_transactions_end_as_we_ended_them(dumped):
    """Markers, aborted index and producer snapshots, as Kafka decodes them."""
    path, _, files = dumped["transactions"]
    records = [r for p, d in sorted(files.items()) if p.suffix == ".log" for r in d.records]
    ends = [r.rest.strip() for r in records if "endTxnMarker" in r.rest]
    assert ends == [
        f"endTxnMarker: {'COMMIT' if commit else 'ABORT'} coordinatorEpoch: 4"
        for i in range(6)
        for commit in (i % 2 == 0, i % 3 == 0)
    ]
    with kafkalog.Log(path, mode="r") as log:
        aborted = [tuple(a) for a in log.aborted(log.start_offset, log.end_offset)]
        producers = {p.producer_id: p for p in log.producers}
    entries = [e for p, d in sorted(files.items()) if p.suffix == ".txnindex" for e in d.entries]
    assert [(a[0], *a[1:]) for a in aborted] == [entry[1:] for entry in entries]
    assert len(aborted) == 3 + 4

    last = max(p for p in files if p.suffix == ".snapshot")
    snapshot = {entry[0]: entry for entry in files[last].entries}
    assert set(snapshot) == set(producers) == {7, 8, 9}
    assert snapshot[8][1:4] == (3, 4, producers[8].txn_start_offset)
    assert snapshot[9][1:3] == (3, -1)


@KINDS
def test_indexes_have_entries(kind, dumped):
    """The checks above compared something."""
    _, _, files = dumped[kind]
    time_entries = [e for p, d in files.items() if p.suffix == ".timeindex" for e in d.entries]
    offset_entries = [e for p, d in files.items() if p.suffix == ".index" for e in d.entries]
    assert time_entries
    assert offset_entries or kind in ("gzip", "zstd", "transactions")
