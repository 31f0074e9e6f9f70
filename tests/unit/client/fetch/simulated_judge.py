"""The judge of a simulated fetcher: it keeps its own books of requests, answers, warnings and
records handed out, and compares them with what happened to each record."""

from __future__ import annotations

import re
from collections import deque
from typing import NamedTuple
from uuid import UUID

from kafkalog.client.fetch.fetched import Fetched
from kafkalog.simulate.world import Violated
from kafkalog.types import Record, TopicPartition
from tests.unit.client.fetch.simulated_leaders import Logs

__all__ = ["Judge"]

MOVED = re.compile(r"(\w+)-(\d+): (.*): continuing at (\d+), ")
OUT_OF_RANGE = re.compile(r"offset (\d+) is out of range")
CUT = re.compile(r"the log was truncated below offset (\d+) of")


class _Piece(NamedTuple):
    """A range that was found; `moves`: the partition continues at its end."""

    start: int
    end: int
    moves: bool


class _Book:
    """The books of a partition that is read."""

    def __init__(self, offset: int, last: int | None, now: int) -> None:
        self.offset = offset
        """The offset of the next record to be handed out."""
        self.last = last
        """The number of the record before it; None: unknown, and the next one may be any."""
        self.pieces: deque[_Piece] = deque()
        self.moves: deque[int] = deque()
        """Positions that were announced and not found yet."""
        self.since = now
        """When the position was set."""

    @property
    def fetched(self) -> int:
        return self.pieces[-1].end if self.pieces else self.offset


class Judge:
    """Checks what must hold: see simulation.py."""

    def __init__(self, logs: Logs, committed: bool) -> None:
        self._logs = logs
        self._committed = committed
        self._now = 0
        self.books: dict[TopicPartition, _Book] = {}
        self.handed_out = 0
        self.announced_count = 0

    # ---- what the program does -----------------------------------------------------------

    def now(self) -> int:
        """A new number each time, always larger."""
        self._now += 1
        return self._now

    def sought(self, tp: TopicPartition, offset: int, last: int | None) -> None:
        """`last`: the number of the record before, if the given epoch is that record's."""
        self.books[tp] = _Book(offset, last, self.now())

    def dropped(self, tp: TopicPartition, at: int | None) -> None:
        """Paused or resumed: earlier answers no longer count.  `at`: the reader's position."""
        book = self.books[tp]
        while book.pieces and book.offset != at:
            piece = book.pieces.popleft()
            if piece.moves:
                book.offset, book.last = piece.end, None
            elif book.offset < piece.end:
                break
        if book.offset != at:
            raise Violated(f"P1: {_named(tp)} is at {at}, wanted {book.offset}")
        self.books[tp] = _Book(book.offset, book.last, self.now())

    def forgotten(self, tp: TopicPartition) -> None:
        self.books.pop(tp, None)

    def recreated(self, topic: str) -> None:
        """The client knows of a new topic with that name."""
        for tp, book in self.books.items():
            if tp.topic == topic:
                book.since = self.now()

    # ---- what the client finds -------------------------------------------------------------

    def _counts(self, tp: TopicPartition, pending: int, what: str) -> _Book:
        book = self.books.get(tp)
        if book is None:
            raise Violated(f"P4: {_named(tp)}: {what}, and it is read no more")
        if pending <= book.since:
            raise Violated(f"P4: {_named(tp)}: {what}, but that was asked before it was set")
        return book

    def announced(self, text: str, pending: int) -> None:
        """A warning, after an answer to a request sent at `pending`."""
        found = MOVED.match(text)
        if found is None:
            raise Violated(f"P1: found {text!r}, wanted where a partition goes on")
        tp, why = TopicPartition(found[1], int(found[2])), found[3]
        book = self._counts(tp, pending, f"moved as {why}")
        self.lost(tp, why)
        book.moves.append(int(found[4]))
        self.announced_count += 1

    def lost(self, tp: TopicPartition, why: str) -> None:
        """A position is reported as lost for a reason, which must be true."""
        book = self.books[tp]
        at = OUT_OF_RANGE.search(why) or CUT.search(why)
        if at is not None and int(at[1]) != book.fetched:
            raise Violated(f"P4: {_named(tp)} is at {book.fetched}: {why}")
        refused = self._logs.refused
        if book.last is None or self._is_anothers(tp, book.last):
            # It was sought, or belongs to the old topic: perhaps a former leader's log is short.
            refused = refused | self._logs.refused_late
        if OUT_OF_RANGE.search(why) and (tp, book.fetched) not in refused:
            raise Violated(f"P3: no leader refused the offset: {_named(tp)}: {why}")
        retained = (tp, book.fetched) in self._logs.retained
        if OUT_OF_RANGE.search(why) and book.last in self._logs.cut and not retained:
            raise Violated(f"P3: the log was cut, and that was not noticed: {_named(tp)}: {why}")
        if CUT.search(why) and book.last is not None and not self._was_cut(tp, book):
            raise Violated(f"P3: nothing that was read was cut: {_named(tp)}: {why}")

    def _was_cut(self, tp: TopicPartition, book: _Book) -> bool:
        """True if what was read is no longer in the log, or the log is another topic's."""
        last, part = book.last, self._logs.part(tp)
        if last is None or last < 0 or book.pieces or part is None:
            return True  # not known, or not all was handed out
        return last in self._logs.cut or self._is_anothers(tp, last)

    def _is_anothers(self, tp: TopicPartition, number: int) -> bool:
        """True if a record belongs to an earlier topic with the same name."""
        part = self._logs.part(tp)
        return part is None or self._logs.made[number].topic_id != part.topic_id

    def fetched(self, one: Fetched, pending: int) -> None:
        """A range was found in the answer to a request sent at `pending`."""
        tp = one.tp
        book = self._counts(tp, pending, f"found from {one.start} on")
        if not one.data:
            if not book.moves or book.moves.popleft() != one.next_offset:
                raise Violated(f"P1: {_named(tp)} goes on at {one.next_offset}: not announced")
            book.pieces.append(_Piece(one.start, one.next_offset, True))
            return
        if one.start != book.fetched:
            raise Violated(f"P1: {_named(tp)}: found from {one.start}, wanted {book.fetched}")
        if one.next_offset <= one.start:
            raise Violated(f"P1: {_named(tp)}: found nothing from {one.start} on")
        book.pieces.append(_Piece(one.start, one.next_offset, False))

    def handed(self, record: Record) -> None:
        """A record reaches the program."""
        tp, number = TopicPartition(record.topic, record.partition), int(record.value or b"-1")
        made = self._logs.made[number]
        what = f"{_named(tp)}: record {number} at {record.offset}"
        if (made.tp, made.offset, made.epoch) != (tp, record.offset, record.leader_epoch):
            raise Violated(f"P2: {what} of epoch {record.leader_epoch}: it is {made}")
        if number not in (self._logs.stable if self._committed else self._logs.visible):
            raise Violated(f"P2: {what} was not committed yet")
        book = self.books.get(tp)
        if book is None:
            raise Violated(f"P4: {what}: it is read no more")
        self._pass_pieces(book, what)
        if record.offset != book.offset:
            raise Violated(f"P1: {what}, wanted {book.offset}")
        if book.last is not None and not self._follows(book.last, made.before, made.topic_id):
            raise Violated(
                f"P3: {what} follows {made.before} in its log, and {book.last} was handed out "
                "before: the log was cut, and nothing was said"
            )
        book.last = number
        book.offset = record.offset + 1
        self.handed_out += 1

    def _follows(self, last: int, before: int, topic_id: UUID) -> bool:
        """A recreated topic need not follow: its epochs say nothing about the first one's."""
        if last == before:
            return True
        return last >= 0 and self._logs.made[last].topic_id.int < topic_id.int

    def _pass_pieces(self, book: _Book, what: str) -> None:
        """Drop the ranges whose records are all handed out."""
        while book.pieces:
            piece = book.pieces[0]
            if piece.moves:
                book.offset, book.last = piece.end, None
            elif book.offset < piece.end:
                return
            book.pieces.popleft()
        raise Violated(f"P4: {what} was not found since the partition was set")


def _named(tp: TopicPartition) -> str:
    return f"{tp.topic}-{tp.partition}"
