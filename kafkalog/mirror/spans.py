"""Where a record of the source is in the target, as a bounded list of spans."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import NamedTuple

__all__ = [
    "SPANS_MAX", "Copied", "Span", "cut_back", "joined", "noted", "paired", "reached", "thinned",
    "translated",
]  # fmt: skip

SPANS_MAX = 64
"""The most spans per partition.  The newest are all kept; older ones are increasingly sparse."""


class Span(NamedTuple):
    """Records that are consecutive in both: exactly those below `source` are below
    `target`."""

    source: int
    target: int
    count: int  # type: ignore[assignment]  # a tuple's count() is of no use here
    """0: only the position is known."""


class Copied(NamedTuple):
    """A batch of the source that was copied, or consecutive ones without holes."""

    first: int
    last: int
    count: int  # type: ignore[assignment]
    """Fewer than its offsets: it was compacted, and the positions of the holes are unknown."""

    @property
    def dense(self) -> bool:
        """True if it has no holes."""
        return self.count == self.last - self.first + 1


def noted(batches: list[Copied], one: Copied) -> None:
    """Add a batch; it becomes part of the last one if neither has holes and none is between."""
    before = batches[-1] if batches else None
    if before and before.last + 1 == one.first and before.dense and one.dense:
        batches[-1] = Copied(before.first, one.last, before.count + one.count)
    else:
        batches.append(one)


def paired(batches: Iterable[Copied], runs: Iterable[tuple[int, int]]) -> list[Span]:
    """`batches`, in order, with the first and last offsets that their records got in the target.

    Raises: ValueError if the counts differ.
    """
    found: list[Span] = []
    left = iter(runs)
    at, end = 0, 0
    for batch in batches:
        dense, done = batch.dense, 0
        while done < batch.count:
            if at == end:
                first, last = next(left, (0, -1))
                if last < first:
                    raise ValueError("fewer records were taken than were sent")
                at, end = first, last + 1
            some = min(batch.count - done, end - at)
            if dense:
                found.append(Span(batch.first + done, at, some))
            elif not done:
                found.append(Span(batch.first, at, 0))
            done += some
            at += some
        if not dense:
            found.append(Span(batch.last + 1, at, 0))
    if at != end or next(left, None) is not None:
        raise ValueError("more records were taken than were sent")
    return found


def joined(spans: Sequence[Span], more: Iterable[Span]) -> list[Span]:
    """All spans; those that are consecutive in both are merged."""
    found = list(spans)
    for span in more:
        before = found[-1] if found else None
        if before and (before.source + before.count, before.target + before.count) == span[:2]:
            found[-1] = before._replace(count=before.count + span.count)
        else:
            found.append(span)
    return found


def thinned(spans: Sequence[Span], most: int = SPANS_MAX) -> list[Span]:
    """At most a number of spans: the first, the newest, and between them increasingly sparse
    ones."""
    found = _coarse(spans, 4 * most) if len(spans) > 4 * most else list(spans)
    end = found[-1].source + found[-1].count + 1 if found else 0
    while len(found) > most:
        # Drop the span whose loss moves a consumer back least, relative to its age.
        del found[
            min(
                range(1, len(found) - 1),
                key=lambda i: (found[i + 1].source - found[i - 1].source) / (end - found[i].source),
            )
        ]
    return found


def _coarse(spans: Sequence[Span], most: int) -> list[Span]:
    """The same for any number, in one pass: half of them the newest."""
    near = most // 2
    end = spans[-1].source + spans[-1].count + 1
    distance = end - spans[-near].source
    factor = ((end - spans[0].source) / distance) ** (1 / (most - near - 1))
    kept: list[Span] = []
    wanted = distance * factor
    for span in reversed(spans[1:-near]):
        if end - span.source >= wanted and len(kept) < most - near - 1:
            kept.append(span)
            wanted = (end - span.source) * factor
    return [spans[0], *reversed(kept), *spans[-near:]]


def translated(spans: Sequence[Span], offset: int) -> int | None:
    """Where a consumer continues in the target that would continue at `offset` in the source: it
    skips no record, and rereads some where the spans are not exact.  None: without spans.
    """
    if not spans:
        return None
    index = bisect_right(spans, offset, key=lambda span: span.source) - 1
    if index < 0:
        return spans[0].target
    span = spans[index]
    return span.target + min(offset - span.source, span.count)


def reached(spans: Sequence[Span], end: int) -> int:
    """The first offset of the source whose record may be at or after `end` in the target: those
    before it are below `end`."""
    at = spans[0].source if spans else 0
    for span in spans:
        if span.target > end:
            break
        at = span.source + min(end - span.target, span.count)
    return at


def cut_back(spans: Sequence[Span], source: int, target: int) -> list[Span]:
    """The spans below an offset of the source and one of the target."""
    found = []
    for span in spans:
        if span.source >= source or span.target >= target:
            break
        room = min(source - span.source, target - span.target)
        found.append(span._replace(count=min(span.count, room)))
    return found
