"""`kafkalog quotas`, and the calls of Admin behind it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import kafkalog
from kafkalog.cli import main
from kafkalog.errors import ArgumentError, InvalidRequest
from kafkalog.server.broker import Broker


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with Broker(tmp_path / "data") as broker:
        yield broker


def quotas(broker: Broker, *words: str) -> int:
    return main(["quotas", *words, "--bootstrap-server", broker.bootstrap_servers])


def test_quotas_are_altered_and_described(broker: Broker, capsys: Any) -> None:
    alice = ("--entity-type", "users", "--entity-name", "alice")
    assert (
        quotas(broker, "alter", *alice, "--add", "producer_byte_rate=1000,request_percentage=0.5")
        == 0
    )
    both = ("--entity-type", "users", "--entity-type", "clients", "--entity-name", "alice",
            "--entity-default")  # fmt: skip
    assert quotas(broker, "alter", *both, "--add-config", "consumer_byte_rate=5") == 0
    capsys.readouterr()
    assert quotas(broker) == 0
    assert capsys.readouterr().out.splitlines() == [
        "Quotas of the default for client-id, user 'alice': consumer_byte_rate=5",
        "Quotas of user 'alice': producer_byte_rate=1000, request_percentage=0.5",
    ]
    assert quotas(broker, "describe", *alice, "--json") == 0
    assert json.loads(capsys.readouterr().out) == {
        "entity": {"user": "alice"},
        "quotas": {"producer_byte_rate": 1000.0, "request_percentage": 0.5},
    }
    assert quotas(broker, "alter", *alice, "--delete", "producer_byte_rate,request_percentage") == 0
    assert quotas(broker, "describe", "--entity-type", "users") == 0
    assert capsys.readouterr().out == "The quotas were changed.\n"


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("alter", "--add", "a=1"), "whose quotas?"),
        (("alter", "--entity-type", "users", "--add", "a=1"), "whose quotas?"),
        (("alter", "--entity-type", "group", "--entity-default", "--add", "a=1"), "wanted users"),
        (("alter", "--entity-type", "users", "--entity-default"), "which quotas?"),
        (("alter", "--entity-type", "users", "--entity-default", "--add", "a"), "KEY=NUMBER"),
        (("describe", "--entity-name", "x"), "wanted one --entity-type"),
        (("describe", "x"), "found 'x'"),
    ],
)
def test_options_are_checked(broker: Broker, capsys: Any, words: Any, why: str) -> None:
    assert quotas(broker, *words) == 2
    assert why in capsys.readouterr().err


def test_a_refused_quota_is_explained(broker: Broker, capsys: Any) -> None:
    alice = ("--entity-type", "users", "--entity-name", "alice")
    assert quotas(broker, "alter", *alice, "--add", "nonsense=1") == 1
    assert "Invalid configuration key nonsense" in capsys.readouterr().err
    assert quotas(broker, "alter", *alice, "--add", "producer_byte_rate=1", "--dry-run") == 0
    with kafkalog.Admin(broker.bootstrap_servers) as admin:
        assert admin.describe_client_quotas() == {}


def test_admin(broker: Broker) -> None:
    alice, host = (("user", "alice"),), (("ip", "10.0.0.1"),)
    with kafkalog.Admin(broker.bootstrap_servers) as admin:
        found = admin.alter_client_quotas(
            {alice: {"producer_byte_rate": 1}, host: {"producer_byte_rate": 1.0}}
        )
        assert found[alice] is None
        with pytest.raises(InvalidRequest, match="producer_byte_rate"):
            found[host]
        assert admin.describe_client_quotas() == {alice: {"producer_byte_rate": 1.0}}
        assert admin.describe_client_quotas({"user": None}) == {}
        assert list(admin.describe_client_quotas(types=["user"], strict=True)) == [alice]
        admin.alter_client_quotas({alice: {"producer_byte_rate": None}}).check()
        assert admin.describe_client_quotas({"user": "alice"}) == {}
        with pytest.raises(ArgumentError):
            admin.alter_client_quotas({"alice": {"producer_byte_rate": 1.0}})
        with pytest.raises(ArgumentError):
            wrong: Any = {alice: {"producer_byte_rate": "1"}}
            admin.alter_client_quotas(wrong)
