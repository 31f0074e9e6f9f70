"""How many client requests wait for a controller that does not answer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from kafkalog import errors
from kafkalog.cluster.node.member import Member
from kafkalog.metadata.requests import NewTopic, NewTopics
from kafkalog.server.controller_apis import forwarder, topic_creation
from kafkalog.server.controller_apis.forwarder import WAITING_BYTES_MAX, ControllerForwarder
from kafkalog.server.controller_apis.topic_creation import UNDER_WAY, TopicCreation
from kafkalog.wire import apis
from tests.support.membership import joined
from tests.support.scripted import SILENCE, Peer
from tests.support.waiting import wait_for


@pytest.fixture
def silent() -> Iterator[Peer]:
    """A controller that never answers CreateTopics."""
    with Peer() as made:
        made.on(apis.CREATE_TOPICS, SILENCE)
        yield made


@pytest.fixture
def member(silent: Peer) -> Iterator[Member]:
    with joined({7: silent}) as made:
        yield made


@pytest.fixture
def asked(member: Member) -> Iterator[ControllerForwarder]:
    made = ControllerForwarder(member, "test")
    yield made
    made.stop()


def topics(*names: str) -> NewTopics:
    return NewTopics([NewTopic(name, 1, 1) for name in names])


def test_no_more_requests_than_that(
    silent: Peer, asked: ControllerForwarder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forwarder, "WAITING_MAX", 2)
    ended: list[Exception] = []

    def work(ask: Any) -> None:
        try:
            ask(apis.CREATE_TOPICS, {"topics": [], "timeout_ms": 1, "validate_only": False}, None)
        except errors.KafkalogError as problem:
            ended.append(problem)

    asked.forward(work, 1)
    wait_for(lambda: silent.count(apis.CREATE_TOPICS), "one is asked")
    for _ in range(2):
        asked.forward(work, 1)
    with pytest.raises(errors.Timeout, match="2 requests wait"):
        asked.forward(work, 1)
    asked.stop()
    assert len(ended) == 3


def test_no_more_bytes_of_requests_than_that(silent: Peer, asked: ControllerForwarder) -> None:
    """Those of the request that the controller was asked count until it is over."""
    ended: list[Exception] = []

    def work(ask: Any) -> None:
        try:
            ask(apis.CREATE_TOPICS, {"topics": [], "timeout_ms": 1, "validate_only": False}, None)
        except errors.KafkalogError as problem:
            ended.append(problem)

    asked.forward(work, WAITING_BYTES_MAX - 1)
    wait_for(lambda: silent.count(apis.CREATE_TOPICS), "one is asked")
    asked.forward(work, 100 << 20)
    with pytest.raises(errors.Timeout, match="1 requests wait for it, of"):
        asked.forward(work, 1)
    asked.stop()
    assert len(ended) == 2 and asked._waiting_bytes == 0


def test_no_more_topics_than_that(
    silent: Peer, member: Member, asked: ControllerForwarder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic_creation, "NAMES_MAX", 3)
    creation = TopicCreation(member, asked)
    names = ["a", "b", "c", "d"]
    assert creation.create(topics(*names)) == dict.fromkeys(names, UNDER_WAY)
    assert creation.create(topics("d", "e")) == dict.fromkeys("de", UNDER_WAY)
    wait_for(lambda: silent.count(apis.CREATE_TOPICS), "the first are asked for")
    (only,) = silent.sent(apis.CREATE_TOPICS)
    assert [one.name for one in only.topics] == ["a", "b", "c"]
