"""How a broker handles its controller's requests: each rule, and histories of a whole cluster."""

from __future__ import annotations

import random
import uuid
from typing import Any

import pytest

from kafkalog.cluster.node.state import (
    MemberState,
    failed,
    leader_and_isr,
    registered,
    stop_replica,
    update_metadata,
    vanished,
)
from kafkalog.controller import brokers, deletion, topics
from kafkalog.controller.context import NEVER_LED
from kafkalog.controller.requests import Send
from kafkalog.metadata.image import empty_image
from kafkalog.replication.roles import Drop, Effect, Follow, Lead
from kafkalog.types import TopicPartition
from kafkalog.wire.error_codes import ErrorCode
from kafkalog.wire.tables.controller import LEADER_AND_ISR, STOP_REPLICA, UPDATE_METADATA
from kafkalog.zookeeper import tree
from kafkalog.zookeeper.loading import Znode
from tests.support.effort import SEED, rounds
from tests.unit.controller.building import Cluster, Shown

pytestmark = pytest.mark.slow

KEY = ("t", 0)
TP = TopicPartition(*KEY)
DOES = {LEADER_AND_ISR: leader_and_isr, STOP_REPLICA: stop_replica}


def standing(node: int, epoch: int) -> MemberState:
    return MemberState(node, epoch, -1, 0, empty_image("", node), {})


class Broker:
    """A broker that obeys, and keeps the effects it must carry out."""

    def __init__(self, node: int, epoch: int) -> None:
        self.now = standing(node, epoch)
        self.does: dict[TopicPartition, Effect] = {}
        self.gone: list[str] = []

    def take(self, send: Send, version: int | None = None) -> Any:
        """Handle a request; request and response go through the wire format."""
        version = send.api.max_version if version is None else version
        data = send.api.encode_request(version, send.body)
        request = send.api.decode_request(version, data)
        if send.api is UPDATE_METADATA:
            before = self.now.image
            self.now, change, answer = update_metadata(self.now, request)
            if change is not None:
                assert (change.old, change.new) == (before, self.now.image)
                self.gone += [topic.name for topic in change.gone]
        else:
            self.now, effects, answer = DOES[send.api](self.now, request)
            self.does.update((effect.partition, effect) for effect in effects)
        data = send.api.encode_response(version, answer)
        return send.api.decode_response(version, data)


def told(of: Cluster, node: int) -> tuple[Broker, list[Send]]:
    """A broker, and a new controller's requests for it after the list of live brokers."""
    of.decide(brokers.begin(of.context, of.batch))
    return Broker(node, 100 + node), [send for send in of.sent if send.broker == node][1:]


def cluster() -> Cluster:
    of = Cluster()
    of.led(KEY, (1, 2, 3), Shown(1, 5, (1, 2), 7))
    return of


@pytest.mark.parametrize(("node", "kind"), [(1, Lead), (2, Follow), (3, Follow)])
@pytest.mark.parametrize("lead_version", LEADER_AND_ISR.versions)
@pytest.mark.parametrize("know_version", UPDATE_METADATA.versions)
def test_a_new_controller(node: int, kind: type, lead_version: int, know_version: int) -> None:
    of = cluster()
    broker, (lead, know) = told(of, node)
    answer = broker.take(lead, lead_version)
    assert [row.error_code for row in answer.topics[0].partition_errors] == [ErrorCode.NONE]
    effect = broker.does[TP]
    assert isinstance(effect, kind)
    state = of.context.partitions[KEY]
    assert (effect.held.topic_id, effect.held.state) == (of.context.ids["t"], state)
    assert broker.take(know, know_version).error_code == ErrorCode.NONE
    assert broker.now.image.partition(*KEY) == state
    assert broker.now.image.brokers.keys() == {1, 2, 3}
    assert broker.now.image.brokers[node].epoch == 100 + node
    assert broker.now.image.names[of.context.ids["t"]] == "t"
    assert (broker.now.controller, broker.now.controller_epoch) == (9, 4)


def other(send: Send, **fields: Any) -> Send:
    """The same request with other fields; `row_...`: of each partition."""
    rows = {k.removeprefix("row_"): v for k, v in fields.items() if k.startswith("row_")}
    body = {**send.body, **{k: v for k, v in fields.items() if not k.startswith("row_")}}
    body["topic_states"] = [
        {**topic, "partition_states": [{**row, **rows} for row in topic["partition_states"]]}
        for topic in body["topic_states"]
    ]
    return send._replace(body=body)


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"broker_epoch": 101}, ErrorCode.STALE_BROKER_EPOCH),
        ({"controller_epoch": 3}, ErrorCode.STALE_CONTROLLER_EPOCH),
    ],
)
def test_outdated_requests_are_refused(fields: dict[str, int], code: ErrorCode) -> None:
    of = cluster()
    broker, sends = told(of, 2)
    stop = of.batch.stop_replica(2, KEY, delete=True) or of.batch.sends()[0]
    for send in (*sends, stop):
        broker.now = broker.now._replace(epoch=102, controller_epoch=4)
        before = broker.now
        assert broker.take(other(send, **fields)).error_code == code
        assert broker.now == before and broker.does == {}


def test_an_unregistered_broker_obeys_no_request() -> None:
    """Such a request was meant for an earlier registration, whose epoch is unknown here."""
    of = Cluster((1, 2))
    of.led(KEY, (1, 2), Shown(1, 5, (1, 2), 7))
    of.decide(brokers.begin(of.context, of.batch))
    node = Broker(1, -1)
    for send in of.sent:
        if send.broker == 1:
            assert node.take(send).error_code == ErrorCode.STALE_BROKER_EPOCH
    assert (node.now, node.does) == (standing(1, -1), {})


def test_a_registration_is_known_with_the_brokers() -> None:
    """The broker learns its epoch after the controller sent the live brokers: it proposes its next
    ISR with the epoch that the controller knows."""
    of = Cluster((1, 2))
    of.led(KEY, (1, 2), Shown(1, 5, (1, 2), 7))
    of.decide(brokers.begin(of.context, of.batch))
    node = Broker(1, 50)
    for send in of.sent:
        if send.broker == 1:
            node.take(send)
    now = registered(node.now, 101)
    assert (now.epoch, now.image.brokers[1].epoch) == (101, 101)
    assert now.image.brokers[2] == node.now.image.brokers[2]


def test_requests_without_a_broker_epoch_are_obeyed() -> None:
    of = cluster()
    broker, (lead, _) = told(of, 2)
    assert broker.take(other(lead, broker_epoch=-1)).error_code == ErrorCode.NONE
    assert TP in broker.does


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({}, ErrorCode.STALE_CONTROLLER_EPOCH),  # unchanged
        ({"row_leader_epoch": 4}, ErrorCode.STALE_CONTROLLER_EPOCH),
        ({"row_leader_epoch": 4, "row_partition_epoch": 9}, ErrorCode.STALE_CONTROLLER_EPOCH),
        ({"row_partition_epoch": 6}, ErrorCode.STALE_CONTROLLER_EPOCH),
        ({"row_partition_epoch": 8}, ErrorCode.NONE),
        ({"row_leader_epoch": 6, "row_leader": 2}, ErrorCode.NONE),
        ({"row_leader_epoch": 6, "row_replicas": [1, 3]}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_only_a_newer_leadership_counts(fields: dict[str, Any], code: ErrorCode) -> None:
    broker, (lead, _) = told(cluster(), 2)
    broker.take(lead)
    before = broker.now.held
    answer = broker.take(other(lead, **fields))
    assert answer.error_code == ErrorCode.NONE
    assert answer.topics[0].partition_errors[0].error_code == code
    assert (broker.now.held == before) == bool(code)


def test_another_topic_of_the_name_is_refused() -> None:
    """The topic that the broker has must be deleted first."""
    broker, (lead, _) = told(cluster(), 2)
    broker.take(lead)
    of = Cluster()
    of.topic("other", {})
    body = other(lead, row_leader_epoch=9).body
    body["topic_states"][0]["topic_id"] = of.topic("another", {})[0].id
    answer = broker.take(lead._replace(body=body))
    assert answer.topics[0].partition_errors[0].error_code == ErrorCode.INCONSISTENT_TOPIC_ID


@pytest.mark.parametrize(
    ("epoch", "code"),
    [(-1, 0), (-2, 0), (5, 0), (6, 0), (4, ErrorCode.FENCED_LEADER_EPOCH)],
)
@pytest.mark.parametrize("delete", [True, False])
def test_a_replica_is_stopped(epoch: int, code: int, delete: bool) -> None:
    of = cluster()
    broker, (lead, _) = told(of, 2)
    broker.take(lead)
    of.batch.stop_replica(2, KEY, delete=delete)
    (stop,) = of.batch.sends()
    answer = broker.take(other(stop, row_leader_epoch=epoch))
    assert answer.partition_errors[0].error_code == code
    assert (TP in broker.now.held) == bool(code)
    if not code:
        assert broker.does[TP] == Drop(TP, delete)


def test_a_log_that_failed_is_told_whatever_is_wanted() -> None:
    """For a known leadership, for a newer one, and for StopReplica; other partitions are not
    affected."""
    of = cluster()
    broker, (lead, _) = told(of, 1)
    broker.take(lead)
    other_tp = TopicPartition("other", 0)
    broker.now = broker.now._replace(held={**broker.now.held, other_tp: broker.now.held[TP]})
    broker.now = failed(broker.now, [TP])
    assert broker.now.held.keys() == {other_tp}
    before, done = broker.now, dict(broker.does)
    for send in (lead, other(lead, row_leader_epoch=6), other(lead, row_replicas=[2, 3])):
        (topic,) = broker.take(send).topics
        assert [row.error_code for row in topic.partition_errors] == [ErrorCode.KAFKA_STORAGE_ERROR]
    of.batch.stop_replica(1, KEY, delete=True)
    (stop,) = of.batch.sends()
    (row,) = broker.take(stop).partition_errors
    assert row.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert (broker.now, broker.does) == (before, done)


def test_a_replica_that_is_not_here_is_stopped_all_the_same() -> None:
    """Its files may still exist."""
    of = cluster()
    of.batch.stop_replica(2, KEY, delete=True)
    (stop,) = of.batch.sends()
    broker = Broker(2, 102)
    assert broker.take(stop).partition_errors[0].error_code == ErrorCode.NONE
    assert broker.does[TP] == Drop(TP, True)


# ---- histories -----------------------------------------------------------------------------------


class World:
    """A controller and three brokers: each receives its requests in order, sooner or later."""

    def __init__(self, dice: random.Random) -> None:
        self.dice = dice
        self.of = Cluster()
        self.epochs = {n: 100 + n for n in (1, 2, 3)}
        self.brokers = {n: Broker(n, e) for n, e in self.epochs.items()}
        self.mail: dict[int, list[Send]] = {n: [] for n in (1, 2, 3)}
        self.names = 0
        self.decide(brokers.begin(self.of.context, self.of.batch))

    def decide(self, deciding: Any) -> None:
        self.of.decide(deciding)
        for send in self.of.sent:
            self.mail[send.broker].append(send)

    def create(self) -> None:
        self.names += 1
        replicas = {
            n: tuple(self.dice.sample((1, 2, 3), self.dice.randint(1, 3))) for n in range(2)
        }
        name = f"t{self.names}"
        node = self.of.topic(name, replicas)
        self.decide(topics.topics_changed(self.of.context, self.of.batch, node))

    def delete(self) -> None:
        names = [*self.of.context.ids]
        if names:
            name = self.dice.choice(names)
            self.of.tree[f"{tree.DELETE_TOPICS}/{name}"] = Znode(b"")
            self.decide(deletion.topics_to_delete(self.of.context, self.of.batch, [name]))

    def live(self) -> None:
        """Let a broker die, or return without state and without older requests."""
        node = self.dice.choice((1, 2, 3))
        if self.brokers.pop(node, None) is None:
            self.epochs[node] += 10
            self.brokers[node] = Broker(node, self.epochs[node])
        self.mail[node].clear()
        epochs = {f"b{n}": self.epochs[n] for n in self.brokers}
        now = self.of.brokers(*self.brokers, **epochs)
        self.decide(brokers.brokers_changed(self.of.context, self.of.batch, now))

    def hear(self) -> None:
        waiting = [node for node, mail in self.mail.items() if mail]
        if not waiting:
            return
        node = self.dice.choice(waiting)
        send = self.mail[node].pop(0)
        answer = self.brokers[node].take(send)
        if send.api is not STOP_REPLICA:
            return
        deleted = {
            (topic["topic_name"], row["partition_index"])
            for topic in send.body["topic_states"]
            for row in topic["partition_states"]
            if row["delete_partition"]
        }
        keys = [(row.topic_name, row.partition_index) for row in answer.partition_errors]
        codes = [ErrorCode(row.error_code) for row in answer.partition_errors]
        rows = {key: code for key, code in zip(keys, codes, strict=True) if key in deleted}
        decision = deletion.replicas_dropped(self.of.context, self.of.batch, node, rows)
        self.decide(decision)

    def check(self) -> None:
        """Check, once all requests are received, that brokers and controller know the same."""
        context = self.of.context
        shown = {
            key: one._replace(offline_replicas=context.offline_replicas(key))
            for key, one in context.partitions.items()
            if key[0] not in context.deleted and one.leader_epoch != NEVER_LED
        }
        for node, broker in self.brokers.items():
            image = broker.now.image
            assert {(t.name, p.partition): p for t, p in image.partitions()} == shown
            assert image.brokers.keys() == self.brokers.keys()
            assert image.names == {image.topics[n].id: n for n in image.topics}
            for key, one in shown.items():
                if node in one.replicas:
                    effect = broker.does[TopicPartition(*key)]
                    assert isinstance(effect, Lead if one.leader == node else Follow)
                    assert effect.held.state == context.partitions[key]
            assert {(tp.topic, tp.partition) for tp in broker.now.held} >= {
                key for key, one in shown.items() if node in one.replicas
            }


@pytest.mark.explore
def test_histories() -> None:
    for number in rounds(60):
        world = World(random.Random(f"{SEED}-{number}"))
        for _ in range(80):
            what = world.dice.random()
            if what < 0.1:
                world.create()
            elif what < 0.13:
                world.delete()
            elif what < 0.2:
                world.live()
            else:
                world.hear()
        while any(world.mail.values()):
            world.hear()
        world.check()


def test_topics_that_the_tree_lacks_have_vanished() -> None:
    """Except those that this node learnt of since, or that were recreated since."""
    broker, (lead, know) = told(cluster(), 1)
    broker.take(lead)
    broker.take(know)
    before = broker.now.image
    assert vanished(broker.now, before, ["t", "other"]) == (broker.now, None)
    assert vanished(broker.now, empty_image("", 1), []) == (broker.now, None)
    recreated = broker.now.image.topics["t"]._replace(id=uuid.UUID(int=5))
    image = before._replace(topics={"t": recreated})
    now = broker.now._replace(image=image)
    assert vanished(now, before, []) == (now, None)
    after, change = vanished(broker.now, before, [])
    assert change is not None and [topic.name for topic in change.gone] == ["t"]
    assert (change.old, change.new) == (before, after.image)
    assert after.image.topics == after.image.names == {}
    assert after.held == broker.now.held, "what the controller wants dropped, it says"
