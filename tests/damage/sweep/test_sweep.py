"""Every way to damage a directory: no wrong data is read, covered damage is reported and repaired.

Here a seeded sample, in `make explore` a larger one, drawn each time; KAFKALOG_LONG=1 flips a bit
of each byte of each file, for records of every sixteenth byte (ten minutes).
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import kafkalog
from kafkalog.batch.walk import BatchWalk
from kafkalog.inspect.rawfiles import list_segments
from kafkalog.inspect.repair import apply, plan
from kafkalog.inspect.verify.batches import BatchCheck
from kafkalog.inspect.verify.files import verify
from kafkalog.report import DAMAGE, Report
from tests.conftest import ROOT
from tests.damage.sweep import damages, reference
from tests.damage.sweep.judge import INDEXES, is_covered, place_of
from tests.damage.sweep.reference import THINNED, Reference, table_of
from tests.support import batches
from tests.support.effort import EXPLORING, LONG, SEED

WORKERS = 2 if EXPLORING or LONG else 1
FLIPS, OTHERS = (1500, 500) if EXPLORING else (120, 50)  # per worker
REPAIRS, OPENINGS, HEADERS = (250, 150, 60) if EXPLORING else (40, 25, 15)
# The limit is on address space, which these would reserve long before they use it.
QUIET = {"ARROW_DEFAULT_MEMORY_POOL": "system", "MALLOC_ARENA_MAX": "1", "PYTHONPATH": str(ROOT)}


@pytest.fixture(scope="module")
def memory() -> Iterator[Path]:
    """A folder in memory, if possible."""
    shm = "/dev/shm"
    with tempfile.TemporaryDirectory(dir=shm if os.access(shm, os.W_OK) else None) as folder:
        yield Path(folder)


@pytest.fixture(scope="module")
def made(memory: Path) -> Reference:
    return reference.make(memory / "data")


@pytest.fixture
def whole(made: Reference) -> Iterator[Reference]:
    """The directory, restored afterwards."""
    yield made
    made.restore()


def test_the_reference_is_clean_and_has_something_of_everything(made: Reference) -> None:
    report = verify(made.path, deep=True)
    assert report.clean and {f.what for f in report.findings} <= {"offset-gap"}
    assert 250_000 < sum(map(len, made.files.values())) < 350_000
    headers = [
        header
        for name, data in made.files.items()
        if name.endswith(".log")
        for header in batches.headers(data)
    ]
    assert {header.attributes & 7 for header in headers} == {0, 1, 2, 3, 4}
    assert any(header.attributes & batches.CONTROL for header in headers)
    assert {len(p.bases) >= 3 for p in made.partitions.values()} == {True}
    assert sum(name.endswith(".chk") for name in made.files) == sum(
        len(p.bases) - 1 for p in made.partitions.values()
    )


def run(folder: Path, part: int) -> subprocess.Popen[str]:
    folder.mkdir()
    which = ["--part", str(part), "--parts", str(WORKERS)]
    how = ["--all"] if LONG else ["--flips", str(FLIPS), "--others", str(OTHERS)]
    return subprocess.Popen(
        [
            sys.executable,
            "-m",
            "tests.damage.sweep.worker",
            folder,
            "--seed",
            str(SEED),
            *which,
            *how,
        ],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | QUIET,
        cwd=ROOT,
    )


@pytest.mark.slow
@pytest.mark.explore
@pytest.mark.timeout(7200 if LONG else 300)
def test_no_damage_is_believed(memory: Path) -> None:
    """Reads return what was written or an error, verify reports it, memory and time are bounded."""
    folders = [memory / f"worker{part}" for part in range(WORKERS)]
    workers = [run(folder, part) for part, folder in enumerate(folders)]
    for worker, folder in zip(workers, folders, strict=True):
        out, _ = worker.communicate()
        last = (folder / "now").read_text().strip() if (folder / "now").exists() else "none"
        assert worker.returncode == 0, f"{worker.returncode} at: {last}"
        result = json.loads(out)
        print(f"seed {SEED}: {json.dumps(result)}")
        assert result["problems"] == []
        assert result["told"].get("covered: told False", 0) == 0
        assert result["count"] >= FLIPS + min(OTHERS, 500)
        # The judge saw both errors and whole reads.
        assert result["outcomes"]["covered: error"] > 0 < result["outcomes"]["covered: whole"]


def sealed_headers(made: Reference, rng: random.Random, count: int) -> Iterator[damages.Damage]:
    """Flips of base offsets and epochs where gaps are normal: the batches' checksums are right."""
    logs = [n for n in made.files if n.startswith(THINNED) and n.endswith(".log")]
    for _ in range(count):
        name = rng.choice([n for n in logs if place_of(made, n).sealed])
        header = rng.choice(list(batches.headers(made.files[name])))
        byte = rng.choice([7, 7, 7, 6, *range(12, 16)])
        yield damages.flip(made, name, 8 * (header.pos + byte) + rng.randrange(8))


def reads_wrong(made: Reference) -> bool:
    wanted = made.partitions[THINNED].table
    with kafkalog.Log(made.path / THINNED, mode="r") as log:
        try:
            return not table_of(log).equals(wanted)
        except kafkalog.errors.CorruptMessage:
            return False


def told(made: Reference) -> bool:
    return any(f.severity != "note" for f in verify(made.path / THINNED).findings)


def test_it_is_the_side_car_that_tells(whole: Reference, rng: random.Random) -> None:
    """Without side-cars some damaged headers are accepted, with them none is."""
    unseen = {True: 0, False: 0}
    believed = {True: 0, False: 0}
    changes = list(sealed_headers(whole, rng, HEADERS))
    for with_side_cars in (True, False):
        if not with_side_cars:
            whole.write({name: None for name in whole.files if name.endswith(".chk")})
        for _, edits, _ in changes:
            whole.write(edits)
            unseen[with_side_cars] += not told(whole)
            believed[with_side_cars] += reads_wrong(whole)
            whole.undo(edits)
    assert unseen[True] == believed[True] == 0
    assert unseen[False] > 0 < believed[False]


def test_the_limit_on_memory_limits() -> None:
    """A worker that allocates more than it may gets an error."""
    program = (
        "from tests.damage.sweep import worker; worker.limit_memory(); bytearray(8 << 20)\n"
        "try: bytearray(2 * worker.MEMORY_BYTES)\n"
        "except MemoryError: print('limited')"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | QUIET,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout == "limited\n"


# ---- repair --------------------------------------------------------------------------------


class Collect:
    """The batches that verify accepts, without the header bytes that a repair may change."""

    def __init__(self) -> None:
        self.bodies: set[bytes] = set()

    def feed(self, table: Any, walk: BatchWalk) -> None:
        for row in table:
            self.bodies.add(walk.read(int(row["pos"]), int(row["batch_bytes"]))[17:])


def good_batches(folder: Path) -> set[bytes]:
    collect, check = Collect(), BatchCheck(Report(), deep=False, locked=False)
    for files in list_segments(folder):
        check.segment(files, [collect.feed])
    return collect.bodies


def sample(made: Reference, rng: random.Random, count: int) -> list[damages.Damage]:
    """Flips anywhere and of each file alike, and other damage, of one partition each."""
    files = damages.flips(made)
    chosen = [
        damages.flip(made, name, rng.randrange(bits))
        for name, bits in [
            *rng.choices(files, [bits for _, bits in files], k=count // 3),
            *rng.choices(files, k=count // 3),
        ]
    ]
    others = [d for kind in damages.KINDS.values() for d in kind(made, rng)]
    chosen += rng.sample(others, count - len(chosen))
    return [d for d in chosen if len({place_of(made, n).partition for n in d[1]} - {""}) == 1]


@pytest.mark.slow
@pytest.mark.explore
def test_repair_keeps_everything_that_verify_called_good(
    whole: Reference, rng: random.Random
) -> None:
    """Repairable damage is repaired, nothing else is lost, and a header's bit is restored."""
    mended = 0
    for what, edits, covered in sample(whole, rng, REPAIRS):
        [name] = {place_of(whole, n).partition for n in edits} - {""}
        folder = whole.path / name
        whole.write(edits)
        before = good_batches(folder)
        kinds = set()
        report = verify(folder)
        for _ in range(4):
            actions = [a for a in plan(report) if a.kind != "leave"]
            kinds |= {a.kind for a in actions}
            apply(actions)
            report = verify(folder)
        left = [f for f in report.findings if f.severity == DAMAGE]
        assert not [a for a in plan(report) if a.kind != "leave"], (what, left)
        # Either the topic's id or the side-cars are wrong: which one is unknown.
        if covered and what.startswith("bit") and not what.endswith("metadata"):
            assert report.clean, (what, left)
        # A batch out of place in the last segment is cut, as it would prevent writing.
        aside = b"".join(file.read_bytes() for file in folder.glob("*.damaged*"))
        gone = before - good_batches(folder)
        assert not gone or not covered, what
        assert all(body in aside for body in gone), what
        with kafkalog.Log(folder, mode="r") as log:
            if report.clean and what.startswith("bit"):
                found = table_of(log)["offset"].to_pylist()
                wanted = whole.partitions[name].table["offset"].to_pylist()
                assert set(found) <= set(wanted), what
        # A repeated batch may look like one whose offset lost a bit, and be repaired that way.
        if "mend" in kinds and what.startswith("bit"):
            mended += 1
            [log_name] = edits
            assert (whole.path / log_name).read_bytes() == whole.files[log_name], what
        whole.restore()
    assert mended > 0


@pytest.mark.slow
@pytest.mark.explore
def test_a_writer_cuts_nothing_sealed_and_makes_indexes_again(
    whole: Reference, rng: random.Random
) -> None:
    """Open for writing, read, close: a damaged sealed `.log` stays the same, byte for byte."""
    files = [(n, 8 * len(d)) for n, d in whole.files.items() if place_of(whole, n).sealed]
    for name, bits in rng.choices(files, k=OPENINGS):
        what, edits, _ = damages.flip(whole, name, rng.randrange(bits))
        place = place_of(whole, name)
        expected = whole.partitions[place.partition]
        whole.write(edits)
        with kafkalog.Log(whole.path / place.partition, config=reference.SETTINGS) as log:
            if place.suffix == ".log":
                with pytest.raises(kafkalog.errors.CorruptMessage):
                    list(log.read())
            else:
                assert table_of(log).equals(expected.table), what
                committed = table_of(log, isolation="read_committed")
                assert committed.equals(expected.committed), what
                time = rng.choice(sorted(expected.times))
                assert log.offset_at(time) == expected.times[time], what
                for base in expected.bases:
                    assert next(log.read(base)).offset >= base
            assert log.recovery.truncated_bytes == 0, what
        after = (whole.path / name).read_bytes()
        if place.suffix in INDEXES:
            assert after == whole.files[name], what
            assert verify(whole.path / place.partition).clean, what
        else:
            assert after == edits[name], what
        whole.restore()


def test_most_bytes_are_covered(made: Reference) -> None:
    """The share of all bytes whose change must be reported; judge.py names the exceptions."""
    covered = total = 0
    for name, data in made.files.items():
        sealed = place_of(made, name).sealed
        covered += sum(is_covered(made, name, i, sealed) for i in range(len(data)))
        total += len(data)
    assert covered / total > 0.95
