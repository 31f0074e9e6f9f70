"""The content of a micro-batch, from numbers alone."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark_kafkalog import lag
from pyspark_kafkalog.columns import NAMES
from pyspark_kafkalog.errors import BadOption
from pyspark_kafkalog.options import HoldOptions, parse_stream
from pyspark_kafkalog.plan import Ends, Marks, Range
from pyspark_kafkalog.stream.admission import (
    NO_LIMITS,
    Head,
    Limits,
    Waiting,
    admit,
    available,
    ranges_between,
)
from pyspark_kafkalog.stream.offsets import Offsets, from_json, to_json

A, B, C = ("t", 0), ("t", 1), ("u", 0)


def head(ends, ids=None, only_flushed=False):
    return Head({key: Ends(*each) for key, each in ends.items()}, {}, ids or {}, only_flushed)


def nothing(ranges):
    raise AssertionError("bytes are not limited")


# ---- offsets as JSON


def test_offsets_are_kafkas_with_the_topics_ids():
    offsets = Offsets({("t", 10): 3, ("t", 9): 5, ("a", 0): 1}, {"t": "id-t"})
    text = json.dumps(to_json(offsets))
    assert text == '{"@ids": {"t": "id-t"}, "a": {"0": 1}, "t": {"9": 5, "10": 3}}'
    assert from_json(json.loads(text)) == offsets


def test_offsets_of_sparks_kafka_source_are_understood():
    assert from_json({"t": {"0": 23, "1": 0}}) == Offsets({A: 23, B: 0})


@pytest.mark.parametrize("found", [5, "x", {"t": 3}, {"t": {"x": 1}}, {"t": {"0": "a"}}, [1]])
def test_offsets_of_another_source_are_refused(found):
    with pytest.raises(BadOption, match="checkpoint: found the offsets"):
        from_json(found)


# ---- available offsets


def test_a_stream_goes_on_where_it_was_and_takes_new_partitions_from_their_start():
    offer = available(Offsets({A: 3}), head({A: (0, 10), B: (0, 4)}))
    assert (offer.begins, offer.stops, offer.lost) == ({A: 3, B: 0}, {A: 10, B: 4}, ())
    assert offer.total == 11


@pytest.mark.parametrize(
    ("start", "now", "begins", "told"),
    [
        ({A: 3}, {A: (5, 10)}, {A: 5}, "t-0: offset 3 was to be read next, but the log begins"),
        ({A: 30}, {A: (0, 10)}, {A: 10}, "t-0: offset 30 was to be read next, but the log ends"),
        ({A: 3, B: 2}, {A: (0, 10)}, {A: 3}, "t-1: was deleted; read up to offset 2"),
        ({A: 3}, {A: (0, 10), B: (2, 4)}, {A: 3, B: 2}, "t-1: is new and begins with offset 2"),
    ],
)
def test_each_kind_of_loss_is_told(start, now, begins, told):
    offer = available(Offsets(start), head(now))
    assert offer.begins == begins
    assert len(offer.lost) == 1 and offer.lost[0].startswith(told)


def test_a_recreated_topic_is_known_by_its_id():
    """Its offsets would also be valid for the old one."""
    offer = available(Offsets({A: 3}, {"t": "old"}), head({A: (0, 10)}, {"t": "new"}))
    assert offer.begins == {A: 0} and offer.ids == {"t": "new"}
    assert "deleted and recreated (old is now new)" in offer.lost[0]
    for was, now in ({}, {"t": "new"}), ({"t": "old"}, {}):  # one of the ids is unknown
        assert not available(Offsets({A: 3}, was), head({A: (0, 10)}, now)).lost


def test_a_target_is_not_passed():
    """Neither by records, nor by partitions, nor by a topic that came later."""
    target = Offsets({A: 5, C: 4}, {"t": "one", "u": "one"})
    start = Offsets({A: 3, C: 1}, {"t": "one", "u": "one"})
    now = head({A: (0, 10), B: (0, 9), C: (0, 9)}, {"t": "one", "u": "two"})
    offer = available(start, now, target)
    assert offer.begins == {A: 3, C: 1} and offer.stops == {A: 5, C: 1}
    assert offer.ids == {"t": "one", "u": "one"} and not offer.lost


def test_only_flushed_records():
    """Records that were read stay read: a restarted writer knows less than the last one."""
    now = Head({A: Ends(0, 10, 6)}, {}, {}, only_flushed=True)
    assert available(Offsets({A: 3}), now).stops == {A: 6}
    offer = available(Offsets({A: 8}), now)
    assert offer.stops == {A: 8} and not offer.lost


# ---- limits


@given(
    st.dictionaries(
        st.tuples(st.sampled_from("tu"), st.integers(0, 9)),
        st.tuples(st.integers(0, 50), st.integers(0, 1000)),
        max_size=8,
    ),
    st.integers(1, 500),
)
def test_a_limit_is_kept_and_nobody_starves(logs, most):
    """Except for one offset of each partition, as in Spark's Kafka source."""
    now = head({key: (0, start + behind) for key, (start, behind) in logs.items()})
    start = Offsets({key: start for key, (start, _) in logs.items()})
    offer = available(start, now)
    ends, _ = admit(offer, Limits(max_offsets=most), Waiting(), 0, nothing)
    taken = {key: ends.at[key] - start.at[key] for key in start.at}
    for key, (_, behind) in logs.items():
        assert min(1, behind) <= taken[key] <= behind
    assert sum(taken.values()) <= max(most + len(logs), 0)
    if offer.total <= most:
        assert sum(taken.values()) == offer.total
    else:
        assert sum(taken.values()) >= min(most, offer.total) - len(logs)


@given(st.lists(st.integers(1, 100), min_size=1, max_size=20), st.integers(1, 600), st.data())
def test_bytes_are_cut_where_a_batch_begins(sizes, most, data):
    """Batches of ten offsets; at least one of them, however large."""
    offsets = [10 * i for i in range(len(sizes) + 1)]
    marks = Marks(offsets, [sum(sizes[:i]) for i in range(len(sizes) + 1)])
    begin = data.draw(st.integers(0, offsets[-1] - 1))
    offer = available(Offsets({A: begin}), head({A: (0, offsets[-1])}))
    ends, _ = admit(offer, Limits(max_bytes=most), Waiting(), 0, lambda _: {A: marks})
    stop = ends.at[A]
    assert stop > begin and stop % 10 == 0
    one_batch = stop <= (begin // 10 + 1) * 10
    assert one_batch or marks.at(stop) - marks.at(begin) <= most


def test_both_limits_at_once():
    marks = Marks([0, 10, 20, 30], [0, 100, 200, 300])
    offer = available(Offsets({A: 0}), head({A: (0, 30)}))
    for limits, stop in (
        (Limits(max_offsets=5, max_bytes=1000), 5),
        (Limits(max_offsets=25, max_bytes=150), 10),
        (NO_LIMITS, 30),
    ):
        assert admit(offer, limits, Waiting(), 0, lambda _: {A: marks})[0].at == {A: stop}


def test_a_small_batch_waits_for_more_or_for_its_time():
    limits = Limits(min_offsets=10, max_delay_ms=100)
    few = available(Offsets({A: 0}), head({A: (0, 3)}))
    enough = available(Offsets({A: 0}), head({A: (0, 10)}))
    waiting = Waiting()
    ends, waiting = admit(few, limits, waiting, 1000, nothing)
    assert ends is not None  # the first, as in Spark's Kafka source
    assert admit(few, limits, waiting, 1099, nothing)[0] is None
    assert admit(enough, limits, waiting, 1050, nothing)[0] is not None
    ends, waiting = admit(few, limits, waiting, 1100, nothing)
    assert ends is not None and waiting.since_ms == 1100


# ---- a repeated batch


def test_a_batch_is_unaffected_by_later_records():
    start, end = Offsets({A: 3}, {"t": "i"}), Offsets({A: 7, B: 2}, {"t": "i"})
    found = ranges_between(start, end, head({A: (0, 50), B: (0, 50)}, {"t": "i"}))
    assert found == ([Range(A, 3, 7), Range(B, 0, 2)], [])


def test_a_batch_with_missing_records():
    start, end = Offsets({A: 3, B: 0, C: 0}, {"u": "i"}), Offsets({A: 7, B: 2, C: 9}, {"u": "i"})
    ranges, lost = ranges_between(start, end, head({A: (5, 50), C: (0, 9)}, {"u": "j"}))
    assert ranges == [Range(A, 5, 7)]
    assert [one[:3] for one in lost] == ["t-0", "t-1", "u-0"]


def test_a_topic_recreated_between_batches_is_read_from_its_start():
    start, end = Offsets({A: 30}, {"t": "old"}), Offsets({A: 40}, {"t": "new"})
    found = ranges_between(start, end, head({A: (0, 50)}, {"t": "new"}))
    assert found == ([Range(A, 0, 40)], [])


# ---- lag


def test_lag_of_a_progress_in_each_form():
    source = {
        "description": "org.apache.spark.PythonMicroBatchStream@3a44f494",
        "endOffset": '{"t": {"0": 5}}',
        "latestOffset": '{"@ids": {"t": "x"}, "t": {"0": 8, "1": 9}}',
    }
    other = {"description": "rate", "endOffset": "5", "latestOffset": None}
    for progress in (
        {"sources": [source, other]},
        SimpleNamespace(sources=[SimpleNamespace(**source), SimpleNamespace(**other)]),
    ):
        found = lag(progress)
        assert found.each == {A: 3, B: 9}
        assert (found.total, found.largest, found.smallest, found.average) == (12, 9, 3, 6.0)
    assert lag(None).total == lag({"sources": []}).largest == 0


# ---- options


def parse(**options):
    given = {"path": "x", "subscribe": "t"} | {k.replace("__", "."): v for k, v in options.items()}
    return parse_stream(given, NAMES)


def test_options_of_a_stream():
    found = parse(
        maxOffsetsPerTrigger="10", minOffsetsPerTrigger="10", maxTriggerDelay="90s",
        maxBytesPerTrigger="4m", onlyFlushed="TRUE", retentionHold="q-1",
        retentionHoldMaxBytes="1g", retentionHoldMaxAge="2h",
    )  # fmt: skip
    assert (found.max_offsets, found.min_offsets, found.max_delay_ms) == (10, 10, 90_000)
    assert found.max_trigger_bytes == 4 << 20 and found.only_flushed
    assert found.hold == HoldOptions("q-1", 1 << 30, 7_200_000)
    assert parse().hold is None and parse().max_bytes == 32 << 20


@pytest.mark.parametrize(
    ("option", "text", "told"),
    [
        ("retentionHold", "a/b", "option 'retentionHold': found 'a/b'"),
        ("retentionHoldMaxAge", "1h", "option 'retentionHoldMaxAge': found no 'retentionHold'"),
        ("retentionHoldMaxBytes", "1", "option 'retentionHoldMaxBytes': found no 'retentionHold'"),
        ("maxBytesPerTrigger", "x", "option 'maxBytesPerTrigger': found 'x', wanted bytes"),
        ("onlyFlushed", "maybe", "option 'onlyFlushed': found 'maybe'"),
        ("endingOffsets", "latest", "endingOffsets"),
        ("maxOffsetPerTrigger", "5", "did you mean 'maxOffsetsPerTrigger'"),
    ],
)
def test_a_stream_refuses_these_options(option, text, told):
    with pytest.raises(BadOption, match=told):
        parse(**{option: text})


@pytest.mark.parametrize("name", ["retentionHold", "onlyFlushed"])
def test_options_of_a_path_are_refused_for_brokers(name):
    given = {"kafka.bootstrap.servers": "a:1", "subscribe": "t", name: "true"}
    with pytest.raises(BadOption, match=f"option '{name}': found kafka.bootstrap.servers"):
        parse_stream(given, NAMES)


def test_a_hold_reaches_a_week_at_most():
    with pytest.raises(BadOption, match="found '8d', wanted 1ms to 7d"):
        parse(retentionHold="q", retentionHoldMaxAge="8d")
