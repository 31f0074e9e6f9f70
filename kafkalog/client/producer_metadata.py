"""What a producer knows of the topics that it writes to, and when it asks for it again."""

from __future__ import annotations

from collections.abc import Callable

from kafkalog import errors
from kafkalog.client.accumulator import Accumulator, Lane
from kafkalog.client.cluster import Cluster, passing
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
    ) -> None:
        """`max_idle_s`: a topic that nothing was sent to for so long is asked for no more; `fail`:
        nothing that waits in a lane can be sent."""
        self.next_s = 0.0
        """When the brokers may be asked again."""
        self._cluster = cluster
        self._max_age_s = max_age_s
        self._max_idle_s = max_idle_s
        self._fail = fail
        self._refreshed_s = 0.0
        self._unknown: set[str] = set()  # topics that are to be asked for

    def leader(self, tp: TopicPartition) -> int | None:
        """The node that leads a partition; None: it is to be asked for."""
        info = self._cluster.topics.get(tp.topic)
        row = info and info.partitions.get(tp.partition)
        if row is None or row.leader < 0 or row.leader not in self._cluster.nodes:
            self._unknown.add(tp.topic)
            return None
        return row.leader

    def forget(self, topic: str) -> None:
        """What is known of it is no longer true."""
        self._unknown.add(topic)
        self._cluster.forget(topic)

    def refresh(self, now_s: float, waiting: Accumulator) -> None:
        """Ask for what is not known, once."""
        with waiting.lock:
            wanted = {*waiting.wanted, *self._unknown}
        known: set[str] = set()
        if old := now_s - self._refreshed_s >= self._max_age_s:
            known = waiting.forget_idle(now_s - self._max_idle_s) - wanted
        if not (wanted or known) or now_s < self.next_s:
            return
        self.next_s = now_s + self._cluster.options.retry_backoff_ms / 1000
        # One that was deleted does not come back because it was written to once.
        answered = self._ask(wanted, waiting, create=True) and self._ask(known, waiting)
        if old and answered:
            self._refreshed_s = now_s

    def _ask(self, topics: set[str], waiting: Accumulator, create: bool = False) -> bool:
        """Whether it was answered."""
        problem: errors.KafkalogError | None = None
        try:
            if topics:
                self._cluster.refresh_once(sorted(topics), create)
        except errors.KafkalogError as found:
            problem = found
        for topic in topics:
            info = self._cluster.topics.get(topic)
            if info is not None and info.partitions:
                waiting.know(topic, len(info.partitions))
                if all(p.leader >= 0 for p in info.partitions.values()):
                    self._unknown.discard(topic)
            else:
                self._not_known(topic, waiting, self._cluster.refused.get(topic, problem))
        return problem is None

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
