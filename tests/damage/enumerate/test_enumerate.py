"""Every crash of every protocol that changes a disk keeps the promises.

Each protocol is recorded once, through the I/O table of the test build.  Then its crashes are
constructed: at each moment, any part of what was not durable yet.  Exploring continues with drawn
cuts; the long form tears small files at every byte.
"""

import random
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.damage.enumerate import cuts, protocols
from tests.damage.enumerate.canaries import CANARIES, DERIVED
from tests.damage.enumerate.cuts import Enumeration, Fault
from tests.damage.enumerate.disk import Disk, digest
from tests.damage.enumerate.judge import Judge
from tests.damage.enumerate.promise import promises
from tests.damage.enumerate.trace import Step, recording, slow_disk
from tests.support.effort import EXPLORING, LONG, rounds

DRAWN = 25
ALL_SUBSETS = 8 if LONG else cuts.ALL_SUBSETS
USED_SHARE = 1 if LONG else 8 if EXPLORING else 32
EVERY = 1 if LONG or EXPLORING else 10  # with 11 one of the planted bugs is not found

Trace = tuple[list[Step], Path]


@pytest.fixture(scope="module")
def recorded(native_test, memory) -> Callable[[str], Trace]:
    """`recorded(protocol)`: its steps, and the folder where they were made."""
    _, lib = native_test
    known: dict[str, Trace] = {}

    def record(name: str) -> Trace:
        if name not in known:
            root = memory / f"recorded-{name}"
            root.mkdir()
            steps: list[Step] = []
            with recording(lib, steps) as recorder:
                protocols.run(name, recorder.mark, root)
            known[name] = slow_disk(steps, threading.get_native_id()), root
        return known[name]

    return record


def enumeration(
    name: str, steps: list[Step], root: Path, place: Path, share: int = USED_SHARE
) -> Enumeration:
    """The cuts of a trace, from its mark `begin` on."""
    place.mkdir()
    first = next(step.number for step in steps if step.mark[:1] == ("begin",))
    return Enumeration(
        protocol=name,
        steps=steps,
        promises=promises(steps, str(root / protocols.LOG_FOLDER)),
        root=root,
        judge=Judge(place, protocols.config_of(name), protocols.LOG_FOLDER, share),
        first=first,
        all_subsets=ALL_SUBSETS,
        fine=LONG,
    )


@pytest.mark.slow
@pytest.mark.explore
@pytest.mark.timeout(0)
@pytest.mark.parametrize("name", protocols.NAMES)
def test_every_crash_keeps_the_promises(name, recorded, memory, rng, record_property):
    trace = enumeration(name, *recorded(name), memory / f"cut-{name}")
    trace.every = EVERY
    trace.systematic()
    trace.draw(rng, rounds(DRAWN))
    states = trace.judge.states
    print(f"{name}: {len(trace.steps)} steps, {trace.cuts} cuts, {states} different states")
    record_property("states", states)
    assert states > 200 / EVERY


def test_every_cut_of_an_open_that_finishes_a_compaction(recorded, memory):
    """The rename that ends the exchange reaches the disk after everything it depends on."""
    steps, root = recorded("merge")
    trace = enumeration("merge", steps, root, memory / "cut-swap")
    moment, disk = next(
        found for found in trace.moments() if steps[found[0]].to.endswith(".log.swap")
    )
    image = disk.image([True] * len(disk.pending))
    gone = {step.name for step in trace.judge.opening(image) if step.op == "unlinkat"}
    assert {name for name in gone if name.endswith(".log")} == {f"{n:020}.log" for n in (2, 4)}
    trace.again(moment, image)
    assert trace.cuts > 20


@pytest.mark.parametrize("canary", CANARIES, ids=lambda canary: canary.__name__)
def test_a_planted_bug_is_found(canary, recorded, memory):
    """The harness itself: each bug that an engine could have breaks a promise."""
    name = CANARIES[canary]
    steps, root = recorded(name)
    place = memory / f"canary-{canary.__name__}"
    trace = enumeration(name, canary(steps), root, place, share=8)
    with pytest.raises(Fault) as found:
        trace.systematic()
    print(found.value)


@pytest.mark.parametrize("forgotten", DERIVED, ids=lambda forgotten: forgotten.__name__)
def test_rebuilt_files_need_no_sync(forgotten, recorded, memory):
    """A clean close vouches for its checksum: a lost file is derived again from the batches."""
    name = DERIVED[forgotten]
    steps, root = recorded(name)
    place = memory / f"derived-{forgotten.__name__}"
    enumeration(name, forgotten(steps), root, place).systematic()


def test_the_simulated_disk_equals_the_real_one(recorded, memory, native_test):
    """The disk in memory agrees with the real one at the end of every protocol."""
    for name in protocols.NAMES:
        steps, root = recorded(name)
        disk = Disk(root)
        for step in steps:
            disk.replay(step)
        folder = root / protocols.LOG_FOLDER
        there = {f"{folder.name}/{f.name}": f.read_bytes() for f in folder.iterdir()}
        there.pop(f"{folder.name}/.lock")
        assert digest(disk.image([True] * len(disk.pending))) == digest(
            {f"{folder.name}/": b"", **there}
        ), name


def test_draws_repeat_with_their_seed(recorded):
    steps, root = recorded("roll")
    disk = Disk(root)
    for step in steps:
        if not step.syncs:
            disk.replay(step)
    forms = [cuts.drawn(disk.pending, random.Random(seed)) for seed in (1, 1, 2)]
    assert len(disk.pending) > 5
    assert forms[0] == forms[1] != forms[2]
