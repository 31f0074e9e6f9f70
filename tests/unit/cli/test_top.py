"""`kafkalog top` and `--watch` of groups, against Apache Kafka and our broker."""

from __future__ import annotations

import importlib.util
import os
import pty
import re
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkalog import Admin, Producer
from kafkalog.cli import top
from kafkalog.errors import MissingPackage
from kafkalog.testing.broker import TestBroker
from kafkalog.testing.security import Security
from tests.support.waiting import LIMIT_S
from tests.unit.cli.conftest import Command

ROOT = Path(__file__).parents[3]
SOON = ("--interval-ms", 200)


@pytest.fixture
def busy(servers: str, unique: str) -> str:
    """The name of a topic with three records, of which a group has read one."""
    with Admin(servers) as admin, Producer(servers) as producer:
        admin.create_topic(unique, 1, 1)
        for _ in range(3):
            producer.send(unique, b"v")
        producer.flush()
        admin.alter_group_offsets(unique, {(unique, 0): 1}).check()
        admin.alter_share_group_offsets(f"{unique}-s", {(unique, 0): 2}).check()
    return unique


def test_without_a_terminal_it_prints_once(kafkalog: Command, servers: str, busy: str) -> None:
    ran = kafkalog("top", *SOON, "--bootstrap-server", servers)
    assert (ran.status, ran.err) == (0, "")
    heads = [line for line in ran.out.splitlines() if not line.startswith(" ")]
    assert heads[0].startswith("cluster ") and "nodes 1 of 1 up" in heads[0]
    assert {"nodes", "topics", "groups"} <= set(heads)
    (row,) = (line.split() for line in heads if line.startswith(f"{busy} ") and "Empty" in line)
    assert row[1:6] == ["classic", "Empty", "0", "1", "2"]
    assert row[6] in ("0", "-")  # among many groups it may be in one of the two looks only


def test_json_has_an_object_for_each_thing(kafkalog: Command, servers: str, busy: str) -> None:
    words = ("top", "--json", *SOON, "--bootstrap-server", servers)
    rows = kafkalog(*words).rows()
    assert rows[0]["kind"] == "cluster" and rows[0]["topics"] >= 1
    found = {(row["kind"], row.get("name")): row for row in rows}
    assert found["topic", busy]["records_per_s"] in (0, None)  # as above
    assert (found["group", busy]["lag"], found["group", busy]["type"]) == (2, "classic")
    assert (found["group", f"{busy}-s"]["lag"], found["group", f"{busy}-s"]["type"]) == (1, "share")
    only = kafkalog(*words, "--pane", "groups").rows()
    assert {row["kind"] for row in only} == {"cluster", "group"}


def test_groups_that_are_watched(kafkalog: Command, servers: str, busy: str) -> None:
    here = (*SOON, "--bootstrap-server", servers)
    rows = kafkalog("groups", "--watch", "--json", *here).rows()
    assert {busy, f"{busy}-s"} <= {row["name"] for row in rows if row["kind"] == "group"}
    rows = kafkalog("groups", "describe", busy, "--watch", "--json", *here).rows()
    assert [row["kind"] for row in rows] == ["cluster", "group", "partition"]
    assert (rows[0]["lag"], rows[2]["offset"], rows[2]["end"], rows[2]["lag"]) == (2, 1, 3, 2)
    ran = kafkalog("groups", "describe", busy, "--watch", *here)
    assert f"group {busy}: partitions" in ran.out
    rows = kafkalog("share-groups", "--watch", "--json", *here).rows()
    groups = {row["name"]: row for row in rows if row["kind"] == "group"}
    assert busy not in groups and groups[f"{busy}-s"]["lag"] == 1


def test_mistakes_and_failures_are_one_line(kafkalog: Command, servers: str, unique: str) -> None:
    here = ("--bootstrap-server", servers)
    for words, status, told in (
        (("top", "--interval-ms", 199, *here), 2, "found 199, wanted 200 to 3600000"),
        (("top", "--interval-ms", 10**30, *here), 2, "wanted 200 to 3600000"),
        (("top", "--pane", "disks", *here), 2, "invalid choice"),
        (("top", "--once", "--bootstrap-server", "127.0.0.1:1"), 1, "Connection refused"),
        (("groups", "describe", unique, "--watch", *SOON, *here), 1, f"no group '{unique}'"),
        (("groups", "describe", "--watch", *here), 2, "which group?"),
        (("groups", "delete", unique, "--watch", *here), 2, "--watch is an option of"),
    ):
        ran = kafkalog(*words)
        assert (ran.status, ran.out, ran.err.count("\n")) == (status, "", 1), (words, ran)
        assert told in ran.err


def test_parts_without_the_right_are_named(kafkalog: Command, tmp_path: Path) -> None:
    """The settings of the user who logs in come from --command-config."""
    acls = [("bob", "DESCRIBE", "topic", "seen")]
    security = Security("sasl_plaintext", {"bob": "b"}, acls=acls)
    with TestBroker(tmp_path / "b", security=security) as broker:
        config = broker.client_config("kafkalog", "bob")
        here = ("--bootstrap-server", config.pop("bootstrap.servers"))
        file = tmp_path / "client.properties"
        file.write_text("".join(f"{name}={value}\n" for name, value in config.items()))
        rows = kafkalog("top", "--json", *SOON, *here, "--command-config", file).rows()
    problems = {row["part"]: row["text"] for row in rows if row["kind"] == "problem"}
    assert set(problems) == {"quorum", "sizes"}
    assert "CLUSTER_AUTHORIZATION_FAILED" in problems["quorum"]


def test_the_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "textual", None)
    with pytest.raises(MissingPackage, match=r'pip install "kafkalog\[top\]"'):
        top._app()


# ---- a terminal ------------------------------------------------------------------------------


class Terminal:
    """A command on a terminal of its own."""

    def __init__(self, *words: object, **env: str) -> None:
        self.master, slave = pty.openpty()
        self.before = self.modes()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "kafkalog", *map(str, words)], cwd=ROOT, stdin=slave,
            stdout=slave, stderr=slave, start_new_session=True,
            env={**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm-256color", **env},
        )  # fmt: skip
        self.slave = slave
        self.seen = ""

    def modes(self) -> str:
        shown = subprocess.run(["stty", "-a"], stdin=self.master, capture_output=True, check=True)
        return re.sub(r"rows \d+; columns \d+", "", shown.stdout.decode())

    def wait_for(self, text: str) -> None:
        """Read until the text was drawn."""
        while text not in self.seen:
            assert select.select([self.master], [], [], LIMIT_S)[0], self.seen[-2000:]
            self.seen += os.read(self.master, 65536).decode(errors="replace")

    def send(self, keys: str) -> None:
        os.write(self.master, keys.encode())

    def ended(self) -> int:
        """The status, while what is drawn is read."""
        while self.process.poll() is None:
            if select.select([self.master], [], [], 0.05)[0]:
                os.read(self.master, 65536)
        return self.process.returncode

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.master)
        os.close(self.slave)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[str]:
    with TestBroker(tmp_path / "b") as made:
        made.create_topic("orders", 2)
        yield made.bootstrap_servers


with_textual = pytest.mark.skipif(
    importlib.util.find_spec("textual") is None, reason="textual is not installed"
)


@with_textual
@pytest.mark.parametrize("end", ["q", "\x03", signal.SIGTERM])
def test_a_terminal_is_left_as_it_was(broker: str, end: object) -> None:
    """However it ends: by a key or by a signal."""
    terminal = Terminal("top", "--interval-ms", 200, "--bootstrap-server", broker)
    try:
        terminal.wait_for("orders")
        if isinstance(end, str):
            terminal.send(end)
        else:
            terminal.process.send_signal(end)
        assert terminal.ended() == 0
        assert terminal.modes() == terminal.before
    finally:
        terminal.close()


@with_textual
def test_no_colour_where_the_user_wants_none(broker: str) -> None:
    terminal = Terminal("top", "--bootstrap-server", broker, NO_COLOR="1")
    try:
        terminal.wait_for("orders")
        terminal.wait_for("quit")
        assert not re.search(r"\x1b\[[0-9;]*(3[0-7]|38;[25])[0-9;]*m", terminal.seen)
    finally:
        terminal.close()


def test_a_simple_terminal_gets_tables(broker: str) -> None:
    terminal = Terminal("top", *SOON, "--bootstrap-server", broker, TERM="dumb")
    try:
        terminal.wait_for("groups: none")
        assert terminal.ended() == 0 and "\x1b" not in terminal.seen
    finally:
        terminal.close()


@with_textual
def test_a_cluster_that_does_not_answer_is_reported_before_the_screen_is_taken() -> None:
    terminal = Terminal("top", "--bootstrap-server", "127.0.0.1:1")
    try:
        terminal.wait_for("kafkalog: 127.0.0.1:1: Connection refused")
        assert terminal.ended() == 1 and "\x1b" not in terminal.seen
    finally:
        terminal.close()
