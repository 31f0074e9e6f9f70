"""The records of a scan: ranges, times, isolation, damage."""

import math
import os
import threading
from itertools import islice

import hypothesis
import pytest
from hypothesis import strategies as st

import kafkalog
from kafkalog import errors
from kafkalog.batch import codecs
from kafkalog.types import CREATE_TIME, LOG_APPEND_TIME, Record
from tests.support import batches
from tests.unit.log.scan.conftest import Writer, row

TRANSACTIONS = {"transactional": True, "producer_epoch": 0}


def fields(record):
    return record.offset, record.timestamp_ms, record.key, record.value, record.headers


def expected(writer, start=0, stop=math.inf, begin=-math.inf, end=math.inf):
    return [
        kept[:5]
        for kept in writer.kept
        if start <= kept.offset < stop and begin <= kept.timestamp_ms < end
    ]


def found(writer, *span, **how):
    """A scan's records; its count and its columns must agree with them."""
    scan = writer.log.scan(*span, **how)
    listed = [fields(record) for record in scan.records()]
    assert scan.count() == len(listed)
    offsets = writer.log.scan(*span, columns=["offset"], **how).to_numpy()["offset"]
    assert offsets.tolist() == [offset for offset, *_ in listed]
    return listed


def test_all_records_with_all_their_fields(mixed):
    assert found(mixed) == expected(mixed)
    first = next(mixed.log.scan().records())
    assert type(first) is Record
    assert first[5:] == ("orders", 3, CREATE_TIME, 0)


def test_an_empty_log(writer):
    assert found(writer) == []
    assert found(writer, 0, 0) == []


@hypothesis.settings(suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture])
@hypothesis.given(data=st.data())
def test_any_range(mixed, data):
    """Offsets and times are filtered exactly, also inside batches."""
    end = len(mixed.kept)
    start, stop = data.draw(st.integers(0, end)), data.draw(st.integers(0, end + 9))
    times = st.integers(1_699_999_999_000, 1_700_000_700_000) | st.sampled_from(
        [kept.timestamp_ms for kept in mixed.kept]
    )
    begin, until = data.draw(st.none() | times), data.draw(st.none() | times)
    wanted = expected(
        mixed,
        start,
        stop,
        -math.inf if begin is None else begin,
        math.inf if until is None else until,
    )
    assert found(mixed, start, stop, start_time_ms=begin, stop_time_ms=until) == wanted


@pytest.mark.parametrize("start", [-1, 3.5, "0"])
def test_a_start_that_is_no_offset(log, start):
    with pytest.raises(errors.ArgumentError, match="start: found"):
        log.scan(start)


def test_a_start_outside_of_the_log(mixed):
    end = mixed.log.end_offset
    with pytest.raises(
        errors.OffsetOutOfRange, match=rf"orders-3: offset {end + 1} .*\[0, {end}\)"
    ):
        list(mixed.log.scan(end + 1).records())
    assert found(mixed, end) == []
    mixed.log.delete_before(100)
    with pytest.raises(errors.OffsetOutOfRange, match=r"offset 99 .*\[100, "):
        list(mixed.log.scan(99))
    assert found(mixed) == expected(mixed, 100)  # None means the log start


def test_several_segments(tmp_path):
    with kafkalog.Log(tmp_path / "orders-3", config={"segment.bytes": 14 + 4000}) as log:
        writer = Writer(log)
        for first in range(0, 900, 30):
            writer.batch((row(i) for i in range(first, first + 30)), codec="lz4")
        assert len(log.segments) > 3
        assert found(writer) == expected(writer)
        assert found(writer, 333, 777) == expected(writer, 333, 777)


def test_records_after_the_start_of_a_pass_are_not_seen(mixed):
    records = mixed.log.scan().records()
    first = next(records)
    mixed.log.append(b"late")
    assert [fields(first), *map(fields, records)] == expected(mixed)
    assert mixed.log.scan().count() == len(mixed.kept) + 1


def test_a_scan_can_be_read_again(mixed):
    scan = mixed.log.scan(5, 50)
    assert scan.end_offset == -1
    assert list(scan.records()) == list(scan.records())
    assert [len(batch) for batch in scan] == [len(batch) for batch in scan]
    assert scan.end_offset == 50


def test_offsets_with_gaps(tmp_path):
    """As after compaction: batches are missing, or have lost some records."""
    with kafkalog.Log(tmp_path / "orders-3") as log:
        kept = batches.batch([row(0), row(1)], base_offset=10, leader_epoch=0)
        wide = bytearray(batches.batch([row(2)], base_offset=12, leader_epoch=0)[21:])
        wide[2:6] = (99).to_bytes(4, "big")  # lastOffsetDelta: it has lost 99 records
        # It only keeps the producer's last sequence: no times, no records.
        empty = batches.batch([row(3)])[21:27].ljust(36, b"\xff") + bytes(4)
        log.append_as_follower(kept)
        log.append_as_follower(batches.seal(bytes(wide), 12, 0))
        log.append_as_follower(batches.seal(empty, 200, 0))
        log.append_as_follower(batches.batch([row(4)], base_offset=300, leader_epoch=0))
        writer = Writer(log)
        assert [offset for offset, *_ in found(writer)] == [10, 11, 12, 300]
        assert [offset for offset, *_ in found(writer, 11, 13)] == [11, 12]
        assert [offset for offset, *_ in found(writer, 13, 300)] == []
        assert [offset for offset, *_ in found(writer, 250)] == [300]


def test_log_append_time(tmp_path):
    config = {"message.timestamp.type": "LogAppendTime"}
    with kafkalog.Log(tmp_path / "orders-3", config=config) as log:
        log.append_batches(batches.batch([row(i) for i in range(9)], codec="zstd"))
        (stamp,) = {record.timestamp_ms for record in log.scan().records()}
        assert {record.timestamp_type for record in log.scan().records()} == {LOG_APPEND_TIME}
        assert log.scan(start_time_ms=stamp, stop_time_ms=stamp + 1).count() == 9
        assert log.scan(start_time_ms=stamp + 1).count() == 0
        assert log.scan(stop_time_ms=stamp).count() == 0


def test_times_that_microseconds_cannot_hold(tmp_path):
    """Records keep them; Arrow's column is clipped to int64."""
    times = [-1, 0, 2**53, 2**62, -(2**40)]
    anything = {f"message.timestamp.{side}.max.ms": 2**63 - 1 for side in ("before", "after")}
    with kafkalog.Log(tmp_path / "orders-3", config=anything) as log:
        for time in times:
            log.append_batches(batches.batch([batches.Row(b"", None, time)]))
        assert [record.timestamp_ms for record in log.scan().records()] == times
        micro = log.scan(columns=["timestamp"]).to_numpy()["timestamp"].astype("int64")
        assert micro.tolist() == [min(1000 * time, 2**63 - 1) for time in times]


# ---- transactions ----------------------------------------------------------------------------


@pytest.fixture
def transactions(writer):
    """Interleaved producers: 7 aborts, then commits, then aborts; 8 commits; 9 is open."""
    log, sequence, at = writer.log, {7: 0, 8: 0, 9: 0}, iter(range(10**6))

    def send(producer, count, codec, aborted):
        rows = [row(next(at)) for _ in range(count)]
        writer.batch(rows, aborted, codec=codec, producer_id=producer, **TRANSACTIONS,
                     base_sequence=sequence[producer])  # fmt: skip
        sequence[producer] += count

    def plain(count):
        writer.batch([row(next(at)) for _ in range(count)])

    plain(3)
    send(7, 4, "none", True)
    send(8, 5, "zstd", False)
    send(7, 2, "lz4", True)
    plain(1)
    log.append_marker(7, 0, False)
    send(7, 3, "none", False)
    log.append_marker(8, 0, True)
    log.append_marker(7, 0, True)
    send(7, 6, "gzip", True)
    plain(2)
    log.append_marker(7, 0, False)
    writer.stable = log.end_offset
    send(9, 2, "none", True)
    plain(4)
    return writer


def test_uncommitted_shows_all_but_the_markers(transactions):
    assert found(transactions, isolation="read_uncommitted") == expected(transactions)


def test_columns_are_of_committed_records_where_nobody_says(transactions):
    """All ways to read columns default to committed; records default to all, as in Kafka."""
    log = transactions.log
    wanted = log.scan(isolation="read_committed").to_numpy()["offset"].tolist()
    everything = log.scan(isolation="read_uncommitted").to_numpy()["offset"].tolist()
    assert 0 < len(wanted) < len(everything)
    assert log.scan().to_numpy()["offset"].tolist() == wanted
    assert kafkalog.pandas.read(log)["offset"].tolist() == wanted
    assert kafkalog.polars.scan(log).collect()["offset"].to_list() == wanted
    followed = log.follow_arrow(0, timeout_ms=0, columns=["offset"])
    assert [at for batch in followed for at in batch.numpy("offset").tolist()] == wanted
    for records in (log, log[:], log.read()):
        assert [one.offset for one in records] == everything
    assert log[-1].offset == log[log[-1].offset].offset == everything[-1]


def test_committed_shows_no_aborted_and_no_open_transaction(transactions):
    log = transactions.log
    assert log.last_stable_offset == transactions.stable
    for start in range(log.end_offset + 1):
        wanted = [
            kept[:5]
            for kept in transactions.kept
            if start <= kept.offset < transactions.stable and not kept.aborted
        ]
        assert found(transactions, start, isolation="read_committed") == wanted


def test_committed_with_many_aborted_transactions(writer):
    """They are looked up by producer and offset, not one by one."""
    pattern = [(producer, round_) for round_ in range(20) for producer in (3, 5, 4)]
    for producer, round_ in pattern:
        aborted = (producer + round_) % 3 == 0
        writer.batch([row(0), row(1)], aborted, producer_id=producer, base_sequence=2 * round_,
                     **TRANSACTIONS)  # fmt: skip
        writer.log.append_marker(producer, 0, not aborted)
    wanted = [kept[:5] for kept in writer.kept if not kept.aborted]
    assert 0 < len(wanted) < len(writer.kept)
    assert found(writer, isolation="read_committed") == wanted


def test_an_isolation_level_that_is_none(log):
    with pytest.raises(errors.ArgumentError, match="isolation: found 'snapshot', wanted one of"):
        log.scan(isolation="snapshot")


# ---- what is not decoded -----------------------------------------------------------------------


@pytest.fixture
def no_codecs(monkeypatch):
    """Fail if anything is decompressed."""

    def refuse(*_):
        raise AssertionError("a batch was decompressed")

    monkeypatch.setattr(codecs, "decompress_many", refuse)
    monkeypatch.setattr(codecs, "decompress", refuse)


def test_counting_whole_batches_decompresses_nothing(mixed, no_codecs):
    assert mixed.log.scan().count() == len(mixed.kept)
    assert mixed.log.scan(7, 441).count() == 434  # even from parts of dense batches


def test_columns_of_the_header_decompress_nothing(mixed, no_codecs):
    columns = ["topic", "partition", "offset", "timestampType", "leaderEpoch"]
    table = mixed.log.scan(100, 500, columns=columns).to_numpy()
    assert table["offset"].tolist() == list(range(100, 500))
    assert set(table["topic"]) == {"orders"}
    assert set(table["partition"].tolist()) == {3}
    assert set(table["timestampType"].tolist()) == {CREATE_TIME}
    assert set(table["leaderEpoch"].tolist()) == {0}


def test_batches_of_earlier_times_are_not_decompressed(writer, monkeypatch):
    for hour in range(24):
        rows = [batches.Row(b"x", timestamp_ms=3_600_000 * hour + i) for i in range(50)]
        writer.batch(rows, codec="zstd")
    seen = []
    plain = codecs.decompress_many
    monkeypatch.setattr(
        codecs, "decompress_many", lambda items, limit: seen.extend(items) or plain(items, limit)
    )
    scan = writer.log.scan(start_time_ms=3_600_000 * 20)
    assert len(list(scan.records())) == 200
    assert len(seen) == 4


# ---- damage ------------------------------------------------------------------------------------


def damage(log, pos):
    """Flip a bit in the only segment, without the log's knowledge."""
    path = os.path.join(log.path, "0" * 20 + ".log")
    with open(path, "r+b") as file:
        file.seek(pos)
        byte = file.read(1)[0]
        file.seek(pos)
        file.write(bytes([byte ^ 1]))
    return path


def third_batch(log):
    with open(os.path.join(log.path, "0" * 20 + ".log"), "rb") as file:
        return list(islice(batches.headers(file.read()), 3))[2]


@pytest.mark.parametrize("codec", batches.CODECS)
def test_the_rows_before_the_damage_come_first(writer, codec):
    for first in range(0, 50, 10):
        writer.batch([row(i) for i in range(first, first + 10)], codec=codec)
    bad = third_batch(writer.log)
    damage(writer.log, bad.pos + 65)
    before = []
    with pytest.raises(errors.CorruptMessage):
        before.extend(map(fields, writer.log.scan().records()))
    assert before == expected(writer, stop=20)
    assert found(writer, 30) == expected(writer, 30)


def test_a_compressed_body_that_is_none(writer):
    writer.batch([row(0)] * 10)
    good = batches.batch([row(1)] * 10, codec="zstd")
    broken = good[21:61] + b"not a frame"
    writer.log.append_as_follower(batches.seal(broken, 10, 0))
    with pytest.raises(
        errors.CorruptMessage, match="orders-3: the batch at offset 10: zstd: "
    ) as e:
        list(writer.log.scan())
    assert type(e.value) is errors.CorruptMessage
    assert len(list(writer.log.scan(0, 10).records())) == 10


@pytest.mark.parametrize(
    ("cut", "words"),
    [
        (lambda body: body[:-1], "record 9 of 10: its lengths do not agree"),
        (lambda body: body + b"x", "its 10 records do not have growing offsets"),
        (lambda body: body[: len(body) // 10 * 4], "record 4 of 10: its lengths"),
        (lambda body: b"\x7e" * 40, "record 0 of 10: its lengths do not agree"),
    ],
)
def test_a_compressed_body_that_holds_other_records(writer, cut, words):
    rows = [batches.Row(b"some value", timestamp_ms=0)] * 10
    plain = batches.batch(rows)[61:]
    head = batches.batch(rows, codec="lz4")[21:61]
    body = batches.compress(cut(plain), "lz4")
    writer.batch(rows)
    writer.log.append_as_follower(batches.seal(head + body, 10, 0))
    before = []
    with pytest.raises(errors.CorruptMessage, match=f"orders-3: the batch at offset 10: .*{words}"):
        before.extend(map(fields, writer.log.scan().records()))
    assert before == expected(writer)


def test_a_batch_above_the_limit(tmp_path):
    config = {"kafkalog.max.decompressed.bytes": 1 << 20}
    bomb = batches.batch([batches.Row(bytes(2 << 20))], codec="zstd", leader_epoch=0)
    with kafkalog.Log(tmp_path / "orders-3", config=config) as log:
        log.append(b"before")
        log.append_as_follower(batches.seal(bomb[21:], 1, 0))
        records = log.scan().records()
        assert next(records).value == b"before"
        with pytest.raises(errors.MessageTooLarge, match=r"the batch at offset 1: zstd: .*1048576"):
            next(records)
        assert log.scan().count() == 2


def test_a_log_that_is_cut_during_a_scan(writer):
    for _ in range(20):
        writer.batch([batches.Row(b"x" * 400)] * 1000)
    passing = iter(writer.log.scan(batch_rows=1))
    assert len(next(passing)) == 1000
    writer.log.truncate(5000)
    with pytest.raises((errors.StaleLog, errors.OffsetOutOfRange)):
        for batch in passing:
            assert len(batch) == 1000


def test_a_closed_log(mixed):
    passing = mixed.log.scan(batch_rows=1).records()
    next(passing)
    scan = mixed.log.scan()
    mixed.log.close()
    for call in (scan.count, scan.to_numpy, lambda: next(scan.records())):
        with pytest.raises(errors.Closed):
            call()
    passing.close()


def test_records_can_be_closed_early(mixed):
    records = mixed.log.scan().records()
    assert next(records).offset == 0
    records.close()
    assert next(records, None) is None


def test_passes_in_several_threads(mixed):
    wanted = expected(mixed)
    wrong = []

    def read(scan):
        for _ in range(5):
            if list(map(fields, scan.records())) != wanted:
                wrong.append(scan)

    scan = mixed.log.scan()
    threads = [threading.Thread(target=read, args=(scan,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
