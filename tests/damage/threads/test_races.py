"""Threads on the same logs: in C under ThreadSanitizer, where no interpreter lock orders the
calls, and in Python, where each thread gets what it was promised.
"""

import os
import random
import subprocess
import threading
from pathlib import Path

import pytest

import kafkalog
from kafkalog import errors
from tests.support import effort

ROOT = Path(__file__).resolve().parents[3]
NATIVE = ROOT / "kafkalog" / "_native"
SECONDS = max(3, round(effort.SECONDS))

pytestmark = [pytest.mark.slow, pytest.mark.explore, pytest.mark.timeout(600 + 3 * SECONDS)]


def build(folder: Path, sanitizers: str) -> Path:
    """stress.c with the sources of the C core; skips where the sanitizer is missing."""
    if "LD_PRELOAD" in os.environ:
        pytest.skip("brings its own sanitizers, and another is already loaded")
    flags = ["-std=c11", "-D_GNU_SOURCE", "-g", "-O1", "-fno-omit-frame-pointer", "-w"]
    flags += [f"-fsanitize={sanitizers}", f"-I{NATIVE}", "-pthread"]
    probe = subprocess.run(
        ["gcc", *flags, "-xc", "-", "-o", str(folder / "probe")],
        input=b"int main(void) { return 0; }", capture_output=True,
    )  # fmt: skip
    if probe.returncode:
        pytest.skip(f"gcc cannot link -fsanitize={sanitizers}")
    parts = ("base", "batch", "segment", "log", "scan", "clean")
    product = sorted(str(path) for part in parts for path in (NATIVE / part).glob("*.c"))
    objects = []
    halves = [product[::2], product[1::2]]
    running = []
    for number, half in enumerate(halves):
        place = folder / str(number)
        place.mkdir()
        running.append(subprocess.Popen(["gcc", *flags, "-c", *half], cwd=place))
    for number, process in enumerate(running):
        assert process.wait() == 0
        objects += sorted(map(str, (folder / str(number)).glob("*.o")))
    program = folder / "stress"
    stress = str(Path(__file__).parent / "stress.c")
    subprocess.run(["gcc", *flags, stress, *objects, "-o", str(program)], check=True)
    return program


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    return build(tmp_path_factory.mktemp("stress"), "thread")


def run(program: Path, folder: Path, seconds: int, *more: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "TSAN_OPTIONS": "halt_on_error=1:exitcode=66"}
    folder.mkdir()
    return subprocess.run(
        [str(program), str(folder), str(seconds), *more],
        capture_output=True, text=True, env=environment,
    )  # fmt: skip


@pytest.mark.long
def test_no_call_races_with_another(program, tmp_path):
    done = run(program, tmp_path / "logs", SECONDS)
    assert done.returncode == 0, done.stderr[-6000:]
    assert int(done.stdout.split()[0]) > 500


@pytest.mark.long
def test_the_canary_is_found(program, tmp_path):
    """A counter without protection; missing it would mean that nothing can be found."""
    done = run(program, tmp_path / "logs", 1, "canary")
    assert done.returncode == 66
    assert "data race" in done.stderr and "stress.c" in done.stderr


@pytest.mark.skipif(not effort.EXPLORING, reason="part of `make explore`")
def test_memory_is_right_under_threads(tmp_path):
    done = run(build(tmp_path, "address,undefined"), tmp_path / "logs", SECONDS)
    assert done.returncode == 0, done.stderr[-6000:]


# ---- in Python -------------------------------------------------------------------------------


class Crowd:
    """Threads that work until they must stop; the first failure of any is raised at the end."""

    def __init__(self) -> None:
        self.failure: BaseException | None = None
        self.ending = threading.Event()
        self.threads: list[threading.Thread] = []

    def add(self, work, *arguments) -> None:
        def guarded() -> None:
            try:
                while not self.ending.is_set():
                    work(*arguments)
            except BaseException as failure:
                self.failure = self.failure or failure
                self.ending.set()

        self.threads.append(threading.Thread(target=guarded))

    def run(self, enough) -> None:
        for thread in self.threads:
            thread.start()
        while not enough() and not self.ending.wait(0.01):
            pass
        self.ending.set()
        for thread in self.threads:
            thread.join()
        if self.failure:
            raise self.failure


def test_threads_share_a_log(tmp_path):
    """Each append has its own offset, and each read is complete, whatever else goes on."""
    appended: dict[int, bytes] = {}
    crowd = Crowd()
    with kafkalog.Log(tmp_path / "log-0", config={"segment.bytes": 20_000}) as log:

        def append(name: int, draw: random.Random) -> None:
            value = b"%d-%d" % (name, draw.randrange(1 << 60))
            if draw.random() < 0.5:
                offsets = [log.append(value)]
            else:
                span = log.append_many([value] * 7, compression=draw.choice([None, "lz4"]))
                offsets = list(range(span.base_offset, span.last_offset + 1))
            for offset in offsets:
                assert appended.setdefault(offset, value) is value

        def read(draw: random.Random) -> None:
            end = log.end_offset
            start = draw.randrange(end + 1)
            offsets = [record.offset for record in log.read(start, min(start + 50, end))]
            assert offsets == list(range(start, min(start + 50, end)))
            log.scan(start, end, columns=["offset"]).count()
            assert log.segments[0].base_offset == 0
            log.offset_at(0)

        def flush() -> None:
            end = log.end_offset
            log.flush()
            assert log.flushed_offset >= end

        for number in range(3):
            crowd.add(append, number, random.Random(number))
            crowd.add(read, random.Random(10 + number))
        crowd.add(flush)
        crowd.run(lambda: len(appended) > 3000)
        assert sorted(appended) == list(range(log.end_offset))
        assert all(record.value == appended[record.offset] for record in log.read())
        assert log.verify().clean


def test_a_close_ends_the_calls_of_other_threads(tmp_path):
    """Threads in any call get Closed, and nothing else."""
    for attempt in range(5):
        log = kafkalog.Log(tmp_path / f"log-{attempt}")
        log.append_many([bytes(100)] * 2000)
        crowd = Crowd()
        refused: list[type] = []
        lock = threading.Lock()

        def until_closed(work, log=log, refused=refused, lock=lock, crowd=crowd):
            try:
                work(log)
            except kafkalog.KafkalogError as error:
                with lock:
                    refused.append(type(error))
                crowd.ending.wait()

        works = [
            lambda log: log.append(b"x"),
            lambda log: sum(1 for _ in log.read()),
            lambda log: log.scan(columns=["value"]).to_numpy(),
            lambda log: log.flush(),
            lambda log: next(log.follow(log.end_offset + 0)),
        ]
        for work in works:
            crowd.add(until_closed, work)
        closer = threading.Timer(0.05, log.close)
        closer.start()
        crowd.run(lambda refused=refused: len(refused) == 5)
        closer.join()
        assert set(refused) == {errors.Closed}
