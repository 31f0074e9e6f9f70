"""Delegation tokens of a cluster on ZooKeeper."""

from __future__ import annotations

import base64
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kafkalog.security.tokens import Token
from kafkalog.server.broker import Broker, node_of
from kafkalog.testing.standin import StandIn
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode
from kafkalog.zookeeper import tokens, tree
from kafkalog.zookeeper.session import Create, Delete, Session, Set, open_session
from tests.support import sasl
from tests.support.raw import Raw
from tests.support.waiting import wait_for
from tests.unit.zookeeper.test_tokens import TOKEN

KEY = "k3y"


@pytest.fixture
def inside() -> Iterator[StandIn]:
    with StandIn() as made:
        yield made


@pytest.fixture
def session(inside: StandIn) -> Iterator[Session]:
    with open_session(inside.hosts, lambda _: None) as made:
        made.ensure(tokens.FOLDERS)
        yield made


def started(inside: StandIn, path: Path, number: int, **more: object) -> Broker:
    given = {
        "node_id": number, "zookeeper_connect": inside.hosts, "controlled_shutdown_enable": False,
        "delegation_token_secret_key": KEY, "inter_broker_listener_name": "PLAINTEXT", **more,
    }  # fmt: skip
    config = sasl.settings("PLAIN", "SCRAM-SHA-256", **given)
    config["listeners"] = "SASL_PLAINTEXT://127.0.0.1:0,PLAINTEXT://127.0.0.1:0"
    return Broker(path / str(number), config=config)


def address(broker: Broker) -> str:
    """That of the listener with logins."""
    return f"127.0.0.1:{node_of(broker).advertised[0].port}"


def called(broker: Broker, api: Any, **body: Any) -> Any:
    """The answer to alice."""
    with Raw(address(broker)) as raw:
        assert not sasl.authenticate(raw, "alice").error_code
        return raw.call(api, **body)


def code(broker: Broker, token: Any) -> int:
    """The answer to a login with a token."""
    with Raw(address(broker)) as raw:
        password = base64.b64encode(bytes(token.hmac)).decode()
        return int(sasl.scram(raw, token.token_id, password, by_token=True).error_code)


def test_a_token_of_one_node_is_accepted_by_all(
    inside: StandIn, session: Session, tmp_path: Path
) -> None:
    """It is renewed and ended by another node; no password is in ZooKeeper."""
    with started(inside, tmp_path, 1) as one, started(inside, tmp_path, 2) as two:
        made = called(one, apis.CREATE_DELEGATION_TOKEN, renewers=[], max_lifetime_ms=-1)
        assert (made.error_code, code(one, made)) == (0, 0)
        wait_for(lambda: code(two, made) == 0, "the other node knows it")
        znode = session.read(tokens.path_of(made.token_id))
        assert znode is not None and bytes(made.hmac) not in (znode.data or b"")
        kept = tokens.read_token(made.token_id, znode.data)
        assert kept == node_of(two).image.tokens[made.token_id]
        shorter = called(two, apis.RENEW_DELEGATION_TOKEN, hmac=made.hmac, renew_period_ms=60_000)
        assert shorter.expiry_timestamp_ms < made.expiry_timestamp_ms
        (seen,) = called(two, apis.DESCRIBE_DELEGATION_TOKEN, owners=None).tokens
        assert (seen.token_id, bytes(seen.hmac)) == (made.token_id, bytes(made.hmac))
        ended = called(two, apis.EXPIRE_DELEGATION_TOKEN, hmac=made.hmac, expiry_time_period_ms=-1)
        assert ended.error_code == 0
        refused = ErrorCode.SASL_AUTHENTICATION_FAILED
        assert code(two, made) == refused
        wait_for(lambda: code(one, made) == refused, "the other node refuses it")
        assert session.children(tree.DELEGATION_TOKENS) == []


def test_the_controller_removes_expired_tokens(
    inside: StandIn, session: Session, tmp_path: Path
) -> None:
    often = {"delegation_token_expiry_check_interval_ms": 30}
    with started(inside, tmp_path, 1, **often) as broker:
        made = called(broker, apis.CREATE_DELEGATION_TOKEN, renewers=[], max_lifetime_ms=1)
        assert made.error_code == 0
        wait_for(lambda: session.children(tree.DELEGATION_TOKENS) == [], "it is gone")


def write(session: Session, token: Token, data: bytes) -> None:
    """Write a token as Kafka does, with its notification."""
    path = tokens.path_of(token.id)
    there = session.read(path)
    written = Set(path, data) if there else Create(path, data)
    told = Create(f"{tokens.CHANGES}/{tokens.CHANGE}", token.id.encode(), sequence=True)
    assert session.commit([written, told]).done


def test_an_unreadable_token_is_named_and_read_again(
    inside: StandIn, session: Session, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It is not accepted, the others are; what is announced later is read, too."""
    caplog.set_level(logging.ERROR)
    other = TOKEN._replace(id="other")
    write(session, TOKEN, b"{")
    write(session, other, tokens.write_token(other))
    with started(inside, tmp_path, 1) as broker:
        known = node_of(broker).image.tokens
        assert {*known} == {"other"} and "this token is not accepted" in caplog.text
        assert session.commit([
            Set(tokens.path_of(TOKEN.id), tokens.write_token(TOKEN)),
        ]).done  # fmt: skip
        write(session, other, tokens.write_token(other._replace(expires_ms=9)))
        wait_for(lambda: node_of(broker).image.tokens == {
            TOKEN.id: TOKEN, "other": other._replace(expires_ms=9)}, "both are read")  # fmt: skip
        assert session.commit([Delete(tokens.path_of("other"))]).done
        assert session.commit([Create(
            f"{tokens.CHANGES}/{tokens.CHANGE}", b"a/b", sequence=True)]).done  # fmt: skip
        wait_for(lambda: {*node_of(broker).image.tokens} == {TOKEN.id}, "all is read again")


def test_without_a_key_there_are_no_tokens(
    inside: StandIn, session: Session, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Those of the tree are not read; that the cluster has some is a warning."""
    write(session, TOKEN, tokens.write_token(TOKEN))
    with started(inside, tmp_path, 1, delegation_token_secret_key="") as broker:
        assert node_of(broker).image.tokens == {}
        made = called(broker, apis.CREATE_DELEGATION_TOKEN, renewers=[], max_lifetime_ms=-1)
        assert made.error_code == ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
    assert "delegation.token.secret.key" in caplog.text
