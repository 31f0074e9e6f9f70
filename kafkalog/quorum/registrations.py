"""BrokerRegistration, BrokerHeartbeat, UnregisterBroker, and the end of a session.

Steps, as defined in kafkalog.controller.active.  The rules are those of Apache Kafka's
ClusterControlManager and ReplicationControlManager (KIP-631, KIP-858).

A broker is fenced until it has read its registration.  What follows for partitions is written
together with the change of its state.
"""

from __future__ import annotations

from typing import Any

from kafkalog.controller.active import Active, Steps
from kafkalog.kraft.registrations import unregister_controller as plan_unregister_controller
from kafkalog.metadata.image import METADATA_VERSION, Broker, MetadataImage
from kafkalog.quorum.deciding import ELIGIBLE_SINCE, Deciding, level_of
from kafkalog.quorum.sessions import Committed, Heartbeat, State, next_state, state_of
from kafkalog.quorum.writing import OWN_OFFSET, MetadataRecord, MetadataRecords
from kafkalog.wire.error_codes import ErrorCode

__all__ = [
    "fence_expired", "heartbeat", "register", "register_controller", "unregister",
    "unregister_controller",
]  # fmt: skip

Body = dict[str, Any]
CORDONED_SINCE = 30
"""The first metadata.version that has cordoned log directories: 4.3-IV0."""
CONTROLLERS_SINCE = 15
"""The first metadata.version that has registrations of controllers: 3.7-IV0."""
RESERVED_IDS = 100
"""The ids of directories that have a meaning of their own."""
FENCE, UNFENCE, SHUT_DOWN = 1, -1, 1
"""Fields of a BrokerRegistrationChangeRecord."""


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
    records = [] if again else _another_life(image, active, request, before)
    records.append(_registration(request, before if again else None))
    yield MetadataRecords(records)
    now = store.image.brokers[number]
    if not again:
        store.sessions.ended(number)
    store.sessions.heard(number, now.epoch, -1, active.now_ms)
    return {"error_code": ErrorCode.NONE, "broker_epoch": now.epoch}


def _another_life(
    image: MetadataImage, active: Active, request: Any, before: Broker | None
) -> list[MetadataRecord]:
    """A broker began another life: it leaves the ISRs.  Unless it ended the last one in order, it
    may have lost records, and is not eligible any more."""
    number = request.broker_id
    deciding = Deciding(image, active.options.config, down=(number,))
    clean = before is not None and before.epoch == request.previous_broker_epoch
    if clean or level_of(image) < ELIGIBLE_SINCE:
        return deciding.without(deciding.in_sync((number,)), gone=(number,))
    rows = [*deciding.in_sync((number,)), *deciding.eligible_at(number)]
    return deciding.without(rows, lost=(number,))


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
    if any(one.int < RESERVED_IDS for one in wanted):
        return ErrorCode.INVALID_REGISTRATION
    return None


def _registration(request: Any, before: Broker | None) -> MetadataRecord:
    """`before`: the same life of the broker, which keeps its epoch and its state."""
    return "RegisterBrokerRecord", {
        "broker_id": request.broker_id, "incarnation_id": request.incarnation_id,
        "broker_epoch": OWN_OFFSET if before is None else before.epoch,
        "end_points": _listeners(request), "features": _features(request), "rack": request.rack,
        "fenced": before is None or before.fenced,
        "in_controlled_shutdown": before is not None and before.in_controlled_shutdown,
        "log_dirs": list(request.log_dirs),
        "cordoned_log_dirs": list(before.cordoned) if before and before.cordoned else None,
    }  # fmt: skip


def _listeners(request: Any) -> list[Body]:
    return [
        {"name": one.name, "host": one.host, "port": one.port,
         "security_protocol": one.security_protocol}
        for one in request.listeners
    ]  # fmt: skip


def _features(request: Any) -> list[Body]:
    return [
        {"name": one.name, "min_supported_version": one.min_supported_version,
         "max_supported_version": one.max_supported_version}
        for one in request.features
    ]  # fmt: skip


def unregister(store: Committed, active: Active, request: Any) -> Steps[Body]:
    """UnregisterBroker: a broker that will not come back; it leaves the ISRs."""
    number = request.broker_id
    found = store.image.brokers.get(number)
    if found is None:
        why = f"Broker ID {number} is not currently registered"
        return {"error_code": ErrorCode.BROKER_ID_NOT_REGISTERED, "error_message": why}
    deciding = Deciding(store.image, active.options.config, down=(number,))
    records = deciding.without(deciding.in_sync((number,)), gone=(number,))
    record = {"broker_id": number, "broker_epoch": found.epoch}
    yield MetadataRecords([*records, ("UnregisterBrokerRecord", record)], atomic=False)
    store.sessions.ended(number)
    return {"error_code": ErrorCode.NONE, "error_message": None}


def register_controller(store: Committed, active: Active, request: Any) -> Steps[Body]:
    """ControllerRegistration: a controller's listeners, and the features that it supports."""
    if level_of(store.image) < CONTROLLERS_SINCE:
        why = "The current MetadataVersion is too old to support controller registrations."
        return {"error_code": ErrorCode.UNSUPPORTED_VERSION, "error_message": why}
    record = {
        "controller_id": request.controller_id, "incarnation_id": request.incarnation_id,
        "zk_migration_ready": request.zk_migration_ready, "end_points": _listeners(request),
        "features": _features(request),
    }  # fmt: skip
    yield MetadataRecords([("RegisterControllerRecord", record)])
    return {"error_code": ErrorCode.NONE, "error_message": None}


def unregister_controller(store: Committed, active: Active, request: Any) -> Steps[Body]:
    """UnregisterController: a controller that will not come back."""
    plan = plan_unregister_controller(store.image, request.controller_id)
    yield MetadataRecords(plan.records)
    return plan.results[0]


# ---- BrokerHeartbeat ---------------------------------------------------------------------------


def heartbeat(store: Committed, active: Active, request: Any) -> Steps[Body]:
    """BrokerHeartbeat: a broker is fenced, unfenced, or stops, as `next_state` says."""
    number, image = request.broker_id, store.image
    found = image.brokers.get(number)
    if found is None or found.epoch != request.broker_epoch:
        return {"error_code": ErrorCode.STALE_BROKER_EPOCH}
    store.sessions.heard(number, found.epoch, request.current_metadata_offset, active.now_ms)
    now = state_of(found)
    caught_up = request.current_metadata_offset >= found.epoch
    after = next_state(now, Heartbeat(
        caught_up, request.want_fence, request.want_shut_down,
        lambda: any(one.leader == number for _, one in image.partitions()),
        lambda: store.sessions.handed_over(number, image.brokers),
    ))  # fmt: skip
    records = [] if after is now else _entering(image, active, found, after)
    records += _directories(image, active, found, request)
    if records:
        yield MetadataRecords(records, atomic=False)
    if after is State.CONTROLLED_SHUTDOWN and after is not now:
        store.sessions.shuts_down(number, store.image.offset)
    stops = after is State.SHUTDOWN_NOW
    if stops:  # its next life need not wait for the end of a session
        store.sessions.ended(number)
    return {"error_code": ErrorCode.NONE, "is_caught_up": caught_up,
            "is_fenced": after is State.FENCED or stops, "should_shut_down": stops}  # fmt: skip


def _entering(
    image: MetadataImage, active: Active, broker: Broker, after: State
) -> list[MetadataRecord]:
    """A broker's next state, and what follows for partitions."""
    if after is State.UNFENCED:
        deciding = Deciding(image, active.options.config, up=(broker.id,))
        change = _change(broker, fenced=UNFENCE)
        return [change, *deciding.without(deciding.leaderless())]
    if after is State.SHUTDOWN_NOW and broker.fenced:
        return []
    deciding = Deciding(image, active.options.config, down=(broker.id,))
    follows = deciding.without(deciding.in_sync((broker.id,)), gone=(broker.id,))
    if after is State.CONTROLLED_SHUTDOWN:
        return [_change(broker, in_controlled_shutdown=SHUT_DOWN), *follows]
    return [*follows, _change(broker, fenced=FENCE)]


def fence_expired(store: Committed, active: Active) -> Steps[None]:
    """Fence the brokers whose sessions have ended."""
    registered = store.image.brokers
    late = store.sessions.expired(registered, active.now_ms)
    if late:
        deciding = Deciding(store.image, active.options.config, down=late)
        follows = deciding.without(deciding.in_sync(late), gone=late)
        fences = [_change(registered[number], fenced=FENCE) for number in late]
        yield MetadataRecords([*follows, *fences], atomic=False)
        for number in late:
            store.sessions.ended(number)


def _directories(
    image: MetadataImage, active: Active, broker: Broker, request: Any
) -> list[MetadataRecord]:
    """The log directories of a broker that failed, with what follows for their replicas, and those
    that are cordoned."""
    found: list[MetadataRecord] = []
    left = [one for one in broker.directories if one not in request.offline_log_dirs]
    if len(left) < len(broker.directories):
        gone = {*broker.directories} - {*left}
        deciding = Deciding(image, active.options.config, down=(broker.id,))
        rows = [
            (topic, one) for topic, one in image.partitions()
            if any(number == broker.id and each in gone
                   for number, each in zip(one.replicas, one.directories, strict=False))
        ]  # fmt: skip
        found += deciding.without(rows, gone=(broker.id,))
        if left:  # no broker goes on without any
            found.append(_change(broker, log_dirs=left))
    cordoned = request.cordoned_log_dirs
    known = level_of(image) >= CORDONED_SINCE and cordoned is not None
    if known and {*cordoned} != {*broker.cordoned}:
        found.append(_change(broker, cordoned_log_dirs=list(cordoned)))
    return found


def _change(broker: Broker, **fields: Any) -> MetadataRecord:
    return "BrokerRegistrationChangeRecord", {
        "broker_id": broker.id, "broker_epoch": broker.epoch, **fields
    }  # fmt: skip
