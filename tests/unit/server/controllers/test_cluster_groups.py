"""A consumer group whose members heartbeat, on three nodes in this process."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from kafkalog import Admin
from kafkalog.server.broker import node_of
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode
from tests.support.raw import Raw
from tests.support.waiting import wait_for
from tests.unit.server.controllers.test_cluster import Cluster

GROUP = "g"
UNREADY = {
    ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
}  # fmt: skip


class Member:
    """A member, wherever its coordinator is."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self.cluster, self.name = cluster, name
        self.epoch = 0
        self.parts: list[int] = []

    def coordinator(self) -> Raw | None:
        """A connection to the coordinator."""
        for node in self.cluster.nodes.values():
            raw = Raw(node.bootstrap_servers)
            (found,) = raw.call(apis.FIND_COORDINATOR, 4, key_type=0,
                                coordinator_keys=[GROUP]).coordinators  # fmt: skip
            raw.socket.close()
            if not found.error_code and found.node_id in self.cluster.nodes:
                return Raw(f"{found.host}:{found.port}")
        return None

    def beat(self, **fields: Any) -> Any:
        """A heartbeat, again until there is a coordinator."""
        answers: list[Any] = []

        def answered() -> bool:
            raw = self.coordinator()
            if raw is None:
                return False
            body = {"group_id": GROUP, "member_id": self.name, "member_epoch": self.epoch}
            answers.append(raw.call(apis.CONSUMER_GROUP_HEARTBEAT, 1, **body, **fields))
            raw.socket.close()
            return answers[-1].error_code not in UNREADY

        wait_for(answered, "the coordinator")
        return answers[-1]

    def follow(self, topic: UUID) -> None:
        """Say what it has, and do as it is told."""
        told = self.beat(topic_partitions=[{"topic_id": topic, "partitions": self.parts}])
        assert not told.error_code, told
        self.epoch = told.member_epoch
        if told.assignment is not None:
            self.parts = [n for t in told.assignment.topic_partitions for n in t.partitions]


@pytest.mark.long
def test_a_consumer_group_survives_its_coordinator(tmp_path: Path) -> None:
    """Its members go on with their epochs and partitions."""
    cluster = Cluster(tmp_path, {"offsets.topic.replication.factor": 3})
    try:
        _survives(cluster)
    finally:
        for one in cluster.nodes.values():
            one.abandon()


def _survives(cluster: Cluster) -> None:
    servers = ",".join(one.bootstrap_servers for one in cluster.nodes.values())
    with Admin(servers) as admin:
        admin.create_topics([("t", 4, 3)]).check()
    members = [Member(cluster, name) for name in "ab"]
    for one in members:
        joined = one.beat(rebalance_timeout_ms=30_000, topic_partitions=[],
                          subscribed_topic_names=["t"])  # fmt: skip
        assert not joined.error_code, joined
        one.epoch = joined.member_epoch
    topic = node_of(cluster.nodes[1]).image.topics["t"].id

    def settled() -> bool:
        for one in members:
            one.follow(topic)
        return sorted(n for one in members for n in one.parts) == [0, 1, 2, 3]

    wait_for(settled, "the assignment")
    settled()
    before = [(one.epoch, one.parts) for one in members]
    image = node_of(cluster.nodes[1]).image
    gone = image.topics["__consumer_offsets"].partitions[0].leader
    cluster.nodes.pop(gone).abandon()
    for one in members:
        told = one.beat()
        assert (told.error_code, told.assignment) == (0, None), told
        assert told.member_epoch == one.epoch
    assert before == [(one.epoch, one.parts) for one in members]
    members[1].epoch = -1
    assert not members[1].beat().error_code
    members.pop()
    wait_for(settled, "all partitions")
