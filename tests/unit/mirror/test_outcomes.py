"""A mirror whose requests fail, are lost or are not answered, and clusters that change or lose
records: each record is copied once, or the mirror says what is not.

docs/mirror.md has these cases as a table.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import kafkalog
import kafkalog.mirror.mirror
from kafkalog import errors
from kafkalog.client.link.failures import failure_class
from kafkalog.mirror import own
from kafkalog.mirror.own import StateReader
from kafkalog.mirror.spans import Span
from kafkalog.mirror.state import Progress, key_of, value_of
from kafkalog.mirror.wish import Side
from kafkalog.server.faults import Fault
from kafkalog.testing.broker import TestBroker
from kafkalog.testing.cluster import TestCluster
from kafkalog.types import TopicPartition
from kafkalog.wire.error_codes import ErrorCode
from tests.support import brokers
from tests.support.mirrors import Running, read, values
from tests.support.stable import stable_ends
from tests.support.waiting import wait_for

TP = TopicPartition("t", 0)
SETTINGS = {**brokers.SETTINGS, "kafkalog.durability": "os", "num.partitions": "1"}
MIRROR = "kafkalog-mirror"
"""The client id of a mirror."""


class Two:
    """A source and a target, and mirrors between them."""

    def __init__(self, source: TestBroker, target: TestBroker) -> None:
        self.source, self.target = source, target
        self.said: list[str] = []

    def mirror(self, topics: str = "t", **more: Any) -> kafkalog.Mirror:
        where, to = self.source.bootstrap_servers, self.target.bootstrap_servers
        return kafkalog.Mirror(where, to, topics, on_warning=self.said.append, name="m", **more)

    def copy(self, topics: str = "t", **more: Any) -> kafkalog.MirrorStatus:
        self.said.clear()
        return self.mirror(topics, **more).copy()

    def copied(self, topic: str = "t") -> list[int]:
        return values(self.target, topic)


@pytest.fixture
def two(tmp_path: Path) -> Iterator[Two]:
    with (
        TestBroker(tmp_path / "source", config=SETTINGS) as source,
        TestBroker(tmp_path / "target", config=SETTINGS) as target,
    ):
        yield Two(source, target)


def send(broker: TestBroker, *numbers: int, topic: str = "t") -> None:
    broker.fill(topic, [str(number) for number in numbers], partition=0)


def keep(broker: TestBroker) -> None:
    """The broker's present content survives `kill`; later content does not."""
    broker.restart()


# ---- answers that are lost, and errors that pass -------------------------------------------

TRANSIENT = {
    ("source", "Metadata"): ["drop"],
    ("source", "Fetch"): ["drop", "cut", "NOT_LEADER_OR_FOLLOWER", "FENCED_LEADER_EPOCH",
                          "KAFKA_STORAGE_ERROR"],
    ("source", "ListOffsets"): ["drop", "OFFSET_NOT_AVAILABLE"],
    ("source", "OffsetForLeaderEpoch"): ["drop", "FENCED_LEADER_EPOCH", "UNKNOWN_LEADER_EPOCH"],
    ("source", "ListGroups"): ["cut"],
    ("source", "FindCoordinator"): ["COORDINATOR_NOT_AVAILABLE", "drop"],
    ("source", "OffsetFetch"): ["drop", "NOT_COORDINATOR"],
    ("source", "DescribeConfigs"): ["cut"],
    ("target", "Produce"): ["drop", "cut", "NOT_LEADER_OR_FOLLOWER", "NOT_ENOUGH_REPLICAS"],
    ("target", "EndTxn"): ["drop", "cut", "NOT_COORDINATOR", "COORDINATOR_LOAD_IN_PROGRESS",
                           "UNKNOWN_SERVER_ERROR"],
    ("target", "InitProducerId"): ["drop", "cut", "NOT_COORDINATOR", "CONCURRENT_TRANSACTIONS"],
    ("target", "ListOffsets"): ["drop"],
    ("target", "OffsetCommit"): ["drop", "NOT_COORDINATOR"],
    ("target", "FindCoordinator"): ["drop", "COORDINATOR_NOT_AVAILABLE"],
}  # fmt: skip
"""Requests of a mirror, and what happens to them: "cut", not carried out; "drop", carried out and
not answered; an error."""
LOST = {
    ("target", "EndTxn"): ["PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH", "INVALID_TXN_STATE",
                           "INVALID_PRODUCER_ID_MAPPING", "TRANSACTION_ABORTABLE"],
    ("target", "Produce"): ["INVALID_PRODUCER_EPOCH", "OUT_OF_ORDER_SEQUENCE_NUMBER",
                            "UNKNOWN_PRODUCER_ID", "INVALID_TXN_STATE", "TRANSACTION_ABORTABLE"],
}  # fmt: skip
"""The transaction is lost: aborted by the coordinator or an operator, or forgotten."""


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """A mirror starts over at once."""
    monkeypatch.setattr(kafkalog.mirror.mirror, "PAUSE_S", 0.01)


def break_once(broker: TestBroker, api: str, how: str) -> Fault:
    if how == "drop":
        return broker.drop_response(api, client_id=MIRROR)
    if how == "cut":
        return broker.disconnect(api, client_id=MIRROR)
    return broker.fail(api, how, client_id=MIRROR)


@pytest.mark.parametrize("faults", [TRANSIENT, LOST], ids=["transient", "transaction lost"])
def test_each_record_once_whatever_fails_on_the_way(
    two: Two, faults: dict[tuple[str, str], list[str]]
) -> None:
    """All requests of a mirror fail in turn, several in one run."""
    send(two.source, 0)
    two.copy(groups="g")
    for number in range(1, 1 + max(map(len, faults.values()))):
        send(two.source, number)
        with kafkalog.Admin(two.source.bootstrap_servers) as admin:
            admin.alter_group_offsets("g", {TP: number}).check()
        set_ = {
            (*of, hows[number - 1]): break_once(getattr(two, of[0]), of[1], hows[number - 1])
            for of, hows in faults.items() if number <= len(hows)
        }  # fmt: skip
        status = two.copy(groups="g")
        assert {one: fault.hits for one, fault in set_.items()} == dict.fromkeys(set_, 1)
        assert two.copied() == list(range(number + 1)), set_
        assert not status.aside
        assert two.target.committed("g")[TP] >= number


def test_an_unanswered_creation(two: Two) -> None:
    """The target creates the mirror's own topic or another, adds a partition or takes a setting,
    and its answer is lost."""
    fault = two.target.drop_response("CreateTopics", client_id=MIRROR)
    two.copy("none")
    assert fault.hits == 1
    for api in ("CreateTopics", "IncrementalAlterConfigs", "CreatePartitions"):
        with kafkalog.Admin(two.source.bootstrap_servers) as admin:
            if api == "CreatePartitions":
                admin.create_partitions({"t": 2}).check()
                two.source.fill("t", ["1"], partition=1)
            elif api == "CreateTopics":
                admin.create_topic("t", 1, config={"retention.ms": "-1"})
                send(two.source, 0)
            else:
                admin.alter_configs({("topic", "t"): {"segment.ms": "700000"}}).check()
        fault = two.target.drop_response(api, client_id=MIRROR)
        assert not two.copy().aside
        assert fault.hits == 1
    assert two.copied() == [0, 1]
    with kafkalog.Admin(two.target.bootstrap_servers) as admin:
        found = admin.describe_configs([("topic", "t")])["topic", "t"]
    assert [found[name].value for name in ("retention.ms", "segment.ms")] == ["-1", "700000"]


# ---- transactions that time out, and other mirrors ------------------------------------------


def test_a_transaction_that_timed_out(two: Two) -> None:
    """The target aborts it while the mirror cannot end it: the mirror continues by itself."""
    send(two.source, 0)
    with Running(two.mirror()) as running:
        wait_for(lambda: two.copied() == [0], "the first record is copied")
        ends = two.target.fail("EndTxn", "COORDINATOR_NOT_AVAILABLE", None, MIRROR)
        send(two.source, 1)
        wait_for(lambda: ends.hits, "the transaction cannot be committed")
        two.target.clock.advance(75_000)
        stable_ends(two.target.bootstrap_servers, "t")  # the coordinator has aborted it
        two.target.heal()
        send(two.source, 2)
        wait_for(lambda: two.copied() == [0, 1, 2], "it continues")
    assert running.failed == []
    assert any("took more than a minute or was aborted" in text for text in two.said)


def test_a_mirror_that_was_replaced_while_it_was_cut_off(two: Two) -> None:
    """Its transaction timed out, and another mirror with its name started: it ends, by name."""
    send(two.source, 0)
    with Running(two.mirror()) as running:
        wait_for(lambda: two.copied() == [0], "the first record is copied")
        ends = two.target.fail("EndTxn", "COORDINATOR_NOT_AVAILABLE", None, MIRROR)
        send(two.source, 1)
        wait_for(lambda: ends.hits, "the transaction cannot be committed")
        two.target.clock.advance(75_000)
        stable_ends(two.target.bootstrap_servers, "t")
        two.target.heal()
        two.mirror().copy()
        wait_for(lambda: running.failed, "the first ends")
    assert isinstance(running.failed[0], errors.ProducerFenced)
    assert "another mirror with this name has started (host" in str(running.failed[0])
    assert two.copied() == [0, 1]


def test_a_forgotten_state(two: Two) -> None:
    """Without its state a mirror does not know what it has copied: it copies nothing twice."""
    send(two.source, 0)
    two.copy()
    with kafkalog.Admin(two.target.bootstrap_servers) as admin:
        admin.delete_topic("kafkalog-mirror.m")
    assert "records that this mirror did not write" in two.copy().aside["t"]
    assert two.copied() == [0]


def test_a_state_that_is_too_large(two: Two, monkeypatch: pytest.MonkeyPatch) -> None:
    """Anyone who may write to a mirror's topic could make it larger than memory."""
    send(two.source, 0)
    two.copy()
    monkeypatch.setattr(own, "STATES_BYTES_MAX", 10)
    with pytest.raises(errors.BadAnswer, match=r"'kafkalog-mirror\.m' of the target: found more"):
        two.copy()


def test_the_state_of_the_version_before(two: Two) -> None:
    send(two.source, 0, 1)
    two.copy()
    with kafkalog.Admin(two.source.bootstrap_servers) as admin:
        topic_id = str(admin.describe_topics(["t"])["t"].topic_id)
    old = {"version": 1, "topic_id": topic_id, "position": 2, "spans": [[0, 0, 2]]}
    with kafkalog.Producer(two.target.bootstrap_servers) as producer:
        producer.send("kafkalog-mirror.m", json.dumps(old).encode(), key_of(TP)).result()
    send(two.source, 2)
    two.copy()
    assert two.copied() == [0, 1, 2]
    now = state_of(two)
    assert (now.copy, now.position, now.epoch) == ("t", 3, 0)


def state_of(two: Two) -> Progress:
    with StateReader(Side(two.target.bootstrap_servers, {}, None), "target", "test") as reader:
        reader.look(["kafkalog-mirror.m"])
        return reader.states["kafkalog-mirror.m"].progress[TP]


def change_state(two: Two, progress: Progress) -> None:
    with kafkalog.Producer(two.target.bootstrap_servers) as producer:
        producer.send("kafkalog-mirror.m", value_of(progress), key_of(TP)).result()


# ---- the source loses records ---------------------------------------------------------------


@pytest.mark.parametrize("more", [(), (10,), (10, 11, 12, 13)], ids=["none", "fewer", "beyond"])
def test_a_source_that_lost_its_last_records(two: Two, more: tuple[int, ...]) -> None:
    """Also if it is as long as the copy again: nothing is copied, no group is moved, until
    the loss is accepted, and then what the source has now comes after what it had."""
    send(two.source, 0, 1)
    keep(two.source)
    send(two.source, 2, 3, 4)
    two.copy()
    two.source.kill()
    two.source.start()
    send(two.source, *more)
    two.source.fill("other", ["7"])
    with kafkalog.Admin(two.source.bootstrap_servers) as admin:
        admin.alter_group_offsets("g", {TP: 2}).check()
    for _ in range(2):
        status = two.copy("t|other", groups="g")
        assert status.aside.keys() == {"t"}
        assert "partition 0: the source has lost records: offsets 2 to 4" in status.aside["t"]
        assert "diverges at offset 2: accept the loss by --accept-loss" in two.said[0]
        assert two.copied() == [0, 1, 2, 3, 4]
        assert two.target.committed("g") == {}
    assert two.copied("other") == [7]
    status = two.copy(accept_loss="t", groups="g")
    assert not status.aside
    assert "as accepted, it is copied on from offset 2" in two.said[0]
    assert two.copied() == [0, 1, 2, 3, 4, *more]
    (at,) = two.target.committed("g").values()
    assert [r.value for r in read(two.target.bootstrap_servers, TP, at, at + len(more))] == [
        b"%d" % number for number in more
    ]
    assert not two.copy().aside
    assert two.copied() == [0, 1, 2, 3, 4, *more]


def test_a_source_that_loses_records_while_they_are_copied(two: Two) -> None:
    send(two.source, 0, 1)
    keep(two.source)
    send(two.source, 2, 3)
    with Running(two.mirror()) as running:
        wait_for(lambda: two.copied() == [0, 1, 2, 3], "all are copied")
        two.source.kill()
        two.source.start()
        send(two.source, 10, 11, 12, 13)
        wait_for(lambda: running.mirror.status.aside, "the loss is found")
    assert (
        "offsets 2 to 3 were copied, the last of leader epoch" in running.mirror.status.aside["t"]
    )
    assert running.failed == []
    assert two.copied() == [0, 1, 2, 3]
    with Running(two.mirror(accept_loss=".*")):
        wait_for(lambda: len(two.copied()) == 8, "the loss is accepted")
        send(two.source, 14)
        wait_for(lambda: two.copied()[-1] == 14, "it continues")
    assert two.copied() == [0, 1, 2, 3, 10, 11, 12, 13, 14]


def test_a_source_without_the_epochs_copied(two: Two) -> None:
    """A state that knows no leader epoch: the source's end shows the loss, and an accepted loss
    copies all that the source has."""
    send(two.source, 0, 1)
    keep(two.source)
    send(two.source, 2)
    two.copy()
    one = state_of(two)
    change_state(two, one._replace(epoch=-1))
    two.source.kill()
    two.source.start()
    assert "the source ends at offset 2, it was copied up to 3" in two.copy().aside["t"]
    assert not two.copy(accept_loss="t").aside
    assert two.copied() == [0, 1, 2, 0, 1]


def test_a_partition_without_a_leader(tmp_path: Path) -> None:
    """It holds up no other partition, and with `copy` it is not passed over in silence."""
    said: list[str] = []
    settings = {"min.insync.replicas": 1}
    with (
        TestCluster(tmp_path / "source", config=settings) as source,
        TestBroker(tmp_path / "target", config=SETTINGS) as target,
    ):
        where, to = source.bootstrap_servers, target.bootstrap_servers
        with kafkalog.Admin(where) as admin:
            admin.create_topics([("t", -1, -1, {}, [[1], [2]])]).check()
        source.fill("t", ["1"], partition=0)
        source.fill("t", ["2"], partition=1)
        source.kill(2)
        source.wait_until(lambda: source.leader("t", 1) < 0, "it has no leader")
        mirror = kafkalog.Mirror(where, to, "t", name="m", on_warning=said.append, refresh_ms=100)
        with pytest.raises(failure_class(ErrorCode.LEADER_NOT_AVAILABLE), match="t-1 of the sour"):
            mirror.copy()
        assert values(target, "t") == [1]
        with Running(mirror):
            source.start(2)
            wait_for(lambda: values(target, "t") == [1, 2], "it has a leader again")
    assert "t-1 of the source has no leader: it is copied once it has one" in said


def test_retention_passes_the_position(two: Two) -> None:
    """While the mirror runs: it says which offsets it has not copied, and continues after them."""
    send(two.source, 0)
    with Running(two.mirror()):
        wait_for(lambda: two.copied() == [0], "the first is copied")
        fetches = two.source.fail("Fetch", "NOT_LEADER_OR_FOLLOWER", None, MIRROR)
        wait_for(lambda: fetches.hits, "no more records come")
        send(two.source, 1, 2, 3)
        with kafkalog.Admin(two.source.bootstrap_servers) as admin:
            admin.delete_records({TP: 3}).check()
        two.source.heal()
        wait_for(lambda: two.copied() == [0, 3], "it continues")
    assert "t-0: the source removed offsets 1 to 2 before they were copied" in two.said


def test_a_source_topic_recreated(two: Two) -> None:
    """While the mirror runs, with as many records as before."""
    send(two.source, 0, 1)
    with Running(two.mirror(refresh_ms=200)) as running:
        wait_for(lambda: two.copied() == [0, 1], "both are copied")
        recreate(two.source)
        send(two.source, 2, 3, 4)
        wait_for(lambda: running.mirror.status.aside, "the new topic is noticed")
    assert "it was recreated in the source" in running.mirror.status.aside["t"]
    assert two.copied() == [0, 1]
    assert "it was recreated in the source" in two.copy().aside["t"]
    assert not two.copy(accept_loss="t").aside
    assert two.copied() == [0, 1, 2, 3, 4]
    assert not two.copy().aside


def test_a_topic_that_is_not_copied_and_is_deleted_is_forgotten(two: Two) -> None:
    """Otherwise each name that was refused once would stay in memory."""
    two.target.fill("t", ["there"])
    send(two.source, 0)
    with Running(two.mirror(refresh_ms=200)) as running:
        wait_for(lambda: running.mirror.status.aside.keys() == {"t"}, "it is refused")
        with kafkalog.Admin(two.source.bootstrap_servers) as admin:
            admin.delete_topic("t")
        wait_for(lambda: not running.mirror.status.aside, "it is forgotten")
        send(two.source, 1)
        wait_for(lambda: running.mirror.status.aside.keys() == {"t"}, "it is refused again")


ENDED = {"Empty", "CompleteCommit", "CompleteAbort"}


def recreate(broker: TestBroker) -> None:
    with kafkalog.Admin(broker.bootstrap_servers) as admin:
        # A marker that is still to be written would otherwise come into the new topic.
        wait_for(lambda: {one.state for one in admin.list_transactions()} <= ENDED, "all ended")
        admin.delete_topic("t")
        wait_for(lambda: "t" not in admin.list_topics(), "it is deleted")
        admin.create_topic("t", 1)


# ---- the target loses records ---------------------------------------------------------------


def test_a_copy_recreated(two: Two) -> None:
    """An empty topic that replaced the copy does not get the rest of the records."""
    send(two.source, 0, 1)
    two.copy()
    recreate(two.target)
    send(two.source, 2)
    assert "its copy was recreated in the target" in two.copy().aside["t"]
    assert two.copied() == []
    assert not two.copy(accept_loss="t").aside
    assert two.copied() == [0, 1, 2]


def test_a_copy_deleted(two: Two) -> None:
    send(two.source, 0, 1)
    two.copy()
    with kafkalog.Admin(two.target.bootstrap_servers) as admin:
        admin.delete_topic("t")
    assert "its copy was deleted in the target" in two.copy().aside["t"]
    assert not two.copy(accept_loss="t").aside
    assert two.copied() == [0, 1]


def safe_state(two: Two) -> None:
    """The mirror's own topic survives a power cut of the target, its copies do not."""
    with kafkalog.Admin(two.target.bootstrap_servers) as admin:
        settings = {"kafkalog.durability": "fsync"}
        admin.alter_configs({("topic", "kafkalog-mirror.m"): settings}).check()


def test_a_copy_that_lost_its_last_records(two: Two) -> None:
    """An accepted loss copies again what the copy lost, and nothing else."""
    send(two.source, 0, 1, 2)
    two.copy()
    safe_state(two)
    keep(two.target)
    send(two.source, 3, 4)
    two.copy()
    two.target.kill()
    two.target.start()
    send(two.source, 5)
    assert "the target has lost records" in two.copy().aside["t"]
    assert two.copied() == [0, 1, 2]
    assert not two.copy(accept_loss="t").aside
    assert two.copied() == [0, 1, 2, 3, 4, 5]


def test_a_copy_that_loses_records_while_it_grows(two: Two) -> None:
    """The records sent after the loss are not committed, and hide it from no later run."""
    send(two.source, 0, 1, 2)
    two.copy()
    safe_state(two)
    keep(two.target)
    with Running(two.mirror()) as running:
        send(two.source, 3, 4)
        wait_for(lambda: two.copied() == [0, 1, 2, 3, 4], "all are copied")
        fetches = two.source.fail("Fetch", "NOT_LEADER_OR_FOLLOWER", None, MIRROR)
        wait_for(lambda: fetches.hits, "no more records come")
        two.target.kill()
        two.target.start()
        send(two.source, 5, 6, 7, 8, 9)
        two.source.heal()
        wait_for(lambda: running.mirror.status.aside, "the loss is found")
    for _ in range(2):
        assert "the target has lost records" in two.copy().aside["t"]
    assert two.copied() == [0, 1, 2]
    assert not two.copy(accept_loss="t").aside
    assert two.copied() == [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]
    assert not two.copy().aside


def test_a_leader_of_an_older_epoch(two: Two) -> None:
    """A node that was cut off and does not know yet that it no longer leads ends earlier: that is
    no loss, and the mirror waits for the real leader."""
    send(two.source, 0, 1)
    two.copy()
    one = state_of(two)
    assert (one.epoch, one.copy_epoch) == (0, 0)
    change_state(two, one._replace(copy_epoch=3, spans=(Span(0, 0, 9),)))
    with pytest.raises(failure_class(ErrorCode.UNKNOWN_LEADER_EPOCH), match="0, wanted 3 or later"):
        two.copy(accept_loss="t")
    change_state(two, one)
    assert not two.copy().aside
    assert two.copied() == [0, 1]


# ---- topics, settings and groups that the target refuses ------------------------------------


def test_a_topic_that_the_target_refuses(two: Two) -> None:
    """The others are copied, and so is this one once the target takes it."""
    long = "t" * 249
    two.source.fill(long, ["1"])
    two.source.fill("t", ["2"])
    status = two.copy("t+", rename="dc1.{}")
    assert status.aside.keys() == {long}
    assert "the target does not create" in status.aside[long]
    assert two.copied("dc1.t") == [2]
    two.source.fill("u", ["3"])
    two.target.fail("CreateTopics", "POLICY_VIOLATION", client_id=MIRROR)
    assert "POLICY_VIOLATION" in two.copy("u").aside["u"]
    assert not two.copy("u").aside
    assert two.copied("u") == [3]


@pytest.mark.parametrize(
    ("side", "api", "error", "said"),
    [
        ("source", "DescribeConfigs", "TOPIC_AUTHORIZATION_FAILED", "settings are not followed"),
        ("target", "DescribeConfigs", "TOPIC_AUTHORIZATION_FAILED", "settings are not followed"),
        ("target", "IncrementalAlterConfigs", "POLICY_VIOLATION", "the target refuses retention"),
        ("source", "OffsetFetch", "GROUP_AUTHORIZATION_FAILED", "group 'g'"),
        ("target", "OffsetFetch", "GROUP_AUTHORIZATION_FAILED", "group 'g'"),
        ("target", "OffsetCommit", "GROUP_AUTHORIZATION_FAILED", "group 'g'"),
    ],
)
def test_settings_and_groups_that_fail(
    two: Two, side: str, api: str, error: str, said: str
) -> None:
    """The records are copied, and the failure is told."""
    with kafkalog.Admin(two.source.bootstrap_servers) as admin:
        admin.create_topic("t", 1, config={"retention.ms": "-1"})
        send(two.source, 0)
        admin.alter_group_offsets("g", {TP: 1}).check()
    fault = getattr(two, side).fail(api, error, None, MIRROR)
    assert not two.copy(groups="g").aside
    assert fault.hits
    assert two.copied() == [0]
    assert any(said in text for text in two.said), two.said


def test_another_name_for_a_copy(two: Two) -> None:
    send(two.source, 0)
    two.copy()
    send(two.source, 1)
    assert "its copy is 't', and --rename would name it 'dc1.t'" in two.copy(
        rename="dc1.{}"
    ).aside["t"]  # fmt: skip
    with kafkalog.Admin(two.target.bootstrap_servers) as admin:
        assert admin.list_topics() == ["kafkalog-mirror.m", "t"]
