"""BrokerRegistration, BrokerHeartbeat, UnregisterBroker, and the end of a session.

Steps, as defined in kafkalog.controller.active.  The rules are those of Apache Kafka's
ClusterControlManager and ReplicationControlManager (KIP-631, KIP-858).

A broker is fenced until it has read its registration; then, as when it is fenced or shuts down, the
rules about live brokers decide what follows.  The registration is written first, and partitions
after it: a controller that is elected in between finds that they are due.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from typing import Any

from kafkalog.controller import brokers
from kafkalog.controller.active import Active, Steps
from kafkalog.controller.records import TopicPartition
from kafkalog.metadata.image import METADATA_VERSION, Broker, MetadataImage
from kafkalog.quorum.sessions import Committed, Heartbeat, State, next_state, state_of
from kafkalog.quorum.writing import OWN_OFFSET, MetadataRecord, MetadataRecords, live_brokers
from kafkalog.wire.error_codes import ErrorCode

__all__ = ["fence_expired", "heartbeat", "register", "registrations_changed", "unregister"]

Body = dict[str, Any]
CORDONED_SINCE = 30
"""The first metadata.version that has cordoned log directories: 4.3-IV0."""
FENCE, UNFENCE, SHUT_DOWN = 1, -1, 1
"""Fields of a BrokerRegistrationChangeRecord."""


def registrations_changed(store: Committed, active: Active) -> Steps[None]:
    """Decide what follows from the registrations as they are now."""
    context, registered = active.context, store.image.brokers
    yield from brokers.brokers_changed(context, active.batch, live_brokers(store.image))
    for number, one in sorted(registered.items()):
        if state_of(one) is State.CONTROLLED_SHUTDOWN:
            yield from brokers.shut_down(context, active.batch, number, one.epoch)


# ---- BrokerRegistration ------------------------------------------------------------------------


def register(store: Committed, active: Active, request: Any) -> Steps[Body]:
    """BrokerRegistration: a broker's epoch is the offset of its registration."""
    image, number = store.image, request.broker_id
    problem = _problem(image, request)
    before = image.brokers.get(number)
    again = before is not None and before.incarnation_id == request.incarnation_id
    if problem is None and before is not None and not again and store.sessions.is_valid(
        number, before.epoch, active.now_ms
    ) and not before.in_controlled_shutdown:  # fmt: skip
        problem = ErrorCode.DUPLICATE_BROKER_REGISTRATION
    if problem is not None:
        return {"error_code": problem, "broker_epoch": -1}
    yield MetadataRecords([_registration(request, before if again else None)])
    now = store.image.brokers[number]
    store.sessions.ended(number)
    store.sessions.heard(number, now.epoch, -1, active.now_ms)
    yield from registrations_changed(store, active)
    return {"error_code": ErrorCode.NONE, "broker_epoch": now.epoch}


def _problem(image: MetadataImage, request: Any) -> ErrorCode | None:
    """Why a broker may not register; None: it may."""
    if request.cluster_id != image.cluster_id:
        return ErrorCode.INCONSISTENT_CLUSTER_ID
    ranges = {one.name: (one.min_supported_version, one.max_supported_version)
              for one in request.features}  # fmt: skip
    for name, level in image.features.items():
        low, high = ranges.get(name, (0, 0) if name != METADATA_VERSION else (1, 1))
        if not low <= level <= high:
            return ErrorCode.UNSUPPORTED_VERSION
    taken = {each for number, one in image.brokers.items() if number != request.broker_id
             for each in one.directories}  # fmt: skip
    wanted = list(request.log_dirs)
    if not request.listeners or not wanted or len({*wanted}) < len(wanted) or taken & {*wanted}:
        return ErrorCode.INVALID_REGISTRATION
    return None


def _registration(request: Any, before: Broker | None) -> MetadataRecord:
    """`before`: the same life of the broker, which keeps its epoch and its state."""
    listeners = [
        {"name": one.name, "host": one.host, "port": one.port,
         "security_protocol": one.security_protocol}
        for one in request.listeners
    ]  # fmt: skip
    features = [
        {"name": one.name, "min_supported_version": one.min_supported_version,
         "max_supported_version": one.max_supported_version}
        for one in request.features
    ]  # fmt: skip
    return "RegisterBrokerRecord", {
        "broker_id": request.broker_id, "incarnation_id": request.incarnation_id,
        "broker_epoch": OWN_OFFSET if before is None else before.epoch,
        "end_points": listeners, "features": features, "rack": request.rack,
        "fenced": before is None or before.fenced,
        "in_controlled_shutdown": before is not None and before.in_controlled_shutdown,
        "log_dirs": list(request.log_dirs),
        "cordoned_log_dirs": list(before.cordoned) if before and before.cordoned else None,
    }  # fmt: skip


def unregister(store: Committed, active: Active, request: Any) -> Steps[Body]:
    """UnregisterBroker: a broker that will not come back; it leaves the ISRs."""
    number = request.broker_id
    found = store.image.brokers.get(number)
    if found is None:
        why = f"Broker ID {number} is not currently registered"
        return {"error_code": ErrorCode.BROKER_ID_NOT_REGISTERED, "error_message": why}
    record = {"broker_id": number, "broker_epoch": found.epoch}
    yield MetadataRecords([("UnregisterBrokerRecord", record)])
    store.sessions.ended(number)
    yield from registrations_changed(store, active)
    return {"error_code": ErrorCode.NONE, "error_message": None}


# ---- BrokerHeartbeat ---------------------------------------------------------------------------


def heartbeat(store: Committed, active: Active, request: Any) -> Steps[Body]:
    """BrokerHeartbeat: a broker is fenced, unfenced, or stops, as `next_state` says."""
    number, context = request.broker_id, active.context
    found = store.image.brokers.get(number)
    if found is None or found.epoch != request.broker_epoch:
        return {"error_code": ErrorCode.STALE_BROKER_EPOCH}
    store.sessions.heard(number, found.epoch, request.current_metadata_offset, active.now_ms)
    yield from _directories_failed(store, active, found, request.offline_log_dirs)
    cordoned = request.cordoned_log_dirs
    known = store.image.features.get(METADATA_VERSION, 0) >= CORDONED_SINCE
    if known and cordoned is not None and {*cordoned} != {*found.cordoned}:
        yield MetadataRecords([_change(found, cordoned_log_dirs=list(cordoned))])
    now = state_of(found)
    caught_up = request.current_metadata_offset >= found.epoch
    after = next_state(now, Heartbeat(
        caught_up, request.want_fence, request.want_shut_down,
        lambda: any(one.leader == number for one in context.partitions.values()),
        lambda: store.sessions.handed_over(number, store.image.brokers),
    ))  # fmt: skip
    if after is not now:
        yield from _enter(store, active, found, after)
    stops = after is State.SHUTDOWN_NOW
    return {"error_code": ErrorCode.NONE, "is_caught_up": caught_up,
            "is_fenced": after is State.FENCED or stops, "should_shut_down": stops}  # fmt: skip


def _enter(store: Committed, active: Active, broker: Broker, after: State) -> Steps[None]:
    """Write a broker's next state, and decide what follows."""
    if after is State.UNFENCED:
        change = {"fenced": UNFENCE}
    elif after is State.CONTROLLED_SHUTDOWN:
        change = {"in_controlled_shutdown": SHUT_DOWN}
    else:
        change = {"fenced": FENCE}
    if after is not State.SHUTDOWN_NOW or not broker.fenced:
        yield MetadataRecords([_change(broker, **change)])
        yield from registrations_changed(store, active)
    if after is State.CONTROLLED_SHUTDOWN:
        store.sessions.shuts_down(broker.id, store.image.offset)


def fence_expired(store: Committed, active: Active) -> Steps[None]:
    """Fence the brokers whose sessions have ended."""
    registered = store.image.brokers
    late = store.sessions.expired(registered, active.now_ms)
    if late:
        yield MetadataRecords([_change(registered[number], fenced=FENCE) for number in late])
        for number in late:
            store.sessions.ended(number)
        yield from registrations_changed(store, active)


def _directories_failed(
    store: Committed, active: Active, broker: Broker, lost: Iterable[uuid.UUID]
) -> Steps[None]:
    """A broker's log directories are offline: their replicas are, too."""
    gone = {*lost} & {*broker.directories}
    if not gone:
        return
    left = [one for one in broker.directories if one not in gone]
    if left:  # no broker goes on without any
        yield MetadataRecords([_change(broker, log_dirs=left)])
    keys: list[TopicPartition] = [
        key for key, one in active.context.partitions.items()
        if any(number == broker.id and each in gone
               for number, each in zip(one.replicas, one.directories, strict=False))
    ]  # fmt: skip
    yield from brokers.log_dirs_failed(active.context, active.batch, broker.id, keys)


def _change(broker: Broker, **fields: Any) -> MetadataRecord:
    return "BrokerRegistrationChangeRecord", {
        "broker_id": broker.id, "broker_epoch": broker.epoch, **fields
    }  # fmt: skip
