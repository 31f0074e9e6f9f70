"""Replicas of a quorum over real sockets: elections, records, restarts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kafkalog.wire import apis
from tests.support.copies import batches_in
from tests.support.quorums import CLUSTER, Replicas, directory
from tests.support.waiting import wait_for


def register(quorum: Replicas, broker: int) -> int:
    """A broker registers with the active controller; returns its epoch."""
    listener = {"name": "PLAINTEXT", "host": "localhost", "port": 9092, "security_protocol": 0}
    feature = {"name": "metadata.version", "min_supported_version": 7,
               "max_supported_version": 30}  # fmt: skip
    answer = quorum.call(
        quorum.active(), apis.BROKER_REGISTRATION, broker_id=broker, cluster_id=CLUSTER,
        incarnation_id=directory(broker), listeners=[listener], features=[feature], rack=None,
        log_dirs=[directory(100 + broker)], is_migrating_zk_broker=False,
    )  # fmt: skip
    assert answer is not None and not answer.error_code, answer
    return int(answer.broker_epoch)


@pytest.mark.parametrize("dynamic", [True, False], ids=["log", "settings"])
def test_a_quorum_of_one_is_active_at_once(tmp_path: Path, dynamic: bool) -> None:
    with Replicas(tmp_path, [1], [1], dynamic) as quorum:
        quorum.start(1)
        assert quorum.active() == 1
        epoch = register(quorum, 7)
        assert quorum[1].image.brokers[7].epoch == epoch
        quorum.kill(1)
        quorum.start(1)
        assert quorum.active() == 1
        assert quorum[1].image.brokers[7].epoch == epoch


def logs_equal(quorum: Replicas, *nodes: int) -> None:
    def equal() -> bool:
        found = [batches_in(quorum.folder(node)) for node in nodes]
        return all(one == found[0] for one in found)

    wait_for(equal, "the logs are equal")


@pytest.mark.parametrize("dynamic", [True, False], ids=["log", "settings"])
def test_three_replicas_elect_replicate_and_fail_over(tmp_path: Path, dynamic: bool) -> None:
    with Replicas(tmp_path, [1, 2, 3], [1, 2, 3], dynamic) as quorum:
        quorum.start(1, 2, 3)
        first = quorum.active()
        register(quorum, 7)
        quorum.kill(first)
        second = quorum.active()
        assert second != first
        register(quorum, 8)
        quorum.start(first)
        quorum.active()
        wait_for(lambda: {*quorum[first].image.brokers} == {7, 8}, "it has caught up")
        logs_equal(quorum, 1, 2, 3)
        quorum.stop(quorum.active())
        register(quorum, 9)


def describe(quorum: Replicas, node: int) -> Any:
    topic = {"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}
    return quorum.call(node, apis.DESCRIBE_QUORUM, topics=[topic]).topics[0].partitions[0]
