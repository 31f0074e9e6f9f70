"""kafkajs with TLS, by each mechanism of SASL that it has.  The libraries of Python
are in tests/unit/server/test_sasl_clients.py, others in tests/kafka/suites."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kafkalog.testing.broker import TestBroker
from kafkalog.testing.security import MECHANISMS, Security
from tests.kafka.clients import programs
from tests.kafka.clients.agent import Agent, ClientError, Record

pytestmark = [pytest.mark.slow, pytest.mark.long]

USERS = {"alice": 'al"ice=,', "bob": "bob-S3CRET"}
ACLS = [("alice", "WRITE,READ,DESCRIBE", "topic", "*"), ("alice", "READ", "group", "*")]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestBroker]:
    security = Security("sasl_ssl", USERS, acls=ACLS)
    with TestBroker(tmp_path_factory.mktemp("kafkajs") / "data", security=security) as running:
        for mechanism in MECHANISMS:
            running.create_topic(mechanism.lower())
        yield running


@contextmanager
def connected(
    broker: TestBroker, monkeypatch: pytest.MonkeyPatch, folder: Path, mechanism: str, user: str,
    password: str,
) -> Iterator[Agent]:  # fmt: skip
    assert broker.security is not None
    authority = Path(broker.security.authority_file).read_text()
    sasl = {"mechanism": mechanism.lower(), "username": user, "password": password}
    security = {"ssl": {"ca": [authority]}, "sasl": sasl}
    monkeypatch.setenv("KAFKAJS_SECURITY", json.dumps(security))
    try:
        command = programs.command("kafkajs")
    except programs.Unavailable as reason:
        pytest.skip(str(reason))
    with Agent("kafkajs", command, broker.bootstrap_servers, folder / "errors") as agent:
        yield agent


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_kafkajs(
    broker: TestBroker, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, mechanism: str
) -> None:
    """A user writes and reads; a wrong password, and a user without ACLs, are refused."""
    topic, records = mechanism.lower(), [Record(b"k", b"v%d" % number) for number in range(20)]
    alice = ("alice", USERS["alice"])
    with connected(broker, monkeypatch, tmp_path, mechanism, *alice) as agent:
        assert agent.produce(topic, records) == list(range(20))
        found = agent.consume(topic, 20)
        assert [(one.key, one.value) for one in found] == [(one.key, one.value) for one in records]
    with (
        connected(broker, monkeypatch, tmp_path, mechanism, "alice", "wrong") as agent,
        pytest.raises(ClientError, match="uthentication failed"),
    ):
        agent.produce(topic, records)
    with (
        connected(broker, monkeypatch, tmp_path, mechanism, "bob", USERS["bob"]) as agent,
        pytest.raises(ClientError, match=r"(?i)not authorized"),
    ):
        agent.produce(topic, records)
    assert len(broker.records(topic)) == 20
