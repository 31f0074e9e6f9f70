"""Planning, without files: which partitions, which offsets, which tasks."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark_kafkalog.errors import BadOption, DataLoss
from pyspark_kafkalog.options import EARLIEST, LATEST, Limit, ReadOptions, Selection
from pyspark_kafkalog.plan import (
    PACK_OFFSETS,
    Ends,
    Marks,
    Range,
    check_loss,
    choose,
    resolve,
    split_bytes,
    tasks,
    times_wanted,
)

A0, A1, B0 = ("a", 0), ("a", 1), ("b", 0)
PRESENT = [B0, A1, A0, ("__consumer_offsets", 0)]
OPTIONS = ReadOptions(
    path="data",
    selection=Selection(topics=("a",)),
    start=Limit("startingOffsets", everywhere=EARLIEST),
    end=Limit("endingOffsets", everywhere=LATEST),
)


def bound(options, ends, start_found, stop_found):
    return check_loss(resolve(options, ends, start_found, stop_found), ends, options)


def offsets(side: str, each: dict[tuple[str, int], int]) -> Limit:
    return Limit(f"{side}Offsets", each=each)


def timestamp(side: str, ms: int) -> Limit:
    return Limit(f"{side}Timestamp", by_time=True, everywhere=ms)


# ---- which topic-partitions


def test_topics_by_name_internal_ones_too():
    assert choose(Selection(topics=("b", "a")), PRESENT) == [A0, A1, B0]
    assert choose(Selection(topics=("__consumer_offsets",)), PRESENT) == [("__consumer_offsets", 0)]


def test_a_pattern_matches_whole_names_and_no_internal_topic():
    assert choose(Selection(pattern=".*"), PRESENT) == [A0, A1, B0]
    assert choose(Selection(pattern="a|bb"), PRESENT) == [A0, A1]
    assert choose(Selection(pattern="nothing"), PRESENT) == []


def test_assigned_partitions():
    assert choose(Selection(assigned=(A1,)), PRESENT) == [A1]


@pytest.mark.parametrize(
    ("selection", "words"),
    [
        (Selection(topics=("a", "orderz")), "'subscribe': no topic 'orderz' here; did you mean"),
        (Selection(topics=("q",)), "no topic 'q' here; found"),
        (Selection(assigned=(("q", 0),)), "'assign': no topic 'q'"),
        (Selection(assigned=(("a", 7),)), "no partition 7 of 'a'; found [0, 1]"),
    ],
)
def test_named_partitions_must_exist(selection, words):
    with pytest.raises(BadOption) as caught:
        choose(selection, [*PRESENT, ("orders", 0)])
    assert words in str(caught.value)


# ---- which offsets

ENDS = {A0: Ends(10, 100), A1: Ends(0, 50)}


def test_all_there_is():
    assert bound(OPTIONS, ENDS, {}, {}) == ([Range(A0, 10, 100), Range(A1, 0, 50)], [])


def test_an_empty_range_is_left_out():
    assert bound(OPTIONS, {A0: Ends(7, 7), A1: Ends(0, 50)}, {}, {}) == ([Range(A1, 0, 50)], [])


def test_offsets_by_partition():
    options = replace(
        OPTIONS,
        start=offsets("starting", {A0: 20, A1: EARLIEST}),
        end=offsets("ending", {A0: 30, A1: LATEST}),
    )
    assert bound(options, ENDS, {}, {})[0] == [Range(A0, 20, 30), Range(A1, 0, 50)]


@pytest.mark.parametrize(
    ("each", "words"),
    [
        ({A0: 1}, "leaves out a-1; wanted exactly"),
        ({A0: 1, A1: 1, B0: 1}, "names b-0, which is not read here; wanted exactly"),
        ({A0: 1, B0: 1}, "leaves out a-1 and names b-0"),
    ],
)
def test_limits_by_partition_name_all_partitions_read(each, words):
    for limit in (offsets("starting", each), Limit("x", by_time=True, each=each)):
        with pytest.raises(BadOption) as caught:
            times_wanted(limit, [A0, A1])
        assert words in str(caught.value)


def test_only_limits_by_time_are_looked_up():
    assert times_wanted(OPTIONS.start, [A0]) == {}
    assert times_wanted(timestamp("starting", 5), [A0, A1]) == {A0: 5, A1: 5}
    by_partition = Limit("x", by_time=True, each={A0: 5, A1: 6})
    assert times_wanted(by_partition, [A0, A1]) == {A0: 5, A1: 6}


def test_times_become_offsets():
    options = replace(OPTIONS, start=timestamp("starting", 5), end=timestamp("ending", 9))
    ranges, _ = bound(options, ENDS, {A0: 15, A1: 3}, {A0: 20, A1: None})
    assert ranges == [Range(A0, 15, 20), Range(A1, 3, 50)]


@pytest.mark.parametrize("found", [None, 100, 101])
def test_no_record_at_the_starting_time_is_an_error_or_the_end(found):
    """A record at or past the readable end (100) counts as none."""
    options = replace(OPTIONS, start=timestamp("starting", 5))
    with pytest.raises(BadOption, match=r"a-0: no record at or after 5 ms \(startingTimestamp\)"):
        bound(options, ENDS, {A0: found, A1: 3}, {})
    options = replace(options, start_without_match="latest")
    assert bound(options, ENDS, {A0: found, A1: 3}, {})[0] == [Range(A1, 3, 50)]


def test_an_ending_time_beyond_the_bound_ends_at_the_bound():
    options = replace(OPTIONS, end=timestamp("ending", 5))
    assert bound(options, ENDS, {}, {A0: 150, A1: 0})[0] == [Range(A0, 10, 100)]


def test_start_after_end_is_refused():
    options = replace(OPTIONS, start=offsets("starting", {A0: 40}), end=offsets("ending", {A0: 30}))
    with pytest.raises(BadOption, match="a-0: startingOffsets gives offset 40, which is after"):
        bound(options, {A0: Ends(10, 100)}, {}, {})


@pytest.mark.parametrize(
    ("start", "stop", "there"),
    [
        (5, 30, [Range(A0, 10, 30)]),
        (20, 101, [Range(A0, 20, 100)]),
        (0, 9, []),
        (120, 130, []),
    ],
)
def test_lost_records_fail_the_read_or_are_warned_about(start, stop, there):
    options = replace(
        OPTIONS, start=offsets("starting", {A0: start}), end=offsets("ending", {A0: stop})
    )
    ends = {A0: Ends(10, 100)}
    with pytest.raises(DataLoss, match=f"a-0: wanted offsets {start} to {stop}, found committed"):
        bound(options, ends, {}, {})
    ranges, warnings = bound(replace(options, fail_on_data_loss=False), ends, {}, {})
    assert ranges == there
    assert len(warnings) == 1
    assert "a-0" in warnings[0]


# ---- which tasks

HUNDRED = Marks(offsets=list(range(0, 101, 10)), bytes_before=list(range(0, 1001, 100)))
"""100 offsets in batches of 10, 100 bytes each."""


def test_bytes_between_known_places_are_estimated():
    assert [HUNDRED.at(offset) for offset in (-5, 0, 5, 10, 99, 100, 200)] == [
        *(0, 0, 50, 100, 990, 1000, 1000)
    ]


def test_a_large_range_is_cut_where_batches_begin():
    assert split_bytes(Range(A0, 5, 95), HUNDRED, 300) == [
        Range(A0, 5, 40),
        Range(A0, 40, 70),
        Range(A0, 70, 95),
    ]


def test_one_batch_is_not_cut_for_its_bytes():
    assert split_bytes(Range(A0, 0, 10), HUNDRED, 1) == [Range(A0, 0, 10)]


def test_small_ranges_share_a_task_in_order():
    ranges = [Range(A0, 0, 10), Range(A1, 0, 10), Range(B0, 0, 10)]
    places = dict.fromkeys((A0, A1, B0), HUNDRED)
    assert tasks(ranges, places, OPTIONS) == [ranges]
    two_fit = replace(OPTIONS, max_bytes=800)
    assert tasks(ranges, places, two_fit) == [ranges[:2], ranges[2:]]


def test_ranges_of_many_records_do_not_share_a_task_however_well_they_compress():
    """But where most offsets were removed, a range is as small as its bytes."""
    ranges = [Range(A0, 0, PACK_OFFSETS), Range(A1, 0, PACK_OFFSETS), Range(B0, 0, 10)]
    packed = Marks([0, PACK_OFFSETS], [0, 2 * PACK_OFFSETS])
    assert tasks(ranges, {A0: packed, A1: packed, B0: HUNDRED}, OPTIONS) == [
        [one] for one in ranges
    ]
    removed = Marks([0, PACK_OFFSETS], [0, 100])
    assert tasks(ranges, {A0: removed, A1: removed, B0: HUNDRED}, OPTIONS) == [ranges]


def test_a_task_holds_no_more_records_than_allowed():
    ranges = [Range(A0, 0, 25), Range(A1, 0, 5)]
    planned = tasks(ranges, {A0: HUNDRED, A1: HUNDRED}, replace(OPTIONS, max_records=10))
    assert [sum(piece.count for piece in task) for task in planned] == [8, 8, 9, 5]


def test_min_partitions_cuts_at_batches_first_and_inside_them_when_it_must():
    options = replace(OPTIONS, min_partitions=4)
    planned = tasks([Range(A0, 0, 100)], {A0: HUNDRED}, options)
    assert [[(p.start, p.stop) for p in task] for task in planned] == [
        [(0, 30)],
        [(30, 50)],
        [(50, 80)],
        [(80, 100)],
    ]
    single = Marks([0, 100], [0, 1000])
    assert len(tasks([Range(A0, 0, 100)], {A0: single}, options)) == 4
    assert len(tasks([Range(A0, 0, 3)], {A0: single}, options)) == 3


def test_nothing_to_read_is_no_task():
    assert tasks([], {}, OPTIONS) == []
    assert tasks([], {}, replace(OPTIONS, min_partitions=5)) == []


def test_a_single_offset_is_not_cut():
    """Five tasks of five offsets: the first piece is already one of them."""
    places = Marks([0, 35, 39], [0, 36, 36])
    planned = tasks([Range(A0, 34, 39)], {A0: places}, replace(OPTIONS, min_partitions=5))
    assert [piece.count for task in planned for piece in task] == [1] * 5


@st.composite
def a_log(draw: st.DrawFn) -> tuple[Marks, int, int]:
    """Marks of a log and any range in it."""
    steps = draw(st.lists(st.tuples(st.integers(1, 50), st.integers(0, 5_000)), max_size=30))
    offsets, before = [draw(st.integers(0, 2**40))], [0]
    for count, size in steps:
        offsets.append(offsets[-1] + count)
        before.append(before[-1] + size)
    start = draw(st.integers(offsets[0], offsets[-1]))
    return Marks(offsets, before), start, draw(st.integers(start, offsets[-1]))


@given(
    logs=st.lists(a_log(), max_size=5),
    max_bytes=st.integers(1, 20_000),
    max_records=st.none() | st.integers(1, 100),
    min_partitions=st.none() | st.integers(1, 50),
)
def test_every_offset_is_in_exactly_one_task(logs, max_bytes, max_records, min_partitions):
    options = replace(
        OPTIONS, max_bytes=max_bytes, max_records=max_records, min_partitions=min_partitions
    )
    wanted = [Range(("t", i), a, b) for i, (_, a, b) in enumerate(logs) if a < b]
    planned = tasks(wanted, {("t", i): log[0] for i, log in enumerate(logs)}, options)
    joined: list[Range] = []
    for piece in (piece for task in planned for piece in task):
        assert piece.count > 0
        if joined and joined[-1].key == piece.key:
            assert joined[-1].stop == piece.start
            joined[-1] = Range(piece.key, joined[-1].start, piece.stop)
        else:
            joined.append(piece)
    assert joined == wanted
    counts = [sum(piece.count for piece in task) for task in planned]
    assert all(count <= (max_records or count) for count in counts)
    assert len(planned) >= min(min_partitions or 0, sum(counts))


def test_min_partitions_packs_too():
    """400 tiny partitions for 4 tasks: 4 tasks, and not 400."""
    keys = [("a", number) for number in range(400)]
    places = {key: Marks([0, 10], [0, 1000]) for key in keys}
    ranges = [Range(key, 0, 10) for key in keys]
    planned = tasks(ranges, places, replace(OPTIONS, min_partitions=4))
    assert [len(task) for task in planned] == [100] * 4
    assert [piece for task in planned for piece in task] == ranges
    for most in (5, 30):
        some = replace(OPTIONS, min_partitions=4, max_records=most)
        planned = tasks(ranges[:9], places, some)
        assert len(planned) >= 4 and sum(map(len, planned)) == 9 * (10 // min(most, 10))
        assert all(sum(piece.count for piece in task) <= most for task in planned)


def test_many_assigned_partitions_are_chosen_quickly():
    """With a table: 20,000 of 20,000 took 200 M comparisons."""
    keys = tuple(("a", number) for number in range(20_000))
    assert choose(Selection(assigned=keys), list(keys)) == list(keys)
