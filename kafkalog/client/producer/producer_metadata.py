"""A producer's metadata of its topics; questions.py decides what to ask."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from kafkalog import errors
from kafkalog.client.buffer.accumulator import Accumulator, PartitionQueue
from kafkalog.client.link.cluster import Cluster
from kafkalog.client.link.failures import passing
from kafkalog.client.producer.background_calls import Line
from kafkalog.client.producer.questions import Questions

__all__ = ["ProducerMetadata"]

DOUBLINGS_MAX = 30


class ProducerMetadata(Questions):
    """Partitions and their leaders: asks the brokers the questions.  For the sender's
    thread only."""

    def __init__(
        self,
        cluster: Cluster,
        max_age_s: float,
        max_idle_s: float,
        fail: Callable[[PartitionQueue, errors.KafkalogError], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`fail`: called when nothing in a queue can be sent.  The rest: as Questions."""
        super().__init__(cluster, max_age_s, max_idle_s)
        self._cluster = cluster
        self._fail = fail
        self._clock = clock
        self._failures = 0

    def refresh(self, now_s: float, waiting: Accumulator, line: Line) -> None:
        """Ask once for what is not known."""
        if not line.free:
            return
        with waiting.lock:
            waited = list(waiting.wanted)
        question = self.asks(now_s, waited, waiting.forget_idle)
        if question is None:
            return

        def ask(cluster: Cluster) -> dict[str, errors.KafkalogError]:
            refused: dict[str, errors.KafkalogError] = {}
            for topics, create in ((question.wanted, True), (question.known, False)):
                if topics:
                    cluster.refresh_once(sorted(topics), create)
                    refused |= cluster.refused
            return refused

        def then(
            refused: dict[str, errors.KafkalogError] | None, problem: BaseException | None
        ) -> None:
            if problem is not None and not isinstance(problem, errors.KafkalogError):
                raise problem
            topics = set(question.wanted | question.known)
            self._report(topics, waiting, line.cluster, refused or {}, problem)
            self.answered(question, self._clock() + self._pause_s(problem), problem is None)

        line.begin(ask, then)

    def _pause_s(self, problem: BaseException | None) -> float:
        """The time until the next question, which grows while brokers refuse to answer."""
        options = self._cluster.options
        self._failures = 0 if problem is None else min(self._failures + 1, DOUBLINGS_MAX)
        pause_ms = options.retry_backoff_ms << max(self._failures - 1, 0)
        return float(min(pause_ms, options.retry_backoff_max_ms)) / 1000

    def _report(
        self,
        topics: set[str],
        waiting: Accumulator,
        by: Cluster,
        refused: Mapping[str, errors.KafkalogError],
        problem: errors.KafkalogError | None,
    ) -> None:
        """Learn the answer; after a failure, what was known stays known."""
        if problem is None:
            self._cluster.learn(by, topics)
        self._cluster.reached |= by.reached
        for topic in topics:
            info = self._cluster.topics.get(topic) if problem is None else None
            if info is not None and info.partitions:
                waiting.know(topic, len(info.partitions))
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
        elif not reached and not isinstance(why, errors.AuthenticationFailed):
            why = _lasting(why)
        with waiting.lock:
            if topic in waiting.wanted:
                waiting.wanted[topic] = why
                waiting.lock.notify_all()
            queues = [queue for queue in waiting.queues.values() if queue.tp.topic == topic]
        if problem is not None and not passing(problem):
            for queue in queues:
                self._fail(queue, problem)


def _lasting(problem: errors.KafkalogError) -> errors.KafkalogError:
    """The same failure, not retriable: the producer does not wait for a cluster that it has never
    reached."""
    made = errors.PeerGone(str(problem))
    made.__cause__ = problem
    return made
