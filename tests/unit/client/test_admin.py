"""`kafkalog.Admin` gets the same answers from Apache Kafka and from our broker, also in-process."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import kafkalog
from kafkalog import Admin, CommittedOffset, ConfigResource, NewTopic, TopicPartition, errors
from kafkalog.client.link.failures import failure_class
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode
from tests.support.batches import Row, batch
from tests.support.scripted import Peer
from tests.support.waiting import wait_for

QUICK = {"config": {"retry.backoff.ms": 1}}


@pytest.fixture
def admin(where: Any) -> Iterator[Admin]:
    with Admin(where) as made:
        yield made


@pytest.fixture
def topic(admin: Admin, unique: str) -> str:
    """A topic of two partitions whose leaders already serve them."""
    admin.create_topic(unique, 2)
    admin.list_offsets({(unique, 0): "latest", (unique, 1): "latest"}).check()
    return unique


def put(where: Any, topic: str, times: list[int]) -> None:
    """A record for each time in partition 0."""
    from kafkalog.client.link.cluster import Cluster

    body = {
        "acks": -1,
        "timeout_ms": 30_000,
        "topic_data": [{"name": topic, "partition_data": [
            {"index": 0, "records": batch([Row(b"v", b"k", at) for at in times])}]}],
    }  # fmt: skip
    with Cluster(where) as cluster:
        connection = cluster.connect(cluster.leader(TopicPartition(topic, 0)))
        answer = connection.call(apis.PRODUCE, body, 9)
        assert answer.responses[0].partition_responses[0].error_code == 0


def failed_with(results: Any, key: Any, code: ErrorCode) -> str:
    """The message of the failure for `key`, after checking its class and flags."""
    problem = results.errors[key]
    assert isinstance(problem, failure_class(code))
    answer = code == ErrorCode.ELECTION_NOT_NEEDED  # there is nothing to try again for
    assert (problem.code, problem.retriable) == (code, code.retriable and not answer)
    with pytest.raises(type(problem)):
        results[key]
    return str(problem)


# ---- topics --------------------------------------------------------------------------------


def test_topics_come_and_go_each_with_a_result_of_its_own(
    admin: Admin, unique: str, wait_until: Callable[..., None]
) -> None:
    """A topic that cannot be created does not stop the others."""
    first, second, never = unique, unique + "-2", unique + "-3"
    wanted = [
        NewTopic(first, 2, 1, {"retention.ms": "7000"}),
        (second, -1, -1, {"cleanup.policy": ["compact"], "preallocate": False}),
        (never, 1, 9),
        "a/b",
    ]
    looked = admin.create_topics(wanted, validate_only=True)
    assert list(looked.done) == [first, second]
    assert admin.describe_cluster().nodes[0].node == 1
    assert not {first, second} & set(admin.list_topics())
    made = admin.create_topics(wanted)
    assert list(made.done) == [first, second] and list(made.errors) == [never, "a/b"]
    assert (made[first].partitions, made[first].replication_factor) == (2, 1)
    assert made[first].config["retention.ms"] == "7000"
    assert made[second].config["cleanup.policy"] == "compact"
    failed_with(made, never, ErrorCode.INVALID_REPLICATION_FACTOR)
    assert "a/b" in failed_with(made, "a/b", ErrorCode.INVALID_TOPIC_EXCEPTION)
    with pytest.raises(errors.TopicExists, match=unique):
        admin.create_topic(first)
    wait_until(lambda: {first, second} <= set(admin.list_topics()), "they are there")
    found = admin.describe_topics([first, second]).check()
    assert [len(one.partitions) for one in found.values()] == [2, 2]
    assert found[first].topic_id == made[first].topic_id
    every = admin.describe_topics(None).check()
    assert {first, second} <= set(every) and every[first] == found[first]
    gone = admin.delete_topics([first, found[second].topic_id, never])
    assert set(gone.done) == {first, found[second].topic_id}
    failed_with(gone, never, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    wait_until(lambda: not {first, second} & set(admin.list_topics()), "they are gone")


def test_a_topic_gets_more_partitions(
    admin: Admin, topic: str, wait_until: Callable[..., Any]
) -> None:
    counts = {topic: 4, "no-such-topic": 4}
    assert list(admin.create_partitions(counts, validate_only=True).done) == [topic]
    assert len(admin.describe_topics([topic])[topic].partitions) == 2
    found = admin.create_partitions(counts, {topic: [[1], [1]]})
    failed_with(found, "no-such-topic", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert found[topic] is None
    # Kafka's brokers see their controller's changes a moment later.
    wait_until(lambda: len(admin.describe_topics([topic])[topic].partitions) == 4, "4 partitions")
    failed_with(admin.create_partitions({topic: 3}), topic, ErrorCode.INVALID_PARTITIONS)


# ---- records and offsets -------------------------------------------------------------------


def test_offsets_by_word_and_by_time(admin: Admin, where: Any, topic: str) -> None:
    put(where, topic, [1_000_000, 3_000_000, 2_000_000])
    tp = TopicPartition(topic, 0)

    def at(when: int | str, **how: Any) -> int:
        return admin.list_offsets({tp: when}, **how)[tp].offset

    assert [at("earliest"), at("latest"), at("latest", isolation="read_committed")] == [0, 3, 3]
    assert [at(t) for t in (0, 1_000_000, 1_000_001, 3_000_000, 3_000_001)] == [0, 0, 1, 1, -1]
    assert admin.list_offsets({tp: "max_timestamp"})[tp][:2] == (1, 3_000_000)
    mixed = admin.list_offsets({(topic, 1): "latest", (topic, 7): "latest"})
    assert mixed[topic, 1].offset == 0
    failed_with(mixed, (topic, 7), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def test_records_are_deleted_before_an_offset(admin: Admin, where: Any, topic: str) -> None:
    put(where, topic, [1, 2, 3, 4])
    zero, one = TopicPartition(topic, 0), TopicPartition(topic, 1)
    found = admin.delete_records({zero: 3, one: 9})
    assert found[zero] == 3
    failed_with(found, one, ErrorCode.OFFSET_OUT_OF_RANGE)
    assert admin.list_offsets({zero: "earliest"})[zero].offset == 3
    assert admin.delete_records({zero: -1})[zero] == 4


# ---- settings ------------------------------------------------------------------------------


def test_settings_are_changed_one_by_one(admin: Admin, topic: str) -> None:
    resource = ("topic", topic)

    def changed() -> dict[str, str | None]:
        found = admin.describe_configs([resource])[resource]
        return {one.name: one.value for one in found.values() if one.source == "topic"}

    assert changed() == {}
    admin.alter_configs({resource: {"retention.ms": 7_000, "cleanup.policy": "delete"}}).check()
    admin.alter_configs({resource: {"cleanup.policy": ("append", "compact")}}).check()
    # Kafka's controller answers before its broker has applied the change.
    both = {"retention.ms": "7000", "cleanup.policy": "delete,compact"}
    wait_for(lambda: changed() == both, "both settings")
    admin.alter_configs({resource: {"cleanup.policy": ("subtract", "delete")}}).check()
    admin.alter_configs({resource: {"retention.ms": None}}).check()
    admin.alter_configs({resource: {"segment.bytes": 2 << 20}}, validate_only=True).check()
    wait_for(lambda: changed() == {"cleanup.policy": "compact"}, "what is left")
    wrong = admin.alter_configs({resource: {"segment.bytes": "many"}, ("topic", "none"): {"a": 1}})
    failed_with(wrong, resource, ErrorCode.INVALID_CONFIG)
    assert wrong.errors.keys() == {resource, ("topic", "none")}


def test_settings_of_brokers(admin: Admin) -> None:
    found = admin.describe_configs(
        [("broker", "1"), ("broker", "7")], names=["num.partitions", "node.id"], documentation=True
    )
    assert list(found["broker", "1"]) == ["node.id", "num.partitions"]
    assert found["broker", "1"]["num.partitions"].value == "2"
    assert found["broker", "1"]["node.id"].read_only
    assert found["broker", "1"]["num.partitions"].documentation
    with pytest.raises(errors.ArgumentError, match="broker '7': the cluster has 1"):
        found.check()


def test_resources_with_settings_are_listed(admin: Admin, topic: str) -> None:
    assert ConfigResource("topic", topic) in admin.list_config_resources()
    assert admin.list_config_resources(["broker"]) == [("broker", "1")]


# ---- groups --------------------------------------------------------------------------------


def test_offsets_of_a_group(admin: Admin, topic: str) -> None:
    zero, one = TopicPartition(topic, 0), TopicPartition(topic, 1)
    found = admin.alter_group_offsets(topic, {zero: CommittedOffset(3, -1, "mine"), one: 0})
    assert found.check() == {zero: None, one: None}
    assert admin.list_group_offsets(topic) == {zero: (3, -1, "mine"), one: (0, -1, "")}
    assert admin.list_group_offsets(topic, [one]) == {one: CommittedOffset(0)}
    listed = {one.group: one for one in admin.list_groups(states=["Empty"])}
    assert (listed[topic].state, listed[topic].kind) == ("Empty", "classic")
    assert topic not in {one.group for one in admin.list_groups(states=["Stable"])}
    admin.delete_group_offsets(topic, [zero]).check()
    assert list(admin.list_group_offsets(topic)) == [one]
    gone = admin.delete_groups([topic, "no-such-group"])
    assert gone[topic] is None
    failed_with(gone, "no-such-group", ErrorCode.GROUP_ID_NOT_FOUND)
    assert admin.describe_groups([topic])[topic].state == "Dead"


def test_members_are_removed(admin: Admin, where: Any, topic: str) -> None:
    """A static member by its name, then all that remain."""
    from kafkalog.client.link.cluster import Cluster

    def join(cluster: Cluster, group: str, instance: str | None) -> str:
        connection = cluster.connect(cluster.coordinator(group))
        body: dict[str, Any] = {
            "group_id": group, "session_timeout_ms": 30_000, "rebalance_timeout_ms": 1_000,
            "group_instance_id": instance, "protocol_type": "test",
            "protocols": [{"name": "p", "metadata": b""}],
        }  # fmt: skip
        answer = connection.call(apis.JOIN_GROUP, body)
        if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            answer = connection.call(apis.JOIN_GROUP, {**body, "member_id": answer.member_id})
        return str(answer.member_id)

    with Cluster(where) as cluster:
        join(cluster, topic, "static")
        dynamic = join(cluster, topic + "-2", None)
    found = admin.remove_group_members(topic, ["static", "nobody"])
    assert found["static"] is None
    failed_with(found, "nobody", ErrorCode.UNKNOWN_MEMBER_ID)
    assert admin.describe_groups([topic])[topic].members == ()
    assert admin.remove_group_members(topic + "-2").check() == {dynamic: None}


# ---- transactions --------------------------------------------------------------------------


def test_transactional_ids_are_listed_described_and_fenced(admin: Admin, unique: str) -> None:
    fenced = admin.fence_producers([unique])[unique]
    again = admin.fence_producers([unique])[unique]
    assert (again.name, again.producer_id) == (unique, fenced.producer_id)
    assert again.epoch > fenced.epoch
    listed = {one.name: one for one in admin.list_transactions()}
    assert (listed[unique].state, listed[unique].coordinator) == ("Empty", 1)
    assert [one.name for one in admin.list_transactions(pattern=f"{unique}.*")] == [unique]
    assert unique not in {one.name for one in admin.list_transactions(states=["Ongoing"])}
    found = admin.describe_transactions([unique, "no-such-id"])
    assert (found[unique].producer_id, found[unique].partitions) == (fenced.producer_id, ())
    failed_with(found, "no-such-id", ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)


def test_producers_of_partitions(admin: Admin, topic: str) -> None:
    found = admin.describe_producers([(topic, 0), (topic, 7)])
    assert found[topic, 0] == []
    failed_with(found, (topic, 7), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert admin.find_hanging_transactions([(topic, 0)], age_ms=0) == []


# ---- nodes and replicas --------------------------------------------------------------------


def test_the_cluster_its_disks_and_its_quorum(admin: Admin, where: Any, topic: str) -> None:
    put(where, topic, [1])
    cluster = admin.describe_cluster(fenced=True)
    assert [(one.node, one.fenced) for one in cluster.nodes] == [(1, False)]
    assert cluster.cluster_id and cluster.controller == 1
    dirs = admin.describe_log_dirs()
    (one,) = dirs[1]
    assert Path(one.path).is_absolute() and one.failed is None
    assert one.total_bytes >= one.usable_bytes > 0
    assert one.replicas[TopicPartition(topic, 0)].size_bytes > 0
    assert not one.replicas[TopicPartition(topic, 0)].future
    (only,) = admin.describe_log_dirs(partitions=[(topic, 1), (topic, 7)])[1]
    assert list(only.replicas) == [TopicPartition(topic, 1)]
    with pytest.raises(errors.ArgumentError, match="node 7: the cluster has 1"):
        admin.describe_log_dirs([7])[7]
    moved = admin.move_replicas({(topic, 0, 1): one.path, (topic, 1, 1): "/no/such/place"})
    failed_with(moved, (topic, 1, 1), ErrorCode.LOG_DIR_NOT_FOUND)
    assert moved[topic, 0, 1] is None
    quorum = admin.describe_quorum()
    assert [voter.node for voter in quorum.voters] == [1] == [quorum.leader]


def test_features(admin: Admin) -> None:
    has = {one.name: one for one in admin.describe_features().features}
    known = has["transaction.version"]
    fine = admin.update_features({"transaction.version": known.highest}, validate_only=True)
    assert fine.check() == {"transaction.version": None}
    wrong = admin.update_features({"transaction.version": 99}, validate_only=True)
    failed_with(wrong, "transaction.version", ErrorCode.INVALID_UPDATE_VERSION)


def test_elections_and_reassignments_of_one_node(admin: Admin, topic: str) -> None:
    zero, none = TopicPartition(topic, 0), TopicPartition(topic, 7)
    elected = admin.elect_leaders([zero, none])
    failed_with(elected, zero, ErrorCode.ELECTION_NOT_NEEDED)
    failed_with(elected, none, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert admin.list_partition_reassignments() == {}
    moved = admin.alter_partition_reassignments({zero: [1], none: [1], (topic, 1): None})
    assert moved[zero] is None
    failed_with(moved, none, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    failed_with(moved, (topic, 1), ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)


# ---- failures on the way -------------------------------------------------------------------


def test_only_retriable_results_are_retried(peer: Peer) -> None:
    """One topic is created, one needs a retry, one is refused: only the second is sent again."""

    def answer(*codes: tuple[str, int]) -> dict[str, Any]:
        return {"topics": [{"name": name, "error_code": code} for name, code in codes]}

    peer.on(
        apis.CREATE_TOPICS,
        answer(("a", 0), ("b", ErrorCode.NOT_CONTROLLER), ("c", ErrorCode.POLICY_VIOLATION)),
        answer(("b", 0)),
    )
    with Admin(peer.servers, **QUICK) as admin:
        found = admin.create_topics(["a", "b", "c"])
    assert list(found.done) == ["a", "b"]
    failed_with(found, "c", ErrorCode.POLICY_VIOLATION)
    asked = [[t.name for t in request.topics] for request in peer.sent(apis.CREATE_TOPICS)]
    assert asked == [["a", "b", "c"], ["b"]]


def test_a_failure_that_does_not_pass_in_time_is_the_result(peer: Peer) -> None:
    peer.on(
        apis.CREATE_TOPICS,
        {"topics": [{"name": "a", "error_code": ErrorCode.NOT_CONTROLLER}]},
    )
    with Admin(peer.servers, **QUICK) as admin:
        found = admin.create_topics(["a"], timeout_ms=1_000)
    failed_with(found, "a", ErrorCode.NOT_CONTROLLER)


def test_a_broker_waits_shorter_than_we_do(peer: Peer) -> None:
    """Otherwise the broker's answer, a timeout or a late success, would arrive too late."""
    zero = TopicPartition("a", 0)
    peer.on(apis.METADATA, peer.metadata({"a": 1}))
    tried: dict[Any, Callable[[Admin], Any]] = {
        apis.CREATE_TOPICS: lambda admin: admin.create_topics(["a"]),
        apis.DELETE_TOPICS: lambda admin: admin.delete_topics(["a"]),
        apis.CREATE_PARTITIONS: lambda admin: admin.create_partitions({"a": 2}),
        apis.DELETE_RECORDS: lambda admin: admin.delete_records({zero: 1}),
        apis.ELECT_LEADERS: lambda admin: admin.elect_leaders([zero]),
        apis.ALTER_PARTITION_REASSIGNMENTS: lambda admin: admin.alter_partition_reassignments(
            {zero: [1]}
        ),
    }
    with Admin(peer.servers, request_timeout_ms=20_000) as admin:
        for api, ask in tried.items():
            peer.on(api, {})
            assert len(ask(admin).errors) == 1, "the peer's answer names nothing"
            (request,) = peer.sent(api)
            assert 10_000 < request.timeout_ms <= 18_000, api.name


def test_a_thing_without_an_answer_is_told(peer: Peer) -> None:
    peer.on(apis.DELETE_GROUPS, {"results": [{"group_id": "a", "error_code": 0}]})
    at = {"node_id": 1, "host": "127.0.0.1", "port": peer.port}
    peer.on(apis.FIND_COORDINATOR, {"coordinators": [at]})
    with Admin(peer.servers, **QUICK) as admin:
        found = admin.delete_groups(["a", "b"])
    assert found["a"] is None
    with pytest.raises(errors.BadAnswer, match="no answer for 'b'"):
        found["b"]


def test_nobody_is_there() -> None:
    with Admin("127.0.0.1:1", **QUICK) as admin, pytest.raises(errors.PeerGone, match=":1"):
        admin.create_topics(["a"])


# ---- the handle ----------------------------------------------------------------------------


def test_an_admin_is_closed_with_its_broker(tmp_path: Path) -> None:
    broker = kafkalog.Broker(tmp_path / "data", listeners=())
    admin = Admin(broker)
    admin.create_topic("t")
    broker.close()
    assert admin.closed
    with pytest.raises(errors.Closed, match="Admin"):
        admin.list_topics()
    admin.close()


def test_an_admin_is_not_copied() -> None:
    with Admin("localhost:1") as admin:
        for how in (copy.copy, copy.deepcopy, pickle.dumps):
            with pytest.raises(errors.ArgumentError, match="Admin: cannot be copied or pickled"):
                how(admin)


def test_settings_by_kafkas_names() -> None:
    with Admin("h:1", config={"request.timeout.ms": 7, "default.api.timeout.ms": "9"}) as admin:
        assert admin._cluster.options.request_timeout_ms == 7
        assert admin._cluster.options.api_timeout_ms == 9
    with pytest.raises(errors.UnknownSetting, match=r"request\.timeout\.ms"):
        Admin("h:1", config={"request.timeouts.ms": 7})
    with pytest.raises(errors.InvalidSetting, match=r"request\.timeout\.ms"):
        Admin("h:1", request_timeout_ms=0)
