"""Losses of copied records, and the offset at which a mirror continues; without any broker."""

from __future__ import annotations

import pytest

from kafkalog.client.calls.groups import CommittedOffset
from kafkalog.client.calls.offsets import EpochEnd
from kafkalog.mirror.groups import moves
from kafkalog.mirror.losses import UNKNOWN, again, copy_loss, removed, rewound, source_loss
from kafkalog.mirror.spans import SPANS_MAX, Span, reached, translated
from kafkalog.mirror.state import NEVER, Cut, Progress
from kafkalog.types import TopicPartition

TP = TopicPartition("orders", 2)
KNOWN = Progress("id", 100, (Span(0, 5, 60), Span(61, 66, 39)), epoch=4)


@pytest.mark.parametrize(
    ("begin", "end", "asked", "compacted", "at"),
    [
        (0, 100, EpochEnd(4, 100), False, None),
        (0, 200, EpochEnd(4, 150), False, None),
        (0, 200, EpochEnd(4, 80), False, 80),  # truncated, and longer again
        (0, 90, EpochEnd(4, 80), False, 80),
        (90, 200, EpochEnd(4, 80), False, 80),  # and retention came after it
        (0, 200, EpochEnd(3, 70), False, 70),  # the whole epoch is gone
        (0, 200, EpochEnd(3, 120), False, UNKNOWN),  # another log, which goes further
        (0, 200, EpochEnd(3, 120), True, None),  # or all of the epoch was compacted away
        (0, 200, EpochEnd(-1, -1), False, UNKNOWN),  # epochs began again
        (150, 200, EpochEnd(-1, -1), False, None),  # nothing is left to compare
        (150, 200, EpochEnd(4, 150), False, None),  # only retention
        (0, 99, None, False, UNKNOWN),  # without epochs the end is all there is
        (0, 100, None, False, None),
        (0, 200, None, False, None),
    ],
)
def test_a_loss_of_the_source_is_found(
    begin: int, end: int, asked: EpochEnd | None, compacted: bool, at: int | None
) -> None:
    loss = source_loss(KNOWN, begin, end, asked, compacted)
    assert (loss and loss.at) == at
    assert loss is None or "lost records" in loss.why


def test_retention_before_the_copy_is_no_loss_of_the_copy() -> None:
    assert removed(KNOWN, 100) == ""
    assert "offsets 100 to 119" in removed(KNOWN, 120)


def test_accepted_loss_of_the_source() -> None:
    """Copying continues where the log diverges, after what the copy has already; a group that read
    records since lost continues with the first new one."""
    loss = source_loss(KNOWN, 0, 200, EpochEnd(3, 80), False)
    assert loss
    now = rewound(KNOWN, loss, 0, 107)
    assert (now.position, now.epoch, now.cut) == (80, 3, Cut(80, 4))
    assert [translated(now.spans, at) for at in (0, 30, 70, 79, 80)] == [5, 35, 75, 84, 107]
    later = now._replace(position=120, spans=(*now.spans, Span(80, 107, 40)))

    def moved(offset: int, epoch: int) -> int:
        found = moves({TP: CommittedOffset(offset, epoch)}, {TP: later}, {}, str)
        return found[TP].offset

    assert moved(95, 4) == moved(80, 4) == 107  # had read lost records
    assert moved(95, 5) == moved(95, -1) == 122
    assert moved(70, 4) == 75


def test_accepted_loss_at_an_unknown_offset() -> None:
    """Everything that the source has is copied again, after what the copy has."""
    loss = source_loss(KNOWN, 10, 90, None, False)
    assert loss
    now = rewound(KNOWN, loss, 10, 107)
    assert now == KNOWN._replace(position=10, spans=(Span(10, 107, 0),), epoch=-1)
    assert again(now, 0, 3).cut == NEVER


@pytest.mark.parametrize(
    ("end", "at"), [(105, None), (200, None), (104, 99), (90, 85), (66, 61), (65, 60), (5, 0)]
)
def test_a_loss_of_the_copy_is_found(end: int, at: int | None) -> None:
    """No record that the copy lost is skipped, no record that it has is repeated."""
    loss = copy_loss(KNOWN, end)
    assert (loss and loss.at) == at
    if loss is not None:
        now = rewound(KNOWN, loss, 0, end)
        assert (now.position, now.copy_end, now.cut) == (at, end, NEVER)


def test_spans_stay_bounded_and_in_order() -> None:
    spans = tuple(Span(3 * i, 2 * i, 1) for i in range(SPANS_MAX))
    known = Progress("", 3 * SPANS_MAX, spans, epoch=1)
    loss = source_loss(known, 0, 500, EpochEnd(1, 3 * SPANS_MAX - 1), False)
    assert loss
    now = rewound(known, loss, 0, 300)
    assert len(now.spans) <= SPANS_MAX
    assert list(now.spans) == sorted(now.spans, key=lambda span: (span.source, span.target))


def test_sparse_spans_lose_nothing() -> None:
    """Where positions within a compacted batch are not known, it is copied again as a whole."""
    spans = (Span(0, 0, 10), Span(10, 10, 0), Span(40, 15, 0), Span(40, 15, 5))
    assert [reached(spans, end) for end in (9, 10, 12, 15, 17)] == [9, 10, 10, 40, 42]
