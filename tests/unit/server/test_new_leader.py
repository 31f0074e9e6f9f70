"""The end offsets that a newly elected leader reports."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from kafkalog.log.log import handle_of
from kafkalog.server.handlers.list_offsets import EARLIEST, LATEST, not_yet
from tests.support.batches import Row, batch
from tests.support.copies import open_copy

CONSUMER, FOLLOWER = SimpleNamespace(replica_id=-1), SimpleNamespace(replica_id=2)


@pytest.mark.parametrize(
    ("timestamp", "offset", "early"),
    [
        (LATEST, 1, True),
        (1_700_000_000_000, -1, True),  # no visible record is as late, but a hidden one may be
        (1_700_000_000_000, 0, False),
        (EARLIEST, 0, False),
    ],
)
def test_no_end_before_one_that_was_told(
    tmp_path: Path, timestamp: int, offset: int, early: bool
) -> None:
    """The previous leader may have shown consumers all of these records (KIP-207)."""
    with open_copy(tmp_path / "t-0") as log:
        for number in range(3):
            record = batch([Row(b"x", None, 1_700_000_000_000)], base_offset=number)
            log.append_as_follower(record)
        handle = handle_of(log)
        handle.show_until(1)
        handle.lead(1)
        assert log.high_watermark == 1 and log.epochs[-1].start_offset == 3
        assert not_yet(log, CONSUMER, timestamp, offset) is early
        assert not not_yet(log, FOLLOWER, timestamp, offset)
        handle.show_until(3)
        assert not not_yet(log, CONSUMER, timestamp, offset)
