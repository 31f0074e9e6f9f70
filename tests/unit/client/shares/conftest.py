"""A broker for share consumers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import kafkalog
from kafkalog.testing.broker import TestBroker as Broker

QUICK = {
    "group.share.min.heartbeat.interval.ms": 5,
    "group.share.heartbeat.interval.ms": 5,
    "group.share.assignment.interval.ms": 0,
}


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    """A broker with topic t, of which group g reads from the beginning."""
    with Broker(str(tmp_path / "data"), config=QUICK) as made:
        with kafkalog.Admin(made.bootstrap_servers) as admin:
            admin.create_topic("t", 1)
            change = {"share.auto.offset.reset": "earliest"}
            admin.alter_configs({("group", "g"): change}).check()
        yield made
