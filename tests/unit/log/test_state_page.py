"""The page in shared memory through which a writer publishes to readers."""

import fcntl
import os
import struct
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

import kafkalog
from tests.support.forms import linux_form_only
from tests.support.waiting import LIMIT_S

SHM = Path("/dev/shm")
USER = 1_000_000 + os.getpid()  # so that tests that run at the same time share no folder

root = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives folders away")


def page_of(folder: Path, user: int) -> Path:
    found = folder.stat()
    return SHM / f"kafkalog-{user}" / f"{found.st_dev:x}-{found.st_ino:x}"


@pytest.fixture
def given_away(tmp_path: Path) -> Path:
    """A log's folder that belongs to another user, as on a mounted volume."""
    path = tmp_path / "log-0"
    path.mkdir(mode=0o700)
    os.chown(path, USER, -1)
    yield path
    place = SHM / f"kafkalog-{USER}"
    if place.exists():
        for file in place.iterdir():
            file.unlink()
        place.rmdir()


@root
def test_root_on_another_users_folder_has_a_page(given_away):
    """It belongs to the folder's owner, and readers use it: nothing is visible early."""
    with kafkalog.Log(given_away) as log:
        log.append(b"shown")
        page = page_of(given_away, USER)
        assert (page.stat().st_uid, page.parent.stat().st_uid) == (USER, USER)
        # Bytes that are not published: a reader that used the file's end would see them.
        with kafkalog.Log(given_away, mode="r") as reader:
            assert reader.end_offset == 1
            [file] = given_away.glob("*.log")
            data = file.read_bytes()
            whole = data[: 12 + int.from_bytes(data[8:12], "big")]
            with file.open("r+b") as raw:
                raw.seek(len(whole))
                raw.write((1).to_bytes(8, "big") + whole[8:])
            assert reader.end_offset == 1
            assert [r.value for r in reader.read()] == [b"shown"]
            os.truncate(file, len(whole))
    assert not page_of(given_away, USER).exists()


PROGRAM = "import sys, kafkalog; kafkalog.Log(sys.argv[1]).close()"


def open_elsewhere(path: Path) -> None:
    """Open the log in a separate process: each process sweeps pages once."""
    subprocess.run([sys.executable, "-c", PROGRAM, str(path)], check=True)


PROCESSES_MAX = 100
"""Each sees a page with a chance of a third or more."""


def open_until_swept(path: Path, *pages: Path) -> None:
    """Open the log in further processes until pages are gone: one may not look at all."""
    for _ in range(PROCESSES_MAX):
        if not any(page.exists() for page in pages):
            return
        open_elsewhere(path)
    assert [page for page in pages if page.exists()] == []


@linux_form_only("namespaces of pids are not known")
def test_the_sweep_leaves_other_containers_pages_alone(tmp_path):
    """A pid means nothing in another namespace; a dead process's page in ours is removed."""
    path = tmp_path / "log-0"
    with kafkalog.Log(path) as log:
        log.append(b"x")
        page = bytearray(page_of(path, os.geteuid()).read_bytes())
    place = SHM / f"kafkalog-{os.geteuid()}"
    magic, _, _, pid, pids = struct.unpack_from("<QQQqQ", page)
    assert pid == os.getpid() and pids == os.stat("/proc/self/ns/pid").st_ino
    other, dead = (place / f"0-{os.getpid():x}{end}" for end in "12")
    struct.pack_into("<QQQqQ", page, 0, magic, 0, 1, 1 << 30, pids + 1)
    other.write_bytes(page)
    struct.pack_into("<QQQqQ", page, 0, magic, 0, 2, 1 << 30, pids)
    dead.write_bytes(page)
    try:
        open_until_swept(path, dead)
        assert other.exists()
    finally:
        other.unlink(missing_ok=True)
        dead.unlink(missing_ok=True)


@root
def test_a_sweep_looks_at_a_bounded_number_of_pages(given_away):
    """The first log of a process waits for it, and other processes may have many pages."""
    place = SHM / f"kafkalog-{USER}"
    place.mkdir(mode=0o700)
    os.chown(place, USER, -1)
    left = [place / f"0-{number:x}" for number in range(3_000)]
    for page in left:
        page.write_bytes(b"")
    open_elsewhere(given_away)
    assert 2_000 <= sum(page.exists() for page in left) < 3_000
    open_until_swept(given_away, *left)


@root
def test_a_sweep_may_begin_at_any_page(given_away):
    """Those of living writers stay; the dead ones at both ends of the folder are reached, too."""
    place = SHM / f"kafkalog-{USER}"
    place.mkdir(mode=0o700)
    os.chown(place, USER, -1)
    for number in range(3_000):
        (place / f"0-{number:x}").write_bytes(bytes(4096))  # no page: nobody's to remove
    first, *_, last = (place / name for name in os.listdir(place))
    for dead in (first, last):
        dead.write_bytes(b"")
    open_until_swept(given_away, first, last)
    assert len(os.listdir(place)) == 3_000 - 2


WRITER = """
import sys, kafkalog
log = kafkalog.Log(sys.argv[1])
log.append(b"x")
print("appended", flush=True)
sys.stdin.read()
"""


@contextmanager
def writer_elsewhere(path: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that has appended one record and keeps the log open; it is killed at the end."""
    command = [sys.executable, "-c", WRITER, str(path)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as writer:
        try:
            assert writer.stdout.readline() == "appended\n"
            yield writer
        finally:
            writer.kill()


def test_a_reader_goes_on_with_the_next_writer_after_a_kill(tmp_path):
    """The second writer sweeps the first one's page, and creates another file of that name."""
    path = tmp_path / "log-0"
    with ExitStack() as stack:
        with writer_elsewhere(path):
            reader = stack.enter_context(kafkalog.Log(path, mode="r"))
            assert reader.end_offset == 1
        stack.enter_context(writer_elsewhere(path))
        assert reader.end_offset == 2
        assert [record.offset for record in reader.read()] == [0, 1]


def test_a_reader_does_not_wait_for_a_writer_that_was_killed(tmp_path, wait_until):
    """The next writer may be another program, which uses no page."""
    path = tmp_path / "log-0"
    with ExitStack() as stack:
        with writer_elsewhere(path):
            reader = stack.enter_context(kafkalog.Log(path, mode="r"))
            assert reader.end_offset == 1
        [file] = path.glob("*.log")
        data = file.read_bytes()
        with file.open("ab") as raw:
            raw.write((1).to_bytes(8, "big") + data[8:])
        wait_until(lambda: reader.end_offset == 2, "the record that came behind the kill")


def test_a_page_that_is_being_made_is_not_swept(tmp_path, native_test, wait_until):
    """Another process starts and removes the pages of dead ones.  Without its page a writer's
    readers would take the ends of the files for what is published."""
    _, hooks = native_test
    path = tmp_path / "log-0"
    begin = f"import kafkalog; kafkalog.Log({str(tmp_path / 'other-0')!r}).close()"
    hooks.kl_io_reset()
    hooks.kl_io_hold_one(b"fallocate", 1)  # of the page: the log needs none before its first write
    try:
        with ThreadPoolExecutor(1) as pool:
            opening = pool.submit(kafkalog.Log, path)
            wait_until(lambda: hooks.kl_io_waiting(b"fallocate") == 1, "the page has no blocks")
            subprocess.run([sys.executable, "-c", begin], check=True, timeout=LIMIT_S)
            hooks.kl_io_hold(b"fallocate", hooks.KL_HOLD_NONE)
            with opening.result(timeout=LIMIT_S):
                assert page_of(path, os.geteuid()).exists()
    finally:
        hooks.kl_io_reset()


def is_locked(page: Path) -> bool:
    with page.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


@linux_form_only("a lock does not move with a mapping")
def test_a_page_that_grew_is_still_locked(tmp_path):
    """A writer in another container, to which the pid in the page means nothing, sees by the lock
    that the log is open."""
    path = tmp_path / "log-0"
    with kafkalog.Log(path, config={"index.interval.bytes": 100}) as log:
        sizes = []
        page = page_of(path, os.geteuid())
        for i in range(400):
            log.append(b"v" * 100, timestamp_ms=1_000 + i)
            if not sizes or page.stat().st_size > sizes[-1]:
                sizes.append(page.stat().st_size)
                assert is_locked(page), sizes
        assert len(sizes) > 2


@pytest.fixture
def others_place() -> Iterator[Path]:
    """The folder for USER's pages, created by another user before USER had any."""
    place = SHM / f"kafkalog-{USER}"
    place.mkdir(mode=0o700)
    os.chown(place, USER + 1, -1)
    yield place


def claim(folder: Path, place: Path, kept: Path) -> None:
    """Put a page into `place`, with its owner: it claims that a live process writes `folder`."""
    page = bytearray(page_of(kept, os.geteuid()).read_bytes())
    found, (magic, *_) = folder.stat(), struct.unpack_from("<Q", page)
    struct.pack_into("<QQQ", page, 0, magic, found.st_dev, found.st_ino)
    false = place / page_of(folder, USER).name
    false.write_bytes(page)
    os.chown(false, place.stat().st_uid, -1)


@root
def test_a_page_in_a_place_of_somebody_elses_is_not_believed(given_away, others_place, tmp_path):
    """Anyone can create a folder in /dev/shm, and could otherwise block a log from being opened."""
    with kafkalog.Log(tmp_path / "kept-0") as kept:
        kept.append(b"x")
        claim(given_away, others_place, tmp_path / "kept-0")
        with kafkalog.Log(given_away) as log:
            assert log.append(b"written") == 0
        [file] = others_place.iterdir()
        assert file.stat().st_uid == USER + 1


@root
def test_nor_is_one_that_took_a_place_later(given_away, tmp_path):
    """The user's own folder existed when this process looked, and is gone now."""
    with kafkalog.Log(tmp_path / "kept-0") as kept:
        kept.append(b"x")
        with kafkalog.Log(given_away) as log:
            log.append(b"first")
        place = page_of(given_away, USER).parent
        place.rmdir()
        place.mkdir(mode=0o700)
        os.chown(place, USER + 1, -1)
        claim(given_away, place, tmp_path / "kept-0")
        with kafkalog.Log(given_away) as log:
            assert log.append(b"written") == 1
