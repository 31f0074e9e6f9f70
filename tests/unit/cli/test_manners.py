"""How commands behave where the world is against them: no permission, Ctrl-C, a full output."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkalog.cli import COMMANDS
from kafkalog.directory.manager import Manager
from kafkalog.log.log import Log
from tests.support.waiting import wait_for
from tests.unit.cli.conftest import Command

ROOT = Path(__file__).parents[3]
NOBODY = 65534
TIMEOUT_S = 60


def started(folder: Path, *words: str) -> subprocess.Popen[str]:
    """A command as a process, between pipes."""
    return subprocess.Popen(
        [sys.executable, "-m", "kafkalog", *words], cwd=folder, text=True, stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip


@pytest.mark.parametrize(
    "words", ["--help", "--version", "", *(f"{name} --help" for name in sorted(COMMANDS))]
)
@pytest.mark.parametrize("buffered", [True, False])
def test_a_help_that_cannot_be_written_is_a_failure(words: str, buffered: bool) -> None:
    """One line on stderr, and not status 0."""
    if not buffered and words not in ("--help", "serve --help"):
        pytest.skip("the same as of the others")
    env = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "" if buffered else "1"}
    ran = subprocess.run(f"{sys.executable} -m kafkalog {words} > /dev/full", shell=True, env=env,
                         capture_output=True, text=True, timeout=TIMEOUT_S)  # fmt: skip
    assert (ran.returncode, ran.stderr) == (1, "kafkalog: No space left on device\n")


@pytest.mark.parametrize(
    ("count", "told"), [(1, "1 record (1 B) from 1 file"), (2, "2 records (2 B) from 1 file")]
)
def test_one_is_not_many(kafkalog: Command, tmp_path: Path, count: int, told: str) -> None:
    (tmp_path / "lines.txt").write_text("x\n" * count)
    ran = kafkalog("ingest", tmp_path / "lines.txt", "--dir", tmp_path / "d", "--topic", "t")
    assert ran.out.startswith(told)


def test_who_cannot_listen_makes_no_directory(kafkalog: Command, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = "127.0.0.1:{}".format(taken.getsockname()[1])
        process = started(tmp_path, "serve", "--dir", "new/data", "--listen", address)
        _, told = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 1 and "another port" in told
    assert not (tmp_path / "new").exists()


@pytest.fixture(scope="module")
def closed_to_us() -> Iterator[Path]:
    """A data directory that belongs to root; for who is nobody."""
    if os.geteuid() != 0:
        pytest.skip("only root becomes somebody else")
    if as_nobody("--version").returncode:
        pytest.skip("nobody may not run our Python")
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        with Manager(Path(folder) / "theirs") as manager:
            manager.create_topic("t", 1)
            manager.get("t").append(b"x")
        yield Path(folder) / "theirs"


def as_nobody(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "kafkalog", *words], cwd="/", user=NOBODY, group=NOBODY,
        extra_groups=[], capture_output=True, text=True, timeout=TIMEOUT_S, input="x\n",
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"},
    )  # fmt: skip


AT_DIRECTORIES = {
    "serve": ["--dir", "{}", "--listen", "127.0.0.1:0"],
    "ingest": ["-", "--dir", "{}", "--topic", "t"],
    "consume": ["--dir", "{}", "--topic", "t"],
    "topics": ["--dir", "{}"],
    "offsets": ["--dir", "{}", "--topic", "t"],
    "dump": ["{}/t-0"],
    "verify": ["{}"],
    "repair": ["{}"],
    "compact": ["--dir", "{}", "--topic", "t"],
    "adopt": ["--dir", "{}"],
}


@pytest.mark.parametrize("command", sorted(AT_DIRECTORIES))
@pytest.mark.parametrize("below", ["", "/deeper"])
def test_without_permission_a_command_says_so(
    closed_to_us: Path, command: str, below: str
) -> None:
    """One line that names the place and the reason, whether it lies there or somewhere in it."""
    words = [word.format(f"{closed_to_us}{below}") for word in AT_DIRECTORIES[command]]
    ran = as_nobody(command, *words)
    assert ran.returncode in (1, 2), ran
    assert "Permission denied" in ran.stderr and str(closed_to_us) in ran.stderr
    assert ran.stderr.startswith("kafkalog: ") and ran.stderr.count("\n") == 1


# ---- Ctrl-C ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory of which more is printed than a pipe holds."""
    folder = tmp_path_factory.mktemp("large")
    with Log(folder / "d" / "t-0") as log:
        log.append_many([bytes(100)] * 20_000)
    return folder


@pytest.mark.parametrize(
    "words",
    ["dump d/t-0 --records", "consume --dir d --topic t", "consume --dir d --topic t --follow",
     "ingest - --dir e --topic t"],
)  # fmt: skip
def test_ctrl_c_ends_what_waits(large: Path, words: str) -> None:
    """For an output that nobody reads, or an input that nobody writes: status 130, one line or
    none."""
    process = started(large, *words.split())
    wait_for(lambda: sleeps(process.pid), "it waits")
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 130, told
    assert told.count("\n") <= 1 and (not told or told.startswith("kafkalog: interrupted"))


def sleeps(pid: int) -> bool:
    """Whether a process waits in a pipe, with the C core loaded."""
    try:
        loaded = "_native/_kl" in Path(f"/proc/{pid}/maps").read_text()
        return loaded and "pipe" in Path(f"/proc/{pid}/wchan").read_text()
    except OSError:
        return False


@pytest.mark.parametrize(
    "words",
    ["topics list", "groups list", "configs describe --topic t", "offsets --topic t",
     "transactions list", "consume --topic t", "produce - --topic t", "perf produce --topic t",
     "perf consume --topic t", "perf end-to-end --topic t"],
)  # fmt: skip
def test_ctrl_c_ends_what_waits_for_a_broker(tmp_path: Path, words: str) -> None:
    """One that takes connections and answers nothing."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(TIMEOUT_S)
        port = silent.getsockname()[1]
        process = started(tmp_path, *words.split(), "--bootstrap-server", f"127.0.0.1:{port}")
        peer, _ = silent.accept()
        with peer:
            peer.settimeout(TIMEOUT_S)
            assert peer.recv(4), "the first request"
            process.send_signal(signal.SIGINT)
            _, told = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 130, told
    assert told.count("\n") <= 1 and (not told or told.startswith("kafkalog: "))
