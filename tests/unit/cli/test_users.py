"""`kafkalog users`, against a broker and against a directory."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkalog.security.scram import Credential, Mechanism, credential_of
from kafkalog.server.broker import Broker, node_of
from tests.unit.cli.conftest import Command

ADD = "SCRAM-SHA-256=[name=alice,password=hunter2,iterations=5000,salt=c2FsdA==]"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with Broker(tmp_path / "data") as made:
        yield made


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "secret.txt"
    path.write_text("hunter2\nsecond line\n")
    return path


def fits(found: Credential, mechanism: Mechanism, password: str) -> bool:
    return found == credential_of(mechanism, password, found.iterations, found.salt)


def test_users_of_a_broker(kafkalog: Command, broker: Broker, secret: Path) -> None:
    """Added, listed and deleted; the default mechanism is SCRAM-SHA-512."""
    here = ("--bootstrap-server", broker.bootstrap_servers)
    ran = kafkalog("users", *here)
    assert (ran.status, ran.out) == (0, "no user has a SCRAM credential\n")
    ran = kafkalog("users", "add", "alice", "--password-file", secret, *here)
    assert (ran.status, ran.out, ran.err) == (0, "alice: SCRAM-SHA-512\n", "")
    ran = kafkalog(
        "users", "--add", "--user", "bob", "--password-file", secret, "--iterations", 8192,
        "--mechanism", "SCRAM-SHA-256", "--mechanism", "SCRAM-SHA-512", *here,
    )  # fmt: skip
    assert (ran.status, ran.out) == (0, "bob: SCRAM-SHA-256\nbob: SCRAM-SHA-512\n")
    image = node_of(broker).image
    assert sorted(image.scram) == [("alice", 2), ("bob", 1), ("bob", 2)]
    for (_, mechanism), one in image.scram.items():
        assert fits(one, Mechanism(mechanism), "hunter2")
    assert kafkalog("users", "list", *here).out.splitlines() == [
        "user   mechanism      iterations",
        "alice  SCRAM-SHA-512        4096",
        "bob    SCRAM-SHA-256        8192",
        "bob    SCRAM-SHA-512        8192",
    ]
    assert kafkalog("users", "list", "alice", "--json", *here).rows() == [
        {"user": "alice", "mechanism": "SCRAM-SHA-512", "iterations": 4096}
    ]
    ran = kafkalog("users", "delete", "bob", "alice", "--mechanism", "SCRAM-SHA-512", *here)
    assert ran.out.splitlines()[0] == "bob: SCRAM-SHA-512 was deleted"
    ran = kafkalog("users", "delete", "bob", *here)
    assert (ran.status, ran.out) == (0, "bob: SCRAM-SHA-256 was deleted\n")
    assert node_of(broker).image.scram == {}
    ran = kafkalog("users", "delete", "bob", *here)
    assert ran.status == 1 and "RESOURCE_NOT_FOUND" in ran.err


def test_users_of_a_directory(kafkalog: Command, tmp_path: Path, secret: Path) -> None:
    """The first administrator of a new directory, which a broker then serves."""
    here = ("--dir", tmp_path / "new")
    ran = kafkalog("users", "add", "--add-scram", ADD, "--node-id", 7, *here)
    assert (ran.status, ran.out, ran.err) == (0, "alice: SCRAM-SHA-256\n", "")
    ran = kafkalog("users", "add", "bob", "--password-file", secret, *here)
    assert ran.status == 0
    with Broker(tmp_path / "new") as broker:
        image = node_of(broker).image
        assert image.node_id == 7
        assert image.scram["alice", 1] == credential_of(
            Mechanism.SCRAM_SHA_256, "hunter2", 5000, b"salt"
        )
        ran = kafkalog("users", "add", "eve", "--password-file", secret, *here)
        assert ran.status == 1 and "--bootstrap-server" in ran.err
    assert [row["user"] for row in kafkalog("users", "--json", *here).rows()] == ["alice", "bob"]
    assert kafkalog("users", "delete", "alice", *here).status == 0
    ran = kafkalog("users", "delete", "alice", *here)
    assert ran.status == 1 and "'alice' has no SCRAM credential" in ran.err


def test_the_password_comes_from_stdin(
    kafkalog: Command, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its first line, of which only the line's end is no part."""
    monkeypatch.setattr("sys.stdin", io.StringIO(" hun ter2 \r\nmore"))
    here = ("--bootstrap-server", broker.bootstrap_servers)
    assert kafkalog("users", "add", "alice", "--password-file", "-", *here).status == 0
    found = node_of(broker).image.scram["alice", 2]
    assert fits(found, Mechanism.SCRAM_SHA_512, " hun ter2 ")


@pytest.mark.parametrize(("words", "why"), [
    (["add"], "found 0 users, wanted one"),
    (["add", "a", "b"], "found 2 users, wanted one"),
    (["add", "a"], "no terminal to ask for the password; give --password-file"),
    (["add", "a", "--iterations", 4095], "found 4095, wanted 4096 to 16384"),
    (["add", "a", "--mechanism", "SCRAM-SHA-1"], "SCRAM-SHA-1"),
    (["add", "a", "--password-file", "{empty}"], "found an empty password"),
    (["add", "a", "--password-file", "{missing}"], "No such file"),
    (["delete"], "delete: whom?"),
    (["list", "--iterations", 5000], "--iterations is an option of add"),
    (["add", "a", "--add-scram", ADD], "found other options of a user"),
    (["add", "--add-scram", "SCRAM-SHA-256=hunter2"], "wanted MECHANISM="),
    (["add", "--add-scram", "PLAIN=[name=a,password=hunter2]"], "wanted MECHANISM="),
    (["add", "--add-scram", "SCRAM-SHA-256=[name=a,hunter2]"], "wanted name=value"),
    (["add", "--add-scram", "SCRAM-SHA-256=[name=a]"], "wanted a name and a password"),
    (["add", "--add-scram", "SCRAM-SHA-256=[password=hunter2]"], "wanted a name and a password"),
    (["add", "--add-scram", "SCRAM-SHA-256=[name=a,password=hunter2,x=y]"], "found x, which"),
    (["add", "--add-scram", "SCRAM-SHA-256=[name=a,password=hunter2,iterations=7]"], "wanted 4096"),
    (["add", "--add-scram", "SCRAM-SHA-256=[name=a,password=hunter2,salt=*]"], "wanted base64"),
])  # fmt: skip
def test_wrong_usage(
    kafkalog: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[object],
    why: str,
) -> None:  # fmt: skip
    """One line with what is wrong, without the password; nothing is written."""
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    (tmp_path / "empty").write_text("\n")
    names = {name: tmp_path / name for name in ("empty", "missing")}
    given = [word.format(**names) if isinstance(word, str) else word for word in words]
    ran = kafkalog("users", *given, "--dir", tmp_path / "new")
    assert ran.status == 2 and why in ran.err and ran.err.count("\n") == 1
    assert "hunter2" not in ran.err + ran.out
    assert not (tmp_path / "new" / "meta.properties").exists()
