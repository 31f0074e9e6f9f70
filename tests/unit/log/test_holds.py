"""Retention holds: a lagging reader keeps its segments, within limits."""

import logging
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kafkalog
from kafkalog.clock import ManualClock
from kafkalog.disk import holds
from kafkalog.disk.holds import HOLD_MS_MAX, HOLDS_MAX, Hold, read_holds, remove_hold, write_hold
from kafkalog.log.retention import Expiry, held_back
from kafkalog.types import TopicPartition
from tests.unit.log.test_retention import Segment

TP = TopicPartition("t", 0)
DAY_MS = 24 * 3_600_000


def hold(offset: int, name: str = "stream", until_ms: int = 10, max_bytes: int = 1 << 40) -> Hold:
    return Hold(name, until_ms, max_bytes, {TP: offset})


# ---- what is deleted


@given(
    sizes=st.lists(st.integers(1, 100), min_size=1, max_size=12),
    data=st.data(),
)
def test_a_hold_keeps_exactly_its_segments_within_its_bytes(sizes, data):
    segments = [Segment(10 * i, 10 * i + 10, size, 0) for i, size in enumerate(sizes)]
    going = data.draw(st.integers(1, len(sizes)))
    time = data.draw(st.integers(0, going))
    size = data.draw(st.integers(0, going - time))
    expiry = Expiry(10 * going, time, size, going - time - size)
    wanted, room = data.draw(st.integers(0, 130)), data.draw(st.integers(0, 500))
    found = held_back(segments, expiry, wanted, room)
    gone = found.before_offset // 10
    assert found.time + found.size + found.start == gone == going - found.held
    assert found.time <= time and found.size <= size and found.start <= expiry.start
    assert sum(sizes[gone:going]) <= room
    assert all(one.next_offset > wanted for one in segments[gone:going])
    if gone and segments[gone - 1].next_offset > wanted:  # only for lack of room
        assert sum(sizes[gone - 1 : going]) > room


def test_a_log_obeys_a_hold(tmp_path):
    """Only of the hold's partition, until it ends; then the usual retention applies."""
    clock = ManualClock(1_000 * DAY_MS)
    config = {"retention.ms": 1_000, "segment.bytes": 1_000, "file.delete.delay.ms": 0}
    with kafkalog.Log(tmp_path / "t-0", config=config, clock=clock) as log:
        log.append_many([b"x" * 100] * 50, timestamps_ms=[0] * 50, batch_bytes=300)
        now_ms = clock.now_ms()
        write_hold(str(tmp_path), hold(20, until_ms=now_ms + DAY_MS), now_ms)
        other = Hold("other", now_ms + DAY_MS, 1 << 40, {TopicPartition("t", 1): 0})
        write_hold(str(tmp_path), other, now_ms)
        found = log.apply_retention(now_ms)
        assert found is not None and found.time and found.held
        assert 0 < log.start_offset <= 20
        kept = log.start_offset
        again = log.apply_retention(now_ms)
        assert again is not None and again.time == 0 and again.held == found.held
        assert log.start_offset == kept
        log.apply_retention(now_ms + DAY_MS)
        assert log.start_offset == log.end_offset == 50


def test_a_hold_keeps_no_more_than_its_bytes(tmp_path):
    config = {"retention.ms": 1_000, "segment.bytes": 1_000}
    with kafkalog.Log(tmp_path / "t-0", config=config) as log:
        log.append_many([b"x" * 100] * 50, timestamps_ms=[0] * 50, batch_bytes=300)
        segments = log.segments
        now_ms = DAY_MS
        room = sum(one.size_bytes for one in segments[-3:])
        write_hold(str(tmp_path), hold(0, until_ms=now_ms + 1, max_bytes=room), now_ms)
        found = log.apply_retention(now_ms)
        assert found is not None and found.held == 3
        assert log.start_offset == segments[-3].base_offset


# ---- the files


def test_holds_are_read_as_they_were_written(tmp_path):
    one, two = hold(5), hold(7, "b.2-x")
    for each in (one, two, one._replace(offsets={TP: 6})):
        write_hold(str(tmp_path), each, 0)
    assert read_holds(str(tmp_path), 9) == [two, one._replace(offsets={TP: 6})]
    assert read_holds(str(tmp_path), 10) == []
    remove_hold(str(tmp_path), "stream")
    remove_hold(str(tmp_path), "never")
    assert read_holds(str(tmp_path), 9) == [two]


def test_holds_that_ended_are_swept_with_the_next(tmp_path):
    write_hold(str(tmp_path), hold(5, "old"), 0)
    write_hold(str(tmp_path), hold(5, "new", until_ms=30), 20)
    assert [path.name for path in tmp_path.iterdir()] == [".kafkalog_hold.new"]


@pytest.mark.parametrize("name", ["", "a/b", "..//x", "a b", "x" * 201])
def test_a_name_is_one(tmp_path, name):
    with pytest.raises(kafkalog.errors.ArgumentError, match="hold: found the name"):
        write_hold(str(tmp_path), hold(0, name), 0)


def test_there_are_not_too_many(tmp_path, caplog):
    for number in range(HOLDS_MAX):
        write_hold(str(tmp_path), hold(0, f"h{number:03}"), 0)
    write_hold(str(tmp_path), hold(1, "h007"), 0)
    with pytest.raises(
        kafkalog.errors.ArgumentError, match="found 100 holds, wanted fewer than 100"
    ):
        write_hold(str(tmp_path), hold(0, "one-more"), 0)
    extra = (tmp_path / ".kafkalog_hold.h000").read_bytes()
    (tmp_path / ".kafkalog_hold.zzz").write_bytes(extra)
    with caplog.at_level(logging.WARNING):
        assert len(read_holds(str(tmp_path), 0)) == HOLDS_MAX
    assert "zzz: the hold is not obeyed: there are more than 100" in caplog.text


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", "\0", '{"version":2}', '{"version":1,"until_ms":5,"max_bytes":1,"offsets":3}'],
)
def test_an_invalid_hold_is_reported_and_keeps_nothing(tmp_path: Path, caplog, text):
    (tmp_path / ".kafkalog_hold.bad").write_text(text)
    write_hold(str(tmp_path), hold(5, "good"), 0)
    with caplog.at_level(logging.WARNING):
        assert [one.name for one in read_holds(str(tmp_path), 0)] == ["good"]
    assert f"{tmp_path / '.kafkalog_hold.bad'}: the hold is not obeyed" in caplog.text


def test_a_hold_does_not_reach_far_ahead_nor_grow(tmp_path, caplog, monkeypatch):
    write_hold(str(tmp_path), hold(0, until_ms=HOLD_MS_MAX + 1), 0)
    assert read_holds(str(tmp_path), 0) == []
    assert "it reaches more than" in caplog.text
    monkeypatch.setattr(holds, "FILE_BYTES_MAX", 50)
    assert read_holds(str(tmp_path), 1) == []
    assert "wanted at most 50" in caplog.text
