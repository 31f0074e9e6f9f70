"""The tree of a Kafka 3.9 cluster: read and written back; other data is refused."""

from __future__ import annotations

import json
import re
import string
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from kafkalog.errors import BadZnode
from kafkalog.metadata.image import BROKER, TOPIC
from kafkalog.zookeeper import entities, tree
from kafkalog.zookeeper.documents import ZNODE_BYTES_MAX
from kafkalog.zookeeper.loading import Znode, load

CAPTURED = json.loads(Path(__file__).with_name("znodes.json").read_text())
"""As captured by tests/kafka/cluster/capture.py: path to data, version and czxid."""
ZNODES = {
    path: Znode(None if data is None else data.encode(), version, created)
    for path, (data, version, created) in CAPTURED.items()
}
USER = "al/ice ü*"

Reader = Callable[[bytes | None], Any]
KINDS: dict[str, tuple[Callable[..., Any], Callable[..., bytes]]] = {
    r"/controller": (tree.read_controller, tree.write_controller),
    r"/controller_epoch": (tree.read_epoch, tree.write_epoch),
    r"/brokers/ids/(\d+)": (lambda n, d: tree.read_broker(int(n), d), tree.write_broker),
    r"/brokers/topics/([^/]+)": (tree.read_topic, tree.write_topic),
    r"/brokers/topics/([^/]+)/partitions/(\d+)/state": (
        lambda t, p, d: tree.read_partition(t, int(p), d), tree.write_partition,
    ),
    r"/cluster/id": (tree.read_cluster_id, tree.write_cluster_id),
    r"/latest_producer_id_block": (tree.read_producer_ids, tree.write_producer_ids),
    r"/config/((?!changes).+)": (
        lambda e, d: entities.read_config(tuple(e.split("/")), d), entities.write_config,
    ),
    r"(/config/changes/.+)": (entities.read_change, entities.write_change),
}  # fmt: skip
"""The functions that read and write a znode's data, by its path."""
OTHERS = re.compile(r"/feature|/kafka-acl.*")
"""Znodes that are kept as they are."""


def kind(path: str) -> tuple[Reader, Callable[..., bytes]] | None:
    for pattern, (read, write) in KINDS.items():
        if match := re.fullmatch(pattern, path):
            return partial(read, *match.groups()), write
    return None


@pytest.mark.parametrize("path", [path for path, znode in ZNODES.items() if znode.data])
def test_kafkas_znodes_survive_a_round_trip(path: str) -> None:
    """Compared field by field: the order in a JSON object is free, and Kafka's varies."""
    data = ZNODES[path].data
    assert data is not None
    found = kind(path)
    if found is None:
        assert OTHERS.fullmatch(path)
        return
    read, write = found
    assert json.loads(write(read(data))) == json.loads(data)


def test_every_place_that_a_broker_makes_is_known() -> None:
    made = {path for path, znode in ZNODES.items() if znode.data is None}
    assert {*tree.PERSISTENT} - {tree.PRODUCER_IDS, tree.OWN_TOPICS} <= made


def test_the_whole_tree_is_the_metadata() -> None:
    found = load(ZNODES, node_id=3)
    image = found.image
    assert (found.problems, found.deleted, found.controller_epoch) == ((), {"gone"}, 1)
    assert found.controller is not None and found.controller.broker == 1
    assert image.cluster_id == json.loads(CAPTURED["/cluster/id"][0])["id"]
    assert (image.node_id, image.epoch, image.next_producer_id) == (3, 1, 1000)
    (broker,) = image.brokers.values()
    assert (broker.id, broker.rack, broker.epoch) == (1, "r1", CAPTURED["/brokers/ids/1"][2])
    assert [(name, host, protocol) for name, host, _, protocol in broker.endpoints] == [
        ("PLAINTEXT", "127.0.0.1", 0)
    ]
    assert {name: len(topic.partitions) for name, topic in image.topics.items()} == {
        "gone": 2, "moved": 1, "plain": 2,
    }  # fmt: skip
    moved = image.topics["moved"].partitions[0]
    assert moved.adding_replicas == (2,) and moved.removing_replicas == (1,)
    assert {*moved.replicas} == {1, 2} and moved.isr == (1,)
    lost = image.topics["gone"].partitions[0]
    assert (lost.leader, lost.partition_epoch) == (-1, 2)
    assert found.written_by["gone", 0] == 1
    for name, topic in image.topics.items():
        assert image.names[topic.id] == name
    assert image.configs == {
        (TOPIC, "plain"): {"retention.ms": "1000", "cleanup.policy": "compact,delete"},
        (BROKER, "1"): {"log.cleaner.threads": "2"},
        (BROKER, ""): {"log.retention.ms": "86400000"},
    }
    assert image.quotas == {
        (("user", USER),): {"producer_byte_rate": 1e6},
        (("client-id", None),): {"consumer_byte_rate": 5e5},
        (("client-id", "c1"), ("user", "bob")): {"request_percentage": 12.5},
        (("client-id", None), ("user", None)): {"request_percentage": 50.0},
        (("ip", "127.0.0.1"),): {"connection_creation_rate": 100.0},
    }
    assert image.foreign == {} and [*image.scram] == [("alice", 1)]


def test_a_bad_znode_is_left_out_and_told_and_all_others_go_on() -> None:
    znodes = {
        **ZNODES,
        "/brokers/topics/plain": Znode(b'{"version":3,"partitions":{"0":[1,"x"]}}'),
        "/brokers/topics/moved/partitions/0/state": Znode(b"{"),
        "/brokers/ids/7": Znode(b"[]"),
        "/config/users/bob/clients/c1": Znode(b'{"version":1,"config":{"request_percentage":"x"}}'),
    }
    found = load(znodes, 1)
    assert sorted(str(problem) for problem in found.problems) == [
        "/brokers/ids/7: found [], wanted a JSON object",
        "/brokers/topics/moved/partitions/0/state: found no JSON: Expecting property name enclosed "
        "in double quotes: line 1 column 2 (char 1)",
        "/brokers/topics/plain: partitions.0[1]: found 'x', wanted a whole number from -2147483648 "
        "to 2147483647",
        "/config/users/bob/clients/c1: request_percentage: found 'x', wanted a number above 0",
    ]
    assert {*found.image.topics} == {"gone", "moved"}
    assert found.image.topics["moved"].partitions[0].leader == -1
    assert {*found.image.brokers} == {1}


def test_a_tree_of_nothing() -> None:
    found = load({}, 1)
    assert (found.controller, found.controller_epoch, found.image.topics) == (None, 0, {})


BROKER_1 = (
    b'{"version":5,"host":"h","port":9092,"jmx_port":-1,"timestamp":"1","features":{},'
    b'"listener_security_protocol_map":{"CLIENT":"SASL_SSL"},"endpoints":[%s]}'
)


@pytest.mark.parametrize(
    ("read", "data", "told"),
    [
        (tree.read_controller, None, "/controller: found nothing, wanted a JSON object"),
        (tree.read_controller, b"\xff", "/controller: found no JSON: "),
        (tree.read_controller, b"[" * 100_000, "/controller: found no JSON: "),
        (tree.read_controller, b" " * ZNODE_BYTES_MAX + b"{}",
         "/controller: found 1048577 bytes, wanted 1048575 at most"),
        (tree.read_controller, b'{"version":3,"brokerid":1}',
         "/controller: version: found 3, wanted 1 to 2"),
        (tree.read_controller, b'{"version":2,"timestamp":"1"}',
         "/controller: brokerid: found nothing, wanted a whole number from"),
        (tree.read_controller, b'{"version":2,"brokerid":true,"timestamp":"1"}',
         "brokerid: found True, wanted a whole number"),
        (tree.read_controller, b'{"version":2,"brokerid":1e9,"timestamp":"1"}',
         "brokerid: found 1000000000.0, wanted a whole number"),
        (tree.read_controller, b'{"version":2,"brokerid":4294967296,"timestamp":"1"}',
         "brokerid: found 4294967296, wanted a whole number"),
        (tree.read_epoch, b"-1", "/controller_epoch: found '-1', wanted a whole number"),
        (tree.read_epoch, b"9" * 5000, "/controller_epoch: found '99999999999999999999', wanted"),
        (lambda d: tree.read_broker(1, d), BROKER_1 % b'"CLIENT:h:1"',
         "endpoints: found 'CLIENT:h:1', wanted LISTENER://host:port"),
        (lambda d: tree.read_broker(1, d), BROKER_1 % b'"CLIENT://h:65536"', "endpoints: found"),
        (lambda d: tree.read_topic("t", d), b'{"version":3}',
         "/brokers/topics/t: partitions: found nothing, wanted an object"),
        (lambda d: tree.read_topic("t", d), b'{"version":3,"partitions":{"-1":[1]}}',
         "partitions: found -1, wanted a whole number from 0 to"),
        (lambda d: tree.read_topic("t", d), b'{"version":3,"partitions":{},"topic_id":"abc"}',
         "topic_id: found 'abc', wanted 16 bytes in base64"),
        (lambda d: tree.read_topic("t", d),
         b'{"version":3,"partitions":{"0":[1]},"adding_replicas":{"1":[2]}}',
         "adding_replicas: found 1, wanted a partition of the topic"),
        (lambda d: tree.read_partition("t", 0, d),
         b'{"version":1,"leader":-2,"leader_epoch":0,"isr":[],"controller_epoch":1}',
         "/brokers/topics/t/partitions/0/state: leader: found -2, wanted a broker's id, or -1"),
        (lambda d: tree.read_partition("t", 0, d),
         b'{"version":1,"leader":1,"leader_epoch":0,"isr":[],"controller_epoch":1,'
         b'"leader_recovery_state":2}', "leader_recovery_state: found 2, wanted 0 or 1"),
        (tree.read_reassignment, b'{"version":1,"partitions":[{"topic":"t","partition":0}]}',
         "/admin/reassign_partitions: partitions[0].replicas: found nothing, wanted a list"),
        (tree.read_reassignment,
         b'{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[1]},'
         b'{"topic":"t","partition":0,"replicas":[2]}]}', "found 2, wanted each partition once"),
        (tree.read_producer_ids,
         b'{"version":1,"broker":1,"block_start":"5","block_end":"4"}', "block_end: found 4"),
        (lambda d: entities.read_change("/config/changes/config_change_1", d),
         b'{"version":2,"entity_path":"topics"}', "found 'topics', wanted one of topics, brokers"),
        (lambda d: entities.read_change("/config/changes/config_change_1", d),
         b'{"version":2,"entity_path":"topics/../x"}', "found 'topics/../x', wanted one of"),
    ],
)  # fmt: skip
def test_invalid_znodes(read: Reader, data: bytes | None, told: str) -> None:
    with pytest.raises(BadZnode, match=re.escape(told)):
        read(data)


def test_older_forms() -> None:
    """Trees outlive their brokers: data from older Kafkas is read, too."""
    old = b'{"version":1,"host":"h","port":9092,"jmx_port":-1,"timestamp":"5"}'
    assert tree.read_broker(4, old).endpoints == (
        tree.Endpoint("PLAINTEXT", "h", 9092, "PLAINTEXT"),
    )
    topic = tree.read_topic("t", b'{"version":1,"partitions":{"0":[1,2]}}')
    assert (topic.topic_id, topic.replicas) == (UUID(int=0), {0: (1, 2)})
    changed = b'{"version":1,"entity_type":"topics","entity_name":"t"}'
    assert entities.read_change("/config/changes/x", changed) == ("topics", "t")


def test_requests_through_the_tree() -> None:
    rows = b'{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[2,1]}]}'
    assert tree.read_reassignment(rows) == {("t", 0): (2, 1)}
    assert tree.read_election(rows) == (("t", 0),)
    told = (("t", 0), ("u", 12))
    assert tree.read_isr_change(tree.ISR_CHANGE, tree.write_isr_change(told)) == told
    event = tree.write_log_dir_event(3)
    assert json.loads(event) == {"version": 1, "broker": 3, "event": 1}
    assert tree.read_log_dir_event(tree.LOG_DIR_EVENT, event) == 3


def test_a_broker_of_every_kind() -> None:
    node = tree.BrokerNode(
        (tree.Endpoint("IN", "::1", 9093, "SSL"), tree.Endpoint("OUT", "h", 9092, "PLAINTEXT")),
        None, 7, {"transaction.version": (0, 2)},
    )  # fmt: skip
    data = tree.write_broker(node)
    assert tree.read_broker(1, data) == node
    said = json.loads(data)
    assert (said["host"], said["port"], "rack" in said) == ("h", 9092, False)
    recovering = tree.PartitionState(2, 5, (2,), 3, recovering=True)
    assert json.loads(tree.write_partition(recovering))["leader_recovery_state"] == 1
    assert tree.read_partition("t", 0, tree.write_partition(recovering)) == recovering


@pytest.mark.parametrize("name", ["plain", USER, "100%", "a+b c", "~._-", "<default>", None])
def test_names_in_paths(name: str | None) -> None:
    shown = entities.sanitized(name)
    assert "/" not in shown and "*" not in shown
    assert entities.unsanitized(shown) == name
    assert name is None or shown != entities.DEFAULT


def test_names_in_paths_are_as_javas() -> None:
    """Every byte in a path: the bytes that java.net.URLEncoder keeps, all others as %XX; also the
    space and the asterisk, which Kafka writes that way."""
    kept = "-._" + string.ascii_letters + string.digits
    for code in range(128):
        shown = chr(code) if chr(code) in kept else f"%{code:02X}"
        assert entities.sanitized(chr(code)) == shown
    assert entities.sanitized("\u00e9~") == "%C3%A9%7E"
