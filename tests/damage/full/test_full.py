"""A full disk at every step: each call that needs space is refused in turn, once and for a while.

Afterwards nothing acknowledged is lost, nothing stays offline, refused steps succeed when there is
space, the next open succeeds and verify finds nothing.  Each run tries a sample of the calls;
KAFKALOG_LONG=1 tries all of them, and exploring draws more.
"""

from __future__ import annotations

import errno
import itertools
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kafkalog import KafkalogError, NoSpace
from kafkalog.errors import IoFailed, NoMemory
from tests.damage.full.copied import CopyLife
from tests.damage.full.lives import BrokerLife, LogLife, Refused, Step
from tests.support.effort import EXPLORING, LONG, SEED, patience_s, rounds
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.slow, pytest.mark.explore, pytest.mark.timeout(patience_s(300))]

FULL = {"ENOSPC": (b"room", errno.ENOSPC), "EDQUOT": (b"room", errno.EDQUOT),
        "EMFILE": (b"openat", errno.EMFILE)}  # fmt: skip
SAME = {"EDQUOT"}
"""Refused and handled as ENOSPC is: a third of the sample."""
TRIES_MAX = 3
"""How often a step may be refused while the disk is full."""
LOG_SAMPLE, BROKER_SAMPLE = (60, 12) if EXPLORING or LONG else (12, 4)
LIVES = {
    "a log alone": lambda folder: LogLife(folder, alone=True),
    "a log in a directory": lambda folder: LogLife(folder, alone=False),
    "a copy": CopyLife,
    "a broker": BrokerLife,
}


@pytest.fixture
def lib(native_test: tuple[Any, Any], monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setattr("kafkalog.coordinator.core.LOAD_AGAIN_MS", 50)  # 11 s would be too long
    native_test[1].kl_io_reset()
    yield native_test[1]
    native_test[1].kl_io_reset()


class Trial:
    """One life in which the nth call finds no space."""

    def __init__(self, lib: Any, life: Any, want: str, nth: int, lasting: bool) -> None:
        self.lib = lib
        self.life = life
        self.call, self.error = FULL[want]
        self.nth, self.lasting = nth, lasting
        self.refusals: list[str] = []

    def run(self) -> None:
        """Run all steps; from the fault on, each refused step is repeated."""
        assert self.lib.kl_io_fail(self.call, self.nth, self.error, self.lasting, 0) == 0
        for step in self.life.steps:
            self._step(step)
            self._look(self.life.check)
        self._room()
        self.life.end_well()

    def _step(self, step: Step) -> None:
        for _ in range(TRIES_MAX):
            if self.tried(step):
                if self.refusals and not self.lasting:
                    self._room()
                return
            self._look(self.life.check_refused)
        self._room()
        wait_for(lambda: self.tried(step), f"{step.__name__} when there is space")

    def tried(self, step: Step) -> bool:
        try:
            step()
        except (Refused, NoMemory, IoFailed) as problem:
            if isinstance(problem, IoFailed) and not isinstance(problem, NoSpace):
                assert problem.errno in (errno.EMFILE, errno.ENOSPC, errno.EDQUOT), problem
            self.refusals.append(f"{step.__name__}: {problem}")
            return step.__name__ == "close"  # it is closed, and reported what it could not do
        return True

    def _look(self, check: Callable[[], None]) -> None:
        """Reading needs no space, but descriptors."""
        try:
            check()
        except (IoFailed, Refused):
            assert self.call == b"openat"
            self._room()
            check()

    def _room(self) -> None:
        self.lib.kl_io_reset()


def calls_of(lib: Any, life: Any, want: str) -> int:
    """The number of such calls in a life with enough space."""
    lib.kl_io_reset()
    trial = Trial(lib, life, want, 1 << 40, lasting=False)
    for step in life.steps:
        wait_for(lambda step=step: trial.tried(step), step.__name__)
    life.end_well()
    count = int(lib.kl_io_calls(FULL[want][0]))
    lib.kl_io_reset()
    return count


def chosen(count: int, sample: int, offset: int) -> Iterator[int]:
    """Which calls are refused: all, or every nth with a varying start."""
    every = 1 if LONG else max(1, -(-count // sample))
    yield from range(1 + offset % every, count + 1, every)
    if EXPLORING:
        draw = random.Random(SEED)
        yield from (draw.randint(1, count) for _ in rounds(1))


@pytest.mark.parametrize("lasting", [False, True], ids=["once", "for a while"])
@pytest.mark.parametrize("want", FULL)
@pytest.mark.parametrize("name", LIVES)
def test_a_full_disk_at_every_step(
    lib: Any, memory: Path, name: str, want: str, lasting: bool
) -> None:
    unique = f"{name}-{want}-{lasting}"
    folders = (memory / f"{unique}-{number}" for number in itertools.count())
    folder = next(folders)
    count = calls_of(lib, LIVES[name](folder), want)
    shutil.rmtree(folder)
    assert count > 30
    sample = BROKER_SAMPLE if name == "a broker" else LOG_SAMPLE
    if want in SAME and not (EXPLORING or LONG):
        sample = sample // 3 + 1
    offset = list(FULL).index(want) * 2 + lasting
    refused = 0
    for nth in chosen(count, sample, offset):
        folder = next(folders)
        trial = Trial(lib, LIVES[name](folder), want, nth, lasting)
        try:
            trial.run()
        except BaseException as problem:
            lib.kl_io_reset()
            print(f"{name}, {want}, call {nth} of {count}: {trial.refusals}: {problem!r}")
            raise
        finally:
            lib.kl_io_reset()
        refused += bool(trial.refusals)
        shutil.rmtree(folder)
    assert refused > 0, "nothing was refused: this tests nothing"


def test_a_lost_record_is_found(lib: Any, memory: Path) -> None:
    """The canary: a life whose log forgets acknowledged records does not end well."""
    life = LogLife(memory / "canary", alone=True)
    life.open()
    life.append()
    life.log.truncate(life.end - 1)
    with pytest.raises(AssertionError):
        life.check()
    life.log.append(b"other", key=b"k", timestamp_ms=1)
    with pytest.raises(AssertionError):
        life.check_refused()
    life.close()


def test_a_log_that_stays_offline_is_found(lib: Any, memory: Path) -> None:
    """The canary: a log that does not go on when there is space ends the test."""
    life = LogLife(memory / "offline", alone=True)
    life.open()
    lib.kl_io_fail(b"fdatasync", 1, errno.ENOSPC, 0, 0)
    trial = Trial(lib, life, "ENOSPC", 1 << 40, lasting=False)
    with pytest.raises(KafkalogError):
        for step in (life.append, life.flush, life.append):
            trial._step(step)
