"""The last values of series."""

from __future__ import annotations

from kafkalog.watch.history import LAG, RECORDS_PER_S, History
from kafkalog.watch.view import State, View, advance
from tests.unit.watch.made import group, sample, topic


def views(*names: str, rounds: int = 3) -> list[View]:
    """Topics of these names, which get 10, 20, ... records a second."""
    topics = tuple(topic(name) for name in names)
    state, found = State(), []
    for n in range(rounds):
        ends = {(name, 0): 5 * n * (n + 1) for name in names}
        state, view = advance(state, sample(n, topics, ends))
        found.append(view)
    return found


def test_the_last_points_are_kept() -> None:
    history = History(length=2)
    for view in views("orders", rounds=5):
        history.add(view)
    points = history.points("topic", "orders", RECORDS_PER_S)
    assert points == [(3000, 30.0), (4000, 40.0)]
    assert history.points("cluster", "", RECORDS_PER_S) == points
    assert [one.value for one in history.points("cluster", "", LAG)] == [0.0, 0.0]
    assert history.points("topic", "none", LAG) == []


def test_there_are_at_most_so_many_series() -> None:
    history = History(series_max=4)
    for view in views("a", "b", "c", "d", "e"):
        history.add(view)
    assert len(history) == 4
    assert history.points("topic", "b", RECORDS_PER_S)
    assert not history.points("topic", "c", RECORDS_PER_S)


def test_series_that_have_ended_give_way() -> None:
    history = History(series_max=4)
    for view in (*views("a", "b"), *views("c", "d", "e")):
        history.add(view)
    assert not history.points("topic", "a", RECORDS_PER_S)
    assert not history.points("topic", "b", RECORDS_PER_S)
    assert history.points("topic", "c", RECORDS_PER_S)
    assert len(history) == 4


def test_the_lag_of_a_group() -> None:
    history, state = History(), State()
    for at_s, done in ((1, 0), (2, 40)):
        read = group("billing", at_s, {("orders", 0): done})
        state, view = advance(state, sample(at_s, (topic("orders"),), {("orders", 0): 50}, (read,)))
        history.add(view)
    assert history.points("group", "billing", LAG) == [(1000, 50), (2000, 10)]
    assert history.points("group", "billing", RECORDS_PER_S) == [(2000, 40)]
