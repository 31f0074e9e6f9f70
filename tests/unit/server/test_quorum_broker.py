"""A broker of a KRaft cluster whose active controller is scripted."""

from __future__ import annotations

import contextlib
import errno
import json
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from kafkalog import Admin, Consumer, Producer, TopicPartition, errors
from kafkalog.config.server import ServerConfig
from kafkalog.disk.checkpoint import DirectoryState
from kafkalog.disk.directory import Directory
from kafkalog.disk.layout import (
    META_PROPERTIES,
    METADATA_TOPIC,
    MetaProperties,
    parse_meta_properties,
    render_meta_properties,
)
from kafkalog.replication.roles import Effect, Lead
from kafkalog.server.broker import Broker, node_of, serve_until
from kafkalog.server.controller_apis import quorum_broker
from kafkalog.server.handlers.fetch import open_logs
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode
from tests.support.controllers import CLUSTER, Controller
from tests.support.copies import batches_in
from tests.support.raw import Raw
from tests.support.trees import fingerprint
from tests.support.waiting import LIMIT_S, wait_for

NODE = 2
ORDERS = UUID(int=100)


@pytest.fixture
def controller() -> Iterator[Controller]:
    with Controller() as running:
        yield running


def started(controller: Controller, path: Path, **more: object) -> Broker:
    return Broker(path, config={**controller.settings, "node.id": NODE, **more})


def created(controller: Controller, broker: Broker) -> None:
    """Create a topic that the broker leads, and wait until it knows that."""
    controller.topic("orders", ORDERS, NODE, leader=NODE)
    wait_for(lambda: "orders" in node_of(broker).image.topics, "the topic is known")


def test_it_registers_and_is_unfenced(controller: Controller, tmp_path: Path) -> None:
    with started(controller, tmp_path / "d", **{"broker.rack": "east"}) as broker:
        assert node_of(broker).image.cluster_id == CLUSTER
        wait_for(lambda: NODE in node_of(broker).image.living, "it knows that it lives")
        (asked,) = controller.sent(apis.BROKER_REGISTRATION)
        assert (asked.broker_id, asked.cluster_id, asked.rack) == (NODE, CLUSTER, "east")
        (listener,) = asked.listeners
        assert (listener.name, listener.port) == (
            "PLAINTEXT", int(broker.bootstrap_servers.rpartition(":")[2]),
        )  # fmt: skip
        assert {one.name for one in asked.features} >= {"metadata.version", "kraft.version"}
    assert controller.sent(apis.BROKER_HEARTBEAT)[-1].want_shut_down


def test_its_metadata_log_is_the_controllers(controller: Controller, tmp_path: Path) -> None:
    with started(controller, tmp_path / "d") as broker:
        created(controller, broker)
        wait_for(lambda: "orders" in node_of(broker).image.topics, "the topic is known")
    found = b"".join(batches_in(tmp_path / "d" / "__cluster_metadata-0"))
    assert controller.log.startswith(found)
    assert len(found) > len(controller.log) // 2


def test_it_leads_its_partitions(controller: Controller, tmp_path: Path) -> None:
    """Also after a restart; a deleted topic is gone, with its folder."""
    path = tmp_path / "d"
    with started(controller, path) as broker:
        created(controller, broker)
        with Producer(broker.bootstrap_servers) as producer:
            producer.send("orders", b"one", partition=0).result()
    with started(controller, path) as broker:
        with Consumer(broker.bootstrap_servers, auto_offset_reset="earliest") as consumer:
            consumer.assign([TopicPartition("orders", 0)])
            found = wait_for(lambda: consumer.poll(200), "the record")
        assert [one.value for one in found] == [b"one"]
        controller.write(("RemoveTopicRecord", {"topic_id": ORDERS}))
        wait_for(lambda: not (path / "orders-0").exists(), "the folder is gone")


@pytest.mark.parametrize("leader", [NODE, 9], ids=["led", "followed"])
def test_many_replicas_wait_for_the_disk_as_one(
    controller: Controller, tmp_path: Path, leader: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node with ten thousand replicas rewrote the checkpoints of all of them for each."""
    written = list[str]()
    write, sync = DirectoryState._write, Directory._sync

    def counted(self: DirectoryState, wanted: Mapping[str, Any]) -> None:
        written.append("checkpoint")
        write(self, wanted)

    def synced(self: Directory, names: Iterable[str]) -> None:
        written.append("sync")
        sync(self, names)

    with started(controller, tmp_path / "d") as broker:
        node = node_of(broker)
        created(controller, broker)
        monkeypatch.setattr(DirectoryState, "_write", counted)
        monkeypatch.setattr(Directory, "_sync", synced)
        for number in (1, 2):  # the second has the names of the first
            topic_id = UUID(int=200 + number)
            controller.topic("many", topic_id, NODE, 9, leader=leader, partitions=60)
            wait_for(lambda: len(node.partitions._open_logs) == 61, "all are open")
            controller.write(("RemoveTopicRecord", {"topic_id": topic_id}))
            wait_for(lambda: len(node.partitions._open_logs) == 1, "all are gone")
        assert 0 < len(written) < 30


def test_a_fetch_does_not_make_the_replica_before_its_command(
    controller: Controller, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Followers of a new topic ask early; each of their folders would cost its own waits."""
    go_on = threading.Event()
    with started(controller, tmp_path / "d") as broker:
        node, member = node_of(broker), broker._member
        assert member is not None
        wait_for(lambda: NODE in node.image.living, "it knows that it lives")
        carry_out = member.carry_out

        def late(effects: Sequence[Effect]) -> Mapping[TopicPartition, ErrorCode]:
            go_on.wait(LIMIT_S)
            return carry_out(effects)

        monkeypatch.setattr(member, "carry_out", late)
        created(controller, broker)
        open_logs(node, [("orders", 0)], to_read=True)
        assert not (tmp_path / "d" / "orders-0").exists()
        go_on.set()
        wait_for(lambda: TopicPartition("orders", 0) in node.partitions._open_logs, "it is led")


def test_a_topic_deleted_while_it_was_down_is_a_stray(
    controller: Controller, tmp_path: Path
) -> None:
    path = tmp_path / "d"
    with started(controller, path) as broker:
        created(controller, broker)
        with Producer(broker.bootstrap_servers) as producer:
            producer.send("orders", b"one", partition=0).result()
    controller.write(("RemoveTopicRecord", {"topic_id": ORDERS}))
    with started(controller, path):
        assert not (path / "orders-0").exists()
        assert list(path.glob("orders-0.*-stray"))


def test_a_replica_in_another_directory_is_assigned_to_this_one(
    controller: Controller, tmp_path: Path
) -> None:
    with started(controller, tmp_path / "d") as broker:
        here, controller.directories[NODE] = controller.directories[NODE], UUID(int=0)
        created(controller, broker)
        wait_for(lambda: controller.count(apis.ASSIGN_REPLICAS_TO_DIRS), "it is assigned")
        asked = controller.sent(apis.ASSIGN_REPLICAS_TO_DIRS)[0]
        (directory,) = asked.directories
        (topic,) = directory.topics
        assert (directory.id, topic.topic_id) == (here, ORDERS)
        assert [one.partition_index for one in topic.partitions] == [0]


def test_a_fenced_broker_is_not_shown_to_clients(controller: Controller, tmp_path: Path) -> None:
    with started(controller, tmp_path / "d") as broker, Raw(broker.bootstrap_servers) as raw:
        address = {"name": "PLAINTEXT", "host": "elsewhere", "port": 9092, "security_protocol": 0}
        fields = {
            "broker_id": 9, "incarnation_id": UUID(int=5), "end_points": [address], "features": [],
            "rack": None, "in_controlled_shutdown": False, "broker_epoch": 3, "log_dirs": [],
        }  # fmt: skip
        controller.topic("orders", ORDERS, NODE, 9, leader=NODE)

        def seen() -> tuple[set[int], list[int]]:
            answer = raw.call(apis.METADATA, 12, topics=[{"name": "orders"}])
            rows = answer.topics[0].partitions
            return {one.node_id for one in answer.brokers}, rows[0].offline_replicas if rows else []

        controller.write(("RegisterBrokerRecord", {**fields, "fenced": False}))
        wait_for(lambda: seen() == ({NODE, 9}, []), "both are shown")
        controller.write(("FenceBrokerRecord", {"id": 9, "epoch": 3}))
        wait_for(lambda: seen() == ({NODE}, [9]), "one is shown")
        asked = {"include_cluster_authorized_operations": False}
        for fenced in (False, True):
            answer = raw.call(apis.DESCRIBE_CLUSTER, 2, include_fenced_brokers=fenced, **asked)
            found = {one.broker_id: one.is_fenced for one in answer.brokers}
            assert found == {NODE: False, **({9: True} if fenced else {})}


def test_requests_of_clients_are_forwarded_with_their_principal(
    controller: Controller, tmp_path: Path
) -> None:
    row = {"name": "orders", "topic_id": ORDERS, "error_code": 0, "error_message": None}
    controller.answers[apis.CREATE_TOPICS.key] = {"topics": [row]}
    controller.answers[apis.DESCRIBE_QUORUM.key] = {"error_code": 0, "topics": [], "nodes": []}
    with started(controller, tmp_path / "d") as broker, Raw(broker.bootstrap_servers) as raw:
        asked = [{"name": "orders", "num_partitions": 1, "replication_factor": 1}]
        (topic,) = raw.call(apis.CREATE_TOPICS, topics=asked, timeout_ms=1000).topics
        assert (topic.name, topic.topic_id, topic.error_code) == ("orders", ORDERS, 0)
        assert raw.call(apis.DESCRIBE_QUORUM, topics=[]).error_code == 0
    who = "User:ANONYMOUS", b"\x7f\0\0\1"
    assert controller.enveloped == [("CreateTopics", *who), ("DescribeQuorum", *who)]


def test_changes_of_voters_are_forwarded(controller: Controller, tmp_path: Path) -> None:
    """Also our client's, and the controller's refusal comes back."""
    done = {"error_code": 0, "error_message": None}
    controller.answers[apis.ADD_RAFT_VOTER.key] = done
    refusal = {"error_code": ErrorCode.VOTER_NOT_FOUND, "error_message": "none such"}
    controller.answers[apis.REMOVE_RAFT_VOTER.key] = refusal
    with started(controller, tmp_path / "d") as broker, Admin(broker.bootstrap_servers) as admin:
        admin.add_raft_voter(3, UUID(int=3), [("CONTROLLER", "localhost", 9093)])
        with pytest.raises(errors.KafkalogError, match="none such") as found:
            admin.remove_raft_voter(3, UUID(int=4))
        assert found.value.code == ErrorCode.VOTER_NOT_FOUND
    who = "User:ANONYMOUS", b"\x7f\0\0\1"
    assert controller.enveloped == [("AddRaftVoter", *who), ("RemoveRaftVoter", *who)]


def test_a_request_whose_turn_comes_too_late_is_not_forwarded(
    controller: Controller, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quorum_broker, "PATIENCE_S", 0)
    row = {"name": "orders", "topic_id": ORDERS, "error_code": 0, "error_message": None}
    controller.answers[apis.CREATE_TOPICS.key] = {"topics": [row]}
    with started(controller, tmp_path / "d") as broker, Raw(broker.bootstrap_servers) as raw:
        asked = [{"name": "orders", "num_partitions": 1, "replication_factor": 1}]
        (topic,) = raw.call(apis.CREATE_TOPICS, topics=asked, timeout_ms=1000).topics
        assert topic.error_code == ErrorCode.REQUEST_TIMED_OUT
    assert controller.enveloped == []


def test_an_envelope_that_is_refused_is_an_error(controller: Controller, tmp_path: Path) -> None:
    controller.answers[apis.CREATE_TOPICS.key] = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    with started(controller, tmp_path / "d") as broker, Raw(broker.bootstrap_servers) as raw:
        asked = [{"name": "orders", "num_partitions": 1, "replication_factor": 1}]
        (topic,) = raw.call(apis.CREATE_TOPICS, topics=asked, timeout_ms=1000).topics
        assert topic.error_code == ErrorCode.UNSUPPORTED_VERSION


def test_it_is_a_broker_of_kraft_to_clients(controller: Controller, tmp_path: Path) -> None:
    """ApiVersions has what a single node has, changes of voters, and the features."""
    with started(controller, tmp_path / "d") as broker, Raw(broker.bootstrap_servers) as raw:
        body = {"client_software_name": "a", "client_software_version": "1"}
        answer = raw.call(apis.API_VERSIONS, 4, **body)
        assert {one.api_key for one in answer.api_keys} == set(apis.SERVED) | {
            apis.ADD_RAFT_VOTER.key, apis.REMOVE_RAFT_VOTER.key,
        }  # fmt: skip
        levels = {one.name: one.max_version_level for one in answer.finalized_features}
        assert levels["metadata.version"] == 27
        assert answer.finalized_features_epoch > 0
        cluster = raw.call(apis.DESCRIBE_CLUSTER, 1, include_cluster_authorized_operations=False)
        assert (cluster.cluster_id, cluster.controller_id) == (CLUSTER, NODE)


def test_a_failed_log_takes_its_directory_offline(controller: Controller, tmp_path: Path) -> None:
    with started(controller, tmp_path / "d") as broker:
        created(controller, broker)
        where, member = TopicPartition("orders", 0), broker._member
        assert member is not None
        assert member.held(where) is not None
        member.fail([where])
        member.report_failed()
        assert member.held(where) is None
        wait_for(lambda: controller.sent(apis.BROKER_HEARTBEAT)[-1].offline_log_dirs == [
            controller.directories[NODE]], "the controller is informed")  # fmt: skip


def test_a_missing_registration_is_made_again(controller: Controller, tmp_path: Path) -> None:
    """By the same incarnation: it is the same process."""
    with started(controller, tmp_path / "d") as broker:
        controller.heartbeat_code = ErrorCode.BROKER_ID_NOT_REGISTERED
        wait_for(lambda: controller.count(apis.BROKER_REGISTRATION) > 1, "it registers again")
        controller.heartbeat_code = 0
        wait_for(lambda: NODE in node_of(broker).image.living, "it is unfenced")
        sent = controller.sent(apis.BROKER_REGISTRATION)
        assert len({one.incarnation_id for one in sent}) == 1
    with started(controller, tmp_path / "d"):
        sent = controller.sent(apis.BROKER_REGISTRATION)
        assert len({one.incarnation_id for one in sent}) == 2


def test_only_an_orderly_end_is_reported_as_one(controller: Controller, tmp_path: Path) -> None:
    """After a crash acknowledged records may be missing: it must not be elected for them."""
    epochs = []
    for ends in (Broker.close, Broker.abandon, Broker.close):
        broker = started(controller, tmp_path / "d")
        epochs.append(node_of(broker).image.brokers[NODE].epoch)
        if len(epochs) == 1:
            created(controller, broker)
        ends(broker)
    sent = [one.previous_broker_epoch for one in controller.sent(apis.BROKER_REGISTRATION)]
    assert sent == [-1, epochs[0], -1]


def test_its_directory_is_not_served_alone(controller: Controller, tmp_path: Path) -> None:
    """It would write records of its own into the controllers' log."""
    with started(controller, tmp_path / "d"):
        pass
    with pytest.raises(errors.ArgumentError, match="whose controllers are other nodes"):
        Broker(tmp_path / "d")


@pytest.mark.parametrize("lost_batches", [0, 1], ids=["all", "all but the last"])
def test_the_leader_of_the_quorum_dies(tmp_path: Path, lost_batches: int) -> None:
    """The next one is found; what it never had was not committed, and is truncated."""
    with contextlib.ExitStack() as dies, Controller(7) as second:
        first = dies.enter_context(Controller())
        both = {"controller.quorum.bootstrap.servers": f"{first.servers},{second.servers}"}
        with started(first, tmp_path / "d", **both) as broker:
            created(first, broker)
            first.commits = False
            first.write(("TopicRecord", {"name": "last", "topic_id": UUID(int=7)}))
            log = tmp_path / "d" / "__cluster_metadata-0"
            wait_for(lambda: b"".join(batches_in(log)) == first.log, "all is copied")
            second.takes_over(first, first.batches - lost_batches)
            dies.close()
            second.write(("TopicRecord", {"name": "next", "topic_id": UUID(int=8)}))
            wait_for(lambda: "next" in node_of(broker).image.topics, "the next is followed")
            assert ("last" in node_of(broker).image.topics) == (not lost_batches)
            wait_for(lambda: second.count(apis.BROKER_HEARTBEAT), "it sends heartbeats there")
            assert not second.count(apis.BROKER_REGISTRATION)
        assert second.log.startswith(b"".join(batches_in(log)))


def test_a_broker_that_cannot_follow_the_metadata_serves_nothing(
    controller: Controller, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Others may lead its partitions by now.  The data stay."""
    with started(controller, tmp_path / "d") as broker, Raw(broker.bootstrap_servers) as raw:
        created(controller, broker)
        member, orders = broker._member, TopicPartition("orders", 0)
        assert member is not None

        def answered() -> int:
            row = {"partition_index": 0, "timestamp": -1, "current_leader_epoch": -1}
            topics = [{"name": "orders", "partitions": [row]}]
            found = raw.call(apis.LIST_OFFSETS, 5, replica_id=-1, isolation_level=0, topics=topics)
            return int(found.topics[0].partitions[0].error_code)

        wait_for(lambda: answered() == 0, "it leads")
        controller.write(("FeatureLevelRecord", {"name": "new.thing", "feature_level": 1}))
        wait_for(lambda: answered() == ErrorCode.NOT_LEADER_OR_FOLLOWER, "it leads no more")
        assert member.held(orders) is None
        row = raw.call(apis.METADATA, 12, topics=[{"name": "orders"}]).topics[0].partitions[0]
        assert (row.error_code, row.leader_id) == (ErrorCode.LEADER_NOT_AVAILABLE, -1)
    assert caplog.text.count("follows the metadata no more") == 1
    assert (tmp_path / "d" / "orders-0").exists()


def test_a_change_that_cannot_be_carried_out_is_not_skipped(
    controller: Controller, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As if the disk were full: the change would be lost if it were only waited for."""
    with started(controller, tmp_path / "d") as broker:
        created(controller, broker)
        member = broker._member
        assert member is not None
        carry_out = member.carry_out

        def full(effects: Sequence[Effect]) -> Mapping[TopicPartition, ErrorCode]:
            if any(isinstance(one, Lead) for one in effects):
                raise OSError(errno.ENOSPC, "no space")
            return carry_out(effects)

        member.carry_out = full
        controller.topic("more", UUID(int=101), NODE, leader=NODE)
        wait_for(lambda: "follows the metadata no more" in caplog.text, "it gives up")
        wait_for(lambda: member.held(TopicPartition("orders", 0)) is None, "it leads nothing")


def test_the_leader_is_saved_when_it_is_known(controller: Controller, tmp_path: Path) -> None:
    """Also if that is later than its epoch, and if the disk refused it once."""
    with started(controller, tmp_path / "d") as broker:
        state = tmp_path / "d" / "__cluster_metadata-0" / "quorum-state"

        def saved() -> tuple[int, int]:
            found = json.loads(state.read_bytes()) if state.is_file() else {}
            return found.get("leaderEpoch", -1), found.get("leaderId", -1)

        assert saved() == (1, 1)
        row = {"partition_index": 0, "high_watermark": -1,
               "error_code": ErrorCode.NOT_LEADER_OR_FOLLOWER,
               "current_leader": {"leader_id": -1, "leader_epoch": 2}}  # fmt: skip
        nobody = {"responses": [{"topic_id": UUID(int=1), "partitions": [row]}]}
        controller.on(apis.FETCH, nobody, controller._fetch)
        controller.epoch = 2
        wait_for(lambda: saved() == (2, 1), "the leader of the next epoch is saved")
        in_the_way = state.with_name("quorum-state.tmp")
        in_the_way.mkdir()
        controller.epoch = 3
        created(controller, broker)
        assert saved() == (2, 1)
        in_the_way.rmdir()
        wait_for(lambda: saved() == (3, 1), "it is saved later")


# ---- starts that are refused ---------------------------------------------------------------------


def test_another_clusters_directory_is_refused(controller: Controller, tmp_path: Path) -> None:
    with Broker(tmp_path / "d", config={"node.id": NODE}):
        pass
    with pytest.raises(errors.ArgumentError, match="another cluster"):
        started(controller, tmp_path / "d")


def test_a_directory_that_left_zookeeper_is_taken_over(
    controller: Controller, tmp_path: Path
) -> None:
    """Kafka 3.9 leaves it so after it has moved the cluster to KRaft: with its identity in the
    older version, and without metadata.  Both ids stay, and the records."""
    path = tmp_path / "d"
    with started(controller, path) as broker:
        created(controller, broker)
        with Producer(broker) as producer:
            producer.send("orders", b"1")
    meta = leave_on_zookeeper(path, CLUSTER)
    with started(controller, path) as broker:
        wait_for(lambda: "orders" in node_of(broker).image.topics, "the topic is known")
        assert parse_meta_properties((path / META_PROPERTIES).read_bytes()) == meta
        with Consumer(broker, auto_offset_reset="earliest") as consumer:
            consumer.assign([TopicPartition("orders", 0)])
            found = wait_for(lambda: consumer.poll(100), "the record is read")
            assert [one.value for one in found] == [b"1"]


def leave_on_zookeeper(path: Path, cluster: str) -> MetaProperties:
    """Make a directory that of a node on ZooKeeper; returns its identity on KRaft."""
    file = path / META_PROPERTIES
    meta = parse_meta_properties(file.read_bytes())
    older = meta._replace(version=0, cluster_id=cluster)
    file.write_bytes(render_meta_properties(older))
    shutil.rmtree(path / f"{METADATA_TOPIC}-0")
    return meta


def test_another_clusters_directory_on_zookeeper_is_refused(
    controller: Controller, tmp_path: Path
) -> None:
    """Nothing is written into it."""
    path = tmp_path / "d"
    with started(controller, path):
        pass
    leave_on_zookeeper(path, "another-cluster")
    before = fingerprint(path)
    with pytest.raises(errors.ArgumentError, match=f"another-cluster, wanted one of .*{CLUSTER}"):
        started(controller, path)
    assert fingerprint(path) == before


def test_a_feature_that_is_not_known_is_refused_by_name(
    controller: Controller, tmp_path: Path
) -> None:
    controller.write(("FeatureLevelRecord", {"name": "new.thing", "feature_level": 1}))
    with pytest.raises(errors.ArgumentError, match=r"new\.thing: found 1"):
        started(controller, tmp_path / "d")
    assert not controller.count(apis.BROKER_REGISTRATION)


def test_a_registration_that_is_refused_ends_the_start(
    controller: Controller, tmp_path: Path
) -> None:
    controller.registration_code = ErrorCode.UNSUPPORTED_VERSION
    with pytest.raises(errors.ArgumentError, match="refuse its registration: UNSUPPORTED_VERSION"):
        started(controller, tmp_path / "d")


def test_a_number_in_use_ends_the_start_after_its_time(
    controller: Controller, tmp_path: Path
) -> None:
    controller.registration_code = ErrorCode.DUPLICATE_BROKER_REGISTRATION
    quick = {"initial.broker.registration.timeout.ms": 1000}
    with pytest.raises(errors.Timeout, match="DUPLICATE_BROKER_REGISTRATION"):
        started(controller, tmp_path / "d", **quick)
    assert controller.count(apis.BROKER_REGISTRATION) > 1


@pytest.mark.parametrize("last", ["cluster", "metadata", "registration", "heartbeat"])
def test_the_end_of_the_process_ends_a_start_that_waits(
    controller: Controller, tmp_path: Path, last: str
) -> None:
    """For the cluster's id, a leader of the quorum, the registration, or to be unfenced."""
    api = {
        "cluster": apis.DESCRIBE_CLUSTER,
        "metadata": apis.FETCH,
        "registration": apis.BROKER_REGISTRATION,
        "heartbeat": apis.BROKER_HEARTBEAT,
    }[last]
    if last == "cluster":
        refusal = {"error_code": ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "cluster_id": ""}
        controller.on(apis.DESCRIBE_CLUSTER, {**refusal, "brokers": []})
    controller.commits = last != "metadata"
    if last == "registration":
        controller.registration_code = ErrorCode.DUPLICATE_BROKER_REGISTRATION
    stops: list[bool] = []

    def stays_fenced(body: Any, _: int) -> dict[str, Any]:
        stops.append(body.want_shut_down)
        return {"is_caught_up": True, "is_fenced": True, "should_shut_down": body.want_shut_down}

    if last == "heartbeat":
        controller.on(apis.BROKER_HEARTBEAT, stays_fenced)
    ends = threading.Event()
    config = {**controller.settings, "node.id": NODE}
    with ThreadPoolExecutor(1) as pool:
        starting = pool.submit(serve_until, ends, str(tmp_path / "d"), config)
        wait_for(lambda: controller.count(api) > 2 or starting.done(), "it waits")
        ends.set()
        with pytest.raises(errors.Closed):
            starting.result(LIMIT_S)
    assert (True in stops) == (last == "heartbeat"), "the controllers end its session"


def test_sigterm_ends_a_process_that_waits_for_controllers(
    controller: Controller, tmp_path: Path
) -> None:
    controller.commits = False
    config = {
        **controller.settings,
        "node.id": NODE,
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    }
    settings = [f"--set={name}={value}" for name, value in config.items()]
    child = subprocess.Popen(
        [sys.executable, "-m", "kafkalog", "serve", "--dir", str(tmp_path / "d"), *settings],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    wait_for(lambda: controller.count(apis.FETCH) or child.poll() is not None, "it waits")
    child.send_signal(signal.SIGTERM)
    out, problems = child.communicate(timeout=LIMIT_S)
    assert (child.returncode, out) == (0, ""), problems
    assert problems.endswith("kafkalog ended\n")


def test_a_controller_that_is_away_ends_the_start_after_its_time(tmp_path: Path) -> None:
    with Controller() as gone:
        settings: dict[str, Any] = gone.settings
    settings |= {"node.id": NODE, "initial.broker.registration.timeout.ms": 200}
    with pytest.raises(errors.Timeout, match="no controller named the cluster's id"):
        Broker(tmp_path / "d", config=settings)
    assert not (tmp_path / "d").exists()


@pytest.mark.parametrize(
    ("name", "value", "wanted"),
    [
        ("process.roles", "broker,controller", "names that listeners has, too"),
        ("controller.listener.names", "", "the name of the controllers' listener"),
        ("controller.listener.names", "PLAINTEXT", "this is a broker"),
        ("controller.quorum.bootstrap.servers", "", "the controllers' host:port"),
        ("zookeeper.connect", "localhost:2181", "none next to process.roles"),
        ("listener.security.protocol.map", "CONTROLLER:TLS,PLAINTEXT:PLAINTEXT", "CONTROLLER has"),
    ],
)
def test_settings_that_do_not_fit_are_refused_by_name(
    tmp_path: Path, name: str, value: str, wanted: str
) -> None:
    settings = {
        "process.roles": "broker", "controller.listener.names": "CONTROLLER", "node.id": NODE,
        "controller.quorum.bootstrap.servers": "localhost:1", name: value,
    }  # fmt: skip
    with pytest.raises(errors.InvalidSetting, match=wanted):
        Broker(tmp_path / "d", config=settings)
    assert not (tmp_path / "d").exists()


def test_the_quorum_needs_its_role() -> None:
    from kafkalog.config.served import check_served

    config = ServerConfig({"controller.quorum.voters": "1@localhost:9093"})
    with pytest.raises(errors.InvalidSetting, match=r"without process\.roles"):
        check_served(config)
