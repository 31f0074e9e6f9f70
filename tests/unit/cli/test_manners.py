"""How commands behave on trouble: missing permissions, Ctrl-C, an output that is full."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkalog.cli import COMMANDS, main
from kafkalog.cli.signals import on_signals
from kafkalog.directory.manager import Manager
from kafkalog.log.log import Log
from kafkalog.testing.broker import TestBroker
from tests.support.waiting import wait_for
from tests.unit.cli.conftest import Command

ROOT = Path(__file__).parents[3]
NOBODY = 65534
TIMEOUT_S = 60


def started(folder: Path, *words: str) -> subprocess.Popen[str]:
    """A command in a process whose input and output are pipes."""
    return subprocess.Popen(
        [sys.executable, "-m", "kafkalog", *words], cwd=folder, text=True, stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip


@pytest.mark.parametrize("fails", [False, True])
def test_signal_handlers_are_restored(fails: bool) -> None:
    """A program that calls a command as a function keeps its own handlers."""
    found: list[int] = []
    mine: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _: mine.append(number))
    try:
        with contextlib.suppress(ZeroDivisionError), on_signals(found.append):
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.raise_signal(number)
                wait_for(lambda: number in found, "the signal was handled")  # noqa: B023
            if fails:
                raise ZeroDivisionError
        assert found == [signal.SIGINT, signal.SIGTERM]
        signal.raise_signal(signal.SIGTERM)
        assert mine == [signal.SIGTERM]
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    finally:
        signal.signal(signal.SIGTERM, before)


def test_a_mirror_leaves_signals_alone(tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    with TestBroker(tmp_path / "a") as source, TestBroker(tmp_path / "b") as target:
        source.create_topic("t", 1)
        words = ["--from", source.bootstrap_servers, "--to", target.bootstrap_servers]
        assert main(["mirror", "--once", *words, "--topics", "t"]) == 0
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


HELPS = ["--help", "--version", "", *(f"{name} --help" for name in sorted(COMMANDS))]


@pytest.mark.parametrize(
    ("words", "buffered"),
    [*((words, True) for words in HELPS), ("--help", False), ("serve --help", False)],
)
def test_a_help_that_cannot_be_written_is_a_failure(words: str, buffered: bool) -> None:
    """One line on stderr, and a status other than 0."""
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


def test_a_broker_that_cannot_listen_creates_no_directory(
    kafkalog: Command, tmp_path: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        process = started(tmp_path, "serve", "--dir", "new/data", "--listen", address)
        _, told = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 1 and "another port" in told
    assert not (tmp_path / "new").exists()


AT_DIRECTORIES = {
    "serve": ["--dir", "{}", "--listen", "127.0.0.1:0"],
    "ingest": ["-", "--dir", "{}", "--topic", "t"],
    "consume": ["--dir", "{}", "--topic", "t"],
    "topics": ["--dir", "{}"],
    "offsets": ["--dir", "{}"],
    "dump": ["{}/t-0"],
    "verify": ["{}"],
    "repair": ["{}"],
    "compact": ["--dir", "{}", "--topic", "t"],
    "adopt": ["--dir", "{}"],
}
AS_NOBODY = """
import importlib, json, os, pkgutil, sys, tempfile
import kafkalog, kafkalog.cli
for module in pkgutil.walk_packages(kafkalog.__path__, "kafkalog."):
    if not module.name.endswith(("__main__", "pytest_plugin")):
        importlib.import_module(module.name)
for line in sys.stdin:
    with tempfile.TemporaryFile() as told:
        if os.fork() == 0:
            os.dup2(told.fileno(), 1), os.dup2(told.fileno(), 2)
            os.setgroups([]), os.setgid(NOBODY), os.setuid(NOBODY)
            status = kafkalog.cli.main(json.loads(line))
            sys.stdout.flush(), sys.stderr.flush()
            os._exit(status)
        status = os.waitstatus_to_exitcode(os.wait()[1])
        told.seek(0)
        print(json.dumps([status, told.read().decode()]), flush=True)
"""
"""Modules that the unprivileged user may not read, even the interpreter's, are loaded first."""


@pytest.fixture(scope="module")
def refused() -> Iterator[dict[tuple[str, str], tuple[int, str, str]]]:
    """Each command, run by an unprivileged user on a directory of root's and on one below it:
    exit status, output, and the directory."""
    if os.geteuid() != 0:
        pytest.skip("only root can run as another user")
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        theirs = f"{folder}/theirs"
        with Manager(theirs) as manager:
            manager.create_topic("t", 1)
            manager.get("t").append(b"x")
        asked = [(command, below) for command in AT_DIRECTORIES for below in ("", "/deeper")]
        lines = [
            json.dumps([command, *(w.format(theirs + below) for w in AT_DIRECTORIES[command])])
            for command, below in asked
        ]
        ran = subprocess.run(
            [sys.executable, "-c", AS_NOBODY.replace("NOBODY", str(NOBODY))], cwd=ROOT, text=True,
            capture_output=True, input="\n".join(lines), timeout=TIMEOUT_S, check=False,
        )  # fmt: skip
        assert ran.returncode == 0, ran.stderr
        answers = [json.loads(line) for line in ran.stdout.splitlines()]
        yield {one: (*answer, theirs) for one, answer in zip(asked, answers, strict=True)}


@pytest.mark.parametrize("command", sorted(AT_DIRECTORIES))
@pytest.mark.parametrize("below", ["", "/deeper"])
def test_without_permission_a_command_says_so(
    refused: dict[tuple[str, str], tuple[int, str, str]], command: str, below: str
) -> None:
    """One line that names the directory and the reason, also for a directory below it."""
    status, told, directory = refused[command, below]
    assert status in (1, 2), told
    assert "Permission denied" in told and directory in told
    assert told.startswith("kafkalog: ") and told.count("\n") == 1


# ---- Ctrl-C ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with more to print than a pipe can hold."""
    folder = tmp_path_factory.mktemp("large")
    with Log(folder / "d" / "t-0") as log:
        log.append_many([bytes(100)] * 20_000)
    return folder


@pytest.mark.parametrize(
    "words",
    ["dump d/t-0 --records", "consume --dir d --topic t", "consume --dir d --topic t --follow",
     "ingest - --dir e --topic t"],
)  # fmt: skip
def test_ctrl_c_ends_a_waiting_command(large: Path, words: str) -> None:
    """It waits for an output that is not read, or an input that is not written: status 130, and at
    most one line."""
    process = started(large, *words.split())
    wait_for(lambda: sleeps(process.pid), "it waits")
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 130, told
    assert told.count("\n") <= 1 and (not told or told.startswith("kafkalog: interrupted"))


def sleeps(pid: int) -> bool:
    """True if a process waits on a pipe, with the C core loaded."""
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
def test_ctrl_c_ends_a_wait_for_a_broker(tmp_path: Path, words: str) -> None:
    """The broker accepts connections and answers nothing."""
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
