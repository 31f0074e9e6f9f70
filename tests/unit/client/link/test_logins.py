"""Logins: their requests, who is refused and how often, tokens, and sessions that end."""

from __future__ import annotations

import base64
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from kafkalog import Admin, Consumer, Producer, errors
from kafkalog.client.link.connection import Connection
from kafkalog.client.link.transport import Address, Options
from kafkalog.client.login.security import security_of
from kafkalog.client.login.tokens import Tokens, TokenSource
from kafkalog.config.client import ClientConfig
from kafkalog.security import scram
from kafkalog.wire import apis
from tests.support import secured
from tests.support.scripted import Peer
from tests.support.waiting import LIMIT_S

PASSWORD = "hunter2 \u00fc"
SCRAMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")


@pytest.fixture
def peer() -> Iterator[Peer]:
    with Peer() as made:
        yield made


def settings(mechanism: str = "PLAIN", **login: str) -> dict[str, str]:
    module = {"PLAIN": secured.PLAIN, "OAUTHBEARER": secured.BEARER}.get(mechanism, secured.SCRAM)
    options = login or {"username": "alice", "password": PASSWORD}
    config = secured.settings("SASL_PLAINTEXT", sasl_mechanism=mechanism)
    return {**config, "sasl.jaas.config": secured.jaas(module, **options)}


def takes(peer: Peer, step: Callable[[bytes], Any], **more: Any) -> None:
    """Let a peer offer every mechanism; `step`: client's bytes -> answer's bytes, or its fields."""
    peer.on(apis.SASL_HANDSHAKE, {"mechanisms": ["PLAIN", "OAUTHBEARER", *SCRAMS]})

    def answer(request: Any, version: int) -> dict[str, Any]:
        found = step(request.auth_bytes)
        return found if isinstance(found, dict) else {"auth_bytes": found, **more}

    peer.on(apis.SASL_AUTHENTICATE, answer)


def refuses(peer: Peer) -> None:
    takes(peer, lambda _: {"error_code": 58, "error_message": "no"})


def connect(peer: Peer, config: dict[str, str], token: TokenSource | None = None) -> Connection:
    security = security_of(ClientConfig(config), token)
    return Connection(Address("127.0.0.1", peer.port), Options(security=security))


def test_a_login_comes_before_every_other_request(peer: Peer) -> None:
    said: list[bytes] = []
    takes(peer, lambda message: said.append(message) or b"")
    with Admin(peer.servers, config=settings()) as admin:
        admin.list_topics()
    assert said == [f"\0alice\0{PASSWORD}".encode()]
    names = [name for name, _, _ in peer.requests[:4]]
    assert names == ["ApiVersions", "SaslHandshake", "SaslAuthenticate", "Metadata"]


@pytest.mark.parametrize("mechanism", SCRAMS)
def test_scram(peer: Peer, mechanism: str) -> None:
    kind = scram.Mechanism.named(mechanism)
    known = scram.credential_of(kind, PASSWORD)
    exchange = scram.ServerExchange(kind, {"alice": known}.get)
    takes(peer, lambda message: exchange.step(message))
    connect(peer, settings(mechanism)).close()
    assert exchange.done


def test_a_delegation_token_says_that_it_is_one(peer: Peer) -> None:
    said: list[bytes] = []
    takes(peer, lambda message: said.append(message) or {"error_code": 58})
    login = {"username": "id", "password": "hmac", "tokenauth": "true"}
    with pytest.raises(errors.SaslAuthenticationFailed):
        connect(peer, settings("SCRAM-SHA-256", **login))
    assert said[0].endswith(b",tokenauth=true")


def test_a_broker_that_does_not_know_the_password_is_refused(peer: Peer) -> None:
    """Another server learns nothing of the password, and gets no records."""
    kind = scram.Mechanism.SCRAM_SHA_256
    known = scram.credential_of(kind, PASSWORD)._replace(server_key=bytes(32))
    exchange = scram.ServerExchange(kind, lambda _: known)
    takes(peer, lambda message: exchange.step(message))
    with pytest.raises(errors.SaslAuthenticationFailed) as told:
        connect(peer, settings("SCRAM-SHA-256"))
    assert str(told.value).startswith(f"{peer.servers}: SCRAM-SHA-256: ")


# ---- refusals ----------------------------------------------------------------------------------


def list_topics(servers: str, config: dict[str, str]) -> None:
    with Admin(servers, config=config) as admin:
        admin.list_topics()


def send(servers: str, config: dict[str, str]) -> None:
    with Producer(servers, config=config) as producer:
        producer.send("orders", b"v")


def poll(servers: str, config: dict[str, str]) -> None:
    with Consumer(servers, "orders", group="g", config=config) as consumer:
        end_s = time.monotonic() + LIMIT_S
        while time.monotonic() < end_s:
            consumer.poll(100)


@pytest.mark.parametrize("use", [list_topics, send, poll])
def test_a_refused_login_is_not_repeated(peer: Peer, use: Callable[..., None]) -> None:
    """Not at the next bootstrap server either: a user may be locked out after a few attempts."""
    refuses(peer)
    servers = f"{peer.servers},{peer.servers}"
    with pytest.raises(errors.SaslAuthenticationFailed) as told:
        use(servers, settings())
    assert str(told.value).startswith(f"{peer.servers}: PLAIN: ") and "no" in str(told.value)
    assert "hunter2" not in repr(told.value) and not told.value.retriable
    assert peer.count(apis.SASL_AUTHENTICATE) == 1


def test_a_mechanism_that_is_not_offered(peer: Peer) -> None:
    peer.on(apis.SASL_HANDSHAKE, {"error_code": 33, "mechanisms": ["GSSAPI", "PLAIN"]})
    with pytest.raises(errors.UnsupportedSaslMechanism, match="the broker offers GSSAPI, PLAIN"):
        connect(peer, settings("SCRAM-SHA-512"))


def test_a_listener_without_logins() -> None:
    told = "the listener takes no login"
    with (
        Peer({apis.SASL_HANDSHAKE: (0, -1)}) as peer,
        pytest.raises(errors.IllegalSaslState, match=told),
    ):
        connect(peer, settings())


def test_an_exchange_without_an_end_is_given_up(peer: Peer) -> None:
    takes(peer, lambda _: b"r=")
    with pytest.raises(errors.BadAnswer, match="8 messages, and no end"):
        connect(peer, {**settings("OAUTHBEARER", x="")}, lambda: ("token", time.time() + 60))


# ---- sessions ----------------------------------------------------------------------------------


def test_a_session_is_renewed_between_requests(peer: Peer) -> None:
    """On the same connection, and not before the answers that are due (KIP-368)."""
    takes(peer, lambda _: b"", session_lifetime_ms=3_600_000)
    connection = connect(peer, settings())
    assert not connection.ages
    connection.post(apis.METADATA, {"topics": []}, 9)
    connection._renew_s = 0.0
    assert connection.ages
    connection.post(apis.METADATA, {"topics": []}, 9)
    connection.receive()
    connection.receive()
    assert peer.count(apis.SASL_AUTHENTICATE) == 1
    connection.post(apis.METADATA, {"topics": []}, 9)
    assert not connection.ages
    connection.receive()
    names = [name for name, _, _ in peer.requests]
    assert names[-3:] == ["SaslHandshake", "SaslAuthenticate", "Metadata"]
    assert peer.connections == 1
    connection.close()


def test_a_session_that_cannot_be_renewed_ends(peer: Peer) -> None:
    takes(peer, lambda _: b"", session_lifetime_ms=3_600_000)
    connection = connect(peer, settings())
    connection._renew_s = 0.0
    refuses(peer)
    with pytest.raises(errors.SaslAuthenticationFailed):
        connection.call(apis.METADATA, {"topics": []}, 9)
    assert connection.closed and peer.count(apis.METADATA) == 0


# ---- tokens ------------------------------------------------------------------------------------


def jwt(lasts_s: float, **claims: object) -> str:
    parts = [{"alg": "none"}, {"exp": time.time() + lasts_s, **claims}]
    bare = (base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=") for part in parts)
    return b".".join([*bare, b"s"]).decode()


def test_one_token_serves_many_connections_until_it_ages(peer: Peer) -> None:
    said: list[bytes] = []
    takes(peer, lambda message: said.append(message) or b"")
    calls: list[int] = []

    def token() -> tuple[str, float]:
        calls.append(1)
        return f"t{len(calls)}", time.time() + 3600

    security = security_of(ClientConfig(settings("OAUTHBEARER", extension_pool="7")), token)
    for _ in range(3):
        Connection(Address("127.0.0.1", peer.port), Options(security=security)).close()
    assert said == [b"n,,\x01auth=Bearer t1\x01pool=7\x01\x01"] * 3


def test_a_token_is_replaced_before_it_expires_and_kept_if_that_fails() -> None:
    answers: list[tuple[str, float] | Exception] = [
        ("old", time.time() + 1000), ValueError("hunter2"), ("new", time.time() + 2000),
    ]  # fmt: skip

    def token() -> tuple[str, float]:
        found = answers.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    config = ClientConfig({"sasl.login.refresh.window.factor": 0})
    tokens = Tokens(config, {}, token)
    assert [tokens.token(1.0) for _ in range(3)] == ["old", "old", "new"]


@pytest.mark.parametrize("found", [("t", 0.0), "token", ("t",), (None, 1e12), ("a b", 1e12)])
def test_an_invalid_token_is_not_sent(peer: Peer, found: Any) -> None:
    takes(peer, lambda _: b"")
    with pytest.raises(errors.SaslAuthenticationFailed, match="OAUTHBEARER"):
        connect(peer, settings("OAUTHBEARER", x=""), lambda: found)
    assert peer.count(apis.SASL_AUTHENTICATE) == 0


def test_the_reason_of_a_refused_token_is_told(peer: Peer) -> None:
    """The broker gives it as a challenge, and refuses after the client's answer."""

    def step(message: bytes) -> Any:
        if message == b"\x01":
            return {"error_code": 58, "error_message": '{"status":"invalid_token"}'}
        return b'{"status":"invalid_token"}'

    takes(peer, step)
    with pytest.raises(errors.SaslAuthenticationFailed, match="invalid_token"):
        connect(peer, settings("OAUTHBEARER", x=""), lambda: ("t", time.time() + 60))


@contextmanager
def endpoint(*answers: tuple[int, Any]) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """A token endpoint: (its URL, the headers and bodies that came)."""
    came: list[tuple[str, str]] = []
    left = list(answers)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            came.append((self.headers["Authorization"] or "", body))
            status, answer = left.pop(0) if len(left) > 1 else left[0]
            self.send_response(status)
            if 300 <= status < 400:
                self.send_header("Location", answer)
            self.end_headers()
            self.wfile.write(json.dumps(answer).encode())

        def log_message(self, *_: object) -> None:
            return

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/token", came
        finally:
            server.shutdown()
            thread.join()


def tokens_of(url: str, options: dict[str, str] | None = None, **more: str) -> Tokens:
    given = {name.replace("_", "."): value for name, value in more.items()}
    config = {"sasl.login.retry.backoff.ms": "1", "sasl.oauthbearer.token.endpoint.url": url}
    return Tokens(ClientConfig({**config, **given}), options or {}, None)


def test_client_credentials(peer: Peer) -> None:
    """From JAAS; an endpoint that fails is asked again."""
    token = jwt(100)
    login = {"clientId": "me", "clientSecret": "hunter2", "scope": "a b"}
    with endpoint((503, ""), (200, {"access_token": token})) as (url, came):
        assert tokens_of(url, login).token(LIMIT_S) == token
    basic = "Basic " + base64.b64encode(b"me:hunter2").decode()
    assert came == [(basic, "grant_type=client_credentials&scope=a+b")] * 2


def test_an_assertion_is_read_from_its_file(tmp_path: Path) -> None:
    file = tmp_path / "assertion"
    file.write_text("signed\n")
    with endpoint((200, {"access_token": "opaque", "expires_in": 60})) as (url, came):
        more = {"sasl_oauthbearer_assertion_file": str(file)}
        assert tokens_of(url, **more).token(LIMIT_S) == "opaque"
    grant = "urn%3Aietf%3Aparams%3Aoauth%3Agrant-type%3Ajwt-bearer"
    assert came == [("", f"grant_type={grant}&assertion=signed")]


@pytest.mark.parametrize(
    ("status", "answer", "wanted"),
    [
        (401, "", "refused: HTTP status 401"),
        (302, "http://127.0.0.1:1/", "refused: HTTP status 302"),
        (200, {"token": "x"}, "has no access_token"),
        (200, {"access_token": "opaque"}, "does not say when it expires"),
        (200, {"access_token": jwt(-1)}, "the new token is expired"),
    ],
)
def test_an_endpoint_that_refuses_is_asked_once(status: int, answer: Any, wanted: str) -> None:
    with endpoint((status, answer)) as (url, came):
        tokens = tokens_of(url, {"clientId": "me", "clientSecret": "hunter2"})
        with pytest.raises(errors.SaslAuthenticationFailed) as told:
            tokens.token(LIMIT_S)
    assert wanted in str(told.value) and "hunter2" not in str(told.value) and len(came) == 1


def test_an_endpoint_that_fails_is_not_asked_without_end() -> None:
    with endpoint((500, "")) as (url, came):
        tokens = tokens_of(
            url, {"clientId": "me", "clientSecret": "s"}, sasl_login_retry_backoff_max_ms="500"
        )
        with pytest.raises(errors.SaslAuthenticationFailed, match=r"no token from .*status 500"):
            tokens.token(LIMIT_S)
    assert len(came) > 1


def test_a_file_is_read_for_each_new_token(tmp_path: Path) -> None:
    file = tmp_path / "token"
    tokens = tokens_of(f"file://{file}", sasl_login_refresh_window_factor="0")
    for token in (jwt(100, n=1), jwt(100, n=2)):
        file.write_text(token + "\n")
        assert tokens.token(LIMIT_S) == token
