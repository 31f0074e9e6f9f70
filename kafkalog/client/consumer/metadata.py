"""The topics and partitions that a consumer wants, as the cluster has them."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from functools import partial
from uuid import UUID

from kafkalog import errors
from kafkalog.client.calls.groups import Ids
from kafkalog.client.consumer.core import ConsumerState
from kafkalog.client.consumer.group_membership import GroupMembership
from kafkalog.client.consumer.lookups import Lookups
from kafkalog.client.consumer.member import IN
from kafkalog.client.consumer.membership import Membership
from kafkalog.client.fetch.fetcher import Fetcher
from kafkalog.client.link.cluster import Cluster
from kafkalog.client.link.failures import few
from kafkalog.client.link.metadata import known_in
from kafkalog.config.consumer import ConsumerConfig
from kafkalog.types import TopicPartition

__all__ = ["ConsumerMetadata"]

_logger = logging.getLogger(__name__)


class ConsumerMetadata:
    """Looks up the topics of one consumer, and partitions that the cluster lacks.  For the owner's
    thread only; `until_s` is in time.monotonic."""

    def __init__(
        self, cluster: Cluster, config: ConsumerConfig, state: ConsumerState, fetcher: Fetcher
    ) -> None:
        self.lookups = Lookups(cluster)
        self._cluster = cluster
        self._state = state
        self._missing = state.missing
        self._fetcher = fetcher
        self._no_internal = config.exclude_internal_topics
        self._create = config.allow_auto_create_topics
        self._names_s = 0.0
        """When names are looked up again, by the clock."""
        self._problem: errors.KafkalogError | None = None
        """Raised by the next `check`."""

    def look_up(self, name: str, until_s: float, ask: Callable[[], None]) -> bool:
        """As Lookups.run; with something to read it does not wait."""
        if self._fetcher.positions:
            until_s = time.monotonic()
        return self.lookups.run(name, until_s, ask)

    def due_s(self) -> list[float]:
        """When topics and missing partitions are looked up next, by the clock."""
        due_s: list[float] = []
        if self._state.subscription and not self.lookups.waits("topics"):
            due_s.append(self._missing.next_lookup_s)
        if self._missing.partitions and not self.lookups.waits("missing partitions"):
            due_s.append(self._missing.next_retry_s)
        return due_s

    def check(self) -> None:
        """Raises: UnknownTopicOrPartition, once for each topic or partition that is missing."""
        problem, self._problem = self._problem, None
        if problem is not None:
            raise problem

    def topic_ids(self, partitions: Iterable[TopicPartition]) -> Ids:
        """The known ids of all topics that are read, and of these partitions' topics.  They outlive
        the cluster's metadata, which is forgotten when a topic is recreated."""
        ids = self._state.topic_ids
        for name in {tp.topic for tp in partitions}:
            if (info := self._cluster.topics.get(name)) is not None:
                ids[name] = info.topic_id
        return dict(ids)

    # ---- topics --------------------------------------------------------------------------------

    @property
    def searching(self) -> bool:
        """True if the topics of a pattern are not known yet: there is nothing to join for."""
        topics = self._state.subscription
        return topics.pattern and not topics.topics and not self._missing.next_lookup_s

    def partitions(self, until_s: float) -> list[TopicPartition] | None:
        """Every partition of the topics; None: it is not time to look them up, or not done yet."""
        found: list[TopicPartition] = []

        def ask() -> None:
            found[:] = self._partitions()

        return found if self._look_up_topics(until_s, ask) else None

    def note_changes(self, membership: Membership | GroupMembership, until_s: float) -> None:
        """Note whether a group's topics or partitions have changed since the last assignment, if it
        is time to look them up."""
        self._look_up_topics(until_s, lambda: self._note_changes(membership))

    def _look_up_topics(self, until_s: float, ask: Callable[[], None]) -> bool:
        now_s = self._cluster.clock.monotonic_s()
        if not self._missing.due(now_s):
            return False
        before_s = self._missing.begin_lookup(now_s)
        done = False
        try:
            done = self.look_up("topics", until_s, ask)
        finally:
            if not done:
                self._missing.next_lookup_s = before_s
        return done

    def _partitions(self) -> list[TopicPartition]:
        cluster, subscription = self._cluster, self._state.subscription
        if not subscription.look(cluster, self._no_internal):
            cluster.refresh(subscription.topics, self._create and not subscription.pattern)
        found: list[TopicPartition] = []
        absent: set[str] = set()
        for name in sorted(subscription.topics):
            try:
                if name not in self._missing.topics:  # it may have just been created
                    cluster.topic(name)
                found += (TopicPartition(name, p) for p in cluster.topics[name].partitions)
            except errors.UnknownTopicOrPartition as problem:
                self._problem = problem
                absent.add(name)
            except KeyError:
                absent.add(name)
        self._missing.miss_topics(absent, cluster.clock.monotonic_s())
        return found

    def _note_changes(self, membership: Membership | GroupMembership) -> None:
        cluster, state, member = self._cluster, self._state, membership.member
        subscription, absent = state.subscription, set[str]()
        if member.finds_topics and subscription.look(cluster, self._no_internal):
            state.changed = True
        if self._create and not subscription.pattern:
            cluster.refresh(subscription.topics, create=True)
            absent = subscription.topics - cluster.topics.keys()
        if member.state == IN and member.counts is not None:
            counts = membership.partition_counts(member.topics)
            absent |= member.topics - counts.keys()
            state.saw(counts)
        self.miss_topics(absent)

    def topic_names(self, topics: Iterable[UUID], until_s: float) -> dict[UUID, str]:
        """The names of topics by id; others are looked for again by later calls."""
        cluster, wanted = self._cluster, set(topics)
        subscription, now_s = self._state.subscription, cluster.clock.monotonic_s()
        names = None if subscription.pattern else subscription.topics
        if wanted - self._names_of(wanted).keys():
            if now_s >= self._names_s and self.look_up(
                "assigned topics", until_s, lambda: cluster.refresh(names)
            ):
                self._names_s = now_s + cluster.options.retry_backoff_ms / 1000
            self.lookups.behind = True
        return self._names_of(wanted)

    def _names_of(self, wanted: set[UUID]) -> dict[UUID, str]:
        known = self._cluster.topics.items()
        return {info.topic_id: name for name, info in known if info.topic_id in wanted}

    def miss_topics(self, topics: Iterable[str]) -> None:
        """The cluster lacks these topics: log each once, and look for them again soon."""
        if new := self._missing.miss_topics(topics, self._cluster.clock.monotonic_s()):
            _logger.warning("the cluster has no topic %s: looking for it again", few(new))

    # ---- partitions ----------------------------------------------------------------------------

    def miss(self, partitions: Iterable[TopicPartition]) -> None:
        """The cluster lacks these partitions: log each once or, if it is assigned by hand, raise it
        in the next `check`."""
        subscribed = bool(self._state.subscription)
        gone = self._missing.miss_partitions(
            partitions, self._cluster.clock.monotonic_s(), subscribed
        )
        if not gone:
            return
        names = few([f"{tp.topic}-{tp.partition}" for tp in gone])
        problem = errors.UnknownTopicOrPartition(f"the cluster has no {names}")
        if subscribed:
            _logger.warning("%s: not read any more; other assigned partitions are", problem)
        else:
            self._problem = problem

    def find_missing(self, until_s: float) -> list[TopicPartition]:
        """Note partitions that the fetcher has set aside; returns those that the cluster has again,
        none before it is time to look."""
        self.miss(self._fetcher.core.missing)
        now_s = self._cluster.clock.monotonic_s()
        names = self._missing.due_topics(now_s)
        if not names or not self.look_up(
            "missing partitions", until_s, lambda: self._cluster.refresh_once(names)
        ):
            return []
        there = partial(known_in, self._cluster.topics)
        return self._missing.found(there, now_s, bool(self._state.subscription))
