"""One life of a mirror: from the target's stored progress on, until something fails.

It repairs nothing itself.  Whatever fails, the next life reads what the last committed transaction
left, and continues there: recovery after kill -9 is the only kind of recovery.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import NamedTuple

from kafkalog import errors
from kafkalog.client.buffer.delivery import Batch, ManyFuture
from kafkalog.client.fetch.fetched import Fetched
from kafkalog.client.link.failures import failure, passing
from kafkalog.mirror.batches import Part, parts
from kafkalog.mirror.groups import moves
from kafkalog.mirror.life import WAIT_MS, Run
from kafkalog.mirror.losses import copy_loss, rewound
from kafkalog.mirror.spans import Copied, joined, noted, paired, thinned
from kafkalog.mirror.state import Progress
from kafkalog.mirror.topics import Topics, id_of
from kafkalog.mirror.wish import Counts, Tell, Wish
from kafkalog.types import TopicPartition
from kafkalog.wire.error_codes import ErrorCode

__all__ = ["Copying"]

LINGER_MS = 50
"""How long a transaction waits for more, each time."""
OPEN_S = 1.0
"""And in total: readers of the copy see records that much later."""
PIECE_BYTES = 600
"""Memory for a piece until the transaction ends: where it was, and where it went.  Measured, and
rounded up."""
KINDS = ("", "classic", "consumer")
"""Types of groups that commit offsets; other types have other state."""


class _Sent(NamedTuple):
    """A partition's part of the open transaction."""

    batches: list[Copied]
    futures: list[ManyFuture]


class Copying(Topics):
    """A context manager; one thread."""

    def __init__(
        self, wish: Wish, counts: Counts, stop: threading.Event, tell: Tell, run: Run
    ) -> None:
        """Nothing is sent before the block begins."""
        super().__init__(wish, counts, stop, tell, run)
        self._ids = {}
        self._compacted = set()
        self._leaderless = []
        self._stale = False
        self._next_s = 0.0
        # The open transaction:
        self._open = False
        self._sent: dict[TopicPartition, _Sent] = {}
        self._after: dict[TopicPartition, int] = {}
        self._bytes = 0
        """Received."""
        self._kept_bytes = 0
        """About the memory of its records and of what is remembered of them."""
        self._until_s = 0.0

    def __enter__(self) -> Copying:
        try:
            self._enter()
        except BaseException:
            self._stack.close()
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

    # ---- records -----------------------------------------------------------------------

    def go_on(self, once: bool) -> bool:
        """Copy until it is stopped; `once`: until everything readable now is copied.  Returns False
        if it must start over.

        Raises: any failure.
        """
        self.refresh()
        ends = self._ends() if once else {}
        self._next_s = time.monotonic() + self.wish.refresh_s
        while not self._stop.is_set():
            if time.monotonic() >= self._next_s and not self._open:
                self._chores()
                self._next_s = time.monotonic() + self.wish.refresh_s
            if self._stale:
                return False
            if once and not self._open and self._reached(ends):
                break
            self._turn()
            self._tell()
        if self._open:
            self._commit()
        self._move_groups()
        if once and self._leaderless and not self._stop.is_set():
            tp = self._leaderless[0]
            raise failure(
                ErrorCode.LEADER_NOT_AVAILABLE, f"{tp.topic}-{tp.partition} of the source"
            )
        return not self._stale

    def _ends(self) -> dict[TopicPartition, int]:
        led = self.fetcher.positions.keys() - set(self._leaderless)
        wanted = dict.fromkeys(sorted(led), "latest")
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
        except errors.OffsetOutOfRange as problem:  # LogTruncation is one
            if self._open:
                self._commit()
            if problem.partition is None or self._stale:
                raise
            self._examine([problem.partition], doubted=True)
            return
        for one in found:
            if one.tp in self.fetcher.positions and self._is_ours(one):
                self._take(one)
            if self._stale:
                return
        if self._open and (not found or self._full or time.monotonic() >= self._until_s):
            self._commit()
        ends = self.fetcher.ends
        self.counts.lag = sum(
            max(ends[tp].last_stable_offset - self._progress[tp].position, 0)
            for tp in self.fetcher.positions
            if tp in ends
        )

    def _is_ours(self, one: Fetched) -> bool:
        """True if an answer is about the topic that is copied; if not, refresh finds out more."""
        known = self.cluster.topics.get(one.tp.topic)
        if known is not None and id_of(known) != self._progress[one.tp].topic_id:
            self._next_s = 0.0
            return False
        return True

    def _begin(self) -> None:
        if not self._open:
            self.producer.begin_transaction()
            self._open, self._until_s = True, time.monotonic() + OPEN_S

    @property
    def _full(self) -> bool:
        return self._kept_bytes >= self.wish.transaction_bytes

    def _take(self, one: Fetched) -> None:
        """Send the records, in as many transactions as their limit makes of them."""
        self._begin()
        for part, future in self._sending(one):
            sent = self._sent.setdefault(one.tp, _Sent([], []))
            before = len(sent.batches)
            sent.futures.append(future)
            for batch in part.batches:
                noted(sent.batches, batch)
            self._after[one.tp] = part.batches[-1].last + 1
            pieces = 1 + len(sent.batches) - before
            self._kept_bytes += len(part.data) + pieces * PIECE_BYTES
            if self._full:
                self._commit()
                if self._stale:
                    return
                self._begin()
        self._after[one.tp] = one.next_offset
        self._bytes += len(one.data)

    def _sending(self, one: Fetched) -> Iterator[tuple[Part, ManyFuture]]:
        topic = self.wish.renamed(one.tp.topic)
        try:
            for part in parts(one.data, one.start, one.aborted):
                yield part, self._send(topic, one.tp.partition, part)
        except errors.CorruptMessage as problem:
            raise type(problem)(f"{one.tp.topic}-{one.tp.partition}: {problem}") from None

    def _send(self, topic: str, partition: int, part: Part) -> ManyFuture:
        if part.records is None:
            return self.producer.send_batches(topic, part.data, partition=partition)
        runs: list[tuple[Batch, int, int]] = []
        for one in part.records():
            future = self.producer.send(
                topic, one.value, one.key, partition=partition, timestamp_ms=one.timestamp_ms,
                headers=one.headers,
            )  # fmt: skip
            batch, index = future._batch, future._index
            if runs and runs[-1][0] is batch and runs[-1][2] + 1 == index:
                runs[-1] = batch, runs[-1][1], index
            else:
                runs.append((batch, index, index))
        return ManyFuture(runs)

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
            if runs and runs[0][0] < known.copy_end:
                self._copy_lost(tp, runs[0][0])
                return
            spans = thinned(joined(known.spans, paired(sent.batches, runs)))
            epoch = self.fetcher.epochs.before(tp, after)
            moved[tp] = known._replace(position=after, spans=tuple(spans), epoch=epoch)
            records += sum(batch.count for batch in sent.batches)
        size = self._bytes
        self._store(moved)
        self._forget_transaction()
        self.counts.records += records
        self.counts.bytes += size

    def _forget_transaction(self) -> None:
        self._open, self._bytes, self._kept_bytes = False, 0, 0
        self._sent.clear()
        self._after.clear()

    def _copy_lost(self, tp: TopicPartition, at: int) -> None:
        """The target has put records at offset `at`, below others that it had taken before."""
        self.producer.abort_transaction()
        self._forget_transaction()
        known = self._progress[tp]
        loss = copy_loss(known, at)
        assert loss is not None
        # Stored, as the records of the aborted transaction hide the loss.
        after = self._lost(tp, loss, rewound(known, loss, 0, at))
        if not self.wish.accepts(tp.topic):
            after = after._replace(lost=loss.why)
        self.producer.begin_transaction()
        self._store({tp: after})
        self._stale = True

    # ---- groups ------------------------------------------------------------------------

    def _move_groups(self) -> None:
        """Set groups' offsets in the target to where they are in the source."""
        if self.wish.groups is None:
            return
        progress = {tp: self._progress[tp] for tp in self.fetcher.positions}
        for group in self.source.list_groups():
            if group.kind not in KINDS or not self.wish.groups.fullmatch(group.group):
                continue
            try:
                self._move_group(group.group, progress)
            except errors.KafkalogError as problem:
                if passing(problem):
                    raise
                self._say_once(f"group {group.group!r}: {problem}")

    def _move_group(self, group: str, progress: dict[TopicPartition, Progress]) -> None:
        committed = self.source.list_group_offsets(group)
        there = self.target.list_group_offsets(group)
        moved = moves(committed, progress, there, self.wish.renamed)
        if not moved:
            return
        done = self.target.alter_group_offsets(group, moved)
        self.counts.groups += len(done.done)
        for problem in done.errors.values():
            # A group with members there has moved over, and is ahead of us.
            if problem.code != ErrorCode.UNKNOWN_MEMBER_ID:
                self._say_once(f"group {group!r}: {problem}")
