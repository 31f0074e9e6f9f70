"""The background calls with which a producer's thread asks brokers."""

from __future__ import annotations

import threading

import pytest

from kafkalog.client.link.cluster import Cluster
from kafkalog.client.producer.background_calls import Line
from tests.support.waiting import LIMIT_S, wait_for


def test_calls_are_made_one_at_a_time_and_count_when_they_are_settled(scripted: Cluster) -> None:
    rung = threading.Event()
    line = Line(scripted, rung.set)
    told: list[object] = []
    for n in range(3):
        assert line.free
        line.begin(
            lambda _, n=n: (n, threading.current_thread().name), lambda *how: told.append(how)
        )
        assert not line.free
        assert rung.wait(LIMIT_S)
        rung.clear()
        assert len(told) == n and not line.free
        line.settle()
    assert told == [((n, "kafkalog-producer-asks"), None) for n in range(3)]
    line.close()


def test_a_failed_call_affects_only_its_caller(scripted: Cluster) -> None:
    """Its caller gets the failure; without a caller its thread fails."""
    line = Line(scripted, lambda: None)
    told: list[object] = []
    problem = ValueError("broken")

    def call(_: Cluster) -> None:
        raise problem

    line.begin(call, lambda *how: told.append(how))
    wait_for(lambda: line.settle() or told, "it is settled")
    assert told == [(None, problem)]
    line.begin(call)
    with pytest.raises(ValueError, match="broken"):
        wait_for(lambda: line.settle() or False, "it is settled")
    assert line.free
    line.close()
    line.close()
