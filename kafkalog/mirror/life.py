"""The connections of one life of a mirror, and its state in the target."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass

from kafkalog import errors
from kafkalog.client.admin import Admin
from kafkalog.client.calls.topics import NewTopic
from kafkalog.client.fetch.fetched import FetchOptions
from kafkalog.client.fetch.fetcher import Fetcher
from kafkalog.client.link.cluster import Cluster
from kafkalog.client.link.transport import Options
from kafkalog.client.login.security import security_of
from kafkalog.client.producer.producer import Producer
from kafkalog.config.client import ClientConfig
from kafkalog.mirror import state
from kafkalog.mirror.own import StateReader
from kafkalog.mirror.state import Owner, Progress
from kafkalog.mirror.wish import Counts, Side, Tell, Wish
from kafkalog.types import TopicPartition

__all__ = ["BATCH_BYTES", "WAIT_MS", "Life", "Replaced", "Run", "admin_of"]

CLIENT_ID = "kafkalog-mirror"
BATCH_BYTES = 512 << 10
"""For rebuilt batches: half of a topic's default limit."""
RECORD_BYTES_MAX = 1 << 30
"""The target decides how large a record may be."""
ANSWER_BYTES = 16 << 20
"""For a fetch, whose first batch may be larger."""
WAIT_MS = 500
SAID_MAX = 1_000
"""Different warnings that are remembered, so that each is given once."""


class Replaced(errors.ProducerFenced):
    """Another mirror with this name has started."""


def admin_of(side: Side, client_id: str | None = None) -> Admin:
    """An administrator of a cluster; nothing is sent yet."""
    config, token = side.config, side.token
    return Admin(side.where, client_id=client_id, config=config, oauth_token=token)


def cluster_of(side: Side) -> Cluster:
    """A cluster; nothing is sent yet."""
    security = security_of(ClientConfig(side.config), side.token)
    return Cluster(side.where, Options(client_id=CLIENT_ID, security=security))


@dataclass
class Run:
    """One call of `run` or `copy`: all its lives."""

    owner: Owner
    registered: bool = False
    """True if the target has stored it as the owner of the mirror's state."""


class Life:
    """A context manager; one thread."""

    fetcher: Fetcher

    def __init__(
        self, wish: Wish, counts: Counts, stop: threading.Event, tell: Tell, run: Run
    ) -> None:
        """Nothing is sent before the block begins."""
        self.wish = wish
        self.counts = counts
        self.warn = tell.warning
        self._tell = tell.progress
        self._stop = stop
        self._run = run
        self._stack = ExitStack()
        self._progress: dict[TopicPartition, Progress] = {}
        """By the source's partitions."""
        self._said: set[int] = set()
        """Hashes of warnings, which may have long names in them."""

    def _enter(self) -> None:
        wish, stack = self.wish, self._stack
        self.source = stack.enter_context(admin_of(wish.source, CLIENT_ID))
        self.target = stack.enter_context(admin_of(wish.target, CLIENT_ID))
        clusters = [one.describe_cluster().cluster_id for one in (self.source, self.target)]
        self.source_id, self.target_id = (one or "" for one in clusters)
        self.counts.reached = True
        name = wish.name or self.source_id
        if not name:
            raise errors.ArgumentError("name: the source's cluster has no id, wanted a name")
        self.own = f"{state.PREFIX}{name}"
        self._make_own()
        self._take_over()
        others = StateReader(wish.source, "source", CLIENT_ID, spans=False)
        self.others = stack.enter_context(others)
        self.cluster = stack.enter_context(cluster_of(wish.source))
        answer = min(ANSWER_BYTES, wish.transaction_bytes)
        options = FetchOptions(
            WAIT_MS, max_bytes=answer, partition_bytes=min(answer, 4 << 20), committed=True
        )
        self.fetcher = Fetcher(self.cluster, {}, options)
        stack.callback(self.fetcher.close)

    def _make_own(self) -> None:
        if self.own in self.target.list_topics():
            return
        made = NewTopic(self.own, 1, self.wish.replication_factor, state.CONFIG)
        with suppress(errors.TopicExists):  # another was faster
            self.target.create_topics([made]).check()

    def _take_over(self) -> None:
        """Begin to write, as the only mirror with this name.

        The owner stored in the state tells a mirror that was fenced because its transaction took
        too long from one that another mirror has replaced.
        """
        with StateReader(self.wish.target, "target", CLIENT_ID) as reader:
            self._still_ours(reader)
            self.producer = self._stack.enter_context(self._producer())
            # Fences an earlier run of this name and ends its transaction: what is read then stays.
            self.producer.init_transactions()
            self._still_ours(reader)
            reader.look([self.own])
            self._progress = reader.states[self.own].progress
        if not self._run.registered:
            self.producer.begin_transaction()
            self.producer.send(self.own, state.owner_value(self._run.owner), state.OWNER_KEY)
            self.producer.commit_transaction()
            self._run.registered = True

    def _still_ours(self, reader: StateReader) -> None:
        """Raises: Replaced, if another mirror is the owner now."""
        if not self._run.registered:
            return
        reader.look([self.own])
        owner = reader.states[self.own].owner
        if owner is not None and owner.id != self._run.owner.id:
            raise Replaced(
                f"topic {self.own!r} of the target: another mirror with this name has started "
                f"({owner.where}); give each its own name"
            )

    def _producer(self) -> Producer:
        side = self.wish.target
        return Producer(
            side.where,
            transactional_id=self.own,
            compression=self.wish.compression,
            batch_bytes=BATCH_BYTES,
            buffer_bytes=4 * ANSWER_BYTES,
            client_id=CLIENT_ID,
            config={**side.config, "max.request.size": RECORD_BYTES_MAX},
            oauth_token=side.token,
        )

    def _store(self, moved: Mapping[TopicPartition, Progress]) -> None:
        """End the open transaction with the progress of these partitions."""
        for tp, progress in moved.items():
            self.producer.send(self.own, state.value_of(progress), state.key_of(tp))
        self.producer.commit_transaction()
        self._progress.update(moved)
        self.counts.transactions += 1

    def _say_once(self, text: str) -> None:
        if hash(text) not in self._said and len(self._said) < SAID_MAX:
            self._said.add(hash(text))
            self.warn(text)
