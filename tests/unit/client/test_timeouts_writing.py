"""The calls of an admin client and of a producer end when their timeouts do.

As in test_timeouts: nothing measures time, and every wait for a broker is ten minutes.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from inspect import getmembers, isfunction, signature
from typing import Any
from uuid import UUID

import pytest

from kafkalog import AclBinding, AclBindingFilter, UserScramCredentialDeletion, errors
from kafkalog.client.admin import Admin
from kafkalog.client.calls.results import Results
from kafkalog.client.consumer.consumer import Consumer
from kafkalog.client.producer.producer import Producer
from kafkalog.types import TopicPartition
from kafkalog.wire import apis
from tests.support.scripted import STALL, Peer, produced
from tests.support.waiting import LIMIT_S, wait_for
from tests.unit.client.test_timeouts import LONG_MS, PATIENT, SOON_MS, port, silent

__all__ = ["silent"]

ZERO, DIRECTORY = TopicPartition("t", 0), UUID(int=7)
MS = {"timeout_ms": SOON_MS}
ACL = AclBinding("topic", "t", "User:u", "read")
QUOTAS = {(("user", "u"),): {"producer_byte_rate": 1.0}}
ASKED: dict[str, Callable[[Admin], Any]] = {
    "abort_transaction": lambda a: a.abort_transaction(ZERO, 1, 1, **MS),
    "add_raft_voter": lambda a: a.add_raft_voter(7, DIRECTORY, [("C", "h", 1)], **MS),
    "alter_client_quotas": lambda a: a.alter_client_quotas(QUOTAS, **MS),
    "alter_configs": lambda a: a.alter_configs({("topic", "t"): {"retention.ms": 1}}, **MS),
    "alter_group_offsets": lambda a: a.alter_group_offsets("g", {ZERO: 1}, **MS),
    "alter_partition_reassignments": lambda a: a.alter_partition_reassignments({ZERO: [1]}, **MS),
    "alter_user_scram_credentials": lambda a: a.alter_user_scram_credentials(
        [UserScramCredentialDeletion("u", "SCRAM-SHA-256")], **MS
    ),
    "alter_share_group_offsets": lambda a: a.alter_share_group_offsets("g", {ZERO: 1}, **MS),
    "create_acls": lambda a: a.create_acls([ACL], **MS),
    "create_delegation_token": lambda a: a.create_delegation_token(**MS),
    "create_partitions": lambda a: a.create_partitions({"t": 3}, **MS),
    "create_topic": lambda a: a.create_topic("t", **MS),
    "create_topics": lambda a: a.create_topics(["t"], **MS),
    "delete_acls": lambda a: a.delete_acls([AclBindingFilter()], **MS),
    "delete_group_offsets": lambda a: a.delete_group_offsets("g", [ZERO], **MS),
    "delete_groups": lambda a: a.delete_groups(["g"], **MS),
    "delete_records": lambda a: a.delete_records({ZERO: 1}, **MS),
    "delete_share_group_offsets": lambda a: a.delete_share_group_offsets("g", ["t"], **MS),
    "delete_topic": lambda a: a.delete_topic("t", **MS),
    "delete_topics": lambda a: a.delete_topics(["t"], **MS),
    "describe_acls": lambda a: a.describe_acls(**MS),
    "describe_client_quotas": lambda a: a.describe_client_quotas(**MS),
    "describe_cluster": lambda a: a.describe_cluster(**MS),
    "describe_configs": lambda a: a.describe_configs([("topic", "t"), ("broker", "1")], **MS),
    "describe_delegation_tokens": lambda a: a.describe_delegation_tokens(**MS),
    "describe_features": lambda a: a.describe_features(**MS),
    "describe_groups": lambda a: a.describe_groups(["g"], **MS),
    "describe_log_dirs": lambda a: a.describe_log_dirs(**MS),
    "describe_producers": lambda a: a.describe_producers([ZERO], **MS),
    "describe_quorum": lambda a: a.describe_quorum(**MS),
    "describe_streams_groups": lambda a: a.describe_streams_groups(["g"], **MS),
    "describe_topics": lambda a: a.describe_topics(["t"], **MS),
    "describe_transactions": lambda a: a.describe_transactions(["x"], **MS),
    "describe_user_scram_credentials": lambda a: a.describe_user_scram_credentials(**MS),
    "elect_leaders": lambda a: a.elect_leaders([ZERO], **MS),
    "expire_delegation_token": lambda a: a.expire_delegation_token(b"h", **MS),
    "fence_producers": lambda a: a.fence_producers(["x"], **MS),
    "find_hanging_transactions": lambda a: a.find_hanging_transactions([ZERO], **MS),
    "list_config_resources": lambda a: a.list_config_resources(**MS),
    "list_group_offsets": lambda a: a.list_group_offsets("g", **MS),
    "list_share_group_offsets": lambda a: a.list_share_group_offsets("g", **MS),
    "list_groups": lambda a: a.list_groups(**MS),
    "list_offsets": lambda a: a.list_offsets({ZERO: "latest"}, **MS),
    "list_partition_reassignments": lambda a: a.list_partition_reassignments(**MS),
    "list_topics": lambda a: a.list_topics(**MS),
    "list_transactions": lambda a: a.list_transactions(**MS),
    "move_replicas": lambda a: a.move_replicas({("t", 0, 1): "/x"}, **MS),
    "remove_group_members": lambda a: a.remove_group_members("g", **MS),
    "renew_delegation_token": lambda a: a.renew_delegation_token(b"h", **MS),
    "remove_raft_voter": lambda a: a.remove_raft_voter(7, DIRECTORY, **MS),
    "unregister_broker": lambda a: a.unregister_broker(7, **MS),
    "unregister_controller": lambda a: a.unregister_controller(7, **MS),
    "update_features": lambda a: a.update_features({"f": 1}, **MS),
}


def fails(admin: Admin, name: str) -> None:
    """The call returns, and reports that it got no answer."""
    try:
        found = ASKED[name](admin)
    except errors.KafkalogError as problem:
        assert isinstance(problem, (errors.Timeout, errors.PeerGone)), repr(problem)
    else:
        assert isinstance(found, Results) and found.errors


def test_every_call_of_an_administrator_has_a_timeout() -> None:
    names = {name for name, _ in getmembers(Admin, isfunction) if not name.startswith("_")}
    others = {"close", "client_instance_id"}  # this one only brokers with a receiver answer
    assert names - others == ASKED.keys()


def test_every_call_of_a_consumer_that_asks_has_a_timeout() -> None:
    no_wait = {
        "assign", "subscribe", "seek", "pause", "resume", "wakeup", "group_metadata",
        "incremental_assign", "incremental_unassign", "store_offsets", "metrics",
    }  # fmt: skip
    for name, method in getmembers(Consumer, isfunction):
        if not name.startswith("_"):
            assert ("timeout_ms" in signature(method).parameters) == (name not in no_wait), name


@pytest.mark.parametrize("name", ASKED)
def test_a_broker_that_answers_nothing(silent: socket.socket, name: str) -> None:
    with Admin(f"127.0.0.1:{port(silent)}", config=only(PATIENT)) as admin:
        fails(admin, name)


@pytest.mark.parametrize("name", ASKED)
def test_a_broker_that_falls_silent(peer: Peer, name: str) -> None:
    peer.on(apis.METADATA, peer.metadata({"t": 2}))
    with Admin(peer.servers, config=only(PATIENT)) as admin:
        admin.list_topics(timeout_ms=LONG_MS)
        for api in apis.BY_KEY.values():
            peer.on(api, STALL)
        fails(admin, name)


def test_another_threads_call_is_not_waited_for_longer(peer: Peer) -> None:
    peer.on(apis.METADATA, STALL)
    with Admin(peer.servers, config=only(PATIENT)) as admin:
        held = threading.Thread(
            target=lambda: suppressed(lambda: admin.list_topics(timeout_ms=900))
        )
        held.start()
        wait_for(lambda: peer.count(apis.METADATA), "it asks")
        fails(admin, "list_topics")
        held.join(LIMIT_S)


def suppressed(call: Callable[[], object]) -> None:
    with pytest.raises(errors.Timeout):
        call()


def only(config: dict[str, Any]) -> dict[str, Any]:
    """The settings that an Admin also has."""
    return {name: value for name, value in config.items() if not name.startswith("fetch")}


# ---- producers -------------------------------------------------------------------------------


def patient(servers: str, **options: Any) -> Producer:
    config = {"delivery.timeout.ms": 2 * LONG_MS, "retry.backoff.ms": 1}
    return Producer(
        servers, request_timeout_ms=LONG_MS, max_block_ms=SOON_MS, linger_ms=0, config=config,
        **options,
    )  # fmt: skip


@pytest.mark.parametrize("name", ["send", "send_many", "partitions"])
def test_a_producer_of_a_broker_that_answers_nothing(silent: socket.socket, name: str) -> None:
    calls: dict[str, Callable[[Producer], object]] = {
        "send": lambda p: p.send("t", b"x"),
        "send_many": lambda p: p.send_many("t", [b"x"]),
        "partitions": lambda p: p.partitions("t"),
    }
    producer = patient(f"127.0.0.1:{port(silent)}")
    with pytest.raises(errors.Timeout):
        calls[name](producer)
    producer.close(timeout=0)


@pytest.mark.parametrize("name", ["init_transactions", "begin_transaction"])
@pytest.mark.parametrize("how", ["silent", "coordinator", "id"])
def test_a_transactional_id_that_is_not_given(
    peer: Peer, silent: socket.socket, name: str, how: str
) -> None:
    """The broker, the search for the coordinator, or the coordinator never answers."""
    where = {"key": "x", "node_id": 1, "host": "127.0.0.1", "port": peer.port}
    peer.on(apis.FIND_COORDINATOR, STALL if how == "coordinator" else {"coordinators": [where]})
    peer.on(apis.INIT_PRODUCER_ID, STALL)
    servers = f"127.0.0.1:{port(silent)}" if how == "silent" else peer.servers
    producer = patient(servers, transactional_id="x")
    with pytest.raises(errors.Timeout):
        getattr(producer, name)()
    producer.close(timeout=0)


@pytest.fixture
def writing(broker: Peer) -> Any:
    """A producer in a transaction that has sent a record."""
    where = {"key": "x", "node_id": 1, "host": "127.0.0.1", "port": broker.port}
    broker.on(apis.FIND_COORDINATOR, {"coordinators": [where]})
    broker.on(apis.ADD_PARTITIONS_TO_TXN, added)
    broker.on(apis.END_TXN, {})
    producer = patient(broker.servers, transactional_id="x")
    producer._boundaries._block_s = producer._block_s = LONG_MS / 1000
    producer.begin_transaction()
    producer.send("t", b"x").result(LIMIT_S)
    producer._boundaries._block_s = SOON_MS / 1000
    yield producer
    with suppress(errors.Timeout):
        producer.close(timeout=0)


def added(request: Any, version: int) -> Any:
    rows = [
        {"name": topic.name, "results_by_partition": [
            {"partition_index": p} for p in topic.partitions]}
        for topic in request.v3_and_below_topics
    ]  # fmt: skip
    return {"results_by_topic_v3_and_below": rows}


@pytest.mark.parametrize("name", ["commit_transaction", "abort_transaction"])
def test_an_end_that_is_not_answered(broker: Peer, writing: Producer, name: str) -> None:
    broker.on(apis.END_TXN, STALL)
    with pytest.raises(errors.Timeout):
        getattr(writing, name)()


@pytest.mark.parametrize("api", [apis.ADD_OFFSETS_TO_TXN, apis.TXN_OFFSET_COMMIT])
def test_offsets_that_are_not_answered(broker: Peer, writing: Producer, api: Any) -> None:
    broker.on(apis.ADD_OFFSETS_TO_TXN, {})
    broker.on(apis.TXN_OFFSET_COMMIT, {"topics": []})
    broker.on(api, STALL)
    with pytest.raises(errors.Timeout):
        writing.send_offsets({ZERO: 1}, "g")


def test_a_commit_waits_for_records_within_its_time(broker: Peer, writing: Producer) -> None:
    """A timeout decides nothing: once the records are acknowledged, the same commit succeeds."""
    let = threading.Event()
    take = produced([])

    def slow(request: Any, version: int) -> Any:
        let.wait(LIMIT_S)
        return take(request, version)

    broker.on(apis.PRODUCE, slow)
    sent = writing.send("t", b"y")
    with pytest.raises(errors.Timeout) as raised:
        writing.commit_transaction()
    assert raised.value.retriable and not raised.value.abortable
    assert not broker.count(apis.END_TXN)
    let.set()
    writing._boundaries._block_s = LONG_MS / 1000
    writing.commit_transaction()
    assert sent.result(0).topic == "t"
    assert [request.committed for request in broker.sent(apis.END_TXN)] == [True]


def test_an_abort_waits_for_records_within_its_time(broker: Peer, writing: Producer) -> None:
    broker.on(apis.PRODUCE, STALL)
    writing.send("t", b"y")
    wait_for(lambda: broker.count(apis.PRODUCE) == 2, "it is in flight")
    with pytest.raises(errors.Timeout):
        writing.abort_transaction()


def test_a_close_aborts_within_its_time(broker: Peer, writing: Producer) -> None:
    broker.on(apis.END_TXN, STALL)
    writing._boundaries._block_s = LONG_MS / 1000
    writing.close(timeout=SOON_MS / 1000)
    assert not writing._sender._thread.is_alive()


def test_a_thread_that_waits_for_something_else_is_not_waited_for(
    broker: Peer, writing: Producer
) -> None:
    broker.on(apis.METADATA, STALL)
    writing._block_s = SOON_MS / 1000
    with pytest.raises(errors.Timeout):
        writing.send("other", b"x")
    with pytest.raises(errors.Timeout):
        writing.commit_transaction()
    with pytest.raises(errors.Timeout):
        writing.abort_transaction()


def test_a_close_of_a_producer_has_its_time(broker: Peer) -> None:
    broker.on(apis.PRODUCE, STALL)
    producer = patient(broker.servers)
    producer._block_s = LONG_MS / 1000
    producer.send("t", b"x")
    for call in (producer.flush, producer.close):
        with pytest.raises(errors.Timeout):
            call(timeout=SOON_MS / 1000)
