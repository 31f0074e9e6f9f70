"""A broker's view of its cluster, and how its controller's requests change it.

Pure.  LeaderAndIsr says which replicas this node holds, and which of them lead; StopReplica which
it no longer holds; UpdateMetadata what clients see of all nodes.  The rules are those of Kafka's
brokers on ZooKeeper: a request from an earlier controller, or for an earlier life of this node, is
refused, and so is a leadership that is not newer than the known one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any, NamedTuple

from kafkalog.metadata.image import TOPIC, Broker, Change, MetadataImage, Partition, Topic
from kafkalog.replication.roles import Drop, Effect, Follow, Held, Lead
from kafkalog.types import TopicPartition
from kafkalog.wire.error_codes import ErrorCode
from kafkalog.wire.values import ZERO_UUID

__all__ = [
    "MemberState", "failed", "leader_and_isr", "not_deleted", "registered", "stop_replica",
    "update_metadata", "vanished", "without",
    "without_leftovers",
]  # fmt: skip

UNKNOWN_EPOCH = -1
DURING_DELETE = -2
"""The leader of a partition that is being deleted, and the epoch in which its replica must go."""
Fields = dict[str, Any]


class MemberState(NamedTuple):
    """The knowledge of a broker."""

    node: int
    epoch: int
    """Epoch of this node's registration; -1: it is not registered."""
    controller: int
    """The broker that is the controller; -1: not known yet."""
    controller_epoch: int
    """The highest one seen."""
    image: MetadataImage
    held: Mapping[TopicPartition, Held]
    failed: frozenset[TopicPartition] = frozenset()
    """Partitions whose logs went offline; they stay so while this node runs."""


def refusal(state: MemberState, request: Any) -> ErrorCode:
    """Why a request is outdated; NONE: it is not."""
    if state.epoch == UNKNOWN_EPOCH:
        return ErrorCode.STALE_BROKER_EPOCH  # it is for an earlier life of this node
    if request.broker_epoch != UNKNOWN_EPOCH and request.broker_epoch < state.epoch:
        return ErrorCode.STALE_BROKER_EPOCH
    if request.controller_epoch < state.controller_epoch:
        return ErrorCode.STALE_CONTROLLER_EPOCH
    return ErrorCode.NONE


def registered(state: MemberState, epoch: int) -> MemberState:
    """This node's registration now has this epoch.  The known brokers get it, too, because
    requests to the controller name it."""
    brokers = dict(state.image.brokers)
    if (known := brokers.get(state.node)) is not None:
        brokers[state.node] = known._replace(epoch=epoch)
    return state._replace(epoch=epoch, image=state.image._replace(brokers=brokers))


def _obeying(state: MemberState, request: Any) -> MemberState:
    return state._replace(
        controller=request.controller_id, controller_epoch=request.controller_epoch
    )


# ---- what this node holds --------------------------------------------------------------------


def leader_and_isr(state: MemberState, request: Any) -> tuple[MemberState, list[Effect], Fields]:
    """The partitions that this node must lead and follow, and the response."""
    if code := refusal(state, request):
        return state, [], {"error_code": code, "topics": []}
    held = dict(state.held)
    effects: list[Effect] = []
    topics = []
    for topic in request.topic_states:
        rows = []
        for asked in topic.partition_states:
            tp = TopicPartition(topic.topic_name, asked.partition_index)
            now = Held(topic.topic_id, _partition(asked, asked.partition_epoch))
            code = _verdict(state, tp, now)
            rows.append({"partition_index": tp.partition, "error_code": code})
            if code:
                continue
            held[tp] = now
            kind = Lead if now.state.leader == state.node else Follow
            effects.append(kind(tp, now, bool(asked.is_new)))
        topics.append({"topic_id": topic.topic_id, "partition_errors": rows})
    after = _obeying(state, request)._replace(held=held)
    return after, effects, {"error_code": ErrorCode.NONE, "topics": topics}


def without(
    state: MemberState, answer: Fields, lost: Mapping[TopicPartition, ErrorCode]
) -> tuple[MemberState, Fields]:
    """After partitions could not be led: they are not held, and the controller learns that from
    `answer`, to LeaderAndIsr, and has others lead them."""
    gone = {(state.held[tp].topic_id, tp.partition): code for tp, code in lost.items()}
    for topic in answer["topics"]:
        for row in topic["partition_errors"]:
            key = topic["topic_id"], row["partition_index"]
            row["error_code"] = gone.get(key, row["error_code"])
    held = {tp: one for tp, one in state.held.items() if tp not in lost}
    return state._replace(held=held), answer


def failed(state: MemberState, partitions: Collection[TopicPartition]) -> MemberState:
    """After the logs of these went offline: the controller gets that as the answer to any request
    about them, and has others lead what they can."""
    held = {tp: one for tp, one in state.held.items() if tp not in partitions}
    return state._replace(held=held, failed=state.failed | {*partitions})


def _verdict(state: MemberState, tp: TopicPartition, now: Held) -> ErrorCode:
    known = state.held.get(tp)
    if tp in state.failed:
        return ErrorCode.KAFKA_STORAGE_ERROR
    if state.node not in now.state.replicas:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if known is None:
        return ErrorCode.NONE
    if known.topic_id != now.topic_id and ZERO_UUID not in (known.topic_id, now.topic_id):
        return ErrorCode.INCONSISTENT_TOPIC_ID
    before, after = known.state, now.state
    if (after.leader_epoch, after.partition_epoch) <= (before.leader_epoch, before.partition_epoch):
        return ErrorCode.STALE_CONTROLLER_EPOCH
    return ErrorCode.NONE


def stop_replica(state: MemberState, request: Any) -> tuple[MemberState, list[Effect], Fields]:
    """The partitions that this node no longer leads or follows, and the response."""
    if code := refusal(state, request):
        return state, [], {"error_code": code, "partition_errors": []}
    held = dict(state.held)
    effects: list[Effect] = []
    rows = []
    for topic in request.topic_states:
        for asked in topic.partition_states:
            tp = TopicPartition(topic.topic_name, asked.partition_index)
            code = _may_stop(state, tp, asked.leader_epoch)
            rows.append(
                {"topic_name": tp.topic, "partition_index": tp.partition, "error_code": code}
            )
            if not code:
                held.pop(tp, None)
                effects.append(Drop(tp, bool(asked.delete_partition)))
    after = _obeying(state, request)._replace(held=held)
    return after, effects, {"error_code": ErrorCode.NONE, "partition_errors": rows}


def not_deleted(
    state: MemberState, answer: Fields, lost: Mapping[TopicPartition, ErrorCode]
) -> tuple[MemberState, Fields]:
    """After copies could not be deleted: they are not held, but `answer`, to StopReplica,
    says that its files are still here."""
    for row in answer["partition_errors"]:
        tp = TopicPartition(row["topic_name"], row["partition_index"])
        row["error_code"] = lost.get(tp, row["error_code"])
    return state, answer


def _may_stop(state: MemberState, tp: TopicPartition, leader_epoch: int) -> ErrorCode:
    known = state.held.get(tp)
    if tp in state.failed:
        return ErrorCode.KAFKA_STORAGE_ERROR
    if known is None or leader_epoch in (UNKNOWN_EPOCH, DURING_DELETE):
        return ErrorCode.NONE
    old = leader_epoch < known.state.leader_epoch
    return ErrorCode.FENCED_LEADER_EPOCH if old else ErrorCode.NONE


# ---- metadata for clients ----------------------------------------------------------------------


def update_metadata(state: MemberState, request: Any) -> tuple[MemberState, Change | None, Fields]:
    """The change of the image, None if the request is refused; and the response."""
    if code := refusal(state, request):
        return state, None, {"error_code": code}
    old = state.image
    topics, touched, gone = dict(old.topics), dict[str, None](), list[Topic]()
    for told in request.topic_states:
        known = topics.get(told.topic_name)
        if known is not None and known.id != told.topic_id:
            gone.append(topics.pop(told.topic_name))  # another topic of that name
            known = None
        partitions = dict(known.partitions) if known else {}
        for asked in told.partition_states:
            if asked.leader == DURING_DELETE:
                partitions.pop(asked.partition_index, None)
            else:
                one = _partition(asked, asked.zk_version)
                partitions[one.partition] = _with_moves(one, known)
        if partitions:
            topics[told.topic_name] = Topic(told.topic_name, told.topic_id, partitions)
            touched[told.topic_name] = None
        elif known is not None:
            gone.append(topics.pop(told.topic_name))
    new = _with_topics(old, topics)._replace(
        brokers=dict(_brokers(state, request)), epoch=request.controller_epoch
    )
    changed = tuple(topics[name] for name in touched if name in topics)
    after = _obeying(state, request)._replace(image=new)
    return after, Change(old, new, changed, tuple(gone), ()), {"error_code": ErrorCode.NONE}


def vanished(
    state: MemberState, before: MetadataImage, names: Collection[str]
) -> tuple[MemberState, Change | None]:
    """After the tree was found to have only these topics, `before` being an image from before it
    was read: topics that it lacks were deleted while no controller could tell this node.  A topic
    is in the tree before any node knows it.  None: it lacks none."""
    old = state.image
    gone = [
        topic
        for name, topic in old.topics.items()
        if name not in names and (known := before.topics.get(name)) and known.id == topic.id
    ]
    if not gone:
        return state, None
    lacking = {topic.name for topic in gone}
    topics = {name: topic for name, topic in old.topics.items() if name not in lacking}
    new = _with_topics(old, topics)
    return state._replace(image=new), Change(old, new, (), tuple(gone), ())


def without_leftovers(image: MetadataImage) -> MetadataImage:
    """The image without settings of topics that do not exist: one that is created later does not
    get them."""
    return image._replace(configs={
        key: said for key, said in image.configs.items()
        if key[0] != TOPIC or key[1] in image.topics
    })  # fmt: skip


def _with_topics(old: MetadataImage, topics: Mapping[str, Topic]) -> MetadataImage:
    """The image with these topics, and without the settings of those that are gone: a topic that
    is created later under the name has its own."""
    gone = old.topics.keys() - topics.keys()
    return old._replace(
        topics=topics,
        names={topic.id: name for name, topic in topics.items() if topic.id != ZERO_UUID},
        configs={key: said for key, said in old.configs.items()
                 if not (key[0] == TOPIC and key[1] in gone)} if gone else old.configs,
    )  # fmt: skip


def _partition(asked: Any, partition_epoch: int) -> Partition:
    return Partition(
        asked.partition_index, tuple(asked.replicas), tuple(asked.isr), asked.leader,
        asked.leader_epoch, partition_epoch,
        adding_replicas=tuple(getattr(asked, "adding_replicas", ())),
        removing_replicas=tuple(getattr(asked, "removing_replicas", ())),
        leader_recovery_state=getattr(asked, "leader_recovery_state", 0),
        offline_replicas=tuple(getattr(asked, "offline_replicas", ())),
    )  # fmt: skip


def _with_moves(one: Partition, known: Topic | None) -> Partition:
    """UpdateMetadata does not say which replicas are added and removed: keep what was known."""
    before = known.partitions.get(one.partition) if known else None
    if before is None:
        return one
    return one._replace(
        adding_replicas=before.adding_replicas, removing_replicas=before.removing_replicas
    )


def _brokers(state: MemberState, request: Any) -> Iterator[tuple[int, Broker]]:
    """The live brokers.  The request does not have the others' registration epochs, and a known one
    may be of an earlier life: a follower sends its own, and the controller compares."""
    for told in request.live_brokers:
        known = state.image.brokers.get(told.id)
        epoch = state.epoch if told.id == state.node else UNKNOWN_EPOCH
        endpoints = tuple((e.listener, e.host, e.port, e.security_protocol) for e in told.endpoints)
        yield told.id, Broker(
            told.id, epoch, ZERO_UUID, endpoints, () if known is None else known.features,
            told.rack, fenced=False, in_controlled_shutdown=False, directories=(),
        )  # fmt: skip
