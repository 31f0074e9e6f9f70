"""Share consumers keep their promises whatever happens; the simulation finds planted mistakes."""

from __future__ import annotations

from collections import deque
from typing import Any

import pytest

from kafkalog.client.shares import core
from kafkalog.client.shares.core import ShareState
from kafkalog.client.shares.holding import Holding
from tests.support.simulated import finds, runs
from tests.unit.client.shares.simulation import simulate


def test_share_consumers_keep_their_promises_whatever_happens() -> None:
    found = list(runs(simulate, 40))
    assert max(len(one.done) for one in found) > 80
    assert any(one.sessions for one in found)


def _sends_twice(self: ShareState, request: Any) -> None:
    self.pending[request.source.node] = request


def _keeps_the_buffer(original: Any) -> Any:
    def lost(self: Holding, source: Any, why: str) -> None:
        kept: deque[Any] = self._buffer
        self._buffer = deque()
        original(self, source, why)
        self._buffer = kept

    return lost


def _all_done(original: Any) -> Any:
    return lambda self, place, acks, problem: original(self, place, acks, None)


def _forgets_what_is_due(self: Holding, source: Any, why: str) -> None:
    self._buffer = deque(one for one in self._buffer if one.source != source)
    self.due.pop(source, None)


def _says_nothing(original: Any) -> Any:
    def failed(self: ShareState, node: int, problem: Any, now_s: float) -> None:
        request = self.pending.get(node)
        if request is not None:
            self.pending[node] = request._replace(acks={})
        original(self, node, problem, now_s)

    return failed


MISTAKES = {
    "an acknowledgement is sent twice": (ShareState, "sent", lambda _: _sends_twice),
    "records of a session that has ended are handed out": (Holding, "lost", _keeps_the_buffer),
    "an acknowledgement that has failed is reported as done": (Holding, "ended", _all_done),
    "a refusal in an answer is taken as success": (core, "outcome", lambda _: lambda *_: None),
    "what is due in a session that has ended has no outcome": (
        Holding, "lost", lambda _: _forgets_what_is_due),
    "what was in flight on a connection that failed has no outcome": (
        ShareState, "failed", _says_nothing),
}  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_planted_mistake_is_found(mistake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    place, name, change = MISTAKES[mistake]

    def plant(patch: pytest.MonkeyPatch) -> None:
        patch.setattr(place, name, change(getattr(place, name)))

    finds(simulate, plant, monkeypatch)
