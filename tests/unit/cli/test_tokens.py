"""`kafkalog tokens`, against a broker."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkalog.config.declare import Password
from kafkalog.security.principal import Principal
from kafkalog.security.tokens import token_with
from kafkalog.server.admission import Admission
from kafkalog.server.broker import Broker, node_of
from tests.unit.cli.conftest import Command

KEY = "s3cret"


@pytest.fixture
def broker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Broker]:
    """It takes every caller for alice, as if she had authenticated."""
    monkeypatch.setattr(Admission, "principal", lambda self, number: Principal("User", "alice"))
    with Broker(tmp_path / "data", config={"delegation.token.secret.key": KEY}) as made:
        yield made


def test_tokens(
    kafkalog: Command, broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Created, listed without a password, renewed, expired."""
    here = ("--bootstrap-server", broker.bootstrap_servers)
    assert kafkalog("tokens", *here).out == "there is no token\n"
    ran = kafkalog("tokens", "create", "--renewer", "User:bob", "--json", *here)
    (made,) = ran.rows()
    assert (ran.status, made["owner"], made["renewers"]) == (0, "User:alice", ["User:bob"])
    ran = kafkalog("tokens", "list", "User:alice", *here)
    head, row = ran.out.splitlines()
    assert head.split()[:4] == ["token", "owner", "requester", "renewers"]
    assert row.split()[:4] == [made["token"], "User:alice", "User:alice", "User:bob"]
    assert made["password"] not in ran.out
    assert kafkalog("tokens", "--owner", "User:eve", "--json", *here).rows() == []
    secret = tmp_path / "secret.txt"
    secret.write_text(made["password"] + "\n")
    ran = kafkalog("tokens", "renew", "--hmac-file", secret, *here)
    assert ran.status == 0 and ran.out.startswith("expires at 20")
    monkeypatch.setattr("sys.stdin", io.StringIO(made["password"] + "\n"))
    assert kafkalog("tokens", "expire", "--hmac-file", "-", *here).status == 0
    assert node_of(broker).image.tokens == {}
    ran = kafkalog("tokens", "renew", "--hmac-file", secret, *here)
    assert ran.status == 1 and "DELEGATION_TOKEN_NOT_FOUND" in ran.err
    ran = kafkalog("tokens", "create", "--max-life-time-period", 1000, *here)
    name, password = ran.out.strip().split(": ")
    tokens = node_of(broker).image.tokens
    found = token_with(tokens, Password(KEY), base64.b64decode(password))
    assert found is not None and found.id == name and found.max_ms == found.issued_ms + 1000


@pytest.mark.parametrize(("words", "why"), [
    (["create", "User:a", "User:b"], "found 2 owners, wanted one at most"),
    (["create", "--renewer", "bob"], "wanted a principal such as User:alice"),
    (["renew"], "renew: wanted --hmac-file"),
    (["expire", "User:a", "--hmac-file", "x"], "expire: wanted --hmac-file, and no owner"),
    (["list", "--period", "5"], "--period is an option of renew and expire"),
])  # fmt: skip
def test_wrong_usage(kafkalog: Command, broker: Broker, words: list[str], why: str) -> None:
    """One line that says what is wrong."""
    ran = kafkalog("tokens", *words, "--bootstrap-server", broker.bootstrap_servers)
    assert ran.status == 2 and why in ran.err and ran.err.count("\n") == 1


def test_a_wrong_password_file(kafkalog: Command, broker: Broker, tmp_path: Path) -> None:
    """Its contents are not shown."""
    path = tmp_path / "secret.txt"
    path.write_text("hunter2!")
    ran = kafkalog(
        "tokens", "renew", "--hmac-file", path, "--bootstrap-server", broker.bootstrap_servers
    )
    assert ran.status == 2 and "in base64" in ran.err and "hunter2" not in ran.err
