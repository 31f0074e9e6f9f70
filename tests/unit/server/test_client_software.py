"""The software that clients name before they have authenticated."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from kafkalog.server import client_software
from kafkalog.server.client_software import UNKNOWN, ClientSoftware

MAX = 64


class Connections:
    """Those that are closed, and how many were asked about."""

    def __init__(self) -> None:
        self.closed: set[int] = set()
        self.all_closed_from: int | None = None
        self.asked = 0

    def states(self, numbers: Sequence[int]) -> list[tuple[bool, bool]]:
        self.asked += len(numbers)
        first = self.all_closed_from
        gone = [one in self.closed or (first is not None and one >= first) for one in numbers]
        return [(not one, not one) for one in gone]


@pytest.fixture
def connections(monkeypatch: pytest.MonkeyPatch) -> Connections:
    monkeypatch.setattr(client_software, "SOFTWARE_MAX", MAX)
    monkeypatch.setattr(client_software, "SWEEP_MIN", 8)
    return Connections()


def kept(software: ClientSoftware) -> int:
    return len(software._new) + len(software._used)


def test_the_last_name_counts(connections: Connections) -> None:
    software = ClientSoftware(connections.states)
    assert software.of(1) == (UNKNOWN, UNKNOWN)
    software.note(1, "a", "1")
    software.note(1, "b" * 300, "2")
    assert software.of(1) == ("b" * 250, "2")
    software.note(1, "c", "3")
    assert software.of(1) == software.of(1) == ("c", "3")


def test_closed_connections_displace_nobody(connections: Connections) -> None:
    """An unknown peer that connects again and again."""
    software = ClientSoftware(connections.states)
    software.note(1, "good", "1")
    connections.all_closed_from = 2
    for number in range(2, 1_000):
        software.note(number, "bad", "1")
        assert kept(software) <= MAX
    assert software.of(1) == ("good", "1")


def test_connections_of_which_nothing_was_heard_displace_no_others(
    connections: Connections,
) -> None:
    """Even if they stay open."""
    software = ClientSoftware(connections.states)
    for number in range(10):
        software.note(number, "good", "1")
        software.of(number)
    for number in range(10, 1_000):
        software.note(number, "bad", "1")
        assert kept(software) <= MAX
    assert {software.of(number) for number in range(10)} == {("good", "1")}
    assert software.of(999) == ("bad", "1")
    assert connections.asked < 1_000 * 6, "it is not looked for closed ones with each name"
