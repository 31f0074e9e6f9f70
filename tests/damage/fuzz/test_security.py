"""Messages of security under mutated bytes: tokens of SASL, everything before a client has
authenticated, and ACLs, credentials, quotas and tokens with an authorizer.

Whatever comes, a client that cannot log in is never served, one that may change nothing changes
nothing, no request fails unexpectedly, and others are served.
"""

from __future__ import annotations

import base64
import json
import logging
import random
import struct
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from kafkalog.config.authorizer import STANDARD_AUTHORIZER
from kafkalog.config.sasl import UNSIGNED
from kafkalog.errors import SaslAuthenticationFailed
from kafkalog.security.oauth import OAuthExchange, Rules, checked_claims, unsigned_claims
from kafkalog.security.plain import PlainExchange, PlainUsers
from kafkalog.security.scram import ClientExchange, Mechanism, ServerExchange, credential_of
from kafkalog.server.broker import Broker, node_of
from kafkalog.wire import apis, headers
from kafkalog.wire.error_codes import ErrorCode
from tests.damage.fuzz.mutate import mutated
from tests.support import sasl
from tests.support.effort import SEED, patience_s, rounds
from tests.support.raw import Raw

pytestmark = [pytest.mark.slow, pytest.mark.explore, pytest.mark.timeout(patience_s(900))]

NOW_S = 1_700_000_000
LAST = 999
"""The correlation id of a request that only a client gets an answer to that has authenticated."""


def b64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def jwt(**claims: Any) -> str:
    """An unsigned token."""
    given = {"sub": "alice", "iat": NOW_S, "exp": NOW_S + 600, **claims}
    return f"{b64(json.dumps({'alg': 'none'}).encode())}.{b64(json.dumps(given).encode())}."


def bearer(token: str) -> bytes:
    return f"n,,\x01auth=Bearer {token}\x01\x01".encode()


# ---- tokens ------------------------------------------------------------------------------------

USERS = PlainUsers({"user_alice": "alice-S3CRET"})
CREDENTIALS = {one: credential_of(one, "pencil", 4096, b"salt") for one in Mechanism}


def scram(one: Mechanism) -> ServerExchange:
    return ServerExchange(one, {"alice": CREDENTIALS[one]}.get, nonce="server")


def scram_messages(one: Mechanism) -> list[bytes]:
    """The messages of a client that knows the password."""
    client, server = ClientExchange(one, "alice", "pencil", nonce="client"), scram(one)
    first = client.step(b"")
    return [first, client.step(server.step(first))]


def oauth() -> OAuthExchange:
    rules = Rules()
    return OAuthExchange(lambda text: checked_claims(unsigned_claims(text), rules, NOW_S * 1000))


KINDS: dict[str, tuple[Callable[[], Any], list[bytes]]] = {
    "PLAIN": (lambda: PlainExchange(USERS), [sasl.plain("alice", "alice-S3CRET")]),
    "SCRAM-SHA-256": (lambda: scram(Mechanism.SCRAM_SHA_256),
                      scram_messages(Mechanism.SCRAM_SHA_256)),
    "SCRAM-SHA-512": (lambda: scram(Mechanism.SCRAM_SHA_512),
                      scram_messages(Mechanism.SCRAM_SHA_512)),
    "OAUTHBEARER": (oauth, [bearer(jwt(scope="a b"))]),
}  # fmt: skip


def proves(name: str, told: list[bytes], messages: list[bytes]) -> bool:
    """True if changed messages prove as much as those of the client that knows the secret: of
    base64 several texts mean the same, and a token of OAUTHBEARER here needs no secret."""
    if name == "OAUTHBEARER":
        return True
    if name == "PLAIN":
        return told[0].split(b"\0")[1:] == messages[0].split(b"\0")[1:]
    meant = [(said.rpartition(b",p=")[0], base64.b64decode(said.rpartition(b",p=")[2]))
             for said in (told[1], messages[1])]  # fmt: skip
    return told[0] == messages[0] and meant[0] == meant[1]


@pytest.mark.parametrize("name", KINDS)
def test_tokens(name: str) -> None:
    """One is refused in the mechanism's own words, or proves as much as the right one."""
    make, messages = KINDS[name]
    draw = random.Random(SEED)
    taken = refused = 0
    for _ in rounds(2000):
        exchange = make()
        told = [mutated(one, draw) if draw.random() < 0.7 else one for one in messages]
        try:
            for one in told:
                exchange.step(one)
        except SaslAuthenticationFailed as problem:
            refused += 1
            assert not exchange.done and "S3CRET" not in str(problem)
            continue
        if not exchange.done:  # OAUTHBEARER: the client is told why, and answers once more
            with pytest.raises(SaslAuthenticationFailed):
                exchange.step(b"\x01")
            refused += 1
            continue
        taken += 1
        assert proves(name, told, messages), told
    assert taken > 10 and refused > 10


# ---- before authentication ---------------------------------------------------------------------


def frame(api: Any, version: int, correlation: int, **body: Any) -> bytes:
    head = headers.encode_request_header(api, version, correlation, "fuzz")
    return head + api.encode_request(version, body)


def conversations() -> Iterator[list[bytes]]:
    """Frames, without their sizes, of clients that do not know the password."""
    tokens = {
        "PLAIN": [sasl.plain("alice", "wrong"), b""],
        "SCRAM-SHA-256": [b"n,,n=alice,r=abc", b"c=biws,r=abc,p=AAAA"],
        "SCRAM-SHA-512": [b"n,,n=nobody,r=abc,tokenauth=true", b"c=biws,r=abc,p=AAAA"],
        "OAUTHBEARER": [bearer(jwt(sub="")), bearer("a.b.c")],
        "GSSAPI": [b"`\x82", b""],
    }
    for mechanism, said in tokens.items():
        for version in apis.SASL_AUTHENTICATE.versions:
            steps = [frame(apis.SASL_AUTHENTICATE, version, 3 + number, auth_bytes=one)
                     for number, one in enumerate(said)]  # fmt: skip
            versions = frame(apis.API_VERSIONS, 3, 1, client_software_name="a",
                             client_software_version="1")  # fmt: skip
            yield [versions, frame(apis.SASL_HANDSHAKE, 1, 2, mechanism=mechanism), *steps]
        yield [frame(apis.SASL_HANDSHAKE, 0, 2, mechanism=mechanism), *said]
    yield [frame(apis.METADATA, 12, 1, topics=None), frame(apis.PRODUCE, 9, 2, topic_data=[])]


def sized(one: bytes, draw: random.Random) -> bytes:
    """With its size in front, seldom another one."""
    size = len(one) if draw.random() < 0.95 else draw.choice([0, -1, 3, 8, 524_288, 2**31 - 1])
    return struct.pack(">i", size) + one


def answers(raw: Raw) -> list[int]:
    """The first four bytes of each frame until the broker closes: most are correlation ids."""
    found = []
    with suppress(ConnectionError):
        while True:
            found.append(int.from_bytes(raw.receive_frame()[:4], "big"))
    return found


def unexpected(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one.getMessage() for one in caplog.records if one.levelno >= logging.ERROR]


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_everything_before_authentication(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    mechanisms = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
    config = sasl.settings(*mechanisms, connection_failed_authentication_delay_ms=0)
    config |= {"listener.name.sasl_plaintext.oauthbearer.sasl.server.callback.handler.class":
               UNSIGNED, "delegation.token.secret.key": "key-S3CRET"}  # fmt: skip
    draw = random.Random(SEED)
    seeds = list(conversations())
    last = frame(apis.METADATA, 12, LAST, topics=None)
    ended = 0
    with Broker(tmp_path / "data", config=config) as broker:
        for _ in rounds(600):
            told = [mutated(one, draw) if draw.random() < 0.5 else one
                    for one in draw.choice(seeds)]  # fmt: skip
            if draw.random() < 0.1:
                draw.shuffle(told)
            with Raw(broker.bootstrap_servers) as raw:
                with suppress(OSError):
                    raw.socket.sendall(b"".join(sized(one, draw) for one in [*told, last]))
                    raw.socket.shutdown(1)
                assert LAST not in answers(raw), told
                ended += 1
        with Raw(broker.bootstrap_servers) as raw:
            assert sasl.authenticate(raw).error_code == ErrorCode.NONE
            assert raw.call(apis.METADATA, topics=None).brokers
    assert ended > 10 and unexpected(caplog) == []
    assert "S3CRET" not in caplog.text


# ---- ACLs, credentials, quotas, tokens ---------------------------------------------------------

_ACL = {"resource_type": 2, "resource_name": "t", "resource_pattern_type": 3,
        "principal": "User:alice", "host": "*", "operation": 3, "permission_type": 3}  # fmt: skip
_CHOSEN = {"resource_type_filter": 2, "resource_name_filter": "t", "pattern_type_filter": 1,
           "principal_filter": None, "host_filter": "*", "operation": 1,
           "permission_type": 1}  # fmt: skip
_ENTITY = [{"entity_type": "user", "entity_name": "alice"},
           {"entity_type": "client-id", "entity_name": None}]  # fmt: skip
_HMAC = bytes(64)
BODIES: list[tuple[Any, dict[str, Any]]] = [
    (apis.CREATE_ACLS, {"creations": [_ACL, {**_ACL, "resource_pattern_type": 4}]}),
    (apis.DELETE_ACLS, {"filters": [_CHOSEN, _CHOSEN]}),
    (apis.DESCRIBE_ACLS, _CHOSEN),
    (apis.ALTER_USER_SCRAM_CREDENTIALS, {
        "deletions": [{"name": "carol", "mechanism": 2}],
        "upsertions": [{"name": "dave", "mechanism": 1, "iterations": 4096, "salt": b"salt",
                        "salted_password": bytes(32)}]}),
    (apis.DESCRIBE_USER_SCRAM_CREDENTIALS, {"users": [{"name": "dave"}, {"name": ""}]}),
    (apis.ALTER_CLIENT_QUOTAS, {"validate_only": False, "entries": [
        {"entity": _ENTITY, "ops": [{"key": "producer_byte_rate", "value": 1e9, "remove": False},
                                    {"key": "request_percentage", "remove": True, "value": 1}]}]}),
    (apis.DESCRIBE_CLIENT_QUOTAS, {"strict": False, "components": [
        {"entity_type": "user", "match_type": 0, "match": "alice"}]}),
    (apis.CREATE_DELEGATION_TOKEN, {
        "owner_principal_type": "User", "owner_principal_name": "alice", "max_lifetime_ms": 10_000,
        "renewers": [{"principal_type": "User", "principal_name": "bob"}]}),
    (apis.RENEW_DELEGATION_TOKEN, {"hmac": _HMAC, "renew_period_ms": 1000}),
    (apis.EXPIRE_DELEGATION_TOKEN, {"hmac": _HMAC, "expiry_time_period_ms": -1}),
    (apis.DESCRIBE_DELEGATION_TOKEN, {"owners": [
        {"principal_type": "User", "principal_name": "alice"}]}),
]  # fmt: skip


@pytest.mark.parametrize("user", ["bob", "alice"])
def test_requests_about_security(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, user: str
) -> None:
    """From a super user, and from one without rights.  What was changed is there after a restart,
    exactly as it was."""
    config = sasl.settings("PLAIN", connection_failed_authentication_delay_ms=0) | {
        "authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:bob",
        "delegation.token.secret.key": "key-S3CRET",
    }  # fmt: skip
    draw = random.Random(SEED)
    answered = 0

    def stored(broker: Broker) -> Any:
        image = node_of(broker).image
        return image.acls, image.scram, image.quotas

    with Broker(tmp_path / "data", config=config) as broker:
        before = stored(broker)
        raw: Raw | None = None
        for _ in rounds(1000):
            if raw is None:
                raw = Raw(broker.bootstrap_servers)
                assert sasl.authenticate(raw, user).error_code == ErrorCode.NONE
            api, body = draw.choice(BODIES)
            version = draw.choice(api.versions)
            raw.send_bytes(api, version, mutated(api.encode_request(version, body), draw))
            try:
                raw.receive(api, version)
                answered += 1
            except ConnectionError:
                raw.close()
                raw = None
        if raw is not None:
            raw.close()
        after = stored(broker)
        assert (after == before) == (user == "alice")
    assert answered > 100 and unexpected(caplog) == []
    with Broker(tmp_path / "data", config=config) as broker:
        assert stored(broker) == after
    assert "S3CRET" not in caplog.text
