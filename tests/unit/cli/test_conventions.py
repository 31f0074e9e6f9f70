"""Rules that hold for every command: --json, colours, progress, exit statuses."""

from __future__ import annotations

import errno
import json
import os
import pty
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import kafkalog as package
from kafkalog.cli import COMMANDS, EXIT_CODES, documents, parser_of
from kafkalog.cli.described import described
from kafkalog.log.log import Log
from tests.unit.cli.conftest import Command

ROOT = Path(__file__).parents[3]
CLI = Path(package.__file__).parent / "cli"

OTHERWISE = {
    "serve": "prints its addresses",
    "consume": "--format json",
    "test-broker": "--print json",
    "completion": "prints a script",
    "man": "prints a page",
    "console": "serves pages",
}
"""Commands without --json, and why."""


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_each_command_that_prints_data_prints_it_as_json(command: str) -> None:
    has = "--json" in parser_of(command)._option_string_actions
    assert has != (command in OTHERWISE)


def records(path: Path, count: int = 3) -> None:
    with Log(path / "t-0") as log:
        for number in range(count):
            log.append(b"x" * 1000, key=str(number % 2).encode())


@pytest.fixture
def node_file(tmp_path: Path) -> Path:
    file = tmp_path / "server.properties"
    file.write_text(
        f"process.roles=broker,controller\nnode.id=1\nlog.dirs={tmp_path / 'node'}\n"
        "controller.quorum.voters=1@localhost:9093\ncontroller.listener.names=CONTROLLER\n"
        "listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093\n"
    )
    return file


def test_storage_info_as_json(kafkalog: Command, node_file: Path, tmp_path: Path) -> None:
    words = ("storage", "info", "--config", node_file, "--json")
    ran = kafkalog(*words)
    assert (ran.status, ran.rows()) == (1, [{
        "directories": [], "metadata": None,
        "problems": [f"{tmp_path / 'node'} does not exist"],
    }])  # fmt: skip
    cluster = "MkU3OEVBNTcwNTJENDM2Qg"
    assert kafkalog("storage", "format", "--config", node_file, "-t", cluster).status == 0
    ran = kafkalog(*words)
    (row,) = ran.rows()
    assert (ran.status, row["directories"], row["problems"]) == (0, [str(tmp_path / "node")], [])
    assert (row["metadata"]["cluster.id"], row["metadata"]["node.id"]) == (cluster, "1")


def test_storage_version_mapping_as_json(kafkalog: Command) -> None:
    rows = kafkalog("storage", "version-mapping", "-r", "4.0", "--json").rows()
    text = kafkalog("storage", "version-mapping", "-r", "4.0").out.splitlines()
    assert [f"{row['feature']}={row['level']}" for row in rows] == [
        line.split(" ")[0] for line in text
    ]
    assert rows[0]["release"] == "4.0"


def test_adopt_as_json(kafkalog: Command, tmp_path: Path) -> None:
    records(tmp_path / "d")
    before = kafkalog("adopt", "--dir", tmp_path / "d", "--dry-run", "--json")
    assert (before.status, before.rows()) == (0, [{"topic": "t", "folders": 1}])
    (row,) = kafkalog("adopt", "--dir", tmp_path / "d", "--json").rows()
    assert (row["topic"], row["partitions"], set(row)) == (
        "t", 1, {"topic", "partitions", "settings"}
    )  # fmt: skip
    assert kafkalog("adopt", "--dir", tmp_path / "d", "--dry-run", "--json").out == ""


def test_ingest_as_json(kafkalog: Command, tmp_path: Path) -> None:
    (tmp_path / "in").write_text("a\nbc\n")
    (row,) = kafkalog(
        "ingest", tmp_path / "in", "--dir", tmp_path / "d", "--topic", "t", "--json"
    ).rows()
    assert {name: row[name] for name in ("topic", "partitions", "files", "records", "bytes")} == {
        "topic": "t", "partitions": 1, "files": 1, "records": 2, "bytes": 3,
    }  # fmt: skip
    assert (row["skipped"], row["blank"]) == (0, 0)


# ---- terminals ---------------------------------------------------------------------------------


def test_no_command_prints_colours() -> None:
    """So NO_COLOR has nothing to turn off.  Progress clears its line, and only on a terminal."""
    used = {
        code for path in CLI.rglob("*.py")
        for code in re.findall(r"\\(?:x1b|033|e)\[[0-9;]*[A-Za-z]", path.read_text())
    }  # fmt: skip
    assert used == {r"\x1b[K"}


def on_a_terminal(
    *words: str, term: str = "xterm", to: int = subprocess.PIPE
) -> tuple[int, str, str]:
    """Status, stdout unless it goes elsewhere, and what the terminal got from stderr."""
    near, far = pty.openpty()
    child = subprocess.Popen(
        [sys.executable, "-m", "kafkalog", *words], stdout=to, stderr=far, cwd=ROOT,
        env={**os.environ, "TERM": term},
    )  # fmt: skip
    os.close(far)
    shown = bytearray()

    def read() -> None:
        try:
            while data := os.read(near, 4096):
                shown.extend(data)
        except OSError as problem:  # the end of the terminal's other side
            assert problem.errno == errno.EIO

    reader = threading.Thread(target=read)
    reader.start()
    out, _ = child.communicate(timeout=60)
    reader.join(60)
    os.close(near)
    return child.returncode, (out or b"").decode(), shown.decode()


@pytest.mark.parametrize(
    "command",
    [["verify", "{}", "--json"], ["repair", "{}", "--json"],
     ["compact", "--dir", "{}", "--topic", "t", "--execute", "--json",
      "--set", "cleanup.policy=compact"],
     ["compact", "--dir", "{}", "--topic", "t", "--json", "--set", "cleanup.policy=compact"]],
    ids=["verify", "repair", "compact", "compact, a look"],
)  # fmt: skip
def test_long_work_on_files_shows_its_progress(tmp_path: Path, command: list[str]) -> None:
    records(tmp_path)
    if command[0] == "compact":
        with Log(tmp_path / "t-0") as log:
            log.roll()
    words = [word.format(tmp_path) for word in command]
    status, out, shown = on_a_terminal(*words)
    assert status == 0
    assert all(json.loads(line) for line in out.splitlines())
    assert re.search(r"\r(\[#+\.*\] +\d+%  )?[\d.]+ (KiB|B)  [\d.]+ \w+/s\x1b\[K", shown)
    assert shown.endswith("\r\x1b[K")  # what follows finds an empty line
    assert on_a_terminal(*words, term="dumb")[2] == ""


def test_consume_shows_its_progress_if_it_writes_to_a_file(tmp_path: Path) -> None:
    """Elsewhere its lines show it."""
    records(tmp_path)
    words = ["consume", "--dir", str(tmp_path), "--topic", "t"]
    with open(tmp_path / "out", "wb") as file:
        status, _, shown = on_a_terminal(*words, to=file.fileno())
    assert (status, (tmp_path / "out").read_bytes()) == (0, (b"x" * 1000 + b"\n") * 3)
    assert re.match(r"\r3 records  [\d,]+/s  [\d.]+ \w+/s\x1b\[K\r\x1b\[K$", shown)
    assert on_a_terminal(*words) == (0, ("x" * 1000 + "\n") * 3, "")


# ---- exit statuses -----------------------------------------------------------------------------


def test_exit_statuses_are_in_every_help_and_document() -> None:
    assert sorted(EXIT_CODES) == [0, 1, 2, 130]
    page = documents.render_markdown()
    for code, text in EXIT_CODES.items():
        assert f"| {code} | {text} |" in page
    for command in described():
        shown = parser_of(command.name).format_help()
        assert all(re.search(rf"^  {code} +\S", shown, re.MULTILINE) for code in EXIT_CODES)


WRONG_USAGE = {name: ["--no-such-option"] for name in COMMANDS}


@pytest.mark.parametrize("command", sorted(WRONG_USAGE))
def test_wrong_usage_is_status_2_in_one_line(kafkalog: Command, command: str) -> None:
    ran = kafkalog(command, *WRONG_USAGE[command])
    assert (ran.status, ran.out, ran.err.count("\n")) == (2, "", 1)
    assert ran.err.startswith("kafkalog: ")
