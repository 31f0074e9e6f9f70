"""Where leader epochs end, for readers that stored the epoch of what they read."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkalog import errors
from kafkalog.client.calls.offsets import EpochEnd, epoch_ends
from kafkalog.client.link.cluster import Cluster
from kafkalog.client.link.failures import failure_class
from kafkalog.client.link.transport import Options
from kafkalog.testing.broker import TestBroker
from kafkalog.types import TopicPartition
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode
from tests.support.scripted import Peer

TP = TopicPartition("t", 0)
QUICK = Options(retry_backoff_ms=1)


def test_a_log_that_was_truncated(tmp_path: Path) -> None:
    with TestBroker(tmp_path / "log", config={"kafkalog.durability": "os"}) as broker:
        broker.fill("t", ["1", "2"], partition=0)
        broker.restart()
        broker.fill("t", ["3"], partition=0)
        with Cluster(broker.bootstrap_servers, QUICK) as cluster:
            assert epoch_ends(cluster, {TP: 0}).check() == {TP: EpochEnd(0, 3)}
        broker.kill()
        broker.start()
        broker.fill("t", ["4", "5", "6"], partition=0)
        with Cluster(broker.bootstrap_servers, QUICK) as cluster:
            assert epoch_ends(cluster, {TP: 0}).check() == {TP: EpochEnd(0, 2)}
            assert epoch_ends(cluster, {TP: 1}).check() == {TP: EpochEnd(1, 5)}


def test_metadata_older_than_the_record(tmp_path: Path) -> None:
    """A lagging broker is no proof of a loss: it is asked again, until the time is over."""
    with TestBroker(tmp_path / "log") as broker:
        broker.fill("t", ["1"], partition=0)
        with Cluster(broker.bootstrap_servers, Options(retry_backoff_ms=10_000)) as cluster:
            epoch_ends(cluster, {TP: 0}).check()  # from now on it is connected
            found = epoch_ends(cluster, {TP: 5}, 100)
    with pytest.raises(failure_class(ErrorCode.UNKNOWN_LEADER_EPOCH), match="epoch 5 were read"):
        found.check()


def test_a_broker_that_does_not_report_epochs() -> None:
    api = apis.OFFSET_FOR_LEADER_EPOCH
    for versions in ((0, 2), (1, 0)):  # older; not at all
        with Peer({api: versions}) as peer:
            peer.on(apis.METADATA, lambda request, version, p=peer: p.metadata({"t": 1}))
            with Cluster(peer.servers, QUICK) as cluster:
                found = epoch_ends(cluster, {TP: 5})
            assert peer.count(api) == 0
        with pytest.raises(errors.UnsupportedVersion, match="OffsetForLeaderEpoch"):
            found.check()


def test_a_topic_without_an_id_may_begin_again() -> None:
    """Then its epochs do, too: the leader is asked, and knows nothing of the record's."""
    api = apis.OFFSET_FOR_LEADER_EPOCH
    with Peer({api: (0, 4), apis.METADATA: (0, 9)}) as peer:
        peer.on(apis.METADATA, lambda request, version: peer.metadata({"t": 1}))
        row = {"error_code": 0, "partition": 0, "leader_epoch": -1, "end_offset": -1}
        peer.on(api, {"topics": [{"topic": "t", "partitions": [row]}]})
        with Cluster(peer.servers, QUICK) as cluster:
            assert epoch_ends(cluster, {TP: 5}).check() == {TP: EpochEnd(-1, -1)}
        ((asked,),) = [topic.partitions for topic in peer.sent(api)[0].topics]
        assert asked.leader_epoch == 5
