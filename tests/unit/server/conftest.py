"""Fixtures: brokers with real directories and real sockets."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kafkalog.clock import ManualClock
from kafkalog.server.broker import Broker
from tests.support.raw import Raw

CONFIG = {"group.initial.rebalance.delay.ms": 0, "log.initial.task.delay.ms": 0}

MakeBroker = Callable[..., Broker]


@pytest.fixture
def make_broker(tmp_path: Path) -> Iterator[MakeBroker]:
    """Make brokers with the given settings over one directory; all are closed after the test."""
    made: list[Broker] = []

    def make(clock: ManualClock | None = None, **config: Any) -> Broker:
        settings = {name.replace("_", "."): value for name, value in config.items()}
        broker = Broker(tmp_path / "data", config={**CONFIG, **settings}, clock=clock)
        made.append(broker)
        return broker

    yield make
    for broker in made:
        broker.close()


@pytest.fixture
def broker(make_broker: MakeBroker) -> Broker:
    """A broker with Kafka's settings."""
    return make_broker()


@pytest.fixture
def raw(broker: Broker) -> Iterator[Raw]:
    """A connection to `broker`."""
    with Raw(broker.bootstrap_servers) as connection:
        yield connection
