"""A replica whose leader has records that kafkalog cannot copy."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from kafkalog.client.admin import Admin
from kafkalog.server.broker import Broker, node_of
from kafkalog.server.replica_manager import ReplicaManager
from kafkalog.testing.standin import StandIn
from kafkalog.types import TopicPartition
from kafkalog.wire.error_codes import ErrorCode
from tests.support.waiting import wait_for

T = TopicPartition("t", 0)
QUICK = {"controlled.shutdown.enable": False, "replica.fetch.backoff.ms": 10}


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE, "tiered storage"),
        (ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, "format 0 or 1"),
    ],
)
def test_the_reason_is_logged_once_as_an_error(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, code: ErrorCode, words: str
) -> None:
    """And the partition is not fetched again until the controller names a leader."""
    with StandIn() as inside:
        config = {"zookeeper.connect": inside.hosts, **QUICK}
        with (
            Broker(tmp_path / "1", config={**config, "node.id": 1}) as first,
            Broker(tmp_path / "2", config={**config, "node.id": 2}) as second,
            Admin(first.bootstrap_servers) as admin,
        ):
            fault = first.faults.fail("FETCH", code, times=None, client_id="2")
            wait_for(lambda: len(node_of(first).image.brokers) == 2, "both are known")
            admin.create_topics([("t", -1, -1, {}, [[1, 2]])]).check()
            replicas = node_of(second).partitions
            assert isinstance(replicas, ReplicaManager)
            fetchers = replicas._fetchers._by_partition
            wait_for(lambda: fault.hits and T not in fetchers[T].following(), "given up")
            hits = fault.hits
            said = [one for one in caplog.records if "t-0" in one.getMessage()
                    and one.levelno >= logging.ERROR]  # fmt: skip
            assert len(said) == 1
            assert words in said[0].getMessage() and "brokers of Kafka" in said[0].getMessage()
            assert fault.hits == hits
