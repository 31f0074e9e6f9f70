"""The simulation finds nothing wrong with a client's belief about a cluster, and finds planted
bugs.  Also: the belief is bounded, and when a client starts again from its bootstrap servers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from uuid import UUID

import pytest

from kafkalog.client.link import metadata
from kafkalog.client.link.metadata import (
    CONTRADICTED_MAX,
    GROUP,
    TRANSACTION,
    Known,
    MetadataAnswer,
    PartitionInfo,
    Recovery,
    TopicAnswer,
    TopicInfo,
)
from kafkalog.client.link.transport import Address
from kafkalog.types import TopicPartition
from kafkalog.wire.error_codes import ErrorCode
from tests.support.simulated import finds, runs
from tests.unit.client.link.simulated_metadata import simulate

RUNS = 40
HERE, THERE = Address("here", 1), Address("there", 2)


@pytest.mark.explore
def test_known_metadata_follows_from_answers() -> None:
    """M1 to M7 hold whichever brokers lag, and however answers arrive."""
    for world in runs(simulate, RUNS):
        assert world.believed, f"seed {world.seed}: nothing was answered"


# ---- planted bugs ----------------------------------------------------------------------------


def believes_what_came_last(patch: pytest.MonkeyPatch) -> None:
    """An older epoch replaces a newer one."""
    patch.setattr(Known, "_is_older", lambda *_: False)


def forgets_epochs_with_a_topic(patch: pytest.MonkeyPatch) -> None:
    """A topic that is asked for again is believed as it comes."""
    forget = Known.forget

    def all_of_it(self: Known, topic: str | None = None) -> None:
        forget(self, topic)
        self._seen.clear()

    patch.setattr(Known, "forget", all_of_it)


def knows_topics_by_name(patch: pytest.MonkeyPatch) -> None:
    """A recreated topic is taken for the old one: its epochs are older."""
    take = Known._take

    def by_name(self: Known, info: TopicInfo) -> None:
        for before in list(self._seen.values()):
            if before.name == info.name and info.topic_id.int:
                self._seen[info.topic_id] = before
        take(self, info)

    patch.setattr(Known, "_take", by_name)


def believes_a_shorter_list(patch: pytest.MonkeyPatch) -> None:
    """A broker that does not know a topic has grown takes partitions away."""
    take = Known._take

    def shorter(self: Known, info: TopicInfo) -> None:
        take(self, info)
        rows = self.topics[info.name].partitions
        for number in rows.keys() - info.partitions.keys():
            del rows[number]

    patch.setattr(Known, "_take", shorter)


def takes_some_for_all(patch: pytest.MonkeyPatch) -> None:
    """An answer about some topics forgets the others."""
    answered = Known.answered

    def others_go(self: Known, names: Iterable[str] | None, answer: MetadataAnswer) -> None:
        self.topics.clear()
        answered(self, names, answer)

    patch.setattr(Known, "answered", others_go)


def keeps_what_is_gone(patch: pytest.MonkeyPatch) -> None:
    """A deleted topic stays."""
    answered = Known.answered

    def kept(self: Known, names: Iterable[str] | None, answer: MetadataAnswer) -> None:
        before = dict(self.topics)
        answered(self, names, answer)
        self.topics = {**before, **self.topics}

    patch.setattr(Known, "answered", kept)


def takes_a_refusal_for_a_topic(patch: pytest.MonkeyPatch) -> None:
    """A topic with a retriable error is believed, without partitions."""
    answered = Known.answered

    def there(self: Known, names: Iterable[str] | None, answer: MetadataAnswer) -> None:
        gone = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        topics = [TopicAnswer(0 if c == gone else c, info) for c, info in answer.topics]
        answered(self, names, answer._replace(topics=topics))

    patch.setattr(Known, "answered", there)


def tells_nobody_of_a_named_leader(patch: pytest.MonkeyPatch) -> None:
    """A leader that an error names is changed unnoticed."""
    learn = Known.learn_leader

    def quietly(
        self: Known, tp: TopicPartition, leader: int, epoch: int, at: Address | None
    ) -> bool:
        version = self.version
        news = learn(self, tp, leader, epoch, at)
        self.version = version
        return news

    patch.setattr(Known, "learn_leader", quietly)


def trusts_an_error_for_ever(patch: pytest.MonkeyPatch) -> None:
    """A late error names a deleted topic's leader, which stays the recreated topic's."""
    patch.setattr(metadata, "CONTRADICTED_MAX", 1_000)


def keeps_old_addresses(patch: pytest.MonkeyPatch) -> None:
    """A node keeps its first address."""
    answered = Known.answered

    def kept(self: Known, names: Iterable[str] | None, answer: MetadataAnswer) -> None:
        nodes = {**answer.nodes, **self.nodes}
        answered(self, names, answer)
        self.nodes = {node: nodes[node] for node in answer.nodes}

    patch.setattr(Known, "answered", kept)


def shares_what_it_teaches(patch: pytest.MonkeyPatch) -> None:
    """Two beliefs share one topic object, so an error about one changes both."""

    def shared(self: Known, other: Known, names: Iterable[str]) -> None:
        self.version += 1
        self.nodes = dict(other.nodes)
        for name in names:
            self.topics.pop(name, None)
            if (info := other.topics.get(name)) is not None:
                self.topics[name] = info

    patch.setattr(Known, "learn", shared)


CANARIES = {
    believes_what_came_last: 0,
    forgets_epochs_with_a_topic: 0,
    knows_topics_by_name: 0,
    believes_a_shorter_list: 0,
    takes_some_for_all: 0,
    keeps_what_is_gone: 0,
    takes_a_refusal_for_a_topic: 0,
    tells_nobody_of_a_named_leader: 0,
    trusts_an_error_for_ever: 108,
    keeps_old_addresses: 0,
    shares_what_it_teaches: 0,
}
"""Each with the first seed to try, so that the test is quick."""


@pytest.mark.parametrize("plant", CANARIES, ids=lambda plant: plant.__name__)
def test_the_simulation_finds_planted_bugs(
    plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of these bugs breaks a promise within a few runs."""
    finds(simulate, plant, monkeypatch, CANARIES[plant], r"M\d")


# ---- other beliefs -----------------------------------------------------------------------------


def topic(name: str, number: int, epoch: int, partitions: int = 1) -> TopicAnswer:
    rows = {p: PartitionInfo(p, 1, epoch, (), ()) for p in range(partitions)}
    return TopicAnswer(0, TopicInfo(name, UUID(int=number), False, rows))


def said(*topics: TopicAnswer, cluster_id: str = "one") -> MetadataAnswer:
    return MetadataAnswer({1: HERE}, {1: None}, cluster_id, 1, topics)


def epoch_of(known: Known, name: str) -> int:
    return known.topics[name].partitions[0].leader_epoch


def test_unrequested_topics_are_ignored() -> None:
    known = Known()
    known.answered(["t"], said(topic("t", 1, 0), topic("u", 2, 0)))
    assert set(known.topics) == {"t"}


def test_a_broker_that_knows_no_node_is_not_believed() -> None:
    known = Known()
    known.answered(["t"], said(topic("t", 1, 0)))
    known.answered(["t"], said()._replace(nodes={}))
    assert set(known.topics) == {"t"} and known.nodes == {1: HERE}


@pytest.mark.parametrize(
    "code", [ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.THROTTLING_QUOTA_EXCEEDED]
)
def test_an_error_that_passes_is_no_topic_and_no_refusal(code: ErrorCode) -> None:
    known = Known()
    known.answered(["t"], said(topic("t", 0, 0, partitions=0)._replace(code=code)))
    assert (known.topics, known.refused) == ({}, {})


def test_epochs_of_another_cluster_say_nothing() -> None:
    """It has copies of the same topics, whose epochs began again."""
    known = Known()
    known.answered(["t"], said(topic("t", 1, 7)))
    known.answered(["t"], said(topic("t", 1, 6)))
    assert epoch_of(known, "t") == 7
    known.answered(["t"], said(topic("t", 1, 0), cluster_id="two"))
    assert epoch_of(known, "t") == 0


def test_a_contradicted_leader_gives_way_to_the_newest_one_that_metadata_gave() -> None:
    """A leader that an error named is dropped in the end; a broker that lags behind is not
    believed because of that."""
    known = Known()
    known.answered(["t"], said(topic("t", 1, 0)))
    assert known.learn_leader(TopicPartition("t", 0), 1, 9, HERE)
    known.answered(["t"], said(topic("t", 1, 4)))
    for _ in range(CONTRADICTED_MAX - 1):
        known.answered(["t"], said(topic("t", 1, 0)))
        assert epoch_of(known, "t") == 9
    assert known.learn_leader(TopicPartition("t", 0), 1, 10, HERE)  # another error: it counts again
    for _ in range(CONTRADICTED_MAX):
        known.answered(["t"], said(topic("t", 1, 0)))
        assert epoch_of(known, "t") == 10
    known.answered(["t"], said(topic("t", 1, 0)))
    assert epoch_of(known, "t") == 4


def test_a_topic_id_has_its_name_until_another_has_it() -> None:
    """The answer to a fetch of the deleted topic does not count for the recreated one."""
    known = Known()
    known.answered(["t"], said(topic("t", 1, 0)))
    known.forget()
    assert known.topic_name(UUID(int=1)) == "t"
    known.answered(["t"], said(topic("t", 2, 0)))
    assert (known.topic_name(UUID(int=1)), known.topic_name(UUID(int=2))) == (None, "t")
    assert known.topic_name(UUID(int=0)) is None


def test_learned_topics_are_known_by_id() -> None:
    other, known = Known(), Known()
    other.answered(["t"], said(topic("t", 1, 0)))
    known.learn(other, ["t"])
    assert known.topic_name(UUID(int=1)) == "t"


def test_a_coordinator_is_where_it_was_last_said_to_be() -> None:
    known = Known()
    known.learn_coordinator("g", GROUP, 1, HERE)
    known.learn_coordinator("g", TRANSACTION, 2, HERE)
    known.learn_coordinator("g", GROUP, 1, THERE)
    assert (known.coordinator_of("g", GROUP), known.nodes[1]) == (1, THERE)
    assert known.coordinator_of("g", TRANSACTION) == 2


def test_knowledge_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest of the changing topics, groups, searches and nodes is forgotten."""
    for name in ("PAST_MAX", "COORDINATORS_MAX", "SOUGHT_MAX", "NODES_MAX"):
        monkeypatch.setattr(metadata, name, 3)
    known = Known()
    for number in range(1, 20):
        known.answered(["t"], said(topic("t", number, 0)))
        known.learn_leader(TopicPartition("t", 0), number, 1, Address("h", number))
        known.answered([f"u{number}"], said(topic(f"u{number}", 100 + number, 0)))
        known.forget(f"u{number}")
        known.learn_coordinator(f"g{number}", GROUP, number, HERE)
        known.sought_since_s(f"s{number}", float(number))
    known.answered([], said())
    assert set(known.topics) == {"t"} and epoch_of(known, "t") == 1
    assert len(known._seen) == 4 and len(known._hearsay) <= 4
    assert len(known.nodes) <= 3 and len(known._coordinators) == len(known._sought) == 3
    assert known.coordinator_of("g19", GROUP) == 19
    assert known.sought_since_s("s19", 50.0) == 19.0 and known.sought_since_s("s1", 50.0) == 50.0
    known.seek_no_more("s19")
    assert known.sought_since_s("s19", 60.0) == 60.0


# ---- starting again ----------------------------------------------------------------------------


def test_partitions_are_remembered_up_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Past topics, however few, and a topic whose answers have other partitions each time."""
    monkeypatch.setattr(metadata, "PAST_PARTITIONS_MAX", 100, raising=False)
    known = Known()
    for number in range(10):
        known.answered(["t"], said(topic("t", number + 1, 0, partitions=40)))
    assert [topic_id.int for topic_id in known._seen] == [8, 9, 10]
    for number in range(10):
        one = topic("t", 10, 0, partitions=40)
        rows = {40 * number + p: row for p, row in one.info.partitions.items()}
        known.answered(["t"], said(TopicAnswer(0, one.info._replace(partitions=rows))))
    assert rows.keys() <= known.topics["t"].partitions.keys()
    assert len(known.topics["t"].partitions) <= 100 + 40


def test_brokers_asked_for_metadata() -> None:
    nodes = {1: HERE, 2: THERE}
    always, never = Recovery(True, 1.0), Recovery(False, 1.0)
    assert always.brokers([THERE], nodes) == [THERE, HERE]
    assert never.brokers([THERE], {}) == [THERE]
    assert never.brokers([Address("old", 3)], nodes) == [HERE, THERE]


def test_all_is_asked_again_when_metadata_could_not_be_had_for_so_long() -> None:
    recovery = Recovery(True, 300.0)
    assert [recovery.asks(at) for at in (0.0, 100.0, 300.0, 300.5)] == [False, False, False, True]
    assert [recovery.asks(at) for at in (301.0, 600.5, 600.6)] == [False, False, True]
    recovery.answered()
    assert not recovery.asks(2_000.0)
    never = Recovery(False, 300.0)
    assert not any(never.asks(at) for at in (0.0, 1_000.0))
