"""Fixtures: a scripted peer, and clients of it and of a real broker."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from kafkalog.client.calls import topics
from kafkalog.client.calls.offsets import LATEST, all_partitions, list_offsets
from kafkalog.client.consumer.consumer import Consumer
from kafkalog.client.link.cluster import Cluster
from kafkalog.client.link.transport import Options
from kafkalog.clock import ManualClock
from kafkalog.wire import apis
from tests.support.scripted import Peer, produced
from tests.unit.client.consumer.members import Coordinator, joined
from tests.unit.client.producer.producing import PRODUCER_ID

QUICK = Options(
    retry_backoff_ms=1, retry_backoff_max_ms=5, reconnect_backoff_ms=1, reconnect_backoff_max_ms=5
)
"""For tests with failures: retries come soon.  A test whose peer never answers sets its own request
timeout: a slow machine is not a silent peer."""


class PassingClock(ManualClock):
    """A clock that advances as soon as a thread waits on it: timeouts end, and nobody waits."""

    def __init__(self) -> None:
        super().__init__()
        self.pauses_s: list[float] = []

    def wait_until(self, condition: threading.Condition, until_s: float | None) -> None:
        assert until_s is not None
        self.pauses_s.append(until_s - self.monotonic_s())
        self.advance(round(1000 * self.pauses_s[-1]) + 1)


@pytest.fixture
def cluster(where: Any) -> Iterator[Cluster]:
    """A client of the broker under test: over TCP, or in this process."""
    with Cluster(where) as made:
        yield made


@pytest.fixture
def topic(cluster: Cluster, unique: str) -> str:
    """A topic of three partitions whose leaders already serve them."""
    topics.create_topic(cluster, unique, 3)
    list_offsets(cluster, dict.fromkeys(all_partitions(cluster, unique), LATEST))
    return unique


@pytest.fixture
def peer() -> Iterator[Peer]:
    with Peer() as made:
        yield made


@pytest.fixture
def scripted(peer: Peer) -> Iterator[Cluster]:
    """A client of the peer; nothing is sent yet."""
    with Cluster(peer.servers, QUICK) as made:
        yield made


@pytest.fixture
def broker(peer: Peer) -> Peer:
    """A peer that accepts every batch for topic t, which has two partitions."""
    peer.on(apis.METADATA, peer.metadata({"t": 2}))
    peer.on(apis.INIT_PRODUCER_ID, PRODUCER_ID)
    peer.on(apis.PRODUCE, produced([]))
    return peer


@pytest.fixture
def coordinator(peer: Peer) -> Coordinator:
    return Coordinator(peer)


@pytest.fixture
def member(coordinator: Coordinator, peer: Peer) -> Iterator[Consumer]:
    """A member that has joined."""
    made = joined(peer)
    yield made
    made.close()
