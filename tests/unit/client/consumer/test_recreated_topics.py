"""A recreated topic: offsets that were committed, or are about to be, for the deleted topic are not
the new one's.  Brokers: Apache Kafka, ours, and ours in this process."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest

from kafkalog import Admin, Consumer, Producer, TopicPartition, errors
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode
from tests.support.scripted import Peer
from tests.support.waiting import wait_for
from tests.unit.client.consumer.members import ZERO, Coordinator, commit_answer, joined

ID = UUID(int=7)


@pytest.fixture
def admin(where: Any) -> Iterator[Admin]:
    with Admin(where) as made:
        yield made


def read(where: Any, topic: str, **options: Any) -> Consumer:
    """A consumer that has read five records of the topic, and committed nothing."""
    made = Consumer(where, group=topic, auto_commit=False, auto_offset_reset="earliest", **options)
    made.assign([TopicPartition(topic, 0)])
    found = 0
    while found < 5:
        found += len(made.poll(1_000))
    return made


def recreate(admin: Admin, topic: str) -> None:
    admin.delete_topic(topic)

    def created() -> bool:
        (problem,) = admin.create_topics([(topic, 1)]).errors.values() or [None]
        assert problem is None or isinstance(problem, errors.TopicExists), problem
        return problem is None

    wait_for(created, "the topic is there again")
    admin.list_offsets({(topic, 0): "latest"}).check()


@pytest.mark.parametrize("wait", [True, False], ids=["waited for", "in the background"])
def test_a_commit_for_a_deleted_topic_is_not_the_new_ones(
    where: Any, admin: Admin, unique: str, wait: bool
) -> None:
    admin.create_topic(unique, 1)
    with Producer(where) as producer:
        for _ in range(5):
            producer.send(unique, b"old", partition=0)
    told: list[Any] = []
    with read(where, unique) as consumer:
        recreate(admin, unique)
        if wait:
            with pytest.raises(errors.UnknownTopicOrPartition, match="deleted and recreated"):
                consumer.commit()
        else:
            consumer.commit(wait=False, callback=lambda _offsets, problem: told.append(problem))
            wait_for(lambda: consumer.poll(10) or told, "the commit has ended")
            (problem,) = told
            assert isinstance(problem, errors.UnknownTopicOrPartition)
        assert admin.list_group_offsets(unique) == {}


@pytest.fixture
def known(peer: Peer) -> Peer:
    """A coordinator of group g, whose topic has an id."""
    Coordinator(peer)
    metadata = peer.metadata({"t": 2})
    metadata["topics"][0]["topic_id"] = ID
    peer.on(apis.METADATA, metadata)
    peer.on(apis.OFFSET_FETCH, {"groups": [{"group_id": "g", "topics": [
        {"topic_id": ID, "partitions": [{"partition_index": 0, "committed_offset": 3}]}
    ]}]})  # fmt: skip
    return peer


def by_id(request: Any, code: int) -> dict[str, Any]:
    answer = commit_answer(request, code)
    for topic, asked in zip(answer["topics"], request.topics, strict=True):
        topic["topic_id"] = asked.topic_id
    return answer


def test_a_coordinator_that_does_not_know_the_topic_yet_is_asked_again(known: Peer) -> None:
    """By id, also when fetching committed offsets."""
    known.on(
        apis.OFFSET_COMMIT,
        lambda request, version: by_id(request, ErrorCode.UNKNOWN_TOPIC_ID),
        lambda request, version: by_id(request, 0),
    )
    with joined(known, auto_commit=False) as consumer:
        assert consumer.position(ZERO) == 3
        consumer.commit({ZERO: 5})
    sent = [one for one in known.requests if one[0] in ("OffsetCommit", "OffsetFetch")]
    assert [(name, version) for name, version, _ in sent] == [
        ("OffsetFetch", 10), ("OffsetCommit", 10), ("OffsetCommit", 10),
    ]  # fmt: skip
    assert {topic.topic_id for _, _, one in sent[1:] for topic in one.topics} == {ID}


def test_an_older_coordinator_is_given_names(known: Peer) -> None:
    known.versions.update({apis.OFFSET_COMMIT: (2, 9), apis.OFFSET_FETCH: (1, 9)})
    known.on(apis.OFFSET_FETCH, {"groups": [{"group_id": "g", "topics": []}]})
    with joined(known, auto_commit=False) as consumer:
        consumer.commit({ZERO: 5})
    (sent,) = known.sent(apis.OFFSET_COMMIT)
    assert [topic.name for topic in sent.topics] == ["t"]


def test_committed_offsets_are_requested_again_for_an_unknown_id(known: Peer) -> None:
    """By id or by name, as the metadata then says."""

    def fetched(version: int, code: int = 0) -> dict[str, Any]:
        row = {"partition_index": 0, "committed_offset": -1 if code else 4, "error_code": code}
        named = {"topic_id": ID} if version >= 10 else {"name": "t"}
        return {"groups": [{"group_id": "g", "topics": [{**named, "partitions": [row]}]}]}

    known.on(
        apis.OFFSET_FETCH,
        lambda request, version: fetched(version, ErrorCode.UNKNOWN_TOPIC_ID),
        lambda request, version: fetched(version),
    )
    with joined(known, auto_commit=False) as consumer:
        assert consumer.position(ZERO) == 4


def test_an_answer_for_another_id_is_none(known: Peer) -> None:
    """Its content belongs to no topic that was requested."""
    other = {"topic_id": UUID(int=9), "partitions": [{"partition_index": 0, "committed_offset": 3}]}
    known.on(apis.OFFSET_FETCH, {"groups": [{"group_id": "g", "topics": [other]}]})
    with pytest.raises(errors.BadAnswer, match="not asked for"):
        joined(known, auto_commit=False)
