"""The simulation finds nothing wrong with the producer, and finds bugs that are planted in it.

Each run has a seed, which a failure reports.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kafkalog import errors
from kafkalog._native import direct
from kafkalog.client.buffer.accumulator import PartitionQueue
from kafkalog.client.buffer.delivery import Batch
from kafkalog.client.producer import core, producer_id
from kafkalog.client.producer.core import Answer, SenderState
from kafkalog.client.producer.producer_metadata import ProducerMetadata
from kafkalog.types import TopicPartition
from kafkalog.wire.error_codes import ErrorCode
from tests.support.simulated import finds, runs
from tests.unit.client.producer.simulation import World, simulate

send = direct("intake_send")
PARTS, RUNS = 2, 6


@pytest.mark.explore
@pytest.mark.timeout(0)
@pytest.mark.parametrize("part", range(PARTS))
def test_a_producer_keeps_its_promises_whatever_happens(part: int) -> None:
    """P1 to P8 hold with lost, late and duplicated messages, leaders that move, topics that are
    recreated, limits that shrink, silent nodes and a clock that jumps."""
    for world in runs(simulate, RUNS, part, PARTS):
        assert world.sent, f"seed {world.seed}: nothing happened"


RETRIES_END = 7
"""Its retries ended, and an attempt had stored it: that was not reported."""

SAME_OFFSET = 23771
"""The judge was wrong: a late request got the same offset in the recreated topic."""


@pytest.mark.parametrize("seed", [RETRIES_END, SAME_OFFSET])
def test_seeds_that_found_something(seed: int) -> None:
    simulate(seed)


def test_overtaking_batches_are_resent() -> None:
    """The leader has moved: the second batch reaches the new one before the first does."""
    world, tp = World(1), TopicPartition("b", 0)
    world.send(tp, b"known")
    world.run(1_000)
    flying = []
    for value in (b"first", b"second"):
        intake = world.waiting.intakes["b"]
        world.waiting.room(intake, 0, len(value), 0.0, world.waiting.turn)
        assert send(intake.native, value, None, 1, 0, None) is not None
        queue = world.waiting.queues[tp]
        world.waiting.close(queue)
        flying.append(world.core.pack([queue], world.now_s)[tp])
    first, second = flying
    early = Answer(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    world.core.answered(second, early, world.now_s)
    assert queue.failed == [second] and not second.ended
    world.core.answered(first, Answer(0, 1), world.now_s)
    world.core.plan(world.now_s + 1, lambda _: 1, lambda _: True)
    assert world.core.pack([queue], world.now_s + 1) == {tp: second}
    # Nothing is in flight any more: this refusal is final.
    world.core.answered(second, early, world.now_s)
    assert not queue.failed


def parts_have_an_id_of_their_own(patch: pytest.MonkeyPatch) -> None:
    """The parts of a batch with an unknown outcome are sent under a new producer id."""
    split = Batch.split

    def parts(self: Batch) -> tuple[Batch, Batch]:
        made = split(self)
        for part in made:
            part.pid, part.doubtful = (-1, -1), False
        return made

    patch.setattr(Batch, "split", parts)


def what_may_be_there_gets_a_new_id(patch: pytest.MonkeyPatch) -> None:
    """After a lost answer, UNKNOWN_PRODUCER_ID makes the batch use a new id."""
    answered = SenderState.answered

    def told(self: SenderState, batch: Batch, answer: Answer, now_s: float) -> None:
        if answer.code == ErrorCode.UNKNOWN_PRODUCER_ID:
            batch.doubtful = False
        answered(self, batch, answer, now_s)

    patch.setattr(SenderState, "answered", told)


def sends_again_at_once(patch: pytest.MonkeyPatch) -> None:
    """A queue retries what failed without waiting for its requests in flight."""
    plan = SenderState.plan

    def planned(self: SenderState, *args: Any) -> Any:
        for queue in self.waiting.queues.values():
            queue.ready.extendleft(sorted(queue.failed, key=lambda b: -b.number))
            queue.failed = []
        return plan(self, *args)

    patch.setattr(SenderState, "plan", planned)


def one_topic_fails_all(patch: pytest.MonkeyPatch) -> None:
    """One topic's error is charged to every topic of the request."""
    refresh = ProducerMetadata._report

    def told(self: Any, topics: Any, waiting: Any, by: Any, refused: Any, problem: Any) -> None:
        if refused:
            by.topics.clear()
            refused = dict.fromkeys(topics, next(iter(refused.values())))
        refresh(self, topics, waiting, by, refused, problem)

    patch.setattr(ProducerMetadata, "_report", told)


def says_too_little(patch: pytest.MonkeyPatch) -> None:
    """A batch that may have been stored is refused as if it were not."""
    patch.setattr(core, "in_doubt", lambda problem: problem)


def keeps_what_is_on_its_way(patch: pytest.MonkeyPatch) -> None:
    """delivery.timeout.ms does not count for records in flight."""
    patch.setattr(SenderState, "_give_up", lambda *_: None)


def keeps_sequences(patch: pytest.MonkeyPatch) -> None:
    """A new id continues the old one's sequences."""
    patch.setattr(SenderState, "begin_sequences", lambda _self: None)


def takes_what_fails_for_sent(patch: pytest.MonkeyPatch) -> None:
    """An abandoned sequence is not noticed: the id stays."""
    patch.setattr(producer_id.ProducerId, "failed", lambda *_a, **_k: None)


def loses_a_landing(patch: pytest.MonkeyPatch) -> None:
    """A batch whose connection broke counts as in flight forever."""
    lost = SenderState.lost

    def forgets(self: SenderState, batches: Any, problem: errors.KafkalogError, *rest: Any) -> None:
        batches = list(batches)
        lost(self, batches, problem, *rest)
        for batch in batches:
            queue: PartitionQueue = self.waiting.queues[batch.tp]
            queue.flying += isinstance(problem, errors.Timeout)

    patch.setattr(SenderState, "lost", forgets)


CANARIES = {
    parts_have_an_id_of_their_own: 18,
    what_may_be_there_gets_a_new_id: 24,
    sends_again_at_once: 1,
    one_topic_fails_all: 4,
    says_too_little: 1,
    keeps_what_is_on_its_way: 1,
    keeps_sequences: 1,
    takes_what_fails_for_sent: 1,
    loses_a_landing: 1,
}
"""Each with the first seed to try: one that finds it, so that the test is quick."""


@pytest.mark.parametrize("plant", CANARIES, ids=lambda plant: plant.__name__)
def test_the_simulation_finds_planted_bugs(
    plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of these bugs breaks a promise within a few runs."""
    finds(simulate, plant, monkeypatch, CANARIES[plant], r"P\d")
