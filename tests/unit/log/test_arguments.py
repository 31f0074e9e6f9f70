"""A wrong argument is named, with what was found and what was wanted."""

import warnings
from datetime import datetime, timedelta, timezone

import numpy as np
import pytest

import kafkalog
from kafkalog.log.appending import SINGLE_COMPRESSED_MAX


@pytest.fixture
def log(tmp_path):
    with kafkalog.Log(tmp_path / "orders-0") as opened:
        yield opened


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"headers": {}}, r"headers\[0\]: found dict \{\}, wanted pairs of a str and bytes"),
        ({"headers": {"a": b"1"}}, r"give its items\(\)"),
        ({"headers": 5}, r"headers\[0\]: found int 5"),
        ({"headers": "ab"}, r"headers\[0\]: found str 'ab'"),
        ({"headers": [1]}, r"headers\[0\]: found int 1"),
        ({"headers": [("a",)]}, r"headers\[0\]: found tuple \('a',\)"),
        ({"headers": [(b"a", b"b")]}, r"headers\[0\]: found name b'a', wanted a str"),
        ({"headers": [("\ud800", b"b")]}, "not Unicode text"),
        ({"headers": [("a", "b")]}, "found str, wanted bytes or None; encode it first"),
        ({"timestamp_ms": 1.5}, "timestamp_ms: found 1.5 of type float, wanted an int"),
        ({"timestamp_ms": "a"}, "timestamp_ms: found 'a' of type str, wanted an int"),
        ({"timestamp_ms": -5}, "timestamp_ms: found -5, wanted -1 or more"),
        ({"timestamp_ms": 1 << 63}, "timestamp_ms: found 9223372036854775808, wanted -1 to"),
        ({"key": "a"}, "found str, wanted bytes or None; encode it first"),
        ({"expected_offset": 0.0}, "expected_offset: found 0.0 of type float, wanted an int"),
        ({"expected_offset": -1}, "expected_offset: found -1, wanted 0 or more"),
    ],
)
def test_append_names_the_mistake(log, given, said):
    with pytest.raises(kafkalog.errors.ArgumentError, match=said):
        log.append(b"v", **given)
    assert log.end_offset == 0


def test_append_many_names_the_row(log):
    with pytest.raises(kafkalog.errors.ArgumentError, match=r"timestamps_ms\[1\]: found float 1.5"):
        log.append_many([b"a", b"b"], timestamps_ms=[1, 1.5])
    with pytest.raises(kafkalog.errors.ArgumentError, match="headers: found dict"):
        log.append_many([b"a"], headers={0: []})
    assert log.end_offset == 0


def test_other_bytes_than_bytes_are_taken(log):
    log.append(bytearray(b"v"), key=memoryview(b"k"), timestamp_ms=np.int64(5))
    assert (log[0].value, log[0].key, log[0].timestamp_ms) == (b"v", b"k", 5)


@pytest.mark.parametrize("call", ["read", "scan", "follow", "read_batches", "send_to"])
def test_there_is_one_word_for_isolation(log, call):
    arguments = {"read_batches": (0,), "send_to": (None, 0)}.get(call, ())
    with pytest.raises(
        kafkalog.errors.ArgumentError, match="isolation: found 'x', wanted one of read_"
    ):
        getattr(log, call)(*arguments, isolation="x")


def test_time_may_be_a_datetime(log):
    moment = datetime(2026, 7, 4, 12, 0, 0, 500_500, tzinfo=timezone.utc)
    ms = int(moment.timestamp() * 1000)
    log.append_many([b"a", b"b", b"c"], timestamps_ms=[ms - 1, ms, ms + 1])
    assert log.offset_at(ms) == 1
    assert log.offset_at(moment) == 2  # half a millisecond after b
    assert log.offset_at(moment.replace(microsecond=500_000)) == 1
    elsewhere = moment.astimezone(timezone(timedelta(hours=-5)))
    assert log.offset_at(elsewhere) == 2
    with pytest.raises(kafkalog.errors.ArgumentError, match="has no time zone"):
        log.offset_at(moment.replace(tzinfo=None))
    with pytest.raises(kafkalog.errors.ArgumentError, match=r"time: found 1\.5 of type float"):
        log.offset_at(1.5)


def test_single_appends_that_are_compressed_are_told_once(tmp_path):
    with (
        kafkalog.Log(tmp_path / "orders-0", config={"compression.type": "lz4"}) as log,
        warnings.catch_warnings(record=True) as told,
    ):
        warnings.simplefilter("always")
        for _ in range(SINGLE_COMPRESSED_MAX - 1):
            log.append(b"v")
        log.append_many([b"v"] * SINGLE_COMPRESSED_MAX)
        assert told == []
        for _ in range(2 * SINGLE_COMPRESSED_MAX):
            log.append(b"v")
    assert len(told) == 1
    assert "append_many compresses rows together" in str(told[0].message)
    assert told[0].filename == __file__
