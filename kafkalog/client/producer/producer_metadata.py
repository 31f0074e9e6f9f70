"""What a producer knows of the topics that it writes to, and when it asks for it again."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from kafkalog import errors
from kafkalog.client.buffer.accumulator import Accumulator, Lane
from kafkalog.client.link.cluster import Cluster
from kafkalog.client.link.failures import passing
from kafkalog.client.producer.background_calls import Line
from kafkalog.types import TopicPartition

__all__ = ["ProducerMetadata"]


class ProducerMetadata:
    """Partitions and their leaders.  The sender's thread only."""

    def __init__(
        self,
        cluster: Cluster,
        max_age_s: float,
        max_idle_s: float,
        fail: Callable[[Lane, errors.KafkalogError], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`max_idle_s`: a topic that nothing was sent to for so long is asked for no more; `fail`:
        nothing that waits in a lane can be sent."""
        self.next_s = 0.0
        """When the brokers may be asked again."""
        self._cluster = cluster
        self._max_age_s = max_age_s
        self._max_idle_s = max_idle_s
        self._fail = fail
        self._clock = clock
        self._refreshed_s = 0.0
        self._unknown: set[str] = set()  # topics that are to be asked for
        self._doubted: set[TopicPartition] = set()

    def leader(self, tp: TopicPartition) -> int | None:
        """The node that leads a partition; None: it is to be asked for."""
        info = self._cluster.topics.get(tp.topic)
        row = info and info.partitions.get(tp.partition)
        if (
            row is None or row.leader < 0 or row.leader not in self._cluster.nodes
            or tp in self._doubted
        ):  # fmt: skip
            self._unknown.add(tp.topic)
            return None
        return row.leader

    def doubt(self, tp: TopicPartition) -> None:
        """Another node leads it, perhaps: it is asked for again before anything goes there."""
        self._doubted.add(tp)
        self._unknown.add(tp.topic)

    def doubt_node(self, node: int) -> None:
        """So for all that a node leads."""
        for name, info in self._cluster.topics.items():
            for row in info.partitions.values():
                if row.leader == node:
                    self._doubted.add(TopicPartition(name, row.partition))

    def refresh(self, now_s: float, waiting: Accumulator, line: Line) -> None:
        """Ask for what is not known, once."""
        if not line.free or now_s < self.next_s:
            return
        with waiting.lock:
            wanted = {*waiting.wanted, *self._unknown}
        known: set[str] = set()
        if old := now_s - self._refreshed_s >= self._max_age_s:
            known = waiting.forget_idle(now_s - self._max_idle_s) - wanted
        if not (wanted or known):
            return

        def ask(cluster: Cluster) -> dict[str, errors.KafkalogError]:
            refused: dict[str, errors.KafkalogError] = {}
            # One that was deleted does not come back because it was written to once.
            for topics, create in ((wanted, True), (known, False)):
                if topics:
                    cluster.refresh_once(sorted(topics), create)
                    refused |= cluster.refused
            return refused

        def then(
            refused: dict[str, errors.KafkalogError] | None, problem: BaseException | None
        ) -> None:
            self.next_s = self._clock() + self._cluster.options.retry_backoff_ms / 1000
            if problem is None:
                if old:
                    self._refreshed_s = now_s
            elif not isinstance(problem, errors.KafkalogError):
                raise problem
            self._told(wanted | known, waiting, line.cluster, refused or {}, problem)

        line.begin(ask, then)

    def _told(
        self,
        topics: set[str],
        waiting: Accumulator,
        by: Cluster,
        refused: Mapping[str, errors.KafkalogError],
        problem: errors.KafkalogError | None,
    ) -> None:
        """What has come of asking; a failure takes nothing away that was known."""
        if problem is None:
            self._cluster.learn(by, topics)
            self._doubted = {tp for tp in self._doubted if tp.topic not in topics}
        self._cluster.reached |= by.reached
        for topic in topics:
            info = self._cluster.topics.get(topic) if problem is None else None
            if info is not None and info.partitions:
                waiting.know(topic, len(info.partitions))
                if all(p.leader >= 0 for p in info.partitions.values()):
                    self._unknown.discard(topic)
            else:
                self._not_known(topic, waiting, refused.get(topic, problem))

    def _not_known(
        self, topic: str, waiting: Accumulator, problem: errors.KafkalogError | None
    ) -> None:
        """`problem` None: there is no such topic."""
        reached = self._cluster.reached
        if problem is not None and passing(problem) and reached:
            return
        why = problem
        if why is None:
            why = errors.UnknownTopicOrPartition(f"the cluster has no topic {topic!r}")
        elif not reached:
            why = _lasting(why)
        with waiting.lock:
            if topic in waiting.wanted:
                waiting.wanted[topic] = why
                waiting.lock.notify_all()
            lanes = [lane for lane in waiting.lanes.values() if lane.tp.topic == topic]
        if problem is not None and not passing(problem):
            self._unknown.discard(topic)
            for lane in lanes:
                self._fail(lane, problem)


def _lasting(problem: errors.KafkalogError) -> errors.KafkalogError:
    """The same, for those who would try again: a cluster that was never reached is not waited
    for."""
    made = errors.PeerGone(str(problem))
    made.__cause__ = problem
    return made
