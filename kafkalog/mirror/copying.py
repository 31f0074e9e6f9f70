"""One life of a mirror: from the target's stored progress on, until something fails.

It repairs nothing itself.  Whatever fails, the next life reads what the last committed transaction
left, and continues there: recovery after kill -9 is the only kind of recovery.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from typing import NamedTuple

from kafkalog import errors
from kafkalog.client.admin import Admin
from kafkalog.client.buffer.delivery import ManyFuture
from kafkalog.client.calls.configs import ConfigResource
from kafkalog.client.calls.topics import NewTopic
from kafkalog.client.consumer.consumer import Consumer
from kafkalog.client.fetch.fetched import Fetched, FetchOptions
from kafkalog.client.fetch.fetcher import Fetcher
from kafkalog.client.link.cluster import Cluster
from kafkalog.client.link.metadata import TopicInfo
from kafkalog.client.link.transport import Options, Where
from kafkalog.client.producer.producer import Producer
from kafkalog.mirror import state
from kafkalog.mirror.batches import Part, parts
from kafkalog.mirror.groups import moves
from kafkalog.mirror.settings import changes
from kafkalog.mirror.spans import Copied, Span, joined, paired, thinned
from kafkalog.mirror.state import Progress
from kafkalog.types import TopicPartition
from kafkalog.wire.error_codes import ErrorCode

__all__ = ["Copying", "Counts", "Tell", "Wish"]

CLIENT_ID = "kafkalog-mirror"
BATCH_BYTES = 512 << 10
"""For rebuilt batches: half of a topic's default limit."""
RECORD_BYTES_MAX = 1 << 30
"""The target decides how large a record may be."""
ANSWER_BYTES = 16 << 20
"""For a fetch, whose first batch may be larger."""
WAIT_MS = 500
LINGER_MS = 50
"""How long a transaction waits for more, each time."""
OPEN_S = 1.0
"""And in total: readers of the copy see records that much later."""
READ_MS = 50
"""The last offset is a marker, for which no record comes."""
STATE_S = 60.0
"""How long reading the mirror's own topic may make no progress."""
KINDS = ("", "classic", "consumer")
"""Types of groups that commit offsets; other types have other state."""


class Wish(NamedTuple):
    """What to copy, and how."""

    source: Where
    target: Where
    name: str | None
    topics: re.Pattern[str]
    groups: re.Pattern[str] | None
    rename: str
    replication_factor: int
    compression: str
    transaction_bytes: int
    refresh_s: float

    def renamed(self, topic: str) -> str:
        """A topic's name in the target."""
        return self.rename.replace("{}", topic)

    def names(self, topics: Iterable[str]) -> list[str]:
        """The topics to copy; never a mirror's own."""
        return [
            name for name in topics
            if self.topics.fullmatch(name) and not name.startswith(state.PREFIX)
        ]  # fmt: skip


@dataclass
class Counts:
    """The totals of all lives."""

    topics: int = 0
    partitions: int = 0
    records: int = 0
    bytes: int = 0
    transactions: int = 0
    groups: int = 0
    lag: int = 0
    reached: bool = False
    """Whether both clusters were reached once: from then on they are waited for."""
    aside: dict[str, str] = field(default_factory=dict)


class Tell(NamedTuple):
    """Called with warnings and progress."""

    warning: Callable[[str], object]
    progress: Callable[[], object]
    """Called after each round, several times a second."""


class _Sent(NamedTuple):
    """A partition's part of the open transaction."""

    batches: list[Copied]
    futures: list[ManyFuture]


class Copying:
    """A context manager; one thread."""

    def __init__(self, wish: Wish, counts: Counts, stop: threading.Event, tell: Tell) -> None:
        """Nothing is sent before the block begins."""
        self.wish = wish
        self.counts = counts
        self.warn = tell.warning
        self._tell = tell.progress
        self._stop = stop
        self._stack = ExitStack()
        self._progress: dict[TopicPartition, Progress] = {}
        """By the source's partitions."""
        self._ids: dict[str, str] = {}
        self._stale = False
        self._said: set[str] = set()
        # Of the open transaction:
        self._open = False
        self._sent: dict[TopicPartition, _Sent] = {}
        self._after: dict[TopicPartition, int] = {}
        self._bytes = 0
        self._until_s = 0.0

    def __enter__(self) -> Copying:
        wish, stack = self.wish, self._stack
        try:
            self.source = stack.enter_context(Admin(wish.source, client_id=CLIENT_ID))
            self.target = stack.enter_context(Admin(wish.target, client_id=CLIENT_ID))
            clusters = [one.describe_cluster().cluster_id for one in (self.source, self.target)]
            self.counts.reached = True
            self._same = clusters[0] == clusters[1]
            name = wish.name or clusters[0]
            if not name:
                raise errors.ArgumentError("name: the source's cluster has no id, wanted a name")
            self.own = f"{state.PREFIX}{name}"
            self._make_own()
            self.producer = stack.enter_context(self._producer())
            # Fences an earlier run of this name and ends its transaction: what is read then stays.
            self.producer.init_transactions()
            self._progress = self._read_own()
            cluster = stack.enter_context(Cluster(wish.source, Options(client_id=CLIENT_ID)))
            answer = min(ANSWER_BYTES, wish.transaction_bytes)
            options = FetchOptions(
                WAIT_MS, max_bytes=answer, partition_bytes=min(answer, 4 << 20), committed=True,
                out_of_range="earliest",
            )  # fmt: skip
            self.fetcher = Fetcher(cluster, {}, options)
            stack.callback(self.fetcher.close)
        except BaseException:
            stack.close()
            raise
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self._stack.close()
            return
        try:
            self._stack.close()
        except errors.KafkalogError as problem:  # the first error says more
            self.warn(f"at the end: {problem}")

    def _producer(self) -> Producer:
        return Producer(
            self.wish.target,
            transactional_id=self.own,
            compression=self.wish.compression,
            batch_bytes=BATCH_BYTES,
            buffer_bytes=4 * ANSWER_BYTES,
            client_id=CLIENT_ID,
            config={"max.request.size": RECORD_BYTES_MAX},
        )

    # ---- how far it is -----------------------------------------------------------------

    def _make_own(self) -> None:
        if self.own in self.target.list_topics():
            return
        made = NewTopic(self.own, 1, self.wish.replication_factor, state.CONFIG)
        with suppress(errors.TopicExists):  # another was faster
            self.target.create_topics([made]).check()

    def _read_own(self) -> dict[TopicPartition, Progress]:
        tp = TopicPartition(self.own, 0)
        with Consumer(self.wish.target, isolation="read_committed", client_id=CLIENT_ID) as reader:
            reader.assign([tp])
            reader.seek_to_beginning(tp)
            end = reader.end_offsets([tp])[tp]
            found: dict[TopicPartition, Progress] = {}
            until_s = time.monotonic() + STATE_S
            while (before := reader.position(tp)) < end:
                for known, one in state.progress_of(reader.poll(READ_MS), self.own).items():
                    found[known] = one
                if reader.position(tp) > before:
                    until_s = time.monotonic() + STATE_S
                elif time.monotonic() > until_s:
                    raise errors.Timeout(
                        f"topic {self.own!r} of the target: at offset {before} for "
                        f"{STATE_S:g} s, wanted to read it up to {end}"
                    )
        return found

    # ---- topics and settings -----------------------------------------------------------

    def refresh(self) -> None:
        """Check for new topics and partitions, and changed settings."""
        names = self.wish.names(self.source.list_topics())
        infos = self.source.describe_topics(names).done
        for name, info in list(infos.items()):
            if why := self._refusal(info):
                self._put_aside(name, why)
                del infos[name]
            elif self._same and self.wish.topics.fullmatch(self.wish.renamed(name)):
                raise errors.ArgumentError(
                    f"rename: topic {name!r} would be copied to {self.wish.renamed(name)!r} of the "
                    f"same cluster, which {self.wish.topics.pattern!r} matches, too"
                )
        for tp in [tp for tp in self.fetcher.positions if tp.topic not in infos]:
            del self.fetcher.positions[tp]
            self.fetcher.ends.pop(tp, None)
        self._make_topics(infos)
        self._ids = {name: _id_of(info) for name, info in infos.items()}
        self._follow_settings(list(infos))
        partitions = [TopicPartition(i.name, p) for i in infos.values() for p in i.partitions]
        self._claim([tp for tp in partitions if tp not in self._progress])
        for tp in partitions:
            if tp in self._progress and tp.topic not in self.counts.aside:
                self.fetcher.positions.setdefault(tp, self._progress[tp].position)
        self.counts.topics = len({tp.topic for tp in self.fetcher.positions})
        self.counts.partitions = len(self.fetcher.positions)

    def _refusal(self, info: TopicInfo) -> str:
        """Why a topic is not copied; empty if it is."""
        for number in info.partitions:
            known = self._progress.get(TopicPartition(info.name, number))
            if known and known.topic_id != _id_of(info):
                return (
                    f"it was recreated in the source (id {_id_of(info)}, the copy is "
                    f"of {known.topic_id}): let a mirror with another name copy it elsewhere"
                )
        return ""

    def _put_aside(self, topic: str, why: str) -> None:
        if topic not in self.counts.aside:
            self.warn(f"topic {topic!r}: {why}; it is not copied")
        self.counts.aside[topic] = why
        for tp in [tp for tp in self.fetcher.positions if tp.topic == topic]:
            del self.fetcher.positions[tp]

    def _make_topics(self, infos: dict[str, TopicInfo]) -> None:
        """Create topics and partitions that the target lacks."""
        there = set(self.target.list_topics(internal=True))
        copied = {tp.topic for tp in self._progress}
        for name in [one for one in copied & infos.keys() if self.wish.renamed(one) not in there]:
            self._put_aside(name, "its copy was deleted in the target")
            del infos[name]
        counts = {self.wish.renamed(name): len(info.partitions) for name, info in infos.items()}
        made = [
            NewTopic(name, count, self.wish.replication_factor)
            for name, count in counts.items() if name not in there
        ]  # fmt: skip
        for name, problem in self.target.create_topics(made).errors.items() if made else ():
            if not isinstance(problem, errors.TopicExists):
                raise type(problem)(f"topic {name!r} of the target: {problem}")
        known = self.target.describe_topics(list(counts)).check()
        grown = {name: n for name, n in counts.items() if len(known[name].partitions) < n}
        if grown:
            self.target.create_partitions(grown).check()
            self._stale = bool(self._ids)  # the producer may have outdated metadata

    def _follow_settings(self, names: list[str]) -> None:
        source = self.source.describe_configs([("topic", name) for name in names]).done
        renamed = [("topic", self.wish.renamed(name)) for name in names]
        target = self.target.describe_configs(renamed).check()
        for resource, entries in source.items():
            name = self.wish.renamed(resource.name)
            found = changes(entries, target.get(ConfigResource("topic", name), {}))
            for unknown in found.unknown:
                self._say_once(f"topic {name!r}: the target does not know the setting {unknown!r}")
            for setting, value in found.wanted.items():  # one by one, to set those that it accepts
                change = {("topic", name): {setting: value}}
                for problem in self.target.alter_configs(change).errors.values():
                    self._say_once(
                        f"topic {name!r}: the target refuses {setting}={value}: {problem}"
                    )

    def _say_once(self, text: str) -> None:
        if text not in self._said and len(self._said) < 1_000:
            self._said.add(text)
            self.warn(text)

    def _claim(self, fresh: list[TopicPartition]) -> None:
        """Store where partitions begin, before their first record."""
        if not fresh:
            return
        places = {tp: TopicPartition(self.wish.renamed(tp.topic), tp.partition) for tp in fresh}
        begins = self.source.list_offsets(dict.fromkeys(fresh, "earliest")).check()
        firsts = self.target.list_offsets(dict.fromkeys(places.values(), "earliest")).check()
        ends = self.target.list_offsets(dict.fromkeys(places.values(), "latest")).check()
        claimed = {}
        for tp, place in places.items():
            if ends[place].offset > firsts[place].offset:
                self._put_aside(
                    tp.topic,
                    f"{place.topic}-{place.partition} of the target has records that this mirror "
                    "did not write: delete the topic there, or rename it by --rename",
                )
        for tp, place in places.items():
            if tp.topic not in self.counts.aside:
                begin = begins[tp].offset
                origin = Span(begin, ends[place].offset, 0)
                claimed[tp] = Progress(self._ids[tp.topic], begin, (origin,))
        if claimed:
            self._begin()
            self._write(claimed)

    # ---- records -----------------------------------------------------------------------

    def go_on(self, once: bool) -> bool:
        """Copy until it is stopped; `once`: until everything readable now is copied.  Returns False
        if it must start over.

        Raises: any failure.
        """
        self.refresh()
        ends = self._ends() if once else {}
        next_s = time.monotonic() + self.wish.refresh_s
        while not self._stop.is_set():
            if time.monotonic() >= next_s and not self._open:
                self._chores()
                next_s = time.monotonic() + self.wish.refresh_s
            if self._stale:
                return False
            if once and not self._open and self._reached(ends):
                break
            self._turn()
            self._tell()
        if self._open:
            self._commit()
        self._move_groups()
        return True

    def _ends(self) -> dict[TopicPartition, int]:
        wanted = dict.fromkeys(self.fetcher.positions, "latest")
        found = self.source.list_offsets(wanted, isolation="read_committed").check()
        return {tp: at.offset for tp, at in found.items()}

    def _reached(self, ends: dict[TopicPartition, int]) -> bool:
        positions = self.fetcher.positions
        return all(
            self._progress[tp].position >= end for tp, end in ends.items() if tp in positions
        )

    def _chores(self) -> None:
        self.refresh()
        self._move_groups()

    def _turn(self) -> None:
        """Take the records that came; commit if that is enough, or all there is."""
        if not self.fetcher.positions:
            self._stop.wait(WAIT_MS / 1000)
            return
        try:
            found = self.fetcher.poll(LINGER_MS if self._open else WAIT_MS)
        except errors.UnknownTopicOrPartition:
            if self._open:
                self._commit()
            self.refresh()  # a topic was deleted: it is no longer copied
            self._stop.wait(WAIT_MS / 1000)
            return
        for one in found:
            if one.tp in self.fetcher.positions and self._is_ours(one):
                self._take(one)
        full = self._bytes >= self.wish.transaction_bytes
        if self._open and (not found or full or time.monotonic() >= self._until_s):
            self._commit()
        ends = self.fetcher.ends
        self.counts.lag = sum(
            max(ends[tp].last_stable_offset - self._progress[tp].position, 0)
            for tp in self.fetcher.positions if tp in ends
        )  # fmt: skip

    def _is_ours(self, one: Fetched) -> bool:
        """Whether an answer continues where the copy ends; a topic where it does not is
        reported."""
        known = self.fetcher.cluster.topics.get(one.tp.topic)
        if known is not None and _id_of(known) != self._progress[one.tp].topic_id:
            self._put_aside(one.tp.topic, self._refusal(known))
            return False
        if len(one.data):
            return True
        at = self._after.get(one.tp, self._progress[one.tp].position)
        where = f"{one.tp.topic}-{one.tp.partition}"
        if one.next_offset < at:
            self._put_aside(
                one.tp.topic,
                f"{where} of the source ends before offset {at}, up to which it was copied: it has "
                "lost records",
            )
            return False
        self.warn(
            f"{where}: the source removed offsets {at} to {one.next_offset - 1} before they were "
            "copied"
        )
        self._after[one.tp] = one.next_offset
        self._begin()
        return False

    def _begin(self) -> None:
        if not self._open:
            self.producer.begin_transaction()
            self._open, self._until_s = True, time.monotonic() + OPEN_S

    def _take(self, one: Fetched) -> None:
        self._begin()
        topic = self.wish.renamed(one.tp.topic)
        sent = self._sent.setdefault(one.tp, _Sent([], []))
        try:
            for part in parts(one.data, one.start, one.aborted):
                sent.futures.append(self._send(topic, one.tp.partition, part))
                sent.batches.extend(part.batches)
        except errors.CorruptMessage as problem:
            raise type(problem)(f"{one.tp.topic}-{one.tp.partition}: {problem}") from None
        self._after[one.tp] = one.next_offset
        self._bytes += len(one.data)

    def _send(self, topic: str, partition: int, part: Part) -> ManyFuture:
        if not part.records:
            return self.producer.send_batches(topic, part.data, partition=partition)
        futures = [
            self.producer.send(
                topic, one.value, one.key, partition=partition, timestamp_ms=one.timestamp_ms,
                headers=one.headers,
            )
            for one in part.records
        ]  # fmt: skip
        return ManyFuture([(f._batch, f._index, f._index) for f in futures])

    def _commit(self) -> None:
        """Write the records and the progress, or neither."""
        self.producer.flush()
        moved = {}
        records = 0
        for tp, after in self._after.items():
            known = self._progress[tp]
            sent = self._sent.get(tp, _Sent([], []))
            pieces = [piece for future in sent.futures for piece in future.result()]
            runs = [(piece.first_offset, piece.last_offset) for piece in pieces]
            spans = thinned(joined(known.spans, paired(sent.batches, runs)))
            moved[tp] = known._replace(position=after, spans=tuple(spans))
            records += sum(batch.count for batch in sent.batches)
        size = self._bytes
        self._write(moved)
        self.counts.records += records
        self.counts.bytes += size

    def _write(self, moved: dict[TopicPartition, Progress]) -> None:
        """End the open transaction with the progress of its partitions."""
        for tp, progress in moved.items():
            self.producer.send(self.own, state.value_of(progress), state.key_of(tp))
        self.producer.commit_transaction()
        self._progress.update(moved)
        self.counts.transactions += 1
        self._open, self._bytes = False, 0
        self._sent.clear()
        self._after.clear()

    # ---- groups ------------------------------------------------------------------------

    def _move_groups(self) -> None:
        """Set groups' offsets in the target to where they are in the source."""
        if self.wish.groups is None:
            return
        progress = {tp: self._progress[tp] for tp in self.fetcher.positions}
        for group in self.source.list_groups():
            if group.kind not in KINDS or not self.wish.groups.fullmatch(group.group):
                continue
            committed = self.source.list_group_offsets(group.group)
            there = self.target.list_group_offsets(group.group)
            moved = moves(committed, progress, there, self.wish.renamed)
            if not moved:
                continue
            done = self.target.alter_group_offsets(group.group, moved)
            self.counts.groups += len(done.done)
            for problem in done.errors.values():
                # A group with members there has moved over, and is ahead of us.
                if problem.code != ErrorCode.UNKNOWN_MEMBER_ID:
                    self._say_once(f"group {group.group!r}: {problem}")


def _id_of(info: TopicInfo) -> str:
    """Empty if the broker gives none."""
    return str(info.topic_id) if info.topic_id.int else ""
