"""A voter of Apache Kafka's own KRaft and ours get the same requests, and give the same answers."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from typing import Any

import pytest

from kafkalog.raft.log import Batch, LogView, appended
from kafkalog.raft.messages import (
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    FetchRequest,
    QuorumResponse,
    QuorumState,
    Response,
    Timer,
    VoteRequest,
)
from kafkalog.raft.replicas import NO_DIRECTORY, ReplicaKey
from kafkalog.wire.error_codes import ErrorCode
from tests.support import apache
from tests.unit.raft.replica import Replica, voters

pytestmark = [pytest.mark.java, pytest.mark.slow]

CASES = 400
LONG_MS = 100_000_000.0


def place(node: int) -> ReplicaKey:
    """A replica as others name it with kraft.version 0."""
    return ReplicaKey(node, NO_DIRECTORY)


def leader_of(epoch: int) -> int:
    """The other node that may lead an epoch: there is one at most."""
    return 2 + epoch % 2


def drawn(dice: random.Random) -> str:
    """A case, as Raft.java describes it."""
    epoch = dice.randint(1, 4)
    epochs = sorted(dice.randint(1, epoch) for _ in range(dice.randint(0, 4)))
    leader, voted = dice.choice(
        ((-1, -1), (leader_of(epoch), -1), (-1, 2), (-1, 3), (-1, 1), (-1, 1), (1, -1))
    )
    log = ",".join(map(str, epochs)) or "-"
    candidate = (leader, voted) == (-1, 1)
    steps = [*("G,2" for _ in range(candidate and dice.random() < 0.7))]
    led, now = (epoch if candidate or leader == 1 else 0), epoch
    for _ in range(dice.randint(2, 6)):
        step = drawn_step(dice, now, led)
        now = max(now, step[1])
        steps.append(",".join(map(str, step)))
    return f"{epoch} {leader} {voted} {log} " + " ".join(steps)


def drawn_step(dice: random.Random, epoch: int, led: int) -> tuple[Any, ...]:
    """A step around an epoch; `led`: one that no other node leads."""
    at = max(0, epoch + dice.choice((-1, 0, 0, 0, 1, 2)))
    kind = dice.choice("VVVVBEFF")
    if kind in "BE" and at == led:
        kind = "V"
    if kind == "V":
        end = dice.randint(0, 5)
        return "V", at, dice.choice((2, 3)), dice.randint(0, at), end, dice.choice((0, 1))
    if kind == "B":
        return "B", at, leader_of(at)
    if kind == "E":
        return (
            "E",
            at,
            leader_of(at),
            *dice.choice(((1, 5 - leader_of(at)), (5 - leader_of(at), 1))),
        )
    return "F", at, dice.choice((2, 3)), dice.randint(0, 5), dice.randint(0, at)


class Ours:
    """Our voter on node 1, in the same state."""

    def __init__(self, words: list[str]) -> None:
        """`words`: the first four of a case."""
        epoch, leader, voted = map(int, words[:3])
        log = LogView(voters=((-1, voters(1, 2, 3, version=0)),))
        for one in words[3].split(",") if words[3] != "-" else ():
            log = appended(log, Batch(log.end, log.end, int(one), (), b""))
        stored = QuorumState(
            epoch, leader if leader >= 0 else None, place(voted) if voted > 1 else None
        )
        if voted == 1:
            stored = stored._replace(voted=ReplicaKey(1, Replica(1, log).state.me.directory_id))
        self.one = Replica(
            1, log._replace(flushed=log.end), stored, election_timeout_ms=LONG_MS,
            fetch_timeout_ms=LONG_MS, request_timeout_ms=LONG_MS, fetch_wait_ms=0,
        )  # fmt: skip
        self.one.take(Timer())

    def step(self, kind: str, *numbers: int) -> str:
        """The answer as Raft.java prints it."""
        return str(getattr(self, f"_{kind}")(*numbers))

    def _said(self, answer: Any) -> str:
        leader = -1 if answer.leader_id is None else answer.leader_id
        granted = int(answer.vote_granted)
        return f"{int(answer.error_code)},{answer.leader_epoch},{leader},{granted}"

    def _V(self, epoch: int, candidate: int, last: int, end: int, pre_vote: int) -> str:
        asked = VoteRequest(place(1), epoch, place(candidate), last, end, bool(pre_vote))
        return self._said(self.one.asks(asked))

    def _B(self, epoch: int, leader: int) -> str:
        return self._said(self.one.asks(BeginQuorumEpochRequest(place(1), leader, epoch)))

    def _E(self, epoch: int, leader: int, *successors: int) -> str:
        asked = EndQuorumEpochRequest(leader, epoch, tuple(place(one) for one in successors))
        return self._said(self.one.asks(asked))

    def _F(self, epoch: int, replica: int, offset: int, last: int) -> str:
        answer = self.one.asks(FetchRequest(place(replica), epoch, offset, last))
        leader = -1 if answer.leader_id is None else answer.leader_id
        parts = answer.diverging
        where = "-1,-1" if parts is None else f"{parts.epoch},{parts.offset}"
        return f"{int(answer.error_code)},{answer.leader_epoch},{leader},{where}"

    def _G(self, voter: int) -> str:
        number, _, asked = self.one.state.waits.get(voter, (0, 0.0, None))
        if not isinstance(asked, VoteRequest):
            return "-"
        granted = QuorumResponse(ErrorCode.NONE, asked.replica_epoch, None, True)
        self.one.take(Response(number, granted))
        self.one.flush()
        return "+"


def answers(case: str) -> Iterator[str]:
    """Our answers to a case."""
    words = case.split(" ")
    ours = Ours(words[:4])
    for step in words[4:]:
        kind, *numbers = step.split(",")
        yield ours.step(kind, *map(int, numbers))


def test_a_voter_answers_as_kafkas() -> None:
    dice = random.Random(4)
    cases = [drawn(dice) for _ in range(CASES)]
    try:
        said = apache.ask("Raft", text="\n".join(cases) + "\n").splitlines()
    except apache.Unavailable as reason:
        pytest.skip(f"Apache Kafka cannot be asked: {reason}")
    assert len(said) == len(cases)
    for case, theirs in zip(cases, said, strict=True):
        assert alike(" ".join(answers(case))) == alike(theirs), case


def alike(line: str) -> str:
    """Without the epoch of a divergence at offset 0: Kafka names the one that was asked for, we the
    largest that there is, and a follower truncates everything in either case."""
    return re.sub(r"(\d+,\d+,-?\d+),\d+,0(?= |$)", r"\1,0,0", line)
