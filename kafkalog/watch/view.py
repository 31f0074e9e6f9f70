"""Rates and lag from one sample to the next.

Pure: `advance(state, sample) -> (state, view)`.  The state has, for each partition and group, the
last number that was answered and when; nothing else is kept.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from itertools import islice
from typing import NamedTuple
from uuid import UUID

from kafkalog.client.calls.groups import MemberInfo
from kafkalog.client.link.metadata import PartitionInfo, TopicInfo
from kafkalog.types import TopicPartition
from kafkalog.watch.sample import GroupSample, Positions, Sample, Seen

__all__ = [
    "GroupView",
    "LagView",
    "Mark",
    "NodeView",
    "PartitionView",
    "State",
    "TopicView",
    "Totals",
    "TransactionView",
    "View",
    "advance",
    "lags_of",
    "partitions_of",
]

PARTITIONS_MAX = 1_000_000
"""Partitions whose last numbers are kept, about 600 bytes each."""
GROUPS_MAX = 100_000


class Mark(NamedTuple):
    """The last number of something that grows, and how fast it grew."""

    seen: Seen
    per_s: float | None = None
    """None: not known yet, or it shrank."""


class Progress(NamedTuple):
    """A group, when it was last asked."""

    at_s: float
    committed: int
    """The sum of its offsets."""
    partitions: int
    """A hash of their names: with others, the sums cannot be compared."""
    members: int | None
    topics: int
    lag: int | None
    per_s: float | None
    problem: str


class Layout(NamedTuple):
    """The partitions of each node; counted again only for another answer about topics."""

    topics: Mapping[str, TopicInfo]
    """The answer."""
    leads: Mapping[int, int]
    """How many partitions a node leads, by its number."""
    replicas: Mapping[int, int]
    not_in_sync: Mapping[int, int]


class State(NamedTuple):
    """The numbers that the next step compares with."""

    ids: Mapping[str, UUID] = {}
    """The ids of topics: a recreated topic begins again."""
    ends: Mapping[TopicPartition, Mark] = {}
    bytes: Mapping[TopicPartition, Mark] = {}
    """The sizes of the leaders' logs."""
    groups: Mapping[str, Progress] = {}
    dirs_at_s: float = -1.0
    """When the sizes were asked."""
    layout: Layout = Layout({}, {}, {}, {})


class NodeView(NamedTuple):
    """A broker."""

    node: int
    host: str
    port: int
    rack: str | None
    state: str
    """up, fenced; gone: it has replicas, but the cluster does not know it now."""
    controller: bool
    leads: int
    replicas: int
    not_in_sync: int
    size_bytes: int | None
    """None: not told."""
    usable_bytes: int | None


class TopicView(NamedTuple):
    """A topic; rates are of the partitions whose rates are known."""

    name: str
    internal: bool
    partitions: int
    replication: int
    under_replicated: int
    offline: int
    records_per_s: float | None
    bytes_per_s: float | None
    """How fast the leaders' logs grow; None also while retention removes more than comes."""
    size_bytes: int | None
    """The size of the leaders' logs."""


class PartitionView(NamedTuple):
    """A partition."""

    partition: int
    leader: int
    """-1: none now."""
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    start: int | None
    """None: not asked."""
    end: int | None
    size_bytes: int | None
    records_per_s: float | None


class GroupView(NamedTuple):
    """A group."""

    name: str
    kind: str
    state: str
    members: int | None
    """None: not asked yet, or not answered."""
    topics: int
    """Topics for which it has offsets."""
    lag: int | None
    per_s: float | None
    """Records done per second; None: not known yet, or its offsets went back."""
    problem: str
    """Why it did not answer; empty: no failure."""


class LagView(NamedTuple):
    """A partition of a group."""

    topic: str
    partition: int
    offset: int
    end: int | None
    lag: int | None
    member: MemberInfo | None


class TransactionView(NamedTuple):
    """An ongoing transaction."""

    name: str
    coordinator: int
    producer_id: int
    age_ms: int
    partitions: int


class Totals(NamedTuple):
    """Sums over the cluster."""

    topics: int
    partitions: int
    under_replicated: int
    offline: int
    groups: int
    lag: int
    """The sum of all lags that are known."""
    records_per_s: float | None
    bytes_per_s: float | None
    size_bytes: int | None


class View(NamedTuple):
    """A cluster at one moment."""

    at_ms: int
    cluster_id: str
    controller: int
    """-1: not known."""
    nodes: tuple[NodeView, ...]
    """Sorted by number, as are the others by name."""
    topics: tuple[TopicView, ...]
    groups: tuple[GroupView, ...]
    open: tuple[TransactionView, ...]
    """The oldest first."""
    transactions: Mapping[str, int]
    """How many transactional ids there are, by state."""
    totals: Totals
    problems: Mapping[str, str]
    """By part: why there is no answer, or not a whole one."""


def advance(state: State, sample: Sample) -> tuple[State, View]:
    """The next state and the view of a sample."""
    ids = {name: info.topic_id for name, info in sample.topics.items()}
    gone = {name for name, topic_id in state.ids.items() if ids.get(name) != topic_id}
    ends = _marks(_without(state.ends, gone), sample.ends, sample.topics)
    bytes_ = _without(state.bytes, gone)
    if sample.dirs_at_s != state.dirs_at_s:
        bytes_ = _marks(bytes_, _sizes(sample), sample.topics)
    groups = {
        name: progress
        for name, one in islice(sample.groups.items(), GROUPS_MAX)
        if (progress := _progress(state.groups.get(name), one, ends)) is not None
    }
    layout = state.layout
    if layout.topics is not sample.topics:
        layout = _layout(sample.topics)
    after = State(ids, ends, bytes_, groups, sample.dirs_at_s, layout)
    return after, _view(sample, after)


# ---- what is kept ----------------------------------------------------------------------------


def _sizes(sample: Sample) -> dict[TopicPartition, Seen]:
    """The size of each partition at its leader."""
    found = {}
    for node, dirs in sample.dirs.items():
        for one in dirs:
            for tp, replica in one.replicas.items():
                info = sample.topics.get(tp.topic)
                row = None if info is None else info.partitions.get(tp.partition)
                if row is not None and row.leader == node and not replica.future:
                    found[tp] = Seen(sample.dirs_at_s, replica.size_bytes)
    return found


def _without(
    marks: Mapping[TopicPartition, Mark], gone: Collection[str]
) -> Mapping[TopicPartition, Mark]:
    """The marks of other topics than those that were deleted, or recreated."""
    return {tp: mark for tp, mark in marks.items() if tp.topic not in gone} if gone else marks


def _marks(
    before: Mapping[TopicPartition, Mark],
    seen: Mapping[TopicPartition, Seen],
    topics: Mapping[str, TopicInfo],
) -> dict[TopicPartition, Mark]:
    """The marks after new numbers."""
    marks = dict(before)
    for tp, now in seen.items():
        if tp in marks or (len(marks) < PARTITIONS_MAX and tp.topic in topics):
            marks[tp] = _mark(marks.get(tp), now)
    return marks


def _mark(before: Mark | None, now: Seen) -> Mark:
    if before is None:
        return Mark(now)
    passed_s = now.at_s - before.seen.at_s
    if passed_s <= 0:
        return before  # the same answer as before
    grown = now.value - before.seen.value
    return Mark(now, grown / passed_s if grown >= 0 else None)


def _progress(
    before: Progress | None, one: GroupSample, ends: Mapping[TopicPartition, Mark]
) -> Progress | None:
    """A group after its answer; None: it has never answered."""
    found = one.positions
    if found is None:
        if before is None and not one.problem and one.info is None:
            return None
        base = before or Progress(0.0, 0, 0, None, 0, None, None, "")
        members = base.members if one.info is None else len(one.info.members)
        return base._replace(members=members, problem=one.problem or base.problem)
    committed, names = sum(found.offsets.values()), hash(frozenset(found.offsets))
    per_s = None
    if before is not None and before.at_s and before.partitions == names:
        passed_s, grown = found.at_s - before.at_s, committed - before.committed
        per_s = grown / passed_s if passed_s > 0 and grown >= 0 else None
    lags = [row.lag for row in _lags(found, ends, {}) if row.lag is not None]
    members = None if one.info is None else len(one.info.members)
    topics = len({tp.topic for tp in found.offsets})
    lag = sum(lags) if lags or not found.offsets else None
    return Progress(found.at_s, committed, names, members, topics, lag, per_s, one.problem)


# ---- what is shown ---------------------------------------------------------------------------


def lags_of(state: State, sample: Sample, group: str) -> list[LagView]:
    """The partitions of a group that this sample asked; empty if it did not."""
    one = sample.groups.get(group)
    if one is None or one.positions is None:
        return []
    members = () if one.info is None else one.info.members
    owners = {tp: member for member in members for tp in member.assignment}
    return _lags(one.positions, state.ends, owners)


def _lags(
    found: Positions,
    ends: Mapping[TopicPartition, Mark],
    owners: Mapping[TopicPartition, MemberInfo],
) -> list[LagView]:
    rows = []
    for tp, offset in sorted(found.offsets.items()):
        mark = ends.get(tp)
        end = None if mark is None else mark.seen.value
        lag = found.lags.get(tp, None if end is None else max(0, end - offset))
        rows.append(LagView(*tp, offset, end, lag, owners.get(tp)))
    return rows


def partitions_of(state: State, sample: Sample, topic: str) -> list[PartitionView]:
    """The partitions of a topic; empty if there is none of this name."""
    info = sample.topics.get(topic)
    rows = []
    for number, one in () if info is None else sorted(info.partitions.items()):
        tp = TopicPartition(topic, number)
        end, size = state.ends.get(tp), state.bytes.get(tp)
        rows.append(
            PartitionView(
                number, one.leader, one.replicas, one.isr, sample.starts.get(tp),
                None if end is None else end.seen.value,
                None if size is None else size.seen.value,
                None if end is None else end.per_s,
            )
        )  # fmt: skip
    return rows


def _view(sample: Sample, state: State) -> View:
    nodes = () if sample.cluster is None else sample.cluster.nodes
    serving = {one.node for one in nodes if not one.fenced}
    topics = tuple(
        _topic(info, serving, state.ends, state.bytes) for _, info in sorted(sample.topics.items())
    )
    groups = tuple(
        _group(one, state.groups.get(name)) for name, one in sorted(sample.groups.items())
    )
    controller = sample.quorum.leader if sample.quorum else -1
    if sample.quorum is None and sample.cluster is not None:
        controller = sample.cluster.controller
    open_ = [
        TransactionView(
            one.name, one.coordinator, one.producer_id, max(0, sample.at_ms - one.start_ms),
            len(one.partitions),
        )
        for one in sample.open
    ]  # fmt: skip
    return View(
        sample.at_ms,
        sample.cluster.cluster_id if sample.cluster else "",
        controller,
        _nodes(sample, state.layout, controller, serving),
        topics,
        groups,
        tuple(sorted(open_, key=lambda one: (-one.age_ms, one.name))),
        dict(sorted(Counter(one.state for one in sample.transactions).items())),
        _totals(topics, groups),
        dict(sample.problems),
    )


def _totals(topics: tuple[TopicView, ...], groups: tuple[GroupView, ...]) -> Totals:
    return Totals(
        len(topics),
        sum(one.partitions for one in topics),
        sum(one.under_replicated for one in topics),
        sum(one.offline for one in topics),
        len(groups),
        sum(one.lag or 0 for one in groups),
        _sum(one.records_per_s for one in topics),
        _sum(one.bytes_per_s for one in topics),
        _total(one.size_bytes for one in topics),
    )


def _sum(numbers: Iterable[float | None]) -> float | None:
    """The sum of the known numbers; None if none is known."""
    known = [number for number in numbers if number is not None]
    return sum(known) if known else None


def _total(numbers: Iterable[int | None]) -> int | None:
    known = [number for number in numbers if number is not None]
    return sum(known) if known else None


def _topic(
    info: TopicInfo,
    serving: Collection[int],
    ends: Mapping[TopicPartition, Mark],
    bytes_: Mapping[TopicPartition, Mark],
) -> TopicView:
    rows = list(info.partitions.values())
    keys = [TopicPartition(info.name, row.partition) for row in rows]
    sizes = [mark for key in keys if (mark := bytes_.get(key)) is not None]
    marks = [mark for key in keys if (mark := ends.get(key)) is not None]
    return TopicView(
        info.name, info.internal, len(rows), max((len(row.replicas) for row in rows), default=0),
        sum(len(row.isr) < len(row.replicas) for row in rows),
        sum(_offline(row, serving) for row in rows),
        _sum(mark.per_s for mark in marks), _sum(mark.per_s for mark in sizes),
        _total(mark.seen.value for mark in sizes),
    )  # fmt: skip


def _offline(row: PartitionInfo, serving: Collection[int]) -> bool:
    return row.leader not in serving


def _layout(topics: Mapping[str, TopicInfo]) -> Layout:
    leads: Counter[int] = Counter()
    replicas: Counter[int] = Counter()
    late: Counter[int] = Counter()
    for info in topics.values():
        for row in info.partitions.values():
            leads[row.leader] += 1
            replicas.update(row.replicas)
            late.update(node for node in row.replicas if node not in row.isr)
    return Layout(topics, leads, replicas, late)


def _nodes(
    sample: Sample, layout: Layout, controller: int, serving: Collection[int]
) -> tuple[NodeView, ...]:
    known = {} if sample.cluster is None else {one.node: one for one in sample.cluster.nodes}
    rows = []
    for node in sorted({*known, *layout.replicas}):
        one, dirs = known.get(node), sample.dirs.get(node)
        usable = [each.usable_bytes for each in dirs or () if each.usable_bytes >= 0]
        rows.append(
            NodeView(
                node, one.host if one else "", one.port if one else -1, one.rack if one else None,
                "gone" if one is None else "up" if node in serving else "fenced",
                node == controller, layout.leads.get(node, 0), layout.replicas.get(node, 0),
                layout.not_in_sync.get(node, 0),
                None if dirs is None else sum(
                    replica.size_bytes for each in dirs for replica in each.replicas.values()
                ),
                sum(usable) if usable else None,
            )
        )  # fmt: skip
    return tuple(rows)


def _group(one: GroupSample, progress: Progress | None) -> GroupView:
    name, protocol, state, kind = one.listing
    state = one.info.state if one.info is not None else state
    kind = kind or ("classic" if protocol else "")
    if progress is None:
        return GroupView(name, kind.lower(), state, None, 0, None, None, one.problem)
    return GroupView(
        name, kind.lower(), state, progress.members, progress.topics, progress.lag,
        progress.per_s, progress.problem,
    )  # fmt: skip
