"""The share of a cluster that one round asks for."""

from __future__ import annotations

from kafkalog.types import TopicPartition
from kafkalog.watch.pace import next_at_s, next_slice


def test_slices_give_everything_its_turn() -> None:
    every = list("abcde")
    found, last = [], None
    for _ in range(4):
        some, last = next_slice(every, (), last, 2)
        found.append("".join(some))
    assert found == ["ab", "cd", "ea", "bc"]


def test_wanted_things_come_first_and_are_not_asked_twice() -> None:
    every = list("abcde")
    some, last = next_slice(every, "ca", None, 4)
    assert (some, last) == (["c", "a", "b", "d"], "d")
    assert next_slice(every, "ca", last, 4) == (["c", "a", "e", "b"], "b")
    assert next_slice(every, "edc", "b", 2) == (["e", "d"], "b")
    assert next_slice(every, "aa", None, 100) == (list("abcde"), "e")


def test_a_slice_continues_after_a_thing_that_is_gone() -> None:
    assert next_slice(["a", "d", "e"], (), "c", 2) == (["d", "e"], "e")
    assert next_slice([], (), "c", 2) == ([], "c")


def test_a_round_of_100_000_partitions_is_bounded() -> None:
    every = [TopicPartition(f"t{n // 100:04}", n % 100) for n in range(100_000)]
    asked: set[TopicPartition] = set()
    last = None
    for _ in range(10):
        some, last = next_slice(every, (), last, 10_000)
        assert len(some) == 10_000
        asked.update(some)
    assert len(asked) == 100_000


def test_a_part_rests_nine_times_as_long_as_it_took() -> None:
    assert next_at_s(10.0, 10.0) == 10.0
    assert next_at_s(10.0, 12.0) == 30.0
