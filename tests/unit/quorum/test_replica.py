"""Replicas of a quorum over real sockets: elections, records, restarts."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from kafkalog import errors
from kafkalog.disk.directory import Directory
from kafkalog.disk.layout import METADATA_TOPIC
from kafkalog.kraft.loading import Loaded
from kafkalog.kraft.snapshots import list_snapshots
from kafkalog.quorum.replica import answers, controller_thread, raft_thread, replica
from kafkalog.quorum.replica.answers import RAFT_APIS, refusal
from kafkalog.quorum.replica.disk import ReplicaDisk
from kafkalog.quorum.replica.peers import Peers
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode
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


def test_a_leader_whose_port_is_closed_is_replaced_before_the_fetch_timeout(
    tmp_path: Path,
) -> None:
    patient = {"controller.quorum.fetch.timeout.ms": 3_600_000}
    with Replicas(tmp_path, [1, 2, 3], [1, 2, 3], settings=patient) as quorum:
        quorum.start(1, 2, 3)
        first = quorum.active()
        register(quorum, 7)
        logs_equal(quorum, 1, 2, 3)
        quorum.kill(first)
        quorum.servers.pop(first).__exit__()
        assert quorum.active() != first
        register(quorum, 8)


def describe(quorum: Replicas, node: int) -> Any:
    topic = {"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}
    return quorum.call(node, apis.DESCRIBE_QUORUM, topics=[topic]).topics[0].partitions[0]


def test_the_leader_describes_the_quorum(tmp_path: Path) -> None:
    with Replicas(tmp_path, [1, 2, 3, 4], [1, 2, 3]) as quorum:
        quorum.start(1, 2, 3, 4)
        leader = quorum.active()

        def described() -> Any:
            found = describe(quorum, leader)
            ends = {one.log_end_offset for one in (*found.current_voters, *found.observers)}
            return found if found.observers and ends == {found.high_watermark} else None

        found = wait_for(described, "all have everything")
        assert (found.leader_id, found.leader_epoch) == (leader, quorum[leader].epoch)
        assert {one.replica_id for one in found.current_voters} == {1, 2, 3}
        assert [one.replica_directory_id for one in found.observers] == [directory(4)]
        other = describe(quorum, 4)
        assert (other.error_code, other.leader_id) == (6, leader)


def test_a_voter_is_added_and_removed(tmp_path: Path) -> None:
    with Replicas(tmp_path, [1, 2], [1]) as quorum:
        quorum.start(1, 2)
        quorum.active()
        endpoint = {"name": "CONTROLLER", "host": "127.0.0.1", "port": quorum.servers[2].port}
        asked = {"cluster_id": CLUSTER, "voter_id": 2, "voter_directory_id": directory(2)}

        def added() -> bool:
            answer = quorum.call(
                1, apis.ADD_RAFT_VOTER, timeout_ms=1, listeners=[endpoint], **asked
            )
            return answer is not None and not answer.error_code

        wait_for(added, "it has caught up and is a voter")
        wait_for(lambda: quorum[2].votes, "it knows")
        assert quorum.call(1, apis.REMOVE_RAFT_VOTER, **asked).error_code == 0
        wait_for(lambda: not quorum[2].votes, "it knows")


def test_a_replica_without_the_beginning_fetches_a_snapshot(tmp_path: Path) -> None:
    """Its log begins at the end of the leader's snapshot, and goes on from there."""
    small = {"metadata.log.max.record.bytes.between.snapshots": 1,
             "metadata.max.retention.bytes": 1}  # fmt: skip
    with Replicas(tmp_path, [1, 2], [1], settings=small) as quorum:
        quorum.start(1)
        quorum.active()
        for broker in (5, 6, 7):
            register(quorum, broker)
        wait_for(lambda: len(list_snapshots(str(quorum.folder(1)))) == 2, "snapshots")
        wait_for(lambda: quorum.managers[1].get(METADATA_TOPIC).start_offset > 0, "a trimmed log")
        quorum.start(2)
        wait_for(lambda: {*quorum[2].image.brokers} == {5, 6, 7}, "the image is whole")
        register(quorum, 8)
        wait_for(lambda: 8 in quorum[2].image.brokers, "records after the snapshot")
        quorum.kill(2)
        quorum.start(2)
        quorum.active()
        wait_for(lambda: {*quorum[2].image.brokers} == {5, 6, 7, 8}, "after a restart, too")


def test_a_replica_that_cannot_write_its_vote_is_silent_until_it_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Replicas(tmp_path, [1], [1]) as quorum:
        full, saves = [True], ReplicaDisk.save

        def save(disk: ReplicaDisk, *state: Any) -> None:
            if full[0]:
                raise errors.NoSpace("quorum-state: the disk is full")
            saves(disk, *state)

        monkeypatch.setattr(ReplicaDisk, "save", save)
        monkeypatch.setattr(raft_thread, "DISK_S", 0.01)
        quorum.start(1)
        wait_for(lambda: isinstance(quorum[1].problem, errors.NoSpace), "the disk is full")
        partition = {
            "partition_index": 0, "replica_epoch": 9, "replica_id": 2, "last_offset_epoch": 9,
            "replica_directory_id": directory(2), "voter_directory_id": directory(1),
            "last_offset": 99, "pre_vote": False,
        }  # fmt: skip
        topic = {"topic_name": METADATA_TOPIC, "partitions": [partition]}
        assert quorum.call(1, apis.VOTE, cluster_id=CLUSTER, voter_id=1, topics=[topic]) is None
        assert not quorum[1].is_active
        assert quorum[1].seen() == (-1, None)
        full[0] = False
        assert quorum.active() == 1
        assert quorum[1].problem is None


def test_a_request_of_another_cluster_is_refused(tmp_path: Path) -> None:
    with Replicas(tmp_path, [1], [1]) as quorum:
        quorum.start(1)
        quorum.active()
        answer = quorum.call(1, apis.VOTE, cluster_id="another", voter_id=1, topics=[])
        assert answer.error_code == 104
        assert quorum.call(1, apis.VOTE, cluster_id=CLUSTER, voter_id=1, topics=[]) is None


def test_requests_that_wait_are_bounded(tmp_path: Path) -> None:
    with Replicas(tmp_path, [1, 2], [1, 2]) as quorum:
        quorum.start(1)
        request, answered = object(), []
        quorum[1].ask(apis.BROKER_HEARTBEAT, request, 1, answered.append, size=10)
        wait_for(lambda: answered == [None], "it is not the active controller")
        large = replica.ASKED_BYTES_MAX
        held = threading.Event()
        quorum[1].listen(lambda _: None)
        quorum[1].ask(apis.BROKER_HEARTBEAT, request, 1, lambda _: held.wait(), size=large)
        with pytest.raises(errors.Timeout, match="wait for the quorum"):
            for _ in range(3):
                quorum[1].ask(apis.BROKER_HEARTBEAT, request, 1, answered.append, size=large)
        held.set()


def test_requests_that_wait_for_the_controller_hold_up_none_of_raft(tmp_path: Path) -> None:
    """Those may be what the controller waits for."""
    with Replicas(tmp_path, [1], [1]) as quorum:
        quorum.start(1)
        quorum.active()
        held, holds = threading.Event(), threading.Event()
        quorum[1].listen(lambda _: (holds.set(), held.wait()))
        wait_for(holds.is_set, "the controller's thread is busy")
        large = replica.ASKED_BYTES_MAX
        quorum[1].ask(apis.BROKER_HEARTBEAT, object(), 1, lambda _: None, size=large)
        try:
            with pytest.raises(errors.Timeout):
                quorum[1].ask(apis.BROKER_HEARTBEAT, object(), 1, lambda _: None)
            assert describe(quorum, 1).leader_id == 1
        finally:
            held.set()


def test_a_stopped_replica_answers_that_it_is_not_the_controller(tmp_path: Path) -> None:
    with Replicas(tmp_path, [1], [1]) as quorum:
        quorum.start(1)
        quorum.active()
        one = quorum[1]
        quorum.stop(1)
        one.stop()
        answered: list[Any] = []
        one.ask(apis.BROKER_HEARTBEAT, object(), 1, answered.append)
        assert answered == [None]


def test_a_request_that_cannot_be_read_ends_nothing(tmp_path: Path) -> None:
    with Replicas(tmp_path, [1], [1]) as quorum:
        quorum.start(1)
        quorum.active()
        for api in (apis.DESCRIBE_QUORUM, apis.VOTE):
            answered: list[Any] = []
            quorum[1].ask(api, object(), 2, answered.append)
            wait_for(lambda found=answered: found, "an answer")
            assert isinstance(answered[0], AttributeError)
        assert describe(quorum, 1).leader_id == 1


def test_connections_end_once_nothing_more_is_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that begins later would never end."""
    names: list[str] = []
    stop = Peers.stop

    def stopped(peers: Peers) -> None:
        names.extend(one.name for one in threading.enumerate())
        stop(peers)

    monkeypatch.setattr(Peers, "stop", stopped)
    with Replicas(tmp_path, [1], [1]) as quorum:
        quorum.start(1)
        quorum.active()
    assert names and "quorum 1" not in names


def test_a_broker_of_the_same_process_follows_without_fetching(tmp_path: Path) -> None:
    with Replicas(tmp_path, [1], [1]) as quorum:
        quorum.start(1)
        followed = quorum[1].follow()
        followed.catch_up(30, threading.Event())
        assert followed.image.features
        assert followed.seen.leader == 1
        seen: list[Any] = []
        thread = threading.Thread(target=followed.run, args=(seen.append,), daemon=True)
        thread.start()
        register(quorum, 7)
        wait_for(lambda: seen and 7 in seen[-1].new.brokers, "the change arrives")
        followed.close()
        thread.join()


def test_a_broker_has_all_that_is_committed_before_it_is_caught_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Topics that it does not know after its start were deleted; answers are small."""
    monkeypatch.setattr(answers, "FETCH_BYTES", 1)
    with Replicas(tmp_path, [1, 2], [1]) as quorum:
        quorum.start(1)
        quorum.active()
        brokers = {*range(10, 40)}
        for broker in brokers:
            register(quorum, broker)
        quorum.start(2, alone=True)
        followed = quorum[2].follow()
        followed.catch_up(30, threading.Event())
        assert {*followed.image.brokers} == brokers
        followed.close()


def test_a_voter_that_is_a_broker_alone_now_only_follows(tmp_path: Path) -> None:
    with Replicas(tmp_path, [1, 2, 3], [1, 2, 3]) as quorum:
        quorum.start(1, 2, 3)
        leader = quorum.active()
        register(quorum, 7)
        logs_equal(quorum, 1, 2, 3)
        quorum.stop(leader)
        quorum.start(leader, alone=True)
        other = quorum.active()
        register(quorum, 8)
        wait_for(lambda: {*quorum[leader].image.brokers} == {7, 8}, "it follows")
        assert other != leader and not quorum[leader].votes


def test_a_broker_leads_nothing_once_its_replica_is_broken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also one in the process of a controller: others may have its roles."""
    with Replicas(tmp_path, [1], [1]) as quorum:
        quorum.start(1)
        followed, ended = quorum[1].follow(), list[Exception]()
        followed.catch_up(30, threading.Event())

        def follow() -> None:
            try:
                followed.run(lambda _: None)
            except errors.CorruptLog as problem:
                ended.append(problem)

        thread = threading.Thread(target=follow, daemon=True)
        thread.start()

        def take(*_: object) -> None:
            raise errors.CorruptLog("offset 9: found nonsense")

        monkeypatch.setattr(Loaded, "take", take)
        quorum[1].ask(apis.BROKER_HEARTBEAT, object(), 1, lambda _: None)
        wait_for(lambda: ended, "the broker hears of it")
        thread.join()


@pytest.mark.parametrize("key", sorted(RAFT_APIS - {apis.DESCRIBE_QUORUM.key}))
def test_refusals_can_be_sent(key: int) -> None:
    api = apis.BY_KEY[key]
    version = api.versions.stop - 1
    body = refusal(api, ErrorCode.INCONSISTENT_CLUSTER_ID)
    answer = api.decode_response(version, api.encode_response(version, body))
    assert answer.error_code == 104


def test_a_controller_that_fails_resigns_and_may_be_elected_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, store = [0], controller_thread.QuorumStore

    def make(*arguments: Any) -> Any:
        made[0] += 1
        if made[0] == 1:
            raise RuntimeError("a mistake")
        return store(*arguments)

    monkeypatch.setattr(controller_thread, "QuorumStore", make)
    with Replicas(tmp_path, [1], [1]) as quorum:
        quorum.start(1)
        wait_for(lambda: made[0] >= 2, "it was elected twice")
        assert quorum.active() == 1
        assert quorum[1].epoch >= 2
        register(quorum, 7)


def test_a_replica_that_cannot_apply_a_record_takes_no_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its image would differ from those of the others."""
    with Replicas(tmp_path, [1], [1]) as quorum:
        quorum.start(1)
        quorum.active()

        def take(*_: object) -> None:
            raise errors.CorruptLog("offset 9: found nonsense")

        monkeypatch.setattr(Loaded, "take", take)
        answered: list[Any] = []
        quorum[1].ask(apis.BROKER_HEARTBEAT, object(), 1, answered.append)
        wait_for(lambda: isinstance(quorum[1].problem, errors.CorruptLog), "it is broken")
        wait_for(lambda: answered, "each request has an answer")
        answered.clear()
        quorum[1].ask(apis.BROKER_HEARTBEAT, object(), 1, answered.append)
        wait_for(lambda: answered == [None], "each request has an answer")
        assert not quorum[1].is_active


def test_requests_are_answered_while_a_snapshot_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk takes as long as it likes: brokers are not missed, and records are committed."""
    begun, goes_on, replace = threading.Event(), threading.Event(), Directory.replace

    def held(folder: Directory, name: str, data: bytes) -> None:
        if name.endswith(".checkpoint"):
            begun.set()
            goes_on.wait()
        replace(folder, name, data)

    monkeypatch.setattr(Directory, "replace", held)
    small = {"metadata.log.max.record.bytes.between.snapshots": 1}
    with Replicas(tmp_path, [1, 2, 3], [1, 2, 3], settings=small) as quorum:
        try:
            quorum.start(1, 2, 3)
            epoch = register(quorum, 7)
            wait_for(begun.is_set, "a snapshot is being written")
            answer = quorum.call(
                quorum.active(), apis.BROKER_HEARTBEAT, broker_id=7, broker_epoch=epoch,
                current_metadata_offset=epoch, want_fence=False, want_shut_down=False,
                offline_log_dirs=[],
            )  # fmt: skip
            assert answer is not None and not answer.error_code, answer
            register(quorum, 8)
            wait_for(
                lambda: all({7, 8} <= {*quorum[node].image.brokers} for node in (1, 2, 3)),
                "followers apply records, too",
            )
            assert not any(one.offset for one in list_snapshots(str(quorum.folder(1))))
        finally:
            goes_on.set()
        wait_for(
            lambda: all(list_snapshots(str(quorum.folder(node)))[-1].offset > 0
                        for node in (1, 2, 3)),
            "the snapshots are there",
        )  # fmt: skip
