"""A node that starts: the roles of many replicas."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from kafkalog import TopicPartition
from kafkalog.server.broker import Broker, node_of
from kafkalog.server.replica_fetchers import ReplicaFetchers
from tests.support.controllers import Controller
from tests.support.waiting import wait_for

NODE, OTHER, COUNT = 2, 9, 60


def test_replicas_are_followed_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One after another, each command sent a request of the fetcher of its own."""
    commands: list[int] = []
    follow = ReplicaFetchers.follow

    def counted(fetchers: ReplicaFetchers, replicas: Any) -> Any:
        those = list(replicas)
        commands.append(len(those))
        return follow(fetchers, those)

    with Controller() as controller:
        settings = {**controller.settings, "node.id": NODE}
        with Broker(tmp_path / "d", config=settings):
            controller.topic("many", UUID(int=7), NODE, OTHER, leader=OTHER, partitions=COUNT)
        monkeypatch.setattr(ReplicaFetchers, "follow", counted)
        with Broker(tmp_path / "d", config=settings) as broker:
            opened = node_of(broker).partitions._open_logs
            wait_for(lambda: len(opened) == COUNT, "all are open")
            assert all(TopicPartition("many", number) in opened for number in range(COUNT))
    assert [one for one in commands if one] == [COUNT]
