"""A reader does not use what it saw of a log before the log changed."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import kafkalog
from tests.support import batches
from tests.support.batches import Row
from tests.unit.log.test_held_disk import CONFIG, fill, held

Wait = Callable[..., None]

PASSES = 2, 12
"""KL_FP_ERROR, ENOMEM."""


@pytest.fixture
def hooks(native_test: tuple[Any, Any]) -> Iterator[Any]:
    _, lib = native_test
    lib.kl_failpoint_reset()
    yield lib
    lib.kl_failpoint_reset()


def waits_for_a_lock(thread: int) -> bool:
    number = Path(f"/proc/self/task/{thread}/syscall").read_text().split()[0]
    return number in ("202", "98")  # futex, on x86 and on ARM


def test_a_look_at_a_segment_that_was_sealed_since(
    hooks: Any, tmp_path: Path, wait_until: Wait
) -> None:
    """Its indexes were freed, too; an index of only the part seen is not used for the segment."""
    with kafkalog.Log(tmp_path / "t-0", config=CONFIG) as log:
        fill(log)
    with kafkalog.Log(tmp_path / "t-0", config=CONFIG) as log:
        log.append(b"v", key=b"k", timestamp_ms=5_000)
        active = log.segments[-1].base_offset
    with kafkalog.Log(tmp_path / "t-0", config=CONFIG) as log:
        seen = log.append(b"seen", key=b"k", timestamp_ms=5_001)
        log.flush()
        with held(hooks, b"openat", lambda: log.offset_at(5_001), wait_until):
            later = log.append(b"later", key=b"k", timestamp_ms=6_000)
            log.roll()
            hooks.kl_failpoint_set(b"log.indexes.too_many", *PASSES, 1)
            assert next(iter(log.read(30))).offset == 30
            assert hooks.kl_failpoint_hits(b"log.indexes.too_many") >= 1
        (sealed,) = [one for one in log.segments if one.base_offset == active]
        assert (sealed.largest_timestamp_ms, sealed.next_offset) == (6_000, later + 1)
        assert log.offset_at(5_001) == seen
        assert log.offset_at(5_002) == later
        assert log.verify(deep=True).clean


def test_a_truncation_in_a_gap_keeps_slices_being_sent(
    hooks: Any, tmp_path: Path, wait_until: Wait
) -> None:
    """A gap from a leader is longer than a segment can be: a truncation in the gap removes no byte,
    the next one does."""
    later = 2**31 + 100
    rows = [Row(b"old%04d" % i, timestamp_ms=i) for i in range(20)]
    with kafkalog.Log(tmp_path / "t-0") as log:
        for i, row in enumerate(rows):
            log.append_as_follower(batches.batch([row], base_offset=i))
        log.append_as_follower(batches.batch([Row(b"far")], base_offset=later))
        assert [one.base_offset for one in log.segments] == [0, later]
        ours, theirs = socket.socketpair()
        with ours, theirs:
            with held(hooks, b"sendfile", lambda: log.send_to(ours, 0), wait_until):
                log.truncate(100)
                assert log.end_offset == 20
                log.truncate(5)
            sent = theirs.recv(1 << 20)
        assert [row.value in sent for row in rows if row.value] == [True] * 20
        assert [r.offset for r in log.read()] == [0, 1, 2, 3, 4]
        assert log.verify(deep=True).clean
