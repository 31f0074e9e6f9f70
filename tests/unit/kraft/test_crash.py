"""Killed at every failpoint, or with a failing disk: a change is complete or absent."""

import contextlib
import errno
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kafkalog.errors import KafkalogError
from tests.damage.crash.zygote import Zygote
from tests.support.effort import EXPLORING, LONG
from tests.unit.kraft import story

WORK = "tests.unit.kraft.story:life"


@pytest.fixture(scope="module")
def zygote(native_test: Any) -> Iterator[Zygote]:
    with Zygote() as serving:
        yield serving


@pytest.fixture(scope="module")
def states(memory: Path) -> list[dict[str, Any]]:
    """The metadata after each step."""
    path = Path(tempfile.mkdtemp(dir=memory))
    found = list(story.expected(path / "data"))
    assert len(found) == len(story.STEPS) + 1
    return found


def check(path: Path, states: list[dict[str, Any]], reached: int) -> None:
    """After a crash the metadata is that of the last reported step or the next; later steps run."""
    stack, manager, metadata = story.opened(path)
    with stack:
        found = story.summary(metadata.image)
        possible = states[reached : reached + 2]
        assert found in possible
        for tp in manager.partitions():
            manager.get(*tp)  # opening gives a folder its missing id
        story.check_folders(manager, metadata)
        done = reached + possible.index(found)
        # A snapshot changes nothing, so several steps may have this metadata: take the last.
        while done + 1 < len(states) and states[done + 1] == found:
            done += 1
        for number, step in enumerate(story.STEPS[done : done + 3], done + 1):
            step(metadata)
            assert story.summary(metadata.image) == states[number]
            done = number
        story.check_folders(manager, metadata)
    stack, _, metadata = story.opened(path)
    with stack:
        assert story.summary(metadata.image) == states[done]


@pytest.mark.slow
@pytest.mark.explore
def test_a_kill_at_every_failpoint_leaves_whole_changes(
    zygote: Zygote, memory: Path, states: list[dict[str, Any]]
) -> None:
    """Killed at the first pass of one failpoint and at the last pass of the next; the long form
    kills at both passes of each, and exploring at seven."""
    root = Path(tempfile.mkdtemp(dir=memory))
    hits: dict[str, int] = {}
    for words in zygote.start(WORK, path=str(root / "all")).reports():
        if words[0] == "hits":
            hits = words[1]
    assert "append.before_write" in hits
    killed = 0
    for place, (failpoint, count) in enumerate(hits.items()):
        many = [1 + part * (count - 1) // 6 for part in range(7)]
        few = many[::6] if LONG else [(1, count)[place % 2]]
        for after in sorted(set(many if EXPLORING else few)):
            path, reached = root / f"{failpoint}-{after}", 0
            worker = zygote.start(WORK, path=str(path), failpoint=failpoint, after=after)
            for words in worker.reports():
                if words[0] == "step":
                    reached = words[1]
                    assert words[2] == states[reached]
            killed += reached < len(story.STEPS)
            try:
                check(path, states, reached)
            except AssertionError as failure:
                raise AssertionError(f"killed at {failpoint}, pass {after}: {failure}") from failure
            shutil.rmtree(path)
    assert killed > (20 if LONG or EXPLORING else 12)


@pytest.mark.explore
@pytest.mark.parametrize(("error", "sticky"), [(errno.ENOSPC, 0), (errno.EIO, 1)])
@pytest.mark.parametrize("call", ["pwrite", "fdatasync", "fsync", "openat", "renameat", "mkdirat"])
def test_a_failing_disk_leaves_whole_changes(
    native_test: Any,
    memory: Path,
    states: list[dict[str, Any]],
    call: str,
    sticky: int,
    error: int,
) -> None:
    """A call fails during one step; the step is complete or absent, and a restart continues."""
    lib = native_test[1]
    root = Path(tempfile.mkdtemp(dir=memory))
    # Create a topic, a change of several batches, delete a topic; exploring: every step.
    for number in range(len(story.STEPS)) if EXPLORING else (0, 4, 8):
        path, nth, failed = root / f"step-{number}", 1, True
        while failed and nth < 6:
            stack, _, metadata = story.opened(path)
            try:
                for step in story.STEPS[:number]:
                    step(metadata)
                lib.kl_io_reset()
                lib.kl_io_fail(call.encode(), nth, error, sticky, 0)
                reached = number
                try:
                    story.STEPS[number](metadata)
                    reached += 1
                except (KafkalogError, story.Failed):
                    pass
                failed = lib.kl_io_calls(call.encode()) >= nth
                lib.kl_io_reset()
                assert story.summary(metadata.image) in states[number : number + 2]
            finally:
                lib.kl_io_reset()
                # If the disk fails permanently, close raises an error too.
                with contextlib.suppress(KafkalogError, OSError):
                    stack.close()
            check(path, states, reached)
            shutil.rmtree(path)
            nth += 1
