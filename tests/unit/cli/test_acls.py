"""`kafkalog acls`, against a broker with an authorizer."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkalog.cli import main
from kafkalog.config.authorizer import STANDARD_AUTHORIZER
from kafkalog.server.broker import Broker


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    config = {"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:ANONYMOUS"}
    with Broker(tmp_path / "data", config=config) as broker:
        yield broker.bootstrap_servers


def acls(address: str, *words: str) -> int:
    return main(["acls", *words, "--bootstrap-server", address])


def listed(address: str, capsys: pytest.CaptureFixture[str], *words: str) -> list[list[str]]:
    capsys.readouterr()
    assert acls(address, "list", "--json", *words) == 0
    return [list(json.loads(line).values()) for line in capsys.readouterr().out.splitlines()
            if line.startswith("{")]  # fmt: skip


def test_permissions_are_added_listed_and_removed(
    address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert acls(address) == 0
    assert "no such permissions" in capsys.readouterr().out
    assert acls(address, "add", "--allow-principal", "User:alice", "--operation", "Read",
                "--operation", "describe-configs", "--topic", "t") == 0  # fmt: skip
    assert acls(address, "--add", "--deny-principal", "User:bob", "--deny-host", "10.0.0.1",
                "--group", "g", "--resource-pattern-type", "prefixed") == 0  # fmt: skip
    assert "User:bob: deny all on group g (prefixed) from 10.0.0.1" in capsys.readouterr().out
    alice = [["topic", "t", "User:alice", "describe_configs", "allow", "*", "literal"],
             ["topic", "t", "User:alice", "read", "allow", "*", "literal"]]  # fmt: skip
    bob = ["group", "g", "User:bob", "all", "deny", "10.0.0.1", "prefixed"]
    assert listed(address, capsys) == [bob, *alice]
    assert listed(address, capsys, "--topic", "t") == alice
    assert listed(address, capsys, "--principal", "User:bob") == [bob]
    assert listed(address, capsys, "--group", "gg", "--resource-pattern-type", "match") == [bob]
    assert acls(address, "remove", "--allow-principal", "User:alice", "--operation", "read",
                "--topic", "t") == 0  # fmt: skip
    assert listed(address, capsys, "--topic", "t") == alice[:1]
    assert acls(address, "--remove", "--topic", "t", "--force") == 0
    assert listed(address, capsys) == [bob]


def test_roles_add_the_acls_of_kafkas_tool(
    address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert acls(address, "add", "--allow-principal", "User:p", "--producer", "--topic", "t",
                "--transactional-id", "x", "--idempotent") == 0  # fmt: skip
    assert [(one[0], one[1], one[3]) for one in listed(address, capsys)] == [
        ("cluster", "kafka-cluster", "idempotent_write"), ("topic", "t", "create"),
        ("topic", "t", "describe"), ("topic", "t", "write"), ("transactional_id", "x", "describe"),
        ("transactional_id", "x", "write"),
    ]  # fmt: skip
    assert acls(address, "add", "--allow-principal", "User:c", "--consumer", "--topic", "t",
                "--group", "g") == 0  # fmt: skip
    found = listed(address, capsys, "--principal", "User:c")
    assert [(one[0], one[1], one[3]) for one in found] == [
        ("group", "g", "read"), ("topic", "t", "describe"), ("topic", "t", "read"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["add", "--topic", "t"], "for whom"), (["add", "--allow-principal", "User:a"], "which"),
        (["add", "--allow-principal", "alice", "--topic", "t"], "User:alice"),
        (["remove"], "which resources"), (["list", "--operation", "read"], "--operation"),
        (["add", "--consumer", "--topic", "t", "--allow-principal", "User:a"], "--group"),
        (["add", "--operation", "fly", "--topic", "t", "--allow-principal", "User:a"], "fly"),
        (["list", "t"], "--topic"),
    ],
)  # fmt: skip
def test_wrong_words_get_a_plain_error(
    address: str, capsys: pytest.CaptureFixture[str], words: list[str], why: str
) -> None:
    assert acls(address, *words) == 2
    assert why in capsys.readouterr().err


def test_without_an_authorizer_there_are_no_acls(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Broker(tmp_path / "data") as broker:
        assert acls(broker.bootstrap_servers) != 0
        assert "No Authorizer is configured" in capsys.readouterr().err
