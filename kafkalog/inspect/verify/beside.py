"""Checks a partition while its writer runs: a change of its files in progress is not damage.

A truncation, a deletion or a compaction changes several files, one after another, and a reader
in between sees some in their old state and some in their new one.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

from kafkalog._native import lib
from kafkalog.report import NOTE, Finding, Report

__all__ = ["look_beside"]

LOOKS = 5
SETTLE_S, NAP_S = 60.0, 0.01


def look_beside(folder: Path, look: Callable[[], Report]) -> Report:
    """The findings of a look that no change of files disturbed, or those that two looks share.

    `look`: checks the partition in `folder`, which a writer has open.
    """
    before: set[tuple[object, ...]] = set()
    for _ in range(LOOKS):
        changes = _changes(folder)
        report = look()
        found = {_place(one) for one in report.findings if one.severity != NOTE}
        undisturbed = changes >= 0 and changes % 2 == 0 and changes == _changes(folder)
        if not found or undisturbed or found == before:
            return report
        last, before = before, found
        _settle(folder)
    return report.only(lambda one: one.severity == NOTE or _place(one) in last)


def _changes(folder: Path) -> int:
    """How many times a change of its files began or ended; -1: no writer reports it."""
    return int(lib.kl_log_changes(os.fsencode(folder)))


def _settle(folder: Path) -> None:
    """Wait until a change that is under way has ended, or its writer takes too long."""
    until = time.monotonic() + SETTLE_S
    while _changes(folder) % 2 == 1 and time.monotonic() < until:
        time.sleep(NAP_S)


def _place(one: Finding) -> tuple[object, ...]:
    return one.what, one.file, one.position, one.offset
