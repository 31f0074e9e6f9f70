"""OAUTHBEARER: tokens whose signature, claims and keys are checked, by hand and by librdkafka."""

from __future__ import annotations

import base64
import json
import socket
import threading
import time
from collections.abc import Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import confluent_kafka
import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

from kafkalog.clock import ManualClock
from kafkalog.config.sasl import SIGNED, UNSIGNED
from kafkalog.errors import InvalidSetting, SaslAuthenticationFailed
from kafkalog.security.oauth import OAuthExchange, Rules, TokenRefused
from kafkalog.server.broker import Broker
from kafkalog.server.jwks import AGAIN_MS_MIN, BYTES_MAX, Jwks
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode
from tests.support import sasl
from tests.support.raw import Raw
from tests.support.sasl import handshake, token
from tests.support.waiting import LIMIT_S, wait_for

RSA_KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
EC_KEY = ec.generate_private_key(ec.SECP256R1())
NOW_S = 1_700_000_000
RULES = Rules(audiences=("kafka", "logs"), issuer="https://issuer", skew_ms=30_000)
CLAIMS = {"sub": "alice", "aud": "kafka", "iss": "https://issuer", "iat": NOW_S,
          "exp": NOW_S + 600, "scope": "a b"}  # fmt: skip


def key_set() -> dict[str, Any]:
    rsa_key = json.loads(RSAAlgorithm.to_jwk(RSA_KEY.public_key()))
    ec_key = json.loads(ECAlgorithm.to_jwk(EC_KEY.public_key()))
    return {"keys": [{**rsa_key, "kid": "one"}, {**ec_key, "kid": "two", "alg": "ES256"},
                     {"kty": "oct", "kid": "three", "k": "c2VjcmV0"}]}  # fmt: skip


def signed(key: Any = RSA_KEY, algorithm: str = "RS256", kid: str | None = "one",
           **claims: Any) -> str:  # fmt: skip
    given = {name: value for name, value in {**CLAIMS, **claims}.items() if value is not None}
    return jwt.encode(given, key, algorithm, headers=None if kid is None else {"kid": kid})


def message(text: str, more: str = "") -> bytes:
    return f"n,,\x01auth=Bearer {text}\x01{more}\x01".encode()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "keys.json"
    path.write_text(json.dumps(key_set()))
    return path


@pytest.fixture
def keys(file: Path) -> Jwks:
    return Jwks(file.as_uri(), 3_600_000, RULES, ManualClock(NOW_S * 1000))


@pytest.mark.parametrize("algorithm", ["RS256", "RS512", "PS256"])
def test_signed_tokens_are_valid(keys: Jwks, algorithm: str) -> None:
    found = keys.validate(signed(algorithm=algorithm))
    assert (found.user, found.expires_ms) == ("alice", (NOW_S + 600) * 1000)
    assert keys.validate(signed(EC_KEY, "ES256", "two", aud=["x", "logs"])).user == "alice"


@pytest.mark.parametrize(
    ("claims", "problem"),
    [
        ({"exp": NOW_S - 31}, "expired"), ({"exp": None}, "exp is no time"),
        ({"iat": None}, "iat is no time"), ({"iat": NOW_S + 31}, "not valid yet"),
        ({"nbf": NOW_S + 31}, "not valid yet"), ({"exp": True}, "no time"),
        ({"exp": NOW_S - 29, "iat": NOW_S}, "before it was issued"),
        ({"iss": "https://other"}, "issuer"), ({"iss": None}, "issuer"),
        ({"aud": "other"}, "audience"), ({"aud": None}, "audience"), ({"aud": [1]}, "aud is no"),
        ({"sub": None}, "principal"), ({"sub": " "}, "principal"), ({"scope": 7}, "scope is no"),
    ],
)  # fmt: skip
def test_wrong_claims_are_refused(keys: Jwks, claims: dict[str, Any], problem: str) -> None:
    with pytest.raises(TokenRefused, match=problem):
        keys.validate(signed(**claims) if claims.get("sub", "") != 7 else "")


def test_wrong_signatures_are_refused(keys: Jwks) -> None:
    other = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    public = RSA_KEY.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    head, claims, signature = signed().split(".")
    forged = base64.urlsafe_b64encode(
        json.dumps({**CLAIMS, "sub": "admin"}).encode()
    ).rstrip(b"=").decode()  # fmt: skip
    none = jwt.encode(CLAIMS, None, "none", headers={"kid": "one"})
    confused = _signed_with_public_key(public)
    for text in (
        signed(other), signed(kid="three"), signed(kid=None), signed(kid="none"),
        signed(EC_KEY, "ES256", "one"), f"{head}.{forged}.{signature}", f"{head}.{claims}.",
        none, confused, "x", "a.b.c", "",
    ):  # fmt: skip
        with pytest.raises(TokenRefused):
            keys.validate(text)


def _signed_with_public_key(public: bytes) -> str:
    """The public key as the secret of HS256: what a verifier that trusts `alg` would accept."""
    import hashlib
    import hmac

    def part(data: bytes) -> bytes:
        return base64.urlsafe_b64encode(data).rstrip(b"=")

    head = part(json.dumps({"alg": "HS256", "typ": "JWT", "kid": "one"}).encode())
    body = head + b"." + part(json.dumps(CLAIMS).encode())
    return (body + b"." + part(hmac.digest(public, body, hashlib.sha256))).decode()


def test_keys_are_read_again_for_an_unknown_one_and_not_too_often(file: Path) -> None:
    clock = ManualClock(NOW_S * 1000)
    keys = Jwks(file.as_uri(), 3_600_000, RULES, clock)
    renamed = key_set()
    renamed["keys"][0]["kid"] = "new"
    file.write_text(json.dumps(renamed))
    with pytest.raises(TokenRefused, match="not known"):
        keys.validate(signed(kid="new"))
    clock.advance(AGAIN_MS_MIN)

    def is_known() -> bool:
        try:
            return keys.validate(signed(kid="new")).user == "alice"
        except TokenRefused:
            return False

    wait_for(is_known, "the new key")
    file.write_text("nonsense")
    clock.advance(AGAIN_MS_MIN)
    with pytest.raises(TokenRefused):
        keys.validate(signed(kid="one"))
    assert is_known()  # the old keys stay


def test_a_token_that_is_nested_too_deeply_is_refused(keys: Jwks) -> None:
    head = base64.urlsafe_b64encode(b"[" * 45_000).decode().rstrip("=")
    with pytest.raises(TokenRefused, match="its signature is not valid"):
        keys.validate(f"{head}.e30.e30")


def test_an_answer_that_is_not_http_ends_the_start() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def answer() -> None:
            connection, _ = listening.accept()
            with connection:
                connection.recv(65_536)
                connection.sendall(b"nonsense\r\n\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(InvalidSetting, match="cannot read keys"):
            Jwks(
                f"http://127.0.0.1:{listening.getsockname()[1]}/", 3_600_000, RULES, ManualClock(0)
            )
        thread.join()


class _Keys(BaseHTTPRequestHandler):
    def __init__(self, data: bytes, *rest: Any) -> None:
        self._data = data
        super().__init__(*rest)

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(self._data)

    def log_message(self, *_: object) -> None:
        pass


@pytest.mark.parametrize("size", [0, BYTES_MAX])
def test_keys_come_from_a_url_up_to_a_size(size: int) -> None:
    data = json.dumps(key_set()).encode() + b" " * size
    with HTTPServer(("127.0.0.1", 0), partial(_Keys, data)) as server:
        threading.Thread(target=server.handle_request, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/keys"
        if size:
            with pytest.raises(InvalidSetting, match="more than"):
                Jwks(url, 1000, RULES, ManualClock())
        else:
            assert Jwks(url, 1000, RULES, ManualClock(NOW_S * 1000)).validate(signed())


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b'{"keys": []}', b'{"keys": [{"kty": "oct"}]}',
                                  b"\xff", b'{"keys": 7}'])  # fmt: skip
def test_a_set_without_public_keys_is_refused(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "k").write_bytes(data)
    with pytest.raises(InvalidSetting, match="cannot read keys"):
        Jwks((tmp_path / "k").as_uri(), 1000, RULES, ManualClock())


@pytest.mark.parametrize("url", ["/etc/passwd", "ftp://h/k", "data:,x", "file:///no/such/file"])
def test_other_urls_are_refused(url: str) -> None:
    with pytest.raises(InvalidSetting, match=r"sasl\.oauthbearer\.jwks\.endpoint\.url"):
        Jwks(url, 1000, RULES, ManualClock())


# ---- the exchange ----------------------------------------------------------------------------


def test_every_cut_of_a_message_is_refused(keys: Jwks) -> None:
    whole = message(signed())
    assert OAuthExchange(keys.validate).step(whole) == b""
    for end in range(0, len(whole), 7):
        exchange = OAuthExchange(keys.validate)
        with pytest.raises(SaslAuthenticationFailed, match="not that of OAUTHBEARER"):
            exchange.step(whole[:end])
        assert not exchange.done and not exchange.user


@pytest.fixture
def broker(tmp_path: Path, file: Path) -> Iterator[Broker]:
    config = sasl.settings(
        "OAUTHBEARER", sasl_oauthbearer_jwks_endpoint_url=file.as_uri(),
        sasl_oauthbearer_expected_audience="kafka",
        sasl_oauthbearer_expected_issuer="https://issuer",
        connection_failed_authentication_delay_ms=0,
    )  # fmt: skip
    handler = "listener.name.sasl_plaintext.oauthbearer.sasl.server.callback.handler.class"
    with Broker(tmp_path / "d", config={**config, handler: SIGNED}) as running:
        yield running


def current(**more: Any) -> str:
    now_s = int(time.time())
    return signed(iat=now_s, exp=now_s + 600, **more)


def test_a_token_authenticates_until_it_expires(broker: Broker) -> None:
    raw = Raw(broker.bootstrap_servers)
    assert handshake(raw, "OAUTHBEARER").error_code == ErrorCode.NONE
    found = token(raw, message(current(), "traceId=7\x01"))
    assert (found.error_code, bytes(found.auth_bytes)) == (ErrorCode.NONE, b"")
    assert 0 < found.session_lifetime_ms <= 600_000
    assert raw.call(apis.METADATA, topics=None).brokers


def test_a_refused_token_is_acknowledged_first(broker: Broker) -> None:
    raw = Raw(broker.bootstrap_servers)
    handshake(raw, "OAUTHBEARER")
    found = token(raw, message(current(aud="other")))
    assert (found.error_code, bytes(found.auth_bytes)) == (0, b'{"status":"invalid_token"}')
    found = token(raw, b"\x01")
    assert found.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert raw.socket.recv(1) == b""


def test_librdkafka_sends_tokens(broker: Broker) -> None:
    producer = confluent_kafka.Producer({
        "bootstrap.servers": broker.bootstrap_servers, "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "oauth_cb": lambda _: (current(), time.time() + 600),
    })  # fmt: skip
    producer.produce("t", b"v")
    assert producer.flush(LIMIT_S) == 0


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        ({}, "found none, wanted org.apache"),
        ({"handler": SIGNED}, "jwks.endpoint.url: found none"),
        ({"handler": SIGNED, "url": "file:///x"}, "expected.audience: found none"),
        ({"handler": SIGNED, "url": "file:///x", "audience": "a"}, "expected.issuer: found none"),
        ({"handler": "org.example.Handler"}, "callback.handler.class: found"),
    ],
)
def test_incomplete_settings_end_the_start(
    tmp_path: Path, more: dict[str, str], problem: str
) -> None:
    begin = "listener.name.sasl_plaintext.oauthbearer.sasl."
    names = {"handler": "server.callback.handler.class", "url": "oauthbearer.jwks.endpoint.url",
             "audience": "oauthbearer.expected.audience"}  # fmt: skip
    config = {**sasl.settings("OAUTHBEARER"), **{begin + names[k]: v for k, v in more.items()}}
    with pytest.raises(InvalidSetting, match=problem):
        Broker(tmp_path / "d", config=config)


def test_unsigned_tokens_only_if_they_are_asked_for(tmp_path: Path) -> None:
    handler = "listener.name.sasl_plaintext.oauthbearer.sasl.server.callback.handler.class"
    config = {**sasl.settings("OAUTHBEARER"), handler: UNSIGNED}
    now_s = int(time.time())
    text = jwt.encode({"sub": "bob", "iat": now_s, "exp": now_s + 60}, None, "none")
    with Broker(tmp_path / "d", config=config) as broker:
        for data, wanted in ((text, b""), (current(), b'{"status":"invalid_token"}')):
            raw = Raw(broker.bootstrap_servers)
            handshake(raw, "OAUTHBEARER")
            assert bytes(token(raw, message(data)).auth_bytes) == wanted
