"""A scripted peer, and a cluster that is it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kafkalog.client.cluster import Cluster
from kafkalog.client.consumer import Consumer
from kafkalog.client.transport import Options
from kafkalog.wire import apis
from tests.support.scripted import Peer, produced
from tests.unit.client.members import Coordinator, joined
from tests.unit.client.producing import PRODUCER_ID

QUICK = Options(
    connect_timeout_ms=2_000,
    request_timeout_ms=500,
    api_timeout_ms=2_000,
    retry_backoff_ms=1,
    retry_backoff_max_ms=5,
)
"""Patience for tests in which something fails."""


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
    """It takes everything, for topic t of two partitions."""
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
