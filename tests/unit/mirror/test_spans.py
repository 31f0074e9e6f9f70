"""Source offsets translated to target offsets: no record is skipped, and few are repeated."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from kafkalog.mirror.spans import (
    SPANS_MAX,
    Copied,
    Span,
    joined,
    noted,
    paired,
    thinned,
    translated,
)
from tests.support.effort import SEED, rounds


def test_markers_shift_offsets() -> None:
    """A marker in the source makes the target's offsets smaller, one in the target larger."""
    spans = joined([], [Span(0, 0, 5), Span(6, 5, 4), Span(10, 10, 2)])
    assert [translated(spans, at) for at in (0, 4, 5, 6, 9, 10, 11, 12)] == [
        0, 4, 5, 5, 8, 10, 11, 12,
    ]  # fmt: skip
    assert translated(spans, 1_000) == 12
    assert translated([], 3) is None
    assert translated([Span(7, 0, 1)], 3) == 0


def test_adjacent_spans_are_joined() -> None:
    spans = joined([Span(3, 3, 0)], [Span(3, 3, 2), Span(5, 5, 7), Span(12, 13, 1)])
    assert spans == [Span(3, 3, 9), Span(12, 13, 1)]


def test_consecutive_batches_are_noted_as_one() -> None:
    """Those with holes are not: nobody knows where the holes are."""
    found: list[Copied] = []
    for one in (Copied(0, 4, 5), Copied(5, 5, 1), Copied(7, 8, 2), Copied(9, 19, 3),
                Copied(20, 21, 2), Copied(22, 22, 1)):  # fmt: skip
        noted(found, one)
    assert found == [Copied(0, 5, 6), Copied(7, 8, 2), Copied(9, 19, 3), Copied(20, 22, 3)]


def test_within_a_compacted_batch_somebody_goes_on_at_its_begin() -> None:
    spans = paired([Copied(10, 19, 4), Copied(20, 21, 2)], [(0, 2), (5, 7)])
    assert spans == [Span(10, 0, 0), Span(20, 6, 0), Span(20, 6, 2)]
    assert [translated(spans, at) for at in (10, 15, 19, 20, 21)] == [0, 0, 0, 6, 7]


@pytest.mark.parametrize("runs", [[(0, 3)], [(0, 5)], [], [(0, 4), (6, 6)]])
def test_as_many_are_taken_as_were_sent(runs: list[tuple[int, int]]) -> None:
    with pytest.raises(ValueError, match="records were taken"):
        paired([Copied(0, 4, 5)], runs)


def history(draw: random.Random) -> tuple[list[Span], dict[int, int], int]:
    """Spans after some transactions, each source offset's target offset, and the source's end."""
    spans, lies = [Span(0, 0, 0)], {}
    source = target = 0
    for _ in range(draw.randrange(1, 200)):
        batches, runs = [], []
        for _ in range(draw.randrange(1, 5)):
            count = draw.randrange(1, 6)
            holes = draw.choice([0, 0, 0, draw.randrange(4)])
            last = source + count + holes - 1
            for index in sorted(draw.sample(range(count + holes), count)):
                lies[source + index] = target
                runs.append((target, target))
                target += draw.choice([1, 1, 1, 1, 2])  # other records in between
            batches.append(Copied(source, last, count))
            source = last + 1 + draw.choice([0, 0, 1, 5])
        spans = thinned(joined(spans, paired(batches, runs)))
        target += 1
    return spans, lies, source


def test_nobody_passes_over_a_record() -> None:
    """Random histories: a translation skips no record at or after the source's offset, and the
    latest offsets are translated exactly."""
    for number in rounds(100):
        draw = random.Random(f"{SEED} {number}")
        spans, lies, end = history(draw)
        assert len(spans) <= SPANS_MAX
        assert all(a.source <= b.source and a.target <= b.target for a, b in pairwise(spans))
        later = max(lies.values()) + 1  # target of the record at or after an offset
        for offset in range(end, -1, -1):
            later = lies.get(offset, later)
            at = translated(spans, offset)
            assert at is not None and at <= later, f"seed {SEED}, round {number}, {offset}"
        last = max(lies)
        assert translated(spans, end) > max(where for one, where in lies.items() if one < last)


def test_older_offsets_are_told_less_exactly_and_the_newest_exactly() -> None:
    """A marker after every two records: each pair has a span, until there are too many."""
    spans: list[Span] = [Span(0, 0, 0)]
    for number in range(10_000):
        spans = thinned(joined(spans, [Span(2 * number, 3 * number, 2)]))
    assert len(spans) == SPANS_MAX
    for number in range(9_990, 10_000):
        assert translated(spans, 2 * number + 1) == 3 * number + 1
    for number in range(0, 10_000, 7):
        at = translated(spans, 2 * number)
        assert at is not None and at <= 3 * number
        assert 3 * number - at <= 3 * (10_000 - number) // 2, "half the distance to the end"


def test_many_at_once_are_as_few() -> None:
    spans = thinned([Span(2 * number, 3 * number, 2) for number in range(100_000)])
    assert len(spans) == SPANS_MAX
    assert spans[0] == Span(0, 0, 2) and spans[-1] == Span(199_998, 299_997, 2)
