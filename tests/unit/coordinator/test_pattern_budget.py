"""The work and memory of consumer groups' patterns are bounded, for a group and for all."""

from __future__ import annotations

import logging

import pytest

from kafkalog.coordinator.consumer_groups import patterns
from kafkalog.coordinator.consumer_groups.patterns import (
    LOOKUP_WORK_MAX,
    PATTERNS_MAX,
    WORK_A_MS,
    Lookup,
    Lookups,
    look_up,
)
from kafkalog.pattern import CHARACTERS_A_STEP, NODES_MAX, PART_WORK, Pattern
from tests.unit.coordinator.consumer_calls import ConsumerDesk, given

SET = "".join(map(chr, range(0x4E00, 0x4E00 + 980)))
WORST = {
    "steps for each character": f"([^{SET}]?){{400}}",
    "steps for each place": "(.*1.{200})",
    "parts": "a?" * 490,
    "ways without a character": "(" + "|" * 90 + "a){90}",
    "characters": ".*",
}
NAMES = [f"topic-{number:05}-" + bin(3 ** (200 + number))[2:238] for number in range(600)]
"""As long as names of topics may be."""


def lookup(*texts: str, group: str = "g") -> Lookup:
    return Lookup(0, group, texts, lambda names: names)


def beyond(count: int) -> int:
    """A lookup may do this much more than LOOKUP_WORK_MAX: a pattern looks at its limit only
    between two places, and walks through names that it knows to the end."""
    return PART_WORK * NODES_MAX + NODES_MAX + count * len(NAMES[0]) // CHARACTERS_A_STEP


@pytest.mark.parametrize("text", WORST.values(), ids=WORST)
def test_as_many_of_the_worst_patterns_as_a_group_may_have(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a tenth of the limit: the test is to be short."""
    monkeypatch.setattr(patterns, "LOOKUP_WORK_MAX", LOOKUP_WORK_MAX // 10)
    every = [text if number == 0 else f"{text}{number:03}?" for number in range(PATTERNS_MAX)]
    every = [one for one in every if len(one) <= 1_000]
    found = look_up(lookup(*every), NAMES, 7)
    assert found.work <= LOOKUP_WORK_MAX // 10 + beyond(len(NAMES))
    assert found.topics.keys() == set(every), "each has an outcome, if only that it has no topic"


def test_the_patterns_behind_a_costly_one_match_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """Those before it keep their topics, and the next lookup begins again."""
    costly = WORST["steps for each place"]
    names = [f"{number}-{name}" for number, name in enumerate(NAMES)]
    caplog.set_level(logging.WARNING)
    found = look_up(lookup("0-.*", costly, "26-.*"), names, 7)
    assert [len(found.topics[one]) for one in ("0-.*", costly, "26-.*")] == [1, 0, 0]
    assert caplog.text.count("2 of 3 patterns match nothing") == 1
    assert len(look_up(lookup("26-.*"), names, 7).topics["26-.*"]) == 1


def test_simple_patterns_of_a_large_group_are_within_the_limit() -> None:
    names = [f"team-{number % 40}.service-{number}.events" for number in range(2_000)]
    every = [f"team-{number}\\..*\\.events" for number in range(PATTERNS_MAX)]
    found = look_up(lookup(*every), names, 7)
    assert sum(map(len, found.topics.values())) == len(names)
    assert found.work < LOOKUP_WORK_MAX / 5


def test_the_topics_that_a_group_keeps_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patterns, "MATCHED_MAX", 25)
    names = [f"a{number}" for number in range(10)]
    found = look_up(lookup("a.", "a[0-9]", "[ab].", "a1"), names, 7).topics
    assert [len(found[one]) for one in ("a.", "a[0-9]", "[ab].", "a1")] == [10, 10, 0, 1]


def test_an_unknown_pattern_of_another_broker_costs_only_its_reading() -> None:
    """A journal of Kafka's may have patterns that are refused here."""
    found = look_up(lookup(r"\pL", "topic.*"), NAMES, 7)
    assert len(found.topics[r"\pL"]) == 0
    assert len(found.topics["topic.*"]) == len(NAMES)


def test_characters_that_cost_no_steps_count_for_less() -> None:
    found = Pattern("topic-.*")
    assert found.matches(NAMES[0])
    before, steps = found.cost, found.work
    for _ in range(100):
        assert found.matches(NAMES[0])
    assert found.work == steps
    walked = 100 * len(NAMES[0])
    assert abs(found.cost - before - walked // CHARACTERS_A_STEP) <= 1


# ---- all groups together -------------------------------------------------------------------------


def test_one_lookup_runs_at_a_time_and_the_next_waits_for_its_share() -> None:
    order = Lookups()
    for group in "abc":
        order.add(lookup("x", group=group))
    first = order.begin(0)
    assert first is not None
    assert first.group_id == "a"
    assert order.begin(50) is None, "it runs"
    order.add(lookup("x", group="a"))  # again, behind the others
    order.done(1_000 * WORK_A_MS, now_ms=100)
    assert order.begin(1_099) is None
    rest = []
    for now_ms in (1_100, 1_200, 1_300):
        found = order.begin(now_ms)
        assert found is not None
        rest.append(found.group_id)
        order.done(WORK_A_MS, now_ms)
    assert rest == ["b", "c", "a"]
    assert order.begin(9_999) is None


def test_a_group_waits_once_however_often_it_asks() -> None:
    order = Lookups()
    for text in "xyz":
        order.add(lookup(text))
    begun = order.begin(0)
    assert begun is not None
    assert begun.patterns == ("x",)
    order.done(0, 0)
    assert order.begin(1) is None


def test_groups_get_their_topics_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """A costly lookup delays the next group's, which its heartbeats ask for again."""
    monkeypatch.setattr(patterns, "WORK_A_MS", 1)
    desk = ConsumerDesk()
    for group in ("one", "two"):
        desk.enter("a", group=group, subscribed_topic_names=[], subscribed_topic_regex="t.*")
    assert [each.group_id for each in desk.lookups] == ["one"]
    desk.look_up()
    assert given(desk.beat("a", 1, group="one")) == {"1": [0, 1, 2, 3]}
    assert not desk.lookups, "the first one's work is to be paid for"
    desk.wait(1_000)
    desk.beat("a", 1, group="two")
    assert [each.group_id for each in desk.lookups] == ["two"]
    desk.look_up()
    assert given(desk.beat("a", 1, group="two")) == {"1": [0, 1, 2, 3]}


def test_a_lookup_of_a_partition_that_has_left_frees_the_next_one() -> None:
    desk = ConsumerDesk()
    desk.enter("a", subscribed_topic_names=[], subscribed_topic_regex="t.*")
    (lost,) = desk.lookups
    desk.step(lambda step: desk.core.looked_up(
        lost._replace(partition=99), patterns.Found({}, 7, work=0), step))  # fmt: skip
    desk.enter("b", group="two", subscribed_topic_names=[], subscribed_topic_regex="t.*")
    assert [each.group_id for each in desk.lookups] == ["g", "two"]
