"""Which topics' metadata a producer requests, and when."""

from __future__ import annotations

from uuid import UUID

import pytest

from kafkalog.client.link.metadata import (
    NO_NODE,
    Known,
    MetadataAnswer,
    PartitionInfo,
    TopicAnswer,
    TopicInfo,
)
from kafkalog.client.link.transport import Address
from kafkalog.client.producer.questions import Question, Questions
from kafkalog.types import TopicPartition

ZERO = TopicPartition("t", 0)
AGE_S, IDLE_S = 300.0, 60.0


class Asked:
    """Requests, and a broker that answers immediately."""

    def __init__(self) -> None:
        self.known = Known()
        self.questions = Questions(self.known, AGE_S, IDLE_S)
        self.used: dict[str, float] = {}

    def asks(self, now_s: float, *waited: str) -> Question | None:
        return self.questions.asks(
            now_s, waited, lambda since_s: {n for n, at in self.used.items() if at >= since_s}
        )

    def answered(self, question: Question, now_s: float, **leaders: int) -> None:
        topics = []
        for number, (name, leader) in enumerate(leaders.items(), 1):
            rows = {0: PartitionInfo(0, leader, -1, (), ())}
            topics.append(TopicAnswer(0, TopicInfo(name, UUID(int=number), False, rows)))
        asked = question.wanted | question.known
        answer = MetadataAnswer({1: Address("h", 1)}, {}, "one", 1, topics)
        self.known.answered(asked, answer)
        self.questions.answered(question, now_s + 0.1, True)


def question(*wanted: str, known: tuple[str, ...] = ()) -> Question:
    return Question(frozenset(wanted), frozenset(known))


@pytest.fixture
def sent() -> Asked:
    """A producer that has sent records to t, and knows its leader."""
    made = Asked()
    assert made.asks(1_000.0, "t") == question("t")
    made.answered(question("t"), 1_000.0, t=1)
    assert made.questions.leader(ZERO) == 1
    return made


def test_a_deleted_topic_is_asked_for_while_something_is_to_be_sent(sent: Asked) -> None:
    """With no more records it is not, or the broker would recreate it."""
    sent.questions.doubt(ZERO)
    for now_s in (1_001.0, 1_002.0):
        assert sent.questions.leader(ZERO) is None
        assert sent.asks(now_s) == question("t")
        sent.answered(question("t"), now_s)
    assert sent.asks(1_003.0) is None
    assert sent.questions.leader(ZERO) is None
    assert sent.asks(1_004.0) == question("t")


def test_doubted_metadata_is_requested_until_answered(sent: Asked) -> None:
    sent.questions.doubt_node(1)
    assert sent.questions.leader(ZERO) is None
    sent.questions.answered(question("t"), 1_001.0, False)
    assert sent.questions.leader(ZERO) is None
    assert sent.asks(1_000.5) is None, "the pause is not over"
    assert sent.asks(1_001.0) == question("t")
    sent.answered(question("t"), 1_001.0, t=1)
    assert sent.questions.leader(ZERO) == 1 and sent.asks(1_002.0) is None


def test_a_partition_without_a_leader_is_looked_for_although_nothing_is_sent(sent: Asked) -> None:
    """Records without a key avoid it, and return to it."""
    sent.questions.doubt(ZERO)
    sent.answered(question("t"), 1_001.0, t=NO_NODE)
    assert sent.asks(1_002.0) == question(known=("t",)), "nor is it made if it is deleted"
    sent.answered(question(known=("t",)), 1_002.0, t=1)
    assert sent.asks(1_003.0) is None


def test_old_metadata_is_refreshed_without_creating_topics(sent: Asked) -> None:
    """Topics unused for long are left out; without an answer it is asked again."""
    old_s = 1_000.0 + AGE_S
    sent.used = {"t": old_s - 1, "u": old_s - 1, "idle": old_s - IDLE_S - 1}
    assert sent.asks(old_s - 0.5) is None
    assert sent.asks(old_s, "u") == question("u", known=("t",))
    sent.questions.answered(question("u", known=("t",)), old_s + 1, False)
    assert sent.asks(old_s + 1) == question(known=("t", "u"))
    sent.answered(question(known=("t", "u")), old_s + 1, t=1, u=1)
    assert sent.asks(old_s + 2) is None
