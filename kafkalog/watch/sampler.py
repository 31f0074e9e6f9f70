"""Asks a cluster how it is, through its protocol only: any Kafka can be asked.

A part that the user may not see, that the brokers do not know, or that fails, says so in the
sample's problems; the other parts go on.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from itertools import chain
from typing import TYPE_CHECKING, TypeVar

from kafkalog import errors
from kafkalog.client.calls.nodes import ClusterInfo, LogDir
from kafkalog.client.calls.quorum import QuorumInfo
from kafkalog.client.calls.results import Results
from kafkalog.client.calls.transactions import TransactionInfo, TransactionListing
from kafkalog.clock import Clock, SystemClock
from kafkalog.types import FoundOffset, TopicPartition
from kafkalog.watch.pace import Budget, next_at_s, next_slice
from kafkalog.watch.sample import (
    CLUSTER,
    GROUPS,
    MEMBERS,
    OFFSETS,
    OPEN,
    POSITIONS,
    QUORUM,
    SIZES,
    TOPICS,
    TRANSACTIONS,
    GroupSample,
    Positions,
    Sample,
    Seen,
)

if TYPE_CHECKING:
    from kafkalog.client.admin import Admin
    from kafkalog.client.calls.groups import GroupInfo, GroupListing
    from kafkalog.client.link.metadata import TopicInfo

__all__ = ["PATIENCE_MS", "Sampler"]

PATIENCE_MS = 3_000
"""How long one part waits for its answers; a dead node delays a round by this much."""
SHARE = "share"
T = TypeVar("T")


class Sampler:
    """Samples of one cluster.  One thread at a time; the Admin may have other users."""

    def __init__(
        self,
        admin: Admin,
        *,
        budget: Budget = Budget(),  # noqa: B008
        patience_ms: int = PATIENCE_MS,
        clock: Clock | None = None,
    ) -> None:
        """Nothing is asked yet.  `admin` stays its owner's."""
        self._admin = admin
        self._budget = budget
        self._patience_ms = patience_ms
        self._clock: Clock = SystemClock() if clock is None else clock
        self._again_s: dict[str, float] = {}
        """When each whole part is due."""
        self._problems: dict[str, str] = {}
        self._cluster: ClusterInfo | None = None
        self._quorum: QuorumInfo | None = None
        self._topics: Mapping[str, TopicInfo] = {}
        self._partitions: list[TopicPartition] = []
        """All that have a leader, sorted."""
        self._dirs: Mapping[int, tuple[LogDir, ...]] = {}
        self._dirs_at_s = 0.0
        self._groups: list[GroupListing] = []
        self._transactions: list[TransactionListing] = []
        self._last_partition: TopicPartition | None = None
        self._last_group: str | None = None

    def sample(self, topics: Collection[str] = (), groups: Collection[str] = ()) -> Sample:
        """Ask once.  `topics`, `groups`: the visible ones, which are asked in every round, before
        the others, as far as the budget allows.

        Raises: Closed, ForkedHandle: the Admin cannot be used any more.
        """
        if not self._whole():
            return self._made({}, {}, {}, ())
        found = self._groups_now(groups)
        read = (one.positions.offsets for one in found.values() if one.positions is not None)
        starts, ends = self._offsets(topics, sorted(set(chain.from_iterable(read))))
        return self._made(found, starts, ends, self._open())

    def _made(
        self,
        groups: dict[str, GroupSample],
        starts: dict[TopicPartition, int],
        ends: dict[TopicPartition, Seen],
        open_: tuple[TransactionInfo, ...],
    ) -> Sample:
        listed = {one.group: GroupSample(one, None, None) for one in self._groups}
        return Sample(
            self._clock.now_ms(), self._clock.monotonic_s(), self._cluster, self._quorum,
            self._topics, starts, ends, self._dirs, self._dirs_at_s, {**listed, **groups},
            tuple(self._transactions), open_, dict(self._problems),
        )  # fmt: skip

    # ---- parts -----------------------------------------------------------------------------

    def _part(self, name: str, ask: Callable[[], T], before: T) -> T:
        """The answer of a part; after a failure `before`, and the problem is kept."""
        self._problems.pop(name, None)
        try:
            return ask()
        except (errors.Closed, errors.ForkedHandle):
            raise
        except errors.KafkalogError as problem:
            self._problems[name] = str(problem)
            return before

    def _paced(self, name: str, ask: Callable[[], T], before: T) -> T:
        """As `_part`, of a part that comes whole: `before` while it is not due."""
        asked_s = self._clock.monotonic_s()
        if asked_s < self._again_s.get(name, 0.0):
            return before
        found = self._part(name, ask, before)
        if name not in self._problems:
            self._again_s[name] = next_at_s(asked_s, self._clock.monotonic_s())
        return found

    def _failed(self, name: str, problems: Iterable[errors.KafkalogError]) -> None:
        """Some of a part's things have no answer: keep how many, and the first reason."""
        first, *others = problems
        self._problems[name] = f"{first}; and {len(others)} more" if others else str(first)

    def _whole(self) -> bool:
        """Ask for what comes whole.  False: no broker answers."""
        admin, wait = self._admin, self._patience_ms
        self._cluster = self._part(CLUSTER, self._describe_cluster, self._cluster)
        if CLUSTER in self._problems:
            return False
        self._quorum = self._paced(QUORUM, lambda: admin.describe_quorum(wait), self._quorum)
        topics = self._paced(TOPICS, self._describe_topics, self._topics)
        if topics is not self._topics:
            self._topics = topics
            self._partitions = sorted(
                TopicPartition(name, number)
                for name, info in topics.items()
                for number, one in info.partitions.items()
                if one.leader >= 0
            )
        self._dirs = self._paced(SIZES, self._log_dirs, self._dirs)
        self._groups = self._paced(GROUPS, lambda: admin.list_groups(timeout_ms=wait), self._groups)
        self._transactions = self._paced(
            TRANSACTIONS, lambda: admin.list_transactions(timeout_ms=wait), self._transactions
        )
        return True

    def _describe_cluster(self) -> ClusterInfo:
        try:
            return self._admin.describe_cluster(fenced=True, timeout_ms=self._patience_ms)
        except errors.UnsupportedVersion:
            return self._admin.describe_cluster(timeout_ms=self._patience_ms)

    def _describe_topics(self) -> Mapping[str, TopicInfo]:
        return self._admin.describe_topics(None, self._patience_ms).done

    def _log_dirs(self) -> Mapping[int, tuple[LogDir, ...]]:
        at_s = self._clock.monotonic_s()
        found = self._admin.describe_log_dirs(self._serving(), self._patience_ms)
        self._dirs_at_s = at_s
        if found.errors:
            self._failed(SIZES, found.errors.values())
        return found.done

    def _serving(self) -> list[int]:
        nodes = () if self._cluster is None else self._cluster.nodes
        return [one.node for one in nodes if not one.fenced]

    # ---- slices ----------------------------------------------------------------------------

    def _groups_now(self, wanted: Collection[str]) -> dict[str, GroupSample]:
        """The groups whose turn it is."""
        listed = {one.group: one for one in self._groups}
        first = [name for name in wanted if name in listed]
        names, self._last_group = next_slice(
            list(listed), first, self._last_group, self._budget.groups
        )
        infos: Results[str, GroupInfo] = Results({}, {})
        if names:
            infos = self._part(
                MEMBERS, lambda: self._admin.describe_groups(names, self._patience_ms), infos
            )
        else:
            self._problems.pop(MEMBERS, None)
        self._problems.pop(POSITIONS, None)
        if infos.errors:
            self._failed(MEMBERS, infos.errors.values())
        silent: dict[int, errors.Timeout] = {}
        return {name: self._group(listed[name], infos, silent) for name in names}

    def _group(
        self,
        listing: GroupListing,
        infos: Results[str, GroupInfo],
        silent: dict[int, errors.Timeout],
    ) -> GroupSample:
        """`silent`: coordinators that did not answer in this round, and are not asked again."""
        name = listing.group
        info, problem = infos.done.get(name), infos.errors.get(name)
        if problem is not None:
            return GroupSample(listing, None, None, str(problem))
        if info is not None and info.state == "Dead" != listing.state:
            info = None  # of a type that this client cannot describe
        node = -1 if info is None else info.coordinator
        if node in silent:
            return GroupSample(listing, info, None, str(silent[node]))
        try:
            return GroupSample(listing, info, self._positions(listing))
        except (errors.Closed, errors.ForkedHandle):
            raise
        except errors.KafkalogError as failed:
            if isinstance(failed, errors.Timeout):
                silent[node] = failed
            self._problems.setdefault(POSITIONS, str(failed))
            return GroupSample(listing, info, None, str(failed))

    def _positions(self, listing: GroupListing) -> Positions:
        name, wait = listing.group, self._patience_ms
        at_s = self._clock.monotonic_s()
        if listing.kind == SHARE:
            begun = self._admin.list_share_group_offsets(name, timeout_ms=wait)
            lags = {tp: one.lag for tp, one in begun.items() if one.lag is not None}
            return Positions(at_s, {tp: one.offset for tp, one in begun.items()}, lags)
        committed = self._admin.list_group_offsets(name, timeout_ms=wait)
        return Positions(at_s, {tp: one.offset for tp, one in committed.items()}, {})

    def _offsets(
        self, topics: Collection[str], read: Iterable[TopicPartition]
    ) -> tuple[dict[TopicPartition, int], dict[TopicPartition, Seen]]:
        """(starts of the wanted, ends of those whose turn it is).  `read`: what groups read."""
        self._problems.pop(OFFSETS, None)
        shown = [
            TopicPartition(name, number)
            for name in topics
            if name in self._topics
            for number, one in self._topics[name].partitions.items()
            if one.leader >= 0
        ][: self._budget.partitions]
        known = set(self._partitions)
        first = chain(shown, (tp for tp in read if tp in known))
        some, self._last_partition = next_slice(
            self._partitions, first, self._last_partition, self._budget.partitions
        )
        at_s = self._clock.monotonic_s()
        ends = self._listed(some, "latest")
        if shown and OFFSETS not in self._problems:
            return self._listed(shown, "earliest"), {tp: Seen(at_s, n) for tp, n in ends.items()}
        return {}, {tp: Seen(at_s, n) for tp, n in ends.items()}

    def _listed(self, partitions: list[TopicPartition], when: str) -> dict[TopicPartition, int]:
        times = dict.fromkeys(partitions, when)
        none: Results[TopicPartition, FoundOffset] = Results({}, {})

        def ask() -> Results[TopicPartition, FoundOffset]:
            return self._admin.list_offsets(times, timeout_ms=self._patience_ms)

        found = self._part(OFFSETS, ask, none) if partitions else none
        if found.errors:
            self._failed(OFFSETS, found.errors.values())
        return {tp: one.offset for tp, one in found.done.items() if one.offset >= 0}

    def _open(self) -> tuple[TransactionInfo, ...]:
        names = [one.name for one in self._transactions if one.state == "Ongoing"]
        names = names[: self._budget.transactions]
        self._problems.pop(OPEN, None)
        if not names:
            return ()
        found = self._part(
            OPEN,
            lambda: self._admin.describe_transactions(names, self._patience_ms),
            Results[str, TransactionInfo]({}, {}),
        )
        if found.errors:
            self._failed(OPEN, found.errors.values())
        return tuple(one for one in found.done.values() if one.state == "Ongoing")
