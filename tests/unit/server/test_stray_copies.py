"""A folder of a deleted topic is in the way of another topic of that name."""

from __future__ import annotations

import uuid
from functools import partial
from pathlib import Path

import pytest

from kafkalog.client.admin import Admin
from kafkalog.client.producer.producer import Producer
from kafkalog.log.log import Log
from kafkalog.server.broker import Broker, node_of
from kafkalog.testing.standin import StandIn
from kafkalog.types import TopicPartition
from kafkalog.zookeeper import tree
from kafkalog.zookeeper.session import Delete, Set, open_session
from tests.support.waiting import wait_for

T = TopicPartition("t", 0)


def test_a_stray_folder_is_set_aside_with_its_records(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The topic was deleted and created again while the node was down, and no controller could have
    the node drop its copy.  The new topic is led, and has none of the old records."""
    home = tmp_path / "data"
    with StandIn() as inside:
        config = {"node.id": 1, "zookeeper.connect": inside.hosts}
        with Broker(home, config=config) as broker:
            with Admin(broker.bootstrap_servers) as admin:
                admin.create_topic("t", 1)
            with Producer(broker.bootstrap_servers) as producer:
                producer.send("t", b"old", partition=0).result()
        recreate(inside)
        for _ in range(2):  # the second start finds it done
            with Broker(home, config=config) as broker:
                partitions = node_of(broker).partitions
                wait_for(partial(partitions.is_open, *T), "it is led")
                log = partitions.log(*T)
                assert log.end_offset == 0
            strays = [one for one in home.iterdir() if one.name.endswith("-stray")]
            assert len(strays) == 1 and strays[0].name.startswith("t-0.")
    assert caplog.text.count("belongs to an earlier topic of that name") == 1
    kept = home.parent / "t-0"
    strays[0].rename(kept)
    with Log(kept, mode="r") as old:
        assert [record.value for record in old] == [b"old"]


def recreate(inside: StandIn) -> None:
    """Write another topic of that name into the tree."""
    node = tree.TopicNode(uuid.UUID(int=7), {0: (1,)}, {}, {})
    state = tree.partition_path("t", 0)
    with open_session(inside.hosts, lambda _: None) as session:
        assert session.commit([
            Set(tree.topic_path("t"), tree.write_topic(node)),
            Delete(state), Delete(state.removesuffix("/state")),
        ]).done  # fmt: skip
