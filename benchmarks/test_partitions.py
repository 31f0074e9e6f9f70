"""Many partitions in one process, under `ulimit -n 20000`.

Each figure comes from a separate process, which opens a directory that was closed cleanly.
Resident memory is that of the whole process, Python or Java and all, after every log took its
first record.  Appends go to all partitions in turn, one record a call, compared with ten
partitions. Kafka's time is from the start of its process until the leader of each partition
answers; ours is from opening the directory until every log is open (starting Python comes before).
The floor is the same bytes by write(2) to as many files in turn.
"""

from __future__ import annotations

import json
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.environment import place
from benchmarks.measure import SCALE, Side, Want, scaled
from benchmarks.rivals import kafka_broker
from tests.support import apache

# kafka-python reads its own files in a way that Python deprecates.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

OPEN_FILES = 20_000
FEW, MANY, MOST = 10, 1_000, 10_000
APPENDS = 100_000
ROUNDS = 3
MEMORY_BYTES, OPEN_S = 60e6, 1.0
FOUND = "Nothing here is warmed: each figure is that of a process that has just started."
MAKE = """
import sys
from kafkalog.directory.manager import Manager
with Manager(sys.argv[1]) as manager:
    manager.create_topic("many", int(sys.argv[2]))
"""
LOOK = """
import json, sys, time
from itertools import cycle, islice
from kafkalog.directory.manager import Manager

def memory_bytes():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024.0 for line in status if line.startswith("VmRSS"))

path, partitions, appends = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
start = time.perf_counter()
with Manager(path) as manager:
    logs = [manager.get("many", number) for number in range(partitions)]
    found = {"open": time.perf_counter() - start}
    value = b"x" * 100
    for log in logs:
        log.append(value)
    found["memory"] = memory_bytes()
    start = time.perf_counter()
    for log in islice(cycle(logs), appends):
        log.append(value)
    found["append"] = time.perf_counter() - start
print(json.dumps(found))
"""
FLOOR = """
import json, os, sys, time
from itertools import cycle, islice

path, number, appends = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
os.mkdir(path)
flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
files = [os.open(os.path.join(path, str(i)), flags, 0o600) for i in range(number)]
data, write = b"x" * 170, os.write
for fd in files:
    write(fd, data)
start = time.perf_counter()
for fd in islice(cycle(files), appends):
    write(fd, data)
print(json.dumps({"append": time.perf_counter() - start}))
"""


def child(code: str, *arguments: object) -> str:
    """The output of a process that may open OPEN_FILES files, or the system's limit."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    allowed = OPEN_FILES if hard == resource.RLIM_INFINITY else min(OPEN_FILES, hard)
    limited = ["sh", "-c", f'ulimit -S -n {allowed}; exec "$@"', "sh"]
    done = subprocess.run(
        [*limited, sys.executable, "-c", code, *map(str, arguments)],
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def name_of(partitions: int) -> str:
    return f"kafkalog, {partitions:,} partitions"


def floor_of(files: int) -> str:
    return f"write(2), {files:,} files"


KAFKA = f"Kafka {apache.VERSION}, {MANY:,} partitions"


class Looks:
    """The measurements, round by round, by side and kind."""

    def __init__(self) -> None:
        self.found: dict[str, list[dict[str, float]]] = {}

    def add(self, name: str, look: dict[str, float]) -> None:
        self.found.setdefault(name, []).append(look)

    def side(self, name: str, kind: str, count: int = 1) -> Side:
        """A side that reports what was found."""
        told = iter(self.found[name])
        return Side(name, count, lambda: next(told)[kind])


@pytest.fixture(scope="module")
def looks() -> Iterator[Looks]:
    """Run all sides in turn, round after round; the rows below report what was found."""
    made = Looks()
    with tempfile.TemporaryDirectory(prefix="kafkalog-bench-", dir=place()) as folder:
        sizes = [FEW, MANY, MOST]
        for partitions in sizes:
            child(MAKE, Path(folder) / f"data-{partitions}", scaled(partitions, FEW))
        kafka = Path(folder) / "kafka" / "data"
        if kafka_broker.unavailable() is None:
            kafka.parent.mkdir()
            with kafka_broker.Broker(kafka) as broker:
                broker.create_topic("many", scaled(MANY, FEW))
        for _ in range(ROUNDS if SCALE >= 1 else 2):
            for partitions in sizes:
                path, number = Path(folder) / f"data-{partitions}", scaled(partitions, FEW)
                found = child(LOOK, path, number, scaled(APPENDS, 100))
                made.add(name_of(partitions), json.loads(found))
                bare = child(FLOOR, Path(folder) / "files", number, scaled(APPENDS, 100))
                shutil.rmtree(Path(folder) / "files")
                made.add(floor_of(partitions), json.loads(bare))
            if kafka.parent.exists():
                made.add(KAFKA, look_at_kafka(kafka))
        yield made


def look_at_kafka(directory: Path) -> dict[str, float]:
    start = time.perf_counter()
    with kafka_broker.Broker(directory) as broker:
        broker.until_ready("many", scaled(MANY, FEW))
        return {"open": time.perf_counter() - start, "memory": broker.memory_bytes()}


def with_kafka(looks: Looks, kind: str) -> list[Side]:
    names = [name_of(MANY), name_of(MOST), KAFKA]
    return [looks.side(name, kind) for name in names if name in looks.found]


@pytest.mark.timeout(300)
def test_open(measure: Any, looks: Looks) -> None:
    wants = [Want(name_of(MANY), OPEN_S), Want(name_of(MOST), OPEN_S),
             Want(name_of(MANY), than=KAFKA)]  # fmt: skip
    measure("partitions-open", "Open a directory of many partitions",
            with_kafka(looks, "open"), wants, unit="s", rounds=ROUNDS, cold=FOUND)  # fmt: skip


def test_memory(measure: Any, looks: Looks) -> None:
    wants = [Want(name_of(MANY), MEMORY_BYTES), Want(name_of(MANY), than=KAFKA)]
    measure("partitions-memory", "Resident memory with many partitions open",
            with_kafka(looks, "memory"), wants, unit="B", rounds=ROUNDS, cold=FOUND)  # fmt: skip


def test_append(measure: Any, looks: Looks) -> None:
    few, count = name_of(FEW), scaled(APPENDS, 100)
    names = [name_of(MOST), name_of(MANY), few, *(floor_of(n) for n in (MOST, MANY, FEW))]
    wants = [Want(name_of(n), than=few, factor=0.5) for n in (MOST, MANY)]
    measure("partitions-append", "Append to many partitions in turn",
            [looks.side(name, "append", count) for name in names], wants,
            rounds=ROUNDS, cold=FOUND)  # fmt: skip
