"""`kafkalog test-broker`: a test broker for suites in other languages."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import kafkalog
from kafkalog import errors
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode
from tests.support.raw import Raw
from tests.support.waiting import LIMIT_S

Wait = Callable[..., None]
COMMAND = [sys.executable, "-m", "kafkalog", "test-broker"]


class Process:
    """A running test broker, with its pipes."""

    def __init__(self, root: Path, *arguments: str, **how: Any) -> None:
        how = {"stdin": subprocess.PIPE, **how}
        self.process = subprocess.Popen(
            [*COMMAND, *arguments], stdout=subprocess.PIPE, text=True, cwd=root, **how
        )
        self.first = self.line()

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().rstrip("\n")

    def say(self, command: str) -> str:
        """Send a command and return its answer."""
        assert self.process.stdin is not None
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()
        return self.line()

    def end(self) -> int:
        """Close its input and return its exit status."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        return self.process.wait(LIMIT_S)


@pytest.fixture
def start(root: Path) -> Iterator[Callable[..., Process]]:
    made: list[Process] = []

    def call(*arguments: str, **how: Any) -> Process:
        made.append(Process(root, *arguments, **how))
        return made[-1]

    yield call
    for one in made:
        one.process.kill()
        one.process.wait()
        for pipe in (one.process.stdin, one.process.stdout):
            if pipe is not None:
                pipe.close()


def test_it_prints_its_address_and_ends_with_its_input(start: Callable[..., Process]) -> None:
    one = start("--topic", "orders:3", "--topic", "payments", "--print", "json")
    told = json.loads(one.first)
    assert told["pid"] == one.process.pid
    directory = Path(told["directory"])
    with Raw(told["bootstrap_servers"]) as raw:
        found = raw.call(apis.METADATA, topics=None)
        assert {t.name: len(t.partitions) for t in found.topics} == {"orders": 3, "payments": 1}
    assert directory.exists()
    assert one.end() == 0
    assert not directory.exists()


def test_commands(start: Callable[..., Process], tmp_path: Path) -> None:
    one = start("--dir", str(tmp_path / "data"))
    address = one.first
    assert one.say("topic t 2") == "ok"
    assert one.say("fail Produce NOT_LEADER_OR_FOLLOWER 2") == "ok"
    with Raw(address) as raw:
        found = [raw.produce("t", b"a").error_code for _ in range(3)]
        assert found == [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 2 + [ErrorCode.NONE]
        raw.produce("t", b"lost", acks=1)
        assert one.say("disconnect ListOffsets") == "ok"
        with pytest.raises(ConnectionError):
            raw.offsets("t", -1)
    for word in ("pause", "resume", "kill", "start", "restart"):
        assert one.say(word) == "ok"
    with Raw(address) as raw:
        assert raw.offsets("t", -1).offset == 1
    for word in ("delay Fetch 5 all", "drop-response 1", "heal", "advance 9", "stop", "heal"):
        assert one.say(word) == "ok"
    assert one.say("disconnect Produse") == "error: api: found 'Produse', wanted Produce?"
    assert one.say("dance") == "error: found 'dance'; see kafkalog test-broker --help"
    assert one.say("advance soon") == "error: found 'soon', wanted a number"
    assert one.say("certificate expired").startswith("error: found 'certificate expired'")
    assert one.say("topic t").startswith("error: topic 't'")
    assert one.end() == 0
    assert (tmp_path / "data" / "t-0").exists()


SECURED = (
    "--security", "sasl_ssl", "--user", "alice=secret", "--user", "bob=a=b",
    "--acl", "alice:WRITE,DESCRIBE:topic:orders-*", "--acl", "bob:ALL:topic:*",
    "--acl", "bob:WRITE:topic:orders-1:DENY", "--topic", "orders-1", "--print", "json",
)  # fmt: skip


def written(told: dict[str, Any], topic: str = "orders-1", user: str = "alice=secret") -> None:
    """Write a record with the settings in the first line, as this user.

    Raises: what the producer does.
    """
    name, _, password = user.partition("=")
    config = dict(told["client"])
    where = config.pop("bootstrap.servers")
    jaas = config["sasl.jaas.config"].replace("alice", name)
    config["sasl.jaas.config"] = jaas.replace("secret", password)
    with kafkalog.Producer(where, idempotent=False, config=config) as producer:
        producer.send(topic, b"v").result(LIMIT_S)


def test_users_have_the_rights_of_their_acls(
    start: Callable[..., Process],
) -> None:
    one = start(*SECURED)
    told = json.loads(one.first)
    assert told["client"]["bootstrap.servers"] == told["bootstrap_servers"]
    assert told["client"]["security.protocol"] == "SASL_SSL"
    assert one.say("topic other") == "ok"
    written(told)
    written(told, "other", "bob=a=b")
    for topic, user in (("other", "alice=secret"), ("orders-1", "bob=a=b")):
        with pytest.raises(errors.TopicAuthorizationFailed):
            written(told, topic, user)
    with pytest.raises(errors.SaslAuthenticationFailed):
        written(told, user="alice=wrong")
    assert one.end() == 0


def test_the_command_certificate_presents_another(start: Callable[..., Process]) -> None:
    """After a restart at once; a running broker reads it within seconds."""
    one = start("--security", "ssl", "--topic", "t", "--print", "json")
    client = dict(json.loads(one.first)["client"])
    where = client.pop("bootstrap.servers")

    def connect() -> list[str]:
        with kafkalog.Admin(where, config=client) as admin:
            return admin.list_topics()

    assert connect() == ["t"]
    for kind in ("expired", "wrong-host", "untrusted"):
        assert [one.say(f"certificate {kind}"), one.say("restart")] == ["ok", "ok"]
        with pytest.raises(errors.SslAuthenticationFailed):
            connect()
    assert [one.say("certificate valid"), one.say("restart")] == ["ok", "ok"]
    assert connect() == ["t"]
    assert one.say("certificate old") == (
        "error: certificate: found 'old', wanted one of valid, expired, wrong-host, untrusted"
    )


def test_a_broker_without_tls_has_no_certificate(start: Callable[..., Process]) -> None:
    one = start("--security", "sasl_plaintext", "--user", "alice=secret")
    assert one.say("certificate expired") == (
        "error: certificate: the broker's listener is sasl_plaintext, wanted TLS"
    )


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_in_order(start: Callable[..., Process], number: signal.Signals) -> None:
    one = start()
    one.process.send_signal(number)
    assert one.process.wait(LIMIT_S) == 0


def test_it_ends_when_its_parent_is_gone(root: Path, wait_until: Wait) -> None:
    """Its input cannot end here, and a parent that is killed says nothing."""
    program = (
        "import subprocess, sys, time\n"
        f"one = subprocess.Popen({COMMAND!r}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,"
        " text=True)\n"
        "print(one.pid, one.stdout.readline(), flush=True)\n"
        "one.wait()\n"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, cwd=root
    )
    assert parent.stdout is not None
    pid, address = parent.stdout.readline().split()
    with Raw(address) as raw:
        assert raw.call(apis.API_VERSIONS, 0).error_code == ErrorCode.NONE
    parent.kill()
    parent.wait()
    parent.stdout.close()
    wait_until(lambda: not Path(f"/proc/{pid}").exists() or ended(int(pid)), "it is gone")


def ended(pid: int) -> bool:
    """True if a process has ended but was not reaped."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--topic", "t:x"], "--topic: found 't:x', wanted NAME or NAME:PARTITIONS"),
        (["--port", "65536"], "--port: found '65536', wanted a number from 0 to 65535"),
        (["--port", "soon"], "--port: found 'soon', wanted a number from 0 to 65535"),
        (["--nothing"], "no option --nothing"),
        (["--security", "tls"], "--security: invalid choice: 'tls'"),
        (["--security", "sasl_ssl"], "users: found none, wanted at least one"),
        (["--security", "ssl", "--user", "a=b"], "users: found some, wanted security sasl"),
        (["--user", "a=b"], "--user, --acl: found without --security, wanted it with them"),
        (["--security", "sasl_ssl", "--user", "secret"], "--user: found one without = or name"),
        (
            ["--security", "sasl_plaintext", "--user", "a=b", "--acl", "a:EAT:topic:t"],
            "acls: found ('a', 'EAT', 'topic', 't'), wanted (user, operations, resource type",
        ),
        (["--set", "num.partition=1"], "num.partition is not a broker setting; the nearest is"),
        (["--dir", "/proc/nothing/data"], "/proc/nothing: cannot make the directory: No such"),
    ],
)
def test_wrong_use_is_reported_in_a_line(root: Path, words: list[str], said: str) -> None:
    status, told = failed(root, *words)
    assert status == 2 and said in told
    assert os.environ.get("KAFKALOG_DEBUG") is None


def test_a_system_error_is_reported_in_a_line(root: Path, tmp_path: Path) -> None:
    """With the address or the directory, and what to do about it."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        number = str(taken.getsockname()[1])
        status, told = failed(root, "--port", number)
    assert status == 1
    assert f"127.0.0.1:{number}: Address already in use; give another port" in told
    (tmp_path / "file").write_text("x")
    status, told = failed(root, "--dir", str(tmp_path / "file"))
    assert status == 1 and f"{tmp_path}/file: cannot open the directory: Not a directory" in told
    with kafkalog.Broker(tmp_path / "served"):
        status, told = failed(root, "--dir", str(tmp_path / "served"))
    assert status == 1 and f"process {os.getpid()} owns this directory" in told


def failed(root: Path, *arguments: str) -> tuple[int, str]:
    """The exit status and the one line on stderr of a test broker that cannot start."""
    done = subprocess.run(
        [*COMMAND, *arguments], capture_output=True, text=True, cwd=root, input="", timeout=LIMIT_S
    )
    assert done.stderr.startswith("kafkalog: ") and done.stderr.count("\n") == 1
    return done.returncode, done.stderr
