"""Reads the metrics of groups and transactions, in the turn of their coordinators.

A coordinator's state belongs to its thread.  It looks at one partition of its journal at a time,
between the requests of others, and copies no more than is shown.
"""

from __future__ import annotations

import threading
import weakref
from collections import Counter
from collections.abc import Callable, Mapping
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from kafkalog.coordinator.consumer_groups.state import ConsumerState
from kafkalog.coordinator.groups.group import State
from kafkalog.coordinator.share_groups.state import ShareState
from kafkalog.coordinator.streams_groups.state import StreamsGroupState
from kafkalog.coordinator.transactions.transaction import State as TransactionState
from kafkalog.types import TopicPartition

if TYPE_CHECKING:
    from kafkalog.coordinator.groups.core import GroupCoordinatorState
    from kafkalog.coordinator.groups.group import Group
    from kafkalog.coordinator.step import Step
    from kafkalog.coordinator.thread import Coordinator
    from kafkalog.coordinator.transactions.core import TransactionCoordinatorState
    from kafkalog.metrics.metric import Readings
    from kafkalog.server.metrics.labels import Labels

__all__ = ["read_groups", "read_transactions"]

PATIENCE_S = 2.0
"""How long a coordinator may take for its turn; then its metrics are missing this time."""
_asked: weakref.WeakSet[Coordinator[Any]] = weakref.WeakSet()
"""Coordinators that have not looked yet: none gets a second event, however often it is read."""
_CLASSIC = {
    State.PREPARING: "numgroupspreparingrebalance",
    State.COMPLETING: "numgroupscompletingrebalance",
    State.STABLE: "numgroupsstable",
    State.EMPTY: "numgroupsempty",
    State.DEAD: "numgroupsdead",
}
_MANAGER = "kafka_coordinator_group_groupmetadatamanager_"
T = TypeVar("T")


def _in_turn(coordinator: Coordinator[Any], look: Callable[[Step], T]) -> T | None:
    """The result of `look` in the coordinator's turn; None: it ends, or is too busy.  It waits for
    no room among the requests."""
    if coordinator.core.stopped or coordinator in _asked:
        return None
    found: list[T] = []
    done = threading.Event()

    def event(step: Step) -> None:
        try:
            found.append(look(step))
        finally:
            _asked.discard(coordinator)
            done.set()

    _asked.add(coordinator)
    coordinator.post(event)
    if not done.wait(PATIENCE_S):
        return None
    return found[0] if found else None


class _Partitions(NamedTuple):
    """The partitions of a journal."""

    active: list[int]
    loading: int
    failed: int


def _partitions(core: Any) -> _Partitions:
    return _Partitions(list(core.shards), len(core.loading), len(core.unread))


class _GroupRow(NamedTuple):
    """A group."""

    members: int
    state: str
    offsets: dict[str, dict[int, int]]
    """By topic and partition."""


class _Groups(NamedTuple):
    """The groups of one partition of the journal."""

    classic: Counter[State]
    newer: Counter[Enum]
    """Those whose members heartbeat, of any type."""
    offsets: int
    rows: dict[str, _GroupRow]


def _row(group: Group, *, offsets: bool) -> _GroupRow:
    """`offsets`: whether they are shown."""
    found = {topic: {number: one.offset for number, one in those.items()}
             for topic, those in group.offsets.items()} if offsets else {}  # fmt: skip
    newer = group.newer
    if newer is not None and not group.is_classic:
        return _GroupRow(len(newer.members), newer.state.value, found)
    return _GroupRow(len(group.members), group.state.value, found)


def _names(core: GroupCoordinatorState, number: int, _step: Step) -> list[str]:
    shard = core.shards.get(number)
    return [] if shard is None else [one.group_id for one in shard.live()]


def _look(
    core: GroupCoordinatorState, number: int, shown: set[str], room: int, _step: Step
) -> _Groups:
    """`shown`: the groups that are described; `room`: committed offsets in these."""
    shard = core.shards.get(number)
    found = _Groups(Counter(), Counter(), 0, {})
    offsets = 0
    for group in () if shard is None else shard.groups.values():
        count = sum(map(len, group.offsets.values()))
        offsets += count
        newer = group.newer
        if newer is not None and not group.is_classic:
            found.newer[newer.state] += 1
        else:
            found.classic[group.state] += 1
        if group.group_id in shown and group.state is not State.DEAD:
            fits = count <= room
            room -= count if fits else 0
            found.rows[group.group_id] = _row(group, offsets=fits)
    return found._replace(offsets=offsets)


def read_groups(
    readings: Readings, coordinator: Coordinator[GroupCoordinatorState], labels: Labels[str],
    room: int, logs: Mapping[TopicPartition, Any],
) -> None:  # fmt: skip
    """Read the groups; none are read while the coordinator ends.

    `room`: how many committed offsets are shown at most; `logs`: as from log_states.
    """
    core = coordinator.core
    first = _in_turn(coordinator, lambda _: (_partitions(core), core.weight.bytes))
    if first is None:
        return
    partitions, weight_bytes = first
    name = "kafka_server_group_coordinator_metrics_num_partitions"
    _count_partitions(readings, name, partitions)
    names: list[str] = []
    for number in partitions.active:
        some = _in_turn(coordinator, partial(_names, core, number))
        if some is None:
            return
        names += some
    shown = labels.shown(names)
    all_found = _Groups(Counter(), Counter(), 0, {})
    for number in partitions.active:
        found = _in_turn(coordinator, partial(_look, core, number, shown, room))
        if found is None:
            return
        room -= sum(len(those) for row in found.rows.values() for those in row.offsets.values())
        all_found.classic.update(found.classic)
        all_found.newer.update(found.newer)
        all_found.rows.update(found.rows)
        all_found = all_found._replace(offsets=all_found.offsets + found.offsets)
    readings.add("kafkalog_group_coordinator_bytes", weight_bytes)
    _show(readings, all_found, logs)


def _count_partitions(readings: Readings, name: str, partitions: _Partitions) -> None:
    counts = {"active": len(partitions.active), "loading": partitions.loading,
              "failed": partitions.failed}  # fmt: skip
    for state, count in counts.items():
        readings.add(name, count, state=state)


_NEWER: Mapping[str, type[Enum]] = {
    "consumer": ConsumerState, "share": ShareState, "streams": StreamsGroupState,
}  # fmt: skip
"""The states of groups whose members heartbeat, by type."""


def _show(readings: Readings, found: _Groups, logs: Mapping[TopicPartition, Any]) -> None:
    readings.add(f"{_MANAGER}numgroups", sum(found.classic.values()))
    readings.add(f"{_MANAGER}numoffsets", found.offsets)
    for state, name in _CLASSIC.items():
        readings.add(_MANAGER + name, found.classic[state])
    for kind, states in _NEWER.items():
        name = f"kafka_server_group_coordinator_metrics_{kind}_group_count"
        for newer in states:
            readings.add(name, found.newer[newer], state=newer.name.lower())
    for group, row in sorted(found.rows.items()):
        readings.add("kafkalog_group_members", row.members, group=group)
        readings.add("kafkalog_group_state", 1, group=group, state=row.state)
        lags = []
        for topic, numbers in sorted(row.offsets.items()):
            for number, offset in sorted(numbers.items()):
                where = {"group": group, "topic": topic, "partition": str(number)}
                readings.add("kafkalog_group_offset", offset, **where)
                log = logs.get(TopicPartition(topic, number))
                if log is not None:
                    lags.append(max(log.high_watermark - offset, 0))
                    readings.add("kafkalog_group_lag", lags[-1], **where)
        if lags:
            readings.add("kafkalog_group_lag_sum", sum(lags), group=group)


def read_transactions(
    readings: Readings, coordinator: Coordinator[TransactionCoordinatorState]
) -> None:
    """Read the transactional ids; none are read while the coordinator ends."""
    core = coordinator.core
    partitions = _in_turn(coordinator, lambda _: _partitions(core))
    if partitions is None:
        return
    states: Counter[TransactionState] = Counter()
    oldest_ms = 0
    for number in partitions.active:
        found = _in_turn(coordinator, partial(_ids, core, number))
        if found is None:
            return
        states.update(found[0])
        oldest_ms = max(oldest_ms, found[1])
    name = "kafkalog_transaction_coordinator_partitions"
    _count_partitions(readings, name, partitions)
    for state in TransactionState:
        readings.add("kafkalog_transactions", states[state], state=state.title)
    readings.add("kafkalog_transaction_open_seconds", oldest_ms / 1000)


def _ids(
    core: TransactionCoordinatorState, number: int, step: Step
) -> tuple[Counter[TransactionState], int]:
    states: Counter[TransactionState] = Counter()
    oldest_ms = 0
    shard = core.shards.get(number)
    for one in () if shard is None else shard.live():
        states[one.status.state] += 1
        if not one.status.over and one.status.start_ms >= 0:
            oldest_ms = max(oldest_ms, step.wall_ms - one.status.start_ms)
    return states, oldest_ms
