"""Creates the topics that clients of a cluster's member use, through the controller."""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import TYPE_CHECKING

from kafkalog.errors import KafkalogError
from kafkalog.logs.limit import limited
from kafkalog.metadata.requests import NewTopics
from kafkalog.server.failures import code_of, codes_by_name
from kafkalog.server.journal import REPLICATION_SETTINGS
from kafkalog.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from kafkalog.metadata.image import Change
    from kafkalog.metadata.requests import NewTopic
    from kafkalog.replication.membership import Membership
    from kafkalog.server.controller_apis.forwarder import ControllerForwarder

__all__ = ["TopicCreation"]

_logger = limited(__name__)

PATIENCE_S = 1.0
"""How long a request that needs a topic waits for its creation."""
LEADERS_S = 0.2
"""How long it then waits for the new topic's leaders."""
NAMES_MAX = 10_000
"""Topics being created because a client used them."""
UNDER_WAY = ErrorCode.REQUEST_TIMED_OUT


class TopicCreation:
    """Creates each topic once, however many clients use it.  Safe to use from many threads."""

    def __init__(self, member: Membership, forwarder: ControllerForwarder) -> None:
        """Nothing is created."""
        self._member, self._forwarder = member, forwarder
        self._lock = threading.Lock()  # guards what follows
        self._under_way: set[str] = set()
        self._postponed: dict[str, NewTopic] = {}  # until more nodes live
        self._news = threading.Condition()
        member.listen(self._changed)

    def create(self, wanted: NewTopics) -> dict[str, ErrorCode]:
        """As ControllerApis.create_topics; also REQUEST_TIMED_OUT if too many are in progress.

        At most one caller waits, and briefly, until the topics have leaders in this node's
        metadata: clients that want a topic retry.
        """
        early = {one.name for one in wanted.topics if self._postpones(one)}
        found = dict.fromkeys(early, ErrorCode.INVALID_REPLICATION_FACTOR)
        ready = [one for one in wanted.topics if one.name not in early]
        return found | self._create(wanted._replace(topics=ready)) if ready else found

    def _create(self, wanted: NewTopics) -> dict[str, ErrorCode]:
        with self._lock:
            room = NAMES_MAX - len(self._under_way)
            mine = [one for one in wanted.topics if one.name not in self._under_way][:room]
            alone = not self._under_way
            self._under_way.update(one.name for one in mine)
        found = dict.fromkeys((one.name for one in wanted.topics), UNDER_WAY)
        done = threading.Event()

        def run() -> None:
            try:
                made = codes_by_name(self._member.create_topics(wanted._replace(topics=mine)))
                self._await_leaders([name for name, code in made.items() if not code])
                found.update(made)
            except KafkalogError as problem:
                found.update((one.name, code_of(problem)) for one in mine)
            finally:
                with self._lock:
                    self._under_way.difference_update(one.name for one in mine)
                done.set()

        if mine:
            self._forwarder.submit(run)
            if alone and done.wait(PATIENCE_S):
                return found
        return dict.fromkeys(found, UNDER_WAY)

    def _await_leaders(self, names: list[str]) -> None:
        """Wait a moment for the controller's news of new topics."""

        def led() -> bool:
            topics = [self._member.image.topics.get(name) for name in names]
            return all(
                topic is not None and all(one.leader >= 0 for one in topic.partitions.values())
                for topic in topics
            )

        with self._news:
            self._news.wait_for(led, LEADERS_S)

    def _postpones(self, topic: NewTopic) -> bool:
        """True if a coordinator's topic must wait until more nodes of the cluster live (KIP-115);
        it is remembered until then."""
        setting = REPLICATION_SETTINGS.get(topic.name)
        if setting is None:
            return False
        living, wanted = len(self._member.image.living), topic.replication_factor
        with self._lock:
            known = self._postponed.pop(topic.name, None)
            if living >= wanted:
                return False
            self._postponed[topic.name] = topic
        if known is None:
            _logger.error(
                "node %d: %s is not created yet: found %d nodes alive, wanted %d, its %s; its "
                "clients get COORDINATOR_NOT_AVAILABLE until then",
                self._member.node, topic.name, living, wanted, setting,
            )  # fmt: skip
        return True

    def _changed(self, change: Change) -> None:
        with self._news:
            self._news.notify_all()
        if change.old.brokers != change.new.brokers:
            self._create_postponed()

    def _create_postponed(self) -> None:
        """Create what had to wait, once enough nodes live: clients find it when they retry."""
        with self._lock:
            postponed = sorted(self._postponed.values())
        ready = [one for one in postponed if not self._postpones(one)]
        missing = [one for one in ready if one.name not in self._member.image.topics]
        if missing:
            wanted = NewTopics(missing)

            def run() -> None:
                with suppress(KafkalogError):
                    self._member.create_topics(wanted)

            self._forwarder.submit(run)
