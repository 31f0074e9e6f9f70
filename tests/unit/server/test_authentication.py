"""Authentication of connections: what is accepted, in which order, and how failures end."""

from __future__ import annotations

import logging
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kafkalog.clock import ManualClock
from kafkalog.config.sasl import UNSIGNED
from kafkalog.errors import InvalidSetting
from kafkalog.logs.limit import LINES_MAX
from kafkalog.security.principal import Principal
from kafkalog.security.scram import Mechanism, salted_password
from kafkalog.server.broker import Broker, node_of
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode
from tests.support import sasl
from tests.support.raw import Raw
from tests.support.sasl import USERS, authenticate, handshake, plain, raw_token, scram, token

OK = ErrorCode.NONE
FAILED, ILLEGAL = ErrorCode.SASL_AUTHENTICATION_FAILED, ErrorCode.ILLEGAL_SASL_STATE
SCRAMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")
MECHANISMS = ("PLAIN", *SCRAMS)
SESSION_MS = 60_000


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    config = sasl.settings(*MECHANISMS, connection_failed_authentication_delay_ms=1)
    with Broker(tmp_path_factory.mktemp("sasl"), config=config) as running:
        raw = Raw(running.bootstrap_servers)
        authenticate(raw)
        for one in Mechanism:
            rows = [
                {"name": user, "mechanism": int(one), "iterations": 4096, "salt": user.encode(),
                 "salted_password": salted_password(one, password, user.encode(), 4096)}
                for user, password in USERS.items()
            ]  # fmt: skip
            found = raw.call(apis.ALTER_USER_SCRAM_CREDENTIALS, deletions=[], upsertions=rows)
            assert {each.error_code for each in found.results} == {OK}
        raw.socket.close()
        yield running


@pytest.fixture
def raw(broker: Broker) -> Iterator[Raw]:
    client = Raw(broker.bootstrap_servers)
    yield client
    client.socket.close()


def is_closed(raw: Raw) -> bool:
    try:
        return raw.socket.recv(1) == b""
    except ConnectionResetError:
        return True


# ---- success ---------------------------------------------------------------------------------


@pytest.mark.parametrize("version", apis.SASL_AUTHENTICATE.versions)
def test_plain_authenticates(raw: Raw, version: int) -> None:
    found = authenticate(raw, version=version)
    assert (found.error_code, found.error_message, bytes(found.auth_bytes)) == (OK, "", b"")
    assert raw.call(apis.METADATA, topics=None).brokers
    assert raw.create("t").error_code in (OK, ErrorCode.TOPIC_ALREADY_EXISTS)
    assert raw.produce("t", b"v").error_code == OK
    assert raw.fetch("t").error_code == OK


@pytest.mark.parametrize("user", USERS)
@pytest.mark.parametrize("mechanism", SCRAMS)
def test_scram_authenticates(raw: Raw, user: str, mechanism: str) -> None:
    assert scram(raw, user, USERS[user], mechanism).error_code == OK
    assert raw.call(apis.METADATA, topics=None).brokers


def test_a_connection_has_its_principal(broker: Broker, raw: Raw) -> None:
    seen = []
    node = node_of(broker)
    number_of = node.admission.number_of

    def noted(principal: Principal, host: str) -> int:
        seen.append((str(principal), host))
        return number_of(principal, host)

    node.admission.number_of = noted  # type: ignore[method-assign]
    try:
        authenticate(raw, "bob")
    finally:
        del node.admission.number_of
    assert seen == [("User:bob", "/127.0.0.1")]


def test_api_versions_comes_first(raw: Raw) -> None:
    """Also in a version that nobody knows, which is answered with those that are served."""
    raw.send_bytes(apis.API_VERSIONS, 0, b"")
    keys = {one.api_key for one in raw.receive(apis.API_VERSIONS, 0).api_keys}
    assert {apis.SASL_HANDSHAKE.key, apis.SASL_AUTHENTICATE.key} <= keys
    assert authenticate(raw).error_code == OK


def test_tokens_without_headers_follow_the_oldest_handshake(raw: Raw) -> None:
    found = handshake(raw, version=0)
    assert (found.error_code, list(found.mechanisms)) == (OK, list(MECHANISMS))
    assert raw_token(raw, plain()) == b""
    assert raw.call(apis.METADATA, topics=None).brokers


def test_requests_after_the_last_token_may_be_sent_ahead(raw: Raw) -> None:
    raw.send(apis.SASL_HANDSHAKE, 1, {"mechanism": "PLAIN"})
    raw.send(apis.SASL_AUTHENTICATE, 1, {"auth_bytes": plain()})
    raw.send(apis.METADATA, 1, {"topics": None})
    assert raw.receive(apis.SASL_HANDSHAKE, 1).error_code == OK
    assert raw.receive(apis.SASL_AUTHENTICATE, 1).error_code == OK
    assert raw.receive(apis.METADATA, 1).brokers


# ---- failures --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "data",
    [plain(password="wrong"), plain("nobody", "alice-S3CRET"), plain("alice", "alice-S3CRE"),
     plain("alice", "alice-S3CRETx"), plain("ALICE", "alice-S3CRET")],
)  # fmt: skip
def test_wrong_passwords_and_names_are_refused_alike(raw: Raw, data: bytes) -> None:
    handshake(raw)
    found = token(raw, data)
    assert found.error_code == FAILED
    assert found.error_message == "Authentication failed: Invalid username or password"
    assert is_closed(raw)


@pytest.mark.parametrize(
    ("data", "said"),
    [(b"", "got 1"), (b"\0", "got 2"), (b"\0\0", "username not"), (b"\0alice\0", "password not"),
     (b"\0\0x", "username not"), (b"alice\0x", "got 2"), (b"a\0b\0c\0d", "got 4"),
     (b"\xff\0a\0b", "Invalid username or password")],
)  # fmt: skip
def test_malformed_plain_tokens_are_refused(raw: Raw, data: bytes, said: str) -> None:
    handshake(raw)
    found = token(raw, data)
    assert found.error_code == FAILED and said in found.error_message
    assert is_closed(raw)


def test_an_authorization_id_is_the_name_or_nothing(raw: Raw, broker: Broker) -> None:
    handshake(raw)
    assert token(raw, plain(authorization="alice")).error_code == OK
    other = Raw(broker.bootstrap_servers)
    handshake(other)
    assert token(other, plain(authorization="bob")).error_code == FAILED
    assert is_closed(other)


@pytest.mark.parametrize("mechanism", SCRAMS)
def test_scram_refuses_known_and_unknown_users_in_the_same_step(
    broker: Broker, mechanism: str
) -> None:
    answers = []
    for user in ("alice", "nobody"):
        raw = Raw(broker.bootstrap_servers)
        found = scram(raw, user, "wrong", mechanism)
        answers.append((found.error_code, found.error_message))
        assert is_closed(raw)
    assert answers[0] == answers[1]
    assert answers[0][0] == FAILED and "invalid credentials" in answers[0][1]


def test_every_cut_of_a_token_is_refused(broker: Broker) -> None:
    """And none of them hangs."""
    whole = plain()
    for end in range(len(whole)):
        raw = Raw(broker.bootstrap_servers)
        handshake(raw)
        assert token(raw, whole[:end]).error_code == FAILED
        assert is_closed(raw)


def test_mechanisms_that_are_not_enabled_are_refused_with_those_that_are(raw: Raw) -> None:
    found = handshake(raw, "GSSAPI")
    assert found.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
    assert list(found.mechanisms) == list(MECHANISMS)
    assert is_closed(raw)


@pytest.mark.parametrize(
    "api", [apis.METADATA, apis.PRODUCE, apis.FETCH, apis.SASL_AUTHENTICATE, apis.LIST_OFFSETS]
)
def test_other_requests_before_a_handshake_close_the_connection(raw: Raw, api: Any) -> None:
    raw.send_bytes(api, api.max_version, b"")
    assert is_closed(raw)


def test_other_requests_before_the_end_are_refused(raw: Raw) -> None:
    handshake(raw)
    raw.send(apis.METADATA, 5, {"topics": [{"name": "t"}]})
    found = raw.receive(apis.METADATA, 5)
    assert found.topics[0].error_code == ILLEGAL
    assert is_closed(raw)


def test_the_oldest_handshake_has_no_error_answers(raw: Raw) -> None:
    handshake(raw, version=0)
    raw.socket.sendall(struct.pack(">i", 5) + b"\0a\0bc")
    assert is_closed(raw)


def test_a_second_handshake_is_refused(raw: Raw) -> None:
    handshake(raw)
    assert handshake(raw).error_code == ILLEGAL
    assert is_closed(raw)


def test_api_versions_is_answered_once(raw: Raw) -> None:
    for version in (0, 0):
        raw.send_bytes(apis.API_VERSIONS, version, b"")
    assert raw.receive(apis.API_VERSIONS, 0).error_code == OK
    assert is_closed(raw)


@pytest.mark.parametrize("api", [apis.SASL_HANDSHAKE, apis.SASL_AUTHENTICATE])
def test_unknown_versions_close_the_connection(raw: Raw, api: Any) -> None:
    if api is apis.SASL_AUTHENTICATE:
        handshake(raw)
    raw.socket.sendall(struct.pack(">ihhih", 10, api.key, api.max_version + 1, 1, -1))
    assert is_closed(raw)


def test_too_long_a_token_closes_the_connection(raw: Raw) -> None:
    handshake(raw)
    raw.socket.sendall(struct.pack(">i", 524_289))
    assert is_closed(raw)


def test_a_token_of_the_longest_size_is_read(raw: Raw) -> None:
    handshake(raw)
    assert token(raw, bytes(524_000)).error_code == FAILED


def test_sasl_on_an_authenticated_connection_is_refused(raw: Raw) -> None:
    """Its session does not end.  It stays open, as in Kafka."""
    authenticate(raw)
    found = handshake(raw)
    assert (found.error_code, list(found.mechanisms)) == (ILLEGAL, [])
    assert token(raw, plain()).error_code == ILLEGAL
    assert raw.call(apis.METADATA, topics=None).brokers


def test_sasl_on_a_listener_without_it_is_refused(tmp_path: Path) -> None:
    with Broker(tmp_path / "open") as broker:
        raw = Raw(broker.bootstrap_servers)
        assert handshake(raw).error_code == ILLEGAL
        assert token(raw, plain()).error_code == ILLEGAL
        assert raw.call(apis.METADATA, topics=None).brokers


# ---- logs ------------------------------------------------------------------------------------


def test_failures_are_logged_without_secrets_and_not_all_of_them(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = sasl.settings(connection_failed_authentication_delay_ms=0)
    with caplog.at_level(logging.DEBUG), Broker(tmp_path / "d", config=config) as broker:
        for _ in range(LINES_MAX + 5):
            raw = Raw(broker.bootstrap_servers)
            handshake(raw)
            assert token(raw, plain("mallory-S3CRET", "S3CRET")).error_code == FAILED
            raw.socket.close()
        assert "S3CRET" not in repr(broker) + repr(node_of(broker))
    failures = [one for one in caplog.messages if "authentication failed" in one]
    assert len(failures) == LINES_MAX
    assert all("/127.0.0.1 (PLAIN)" in one for one in failures)
    assert "S3CRET" not in caplog.text


# ---- re-authentication -----------------------------------------------------------------------


class Timed:
    """A broker whose sessions end, and its clock."""

    def __init__(self, path: Path) -> None:
        self.clock = ManualClock()
        config = sasl.settings(
            "PLAIN", "SCRAM-SHA-256", connections_max_reauth_ms=SESSION_MS,
            connection_failed_authentication_delay_ms=0,
        )  # fmt: skip
        self.broker = Broker(path, config=config, clock=self.clock)


@pytest.fixture
def timed(tmp_path: Path) -> Iterator[Timed]:
    one = Timed(tmp_path / "timed")
    yield one
    one.broker.close()


def connected(timed: Timed) -> Raw:
    raw = Raw(timed.broker.bootstrap_servers)
    assert authenticate(raw).session_lifetime_ms == SESSION_MS
    return raw


def test_a_session_is_renewed_before_and_after_its_end(timed: Timed) -> None:
    raw = connected(timed)
    for wait_ms in (SESSION_MS // 2, SESSION_MS - 1, SESSION_MS * 2):
        timed.clock.advance(wait_ms)
        assert authenticate(raw).session_lifetime_ms == SESSION_MS
        assert raw.call(apis.METADATA, topics=None).brokers


def test_a_session_that_was_not_renewed_ends(timed: Timed) -> None:
    raw = connected(timed)
    timed.clock.advance(SESSION_MS - 1)
    assert raw.call(apis.METADATA, topics=None).brokers
    timed.clock.advance(1)
    raw.send(apis.METADATA, 1, {"topics": None})
    assert is_closed(raw)


def test_a_session_is_renewed_once_a_second(timed: Timed) -> None:
    """The first time at once, as by Kafka."""
    raw = connected(timed)
    assert authenticate(raw).error_code == OK
    timed.clock.advance(999)
    assert handshake(raw).error_code == ILLEGAL
    timed.clock.advance(1)
    assert authenticate(raw).error_code == OK


def test_a_session_keeps_its_principal(timed: Timed) -> None:
    raw = connected(timed)
    timed.clock.advance(2_000)
    found = authenticate(raw, "bob")
    assert found.error_code == FAILED
    assert "Cannot change principals" in found.error_message
    assert is_closed(raw)


def test_a_session_keeps_its_mechanism(timed: Timed) -> None:
    raw = connected(timed)
    timed.clock.advance(2_000)
    assert handshake(raw, "SCRAM-SHA-256").error_code == OK
    found = token(raw, b"n,,n=alice,r=x")
    assert found.error_code == FAILED
    assert "not supported for re-authentication" in found.error_message
    assert is_closed(raw)


def test_nothing_else_is_answered_during_re_authentication(timed: Timed) -> None:
    """Neither by Python nor by C, which had answered Produce and Fetch of the connection."""
    raw = connected(timed)
    raw.create("t")
    assert raw.fetch("t").error_code == OK
    timed.clock.advance(2_000)
    assert handshake(raw).error_code == OK
    assert raw.fetch("t").error_code == ILLEGAL
    assert is_closed(raw)


def test_a_forgotten_re_authentication_ends_the_connection(timed: Timed) -> None:
    """It does not become a first authentication, which could bring another principal."""
    raw = connected(timed)
    timed.clock.advance(2_000)
    assert handshake(raw).error_code == OK
    node_of(timed.broker).authentication._attempts.clear()  # as many others do
    raw.send(apis.SASL_HANDSHAKE, 1, {"mechanism": "PLAIN"})
    assert is_closed(raw)


def test_a_forgotten_session_ends_at_its_time(timed: Timed) -> None:
    raw = connected(timed)
    node_of(timed.broker).authentication._sessions.clear()
    timed.clock.advance(2_000)
    assert handshake(raw).error_code == ILLEGAL
    assert raw.call(apis.METADATA, topics=None).brokers
    timed.clock.advance(SESSION_MS)
    raw.send(apis.METADATA, 1, {"topics": None})
    assert is_closed(raw)


# ---- settings --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        ({"sasl.enabled.mechanisms": None}, "found GSSAPI, which is not supported"),
        ({"sasl.enabled.mechanisms": "PLAIN,GSSAPI"}, "found GSSAPI"),
        ({"sasl.enabled.mechanisms": ""}, "found none"),
        ({"listener.name.sasl_plaintext.plain.sasl.jaas.config": None}, "wanted the users"),
        ({"listener.name.sasl_plaintext.plain.sasl.jaas.config": "x S3CRET;"}, "control flag"),
        ({"listener.name.sasl_plaintext.plain.sasl.jaas.config":
            'org.example.S3CRET required user_a="S3CRET";'}, "another login module"),
        ({"listener.name.sasl_plaintext.plain.sasl.server.callback.handler.class": UNSIGNED},
         "handler.class: found a value, wanted none"),
    ],
)  # fmt: skip
def test_wrong_settings_end_the_start_without_their_secrets(
    tmp_path: Path, more: dict[str, object], problem: str
) -> None:
    with pytest.raises(InvalidSetting, match=problem) as found:
        Broker(tmp_path / "d", config={**sasl.settings(), **more})
    assert "S3CRET" not in str(found.value)
    assert not (tmp_path / "d").exists()
