"""Verify while the log's files are being changed: a half-done change is no finding."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import kafkalog
from kafkalog.inspect.verify import files
from kafkalog.log.log import handle_of
from kafkalog.log.removal import truncate_fully
from kafkalog.report import NOTE, Finding, Report
from tests.support import batches
from tests.support.batches import Row
from tests.support.trees import copy_tree
from tests.unit.log.test_held_disk import (
    CONFIG,
    PATIENCE_S,
    Wait,
    delete_segments,
    disk,
    fill,
)

__all__ = ["disk"]  # fixture

Change = Callable[[kafkalog.Log], object]
STEPS = 40


def grow(log: kafkalog.Log, *epochs: int) -> None:
    """Append several segments, with records and an aborted transaction in each epoch."""
    for epoch in epochs:
        handle_of(log).lead(epoch)
        fill(log, 8)
        log.append_batches(
            batches.batch([Row(b"v" * 300, key=b"t", timestamp_ms=5_000)], base_sequence=0,
                          producer_id=epoch, producer_epoch=0, transactional=True)
        )  # fmt: skip
        log.append_marker(epoch, 0, False, timestamp_ms=6_000)


def cut_last(log: kafkalog.Log) -> None:
    log.truncate(log.segments[-1].base_offset + 1)


def cut_sealed(log: kafkalog.Log) -> None:
    log.truncate(log.segments[-2].base_offset + 2)


def begin_again(log: kafkalog.Log) -> None:
    truncate_fully(handle_of(log), log.end_offset + 100)


def delete(log: kafkalog.Log) -> None:
    delete_segments(log, log.segments[2].base_offset)


def compact(log: kafkalog.Log) -> None:
    log.compact()


@pytest.fixture(scope="module")
def grown(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log of several segments, for copying."""
    folder = tmp_path_factory.mktemp("grown") / "t-0"
    with kafkalog.Log(folder, config=CONFIG) as log:
        grow(log, 1, 2, 3)
    return folder


@contextmanager
def opened(grown: Path, folder: Path) -> Iterator[kafkalog.Log]:
    """Open a separate copy in which everything is on disk."""
    with kafkalog.Log(copy_tree(grown, folder), config=CONFIG) as log:
        grow(log, 4)
        log.flush()
        yield log


class Looks:
    """Records verify's looks at the partition; after the first one the held change is completed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, go_on: Callable[[], None]) -> None:
        self.found: list[set[str]] = []
        self.go_on = go_on
        self._look = files.verify_partition
        monkeypatch.setattr(files, "verify_partition", self)

    def __call__(self, folder: Path, report: Report, *how: Any) -> int:
        end = self._look(folder, report, *how)
        self.found.append({one.what for one in report.findings if one.severity != NOTE})
        if len(self.found) == 1:
            self.go_on()
        return end


def seen_by(
    monkeypatch: pytest.MonkeyPatch, disk: Any, log: kafkalog.Log, working: Future[object]
) -> tuple[list[Finding], list[set[str]]]:
    """Verify's findings, and what it saw in each of its looks."""

    def go_on() -> None:
        disk.kl_io_reset()
        working.result(timeout=PATIENCE_S)

    with monkeypatch.context() as patch:
        looks = Looks(patch, go_on)
        report = files.verify(log.path)
    return [one for one in report.findings if one.severity != NOTE], looks.found


@pytest.mark.parametrize(
    ("change", "calls"),
    [
        (cut_last, [b"openat", b"renameat", b"unlinkat"]),
        (cut_sealed, [b"openat", b"renameat", b"unlinkat", b"fsync"]),
        (begin_again, [b"openat", b"renameat", b"unlinkat", b"fsync"]),
        (delete, [b"renameat"]),
        (compact, [b"renameat"]),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_intermediate_states_of_a_change_are_no_finding(
    disk: Any,
    grown: Path,
    tmp_path: Path,
    wait_until: Wait,
    monkeypatch: pytest.MonkeyPatch,
    change: Change,
    calls: list[bytes],
) -> None:
    """The change is held in each of its calls, seen in that state, and then completed."""
    seen: set[str] = set()
    for call in calls:
        for nth in range(1, STEPS):
            folder = tmp_path / f"{call.decode()}-{nth}"
            with opened(grown, folder) as log, ThreadPoolExecutor(1) as pool:
                disk.kl_io_hold_one(call, nth)
                working = pool.submit(change, log)
                wait_until(
                    lambda w=working, c=call: w.done() or disk.kl_io_waiting(c), "it is held"
                )
                if held := not working.done():
                    found, looks = seen_by(monkeypatch, disk, log, working)
                    assert found == [], looks
                    seen |= looks[0]
                disk.kl_io_reset()
            if not held:
                break
        assert nth > 1, f"it makes no {call.decode()}"
    assert seen, "no look saw anything"


def test_damage_is_told_while_files_are_changed(
    disk: Any, grown: Path, tmp_path: Path, wait_until: Wait, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each look finds the damage; what only one look finds is dropped."""
    with opened(grown, tmp_path / "t-0") as log, ThreadPoolExecutor(1) as pool:
        damaged = Path(log.path) / f"{log.segments[2].base_offset:020d}.log"
        data = bytearray(damaged.read_bytes())
        data[-1] ^= 1
        damaged.write_bytes(data)
        disk.kl_io_hold_one(b"renameat", 2)
        working = pool.submit(delete, log)
        wait_until(lambda: disk.kl_io_waiting(b"renameat"), "it is held")
        found, looks = seen_by(monkeypatch, disk, log, working)
        assert {one.what for one in found} == {"batch-checksum"}
        assert looks[0] > looks[1] == {"batch-checksum"}
