"""Every exchange of SASL, right and wrong, and every certificate of a client: Apache Kafka and we,
with the same server.properties, answer the same, close the same connections, and see the same
principals."""

from __future__ import annotations

import base64
import json
import re
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import trustme

from kafkalog.config.sasl import UNSIGNED
from kafkalog.config.server_properties import read_properties, sorted_out
from kafkalog.errors import InvalidRequest
from kafkalog.security.scram import ClientExchange, Mechanism, salted_password
from kafkalog.server.broker import Broker
from kafkalog.wire import apis
from tests.support import apache, secured
from tests.support.certificates import client_context, pem_of
from tests.support.raw import Raw
from tests.support.sasl import USERS, handshake, plain, raw_token, token
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.java, pytest.mark.long, pytest.mark.timeout(300)]

PATIENCE_S = 10.0
SESSION_MS = 3_600_000
RULES = {
    "DEFAULTS": "DEFAULT",
    "LOWER": "RULE:^CN=([^,]*),.*$/$1/L,DEFAULT",
    "UPPER": "RULE:^.*O=([A-Za-z]+).*$/$1@$0/U,DEFAULT",
    "PARTS": "RULE:^CN=([a-z]+).*$/user-$1/,RULE:^(.*)$/other/",
    "NOBODY": "RULE:^CN=nobody$/x/",
}
KINDS = {
    "PLAINTEXT": "PLAINTEXT", "SASL": "SASL_PLAINTEXT", "REAUTH": "SASL_PLAINTEXT", "NONE": "SSL",
    "REQUESTED": "SSL", **dict.fromkeys(RULES, "SSL"), "CONTROLLER": "PLAINTEXT",
}  # fmt: skip
KEYSTORE = "listener.name.none.ssl.keystore"
Addresses = Mapping[str, str]
Seen = list[Any]


class Both(NamedTuple):
    kafka: Addresses
    ours: Addresses
    folder: Path
    authority: trustme.CA
    """The one that signs the clients' certificates."""


def properties(files: secured.Papers, trust: Path) -> tuple[Addresses, str]:
    """The listeners, and a server.properties that has them."""
    at = {name: f"127.0.0.1:{apache.free_port()}" for name in KINDS}
    where = [f"{name}://{address}" for name, address in at.items()]
    users = {f"user_{name}": password for name, password in USERS.items()}
    lines = [
        f"listeners={','.join(where)}", f"advertised.listeners={','.join(where[:-1])}",
        f"controller.quorum.voters=1@{at['CONTROLLER']}", "controller.listener.names=CONTROLLER",
        "inter.broker.listener.name=PLAINTEXT",
        "listener.security.protocol.map=" + ",".join(f"{n}:{kind}" for n, kind in KINDS.items()),
        "ssl.keystore.type=PEM", f"ssl.keystore.location={files.server}",
        "ssl.truststore.type=PEM", f"ssl.truststore.location={trust}",
        "sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
        "delegation.token.secret.key=k3y", "listener.name.requested.ssl.client.auth=requested",
        f"{KEYSTORE}.location={trust.with_name('first.pem')}",
        f"listener.name.reauth.connections.max.reauth.ms={SESSION_MS}",
    ]  # fmt: skip
    for name, rules in RULES.items():
        at_ssl = f"listener.name.{name.lower()}.ssl"
        lines += [f"{at_ssl}.client.auth=required", f"{at_ssl}.principal.mapping.rules={rules}"]
    for name in ("sasl", "reauth"):
        begin = f"listener.name.{name}"
        broker = secured.jaas(secured.BEARER, unsecuredLoginStringClaim_sub="broker")
        lines += [
            f"{begin}.plain.sasl.jaas.config={secured.jaas(secured.PLAIN, **users)}",
            f"{begin}.scram-sha-256.sasl.jaas.config={secured.jaas(secured.SCRAM)}",
            f"{begin}.scram-sha-512.sasl.jaas.config={secured.jaas(secured.SCRAM)}",
            f"{begin}.oauthbearer.sasl.jaas.config={broker}",
            f"{begin}.oauthbearer.sasl.server.callback.handler.class={UNSIGNED}",
        ]
    return at, "\n".join(line.replace("\\", "\\\\") for line in lines) + "\n"


SERVERS: dict[str, tuple[str, list[str]]] = {
    "first": ("unit", ["localhost", "127.0.0.1"]),
    "second": ("unit", ["localhost", "127.0.0.1"]),
    "more": ("unit", ["localhost", "127.0.0.1", "elsewhere.example"]),
    "subject": ("another", ["localhost", "127.0.0.1", "elsewhere.example"]),
}
"""Unit and names of certificates of a server."""


def server_of(authority: trustme.CA, unit: str, names: list[str]) -> trustme.LeafCert:
    return authority.issue_cert(
        *names, organization_name="o, inc", organization_unit_name=unit
    )  # fmt: skip


def add_users(address: str) -> None:
    """The users of SCRAM: alice by both mechanisms, bob by one; carol came and went."""
    with Raw(address) as raw:
        for user, mechanism in (("alice", 1), ("alice", 2), ("bob", 1), ("carol", 1)):
            salted = salted_password(
                Mechanism(mechanism), USERS.get(user, "secret"), b"pepper", 4096
            )
            row = {"name": user, "mechanism": mechanism, "iterations": 4096, "salt": b"pepper",
                   "salted_password": salted}  # fmt: skip
            found = raw.call(apis.ALTER_USER_SCRAM_CREDENTIALS, deletions=[], upsertions=[row])
            assert found.results[0].error_code == 0
        gone = [{"name": "carol", "mechanism": 1}]
        raw.call(apis.ALTER_USER_SCRAM_CREDENTIALS, deletions=gone, upsertions=[])


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    folder = tmp_path_factory.mktemp("answers")
    files, clients = secured.papers(folder), trustme.CA()
    trust = folder / "trust.pem"
    trust.write_bytes(clients.cert_pem.bytes())
    (folder / "all.pem").write_bytes(trust.read_bytes() + files.authority.read_bytes())
    for name, subject in SERVERS.items():
        (folder / f"{name}.pem").write_bytes(secured.pem_for_kafka(server_of(clients, *subject)))
    kafka, text = properties(files, trust)
    ours, own = properties(files, trust)
    file = folder / "ours.properties"
    file.write_text(own)
    with ExitStack() as stack:
        broker = Broker(folder / "ours", config=sorted_out(read_properties(str(file))).config)
        stack.enter_context(broker)
        port = int(kafka["PLAINTEXT"].rpartition(":")[2])
        try:
            stack.enter_context(apache.Broker(folder / "data", text, port=port))
        except apache.Unavailable as reason:
            pytest.skip(str(reason))
        for one in (kafka, ours):
            add_users(one["PLAINTEXT"])
        yield Both(kafka, ours, folder, clients)


# ---- what a connection shows -----------------------------------------------------------------


def shape(data: bytes) -> str:
    """A token without what is random in it: nonces, salts, signatures."""
    text = data.decode("latin-1")
    text = re.sub(r"^r=[^,]+,s=[^,]+,i=(\d+)$", r"first, \1 iterations", text)
    return re.sub(r"^v=.+$", "last", text)


def handshaken(raw: Raw, mechanism: str = "PLAIN", version: int = 1) -> Any:
    found = handshake(raw, mechanism, version)
    return "handshake", int(found.error_code), sorted(found.mechanisms)


def authenticated(raw: Raw, data: bytes, version: int = 2) -> Any:
    found = token(raw, data, version)
    lasts_min = round(found.session_lifetime_ms / 60_000) if version else 0
    return int(found.error_code), found.error_message, shape(found.auth_bytes), lasts_min


def lives(raw: Raw) -> str:
    """Shows whether other requests are answered."""
    return "answers" if raw.call(apis.METADATA, 1, topics=[]).brokers else "no brokers"


Steps = Callable[[Raw], Iterator[Any]]


def shown(address: str, steps: Steps) -> Seen:
    """The answers to the steps, to the end of the connection."""
    found: Seen = []
    with Raw(address) as raw:
        raw.socket.settimeout(PATIENCE_S)
        try:
            for one in steps(raw):
                found.append(one)
        except TimeoutError:
            found.append("silent")
        except OSError:
            found.append("closed")
        except InvalidRequest:
            found.append("bytes that are no such answer")
    return found


# ---- the exchanges ---------------------------------------------------------------------------


def by_handshake(mechanism: str, version: int, raw: Raw) -> Iterator[Any]:
    yield handshaken(raw, mechanism, version)
    yield handshaken(raw, mechanism, version)


def by_token(mechanism: str, data: bytes, version: int, raw: Raw) -> Iterator[Any]:
    yield handshaken(raw, mechanism)
    yield authenticated(raw, data, version)
    yield lives(raw)


def without_header(data: bytes, raw: Raw) -> Iterator[Any]:
    yield handshaken(raw, "PLAIN", 0)
    yield raw_token(raw, data)
    yield lives(raw)


def by_scram(
    user: str, password: str, mechanism: str, last: Callable[[bytes, bytes], bytes] | None,
    raw: Raw,
) -> Iterator[Any]:  # fmt: skip
    """`last`: makes the last message of the broker's message and the right one."""
    yield handshaken(raw, mechanism)
    exchange = ClientExchange(Mechanism.named(mechanism), user, password, {})
    found = token(raw, exchange.step(b""))
    yield int(found.error_code), found.error_message, shape(found.auth_bytes)
    if found.error_code:
        yield lives(raw)
        return
    right = exchange.step(found.auth_bytes)
    yield authenticated(raw, right if last is None else last(found.auth_bytes, right))
    yield lives(raw)


PASSWORD = USERS["alice"].encode()
PLAIN_TOKENS = [
    plain(), plain("bob"), plain(password="wrong"), plain("nobody", "x"), plain("", "x"),
    plain("alice", ""), plain("bob", USERS["alice"]), plain("alice", authorization="alice"),
    plain("alice", authorization="bob"), b"alice\0" + PASSWORD, b"\0alice\0" + PASSWORD + b"\0",
    b"\0\0alice\0" + PASSWORD, b"", b"\0\0", b"\xff\0\xfe\0\xfd", b"\0alice", b"x" * 100_000,
]  # fmt: skip
FIRSTS = [
    b"", b"n,,n=alice,r=abc", b"y,,n=alice,r=abc", b"p=tls-unique,,n=alice,r=abc",
    b"n,a=bob,n=alice,r=abc", b"n,a=alice,n=alice,r=abc", b"n,,n=alice", b"n,,r=abc",
    b"n,,n=,r=abc", b"n,,n=alice,r=", b"n,,n=a=lice,r=abc", b"n,,m=x,n=alice,r=abc",
    b"n,,n=alice,r=abc,x=y", b"n,,n=alice,r=abc,tokenauth=true", b"n,,n=alice,r=abc,tokenauth=no",
    b"n=alice,r=abc", b"n,,n=alice,r=a\x7fc", b"\xff\xfe", b"n,,n=carol,r=abc",
    b"n,,n=nobody,r=abc", "n,,n=zoë,r=abc".encode(),
]  # fmt: skip
LASTS: dict[str, Callable[[bytes, bytes], bytes]] = {
    "nothing": lambda _, __: b"",
    "another proof": lambda _, right: re.sub(rb"p=.*", b"p=" + base64.b64encode(b"x" * 32), right),
    "a short proof": lambda _, right: re.sub(rb"p=.*", b"p=AAAA", right),
    "no base64": lambda _, right: re.sub(rb"p=.*", b"p=!!", right),
    "no proof": lambda _, right: re.sub(rb",p=.*", b"", right),
    "another nonce": lambda _, right: re.sub(rb"r=[^,]*", b"r=abc", right),
    "another binding": lambda _, right: right.replace(b"c=biws", b"c=eSws"),
    "the first again": lambda _, __: b"n,,n=alice,r=abc",
    "an extension": lambda _, right: right.replace(b",p=", b",x=y,p="),
}


def unsigned(**claims: Any) -> str:
    whole = {"sub": "alice", "iat": time.time(), "exp": time.time() + 600, **claims}
    parts = [{"alg": "none"}, {name: value for name, value in whole.items() if value is not None}]
    made = [base64.urlsafe_b64encode(json.dumps(part).encode()).decode() for part in parts]
    return ".".join([*(part.rstrip("=") for part in made), ""])


def bearer(text: str, begin: str = "n,,") -> bytes:
    return f"{begin}\x01auth=Bearer {text}\x01\x01".encode()


OAUTH_TOKENS = {
    "right": lambda: bearer(unsigned()),
    "expired": lambda: bearer(unsigned(exp=time.time() - 100)),
    "without a name": lambda: bearer(unsigned(sub=None)),
    "without an end": lambda: bearer(unsigned(exp=None)),
    "nonsense": lambda: bearer("nonsense"),
    "the name": lambda: bearer(unsigned(), "n,a=alice,"),
    "another name": lambda: bearer(unsigned(), "n,a=bob,"),
    "an extension": lambda: bearer(unsigned()).replace(b"\x01\x01", b"\x01traceId=1\x01\x01"),
    "another scheme": lambda: bearer(unsigned()).replace(b"Bearer", b"Basic"),
    "nothing": lambda: b"",
}


def after_a_refused_token(raw: Raw) -> Iterator[Any]:
    """The client of OAUTHBEARER ends the exchange with one byte (RFC 7628)."""
    yield handshaken(raw, "OAUTHBEARER")
    yield authenticated(raw, bearer(unsigned(exp=time.time() - 100)))
    yield authenticated(raw, b"\x01")


def with_api_versions(raw: Raw) -> Iterator[Any]:
    for version in (0, 3):
        found = raw.call(apis.API_VERSIONS, version, client_software_name="x",
                         client_software_version="1")  # fmt: skip
        yield int(found.error_code)
    yield handshaken(raw)
    yield int(raw.call(apis.API_VERSIONS, 0).error_code)
    yield authenticated(raw, plain())
    yield lives(raw)


def versions_before_the_token(raw: Raw) -> Iterator[Any]:
    yield handshaken(raw)
    yield lives(raw)


def nothing_before_the_token(raw: Raw) -> Iterator[Any]:
    yield authenticated(raw, plain())


def requests_first(raw: Raw) -> Iterator[Any]:
    yield lives(raw)


def login(raw: Raw, user: str = "alice") -> Any:
    handshake(raw)
    return authenticated(raw, plain(user))


def handshake_afterwards(raw: Raw) -> Iterator[Any]:
    yield login(raw)
    yield handshaken(raw)
    yield lives(raw)


def token_afterwards(raw: Raw) -> Iterator[Any]:
    yield login(raw)
    yield authenticated(raw, plain())
    yield lives(raw)


def again(steps: Steps, raw: Raw) -> Iterator[Any]:
    yield login(raw)
    yield lives(raw)
    yield from steps(raw)


def requests_while_authenticating_again(raw: Raw) -> Iterator[Any]:
    yield login(raw)
    yield handshaken(raw)
    yield lives(raw)


def exchanges() -> Iterator[tuple[str, str, Steps]]:
    """A name, the listener, and what is sent."""
    for mechanism in ("PLAIN", "plain", "", "NOPE", "GSSAPI", "SCRAM-SHA-1", "OAUTHBEARER",
                      "x" * 300):  # fmt: skip
        for version in (0, 1):
            name = f"handshake {version} {mechanism[:20]}"
            yield name, "SASL", partial(by_handshake, mechanism, version)
    for data in PLAIN_TOKENS:
        for version in (0, 1, 2) if data in PLAIN_TOKENS[:4] else (2,):
            yield (
                f"plain {data[:40]!r} {version}",
                "SASL",
                partial(by_token, "PLAIN", data, version),
            )
        yield f"bare {data[:40]!r}", "SASL", partial(without_header, data)
    for data in FIRSTS:
        yield f"first {data!r}", "SASL", partial(by_token, "SCRAM-SHA-256", data, 2)
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        for user, password in (("alice", USERS["alice"]), ("alice", "wrong"), ("bob", USERS["bob"]),
                               ("nobody", "x"), ("carol", "secret")):  # fmt: skip
            yield (f"{mechanism} {user} {password == USERS.get(user)}", "SASL",
                   partial(by_scram, user, password, mechanism, None))  # fmt: skip
    for name, last in LASTS.items():
        steps = partial(by_scram, "alice", USERS["alice"], "SCRAM-SHA-256", last)
        yield f"last {name}", "SASL", steps
    for name, made in OAUTH_TOKENS.items():
        yield f"token {name}", "SASL", lambda raw, m=made: by_token("OAUTHBEARER", m(), 2, raw)
    for steps in (after_a_refused_token, with_api_versions, versions_before_the_token,
                  nothing_before_the_token, requests_first, handshake_afterwards,
                  token_afterwards, requests_while_authenticating_again):  # fmt: skip
        for listener in ("SASL", "REAUTH"):
            yield f"{steps.__name__} {listener}", listener, steps
    for name, steps in {
        "the same": partial(by_token, "PLAIN", plain(), 2),
        "another user": partial(by_token, "PLAIN", plain("bob"), 2),
        "a wrong password": partial(by_token, "PLAIN", plain(password="wrong"), 2),
        "another mechanism": partial(by_scram, "alice", USERS["alice"], "SCRAM-SHA-256", None),
        "an unknown mechanism": partial(by_handshake, "NOPE", 1),
        "an old handshake": partial(by_handshake, "PLAIN", 0),
    }.items():
        yield f"again by {name}", "REAUTH", partial(again, steps)


DIFFERENT = {
    # Unknown users get an answer to their first message, as known ones do.
    "first b'n,,n=alice,r=abc,tokenauth=true'", "first b'n,,n=carol,r=abc'",
    "first b'n,,n=nobody,r=abc'", "first b'n,,n=zo\\xc3\\xab,r=abc'",
    *(f"{mechanism} {user} False" for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512")
      for user in ("nobody", "carol")), "SCRAM-SHA-512 bob True",
    # RFC 5802: a client that could bind channels is welcome, an unknown requirement is not, and
    # the proof covers extensions.
    "first b'y,,n=alice,r=abc'", "first b'n,,m=x,n=alice,r=abc'", "last an extension",
    # Kafka closes the connection without an answer.
    "last a short proof", "token another scheme", "again by an unknown mechanism",
    "again by another mechanism",
    # We say more, or less.
    "token another name", "token nothing", "after_a_refused_token SASL",
    "after_a_refused_token REAUTH", "again by another user",
}  # fmt: skip
"""Exchanges that are answered in another way, and why."""


def test_sasl_is_answered_as_by_kafka(both: Both) -> None:
    found, count = {}, 0
    for name, listener, steps in exchanges():
        kafka, ours = (shown(side[listener], steps) for side in (both.kafka, both.ours))
        count += 1
        if kafka != ours:
            found[name] = kafka, ours
    lines = [f"{name}\n  Kafka {kafka}\n  ours  {ours}" for name, (kafka, ours) in found.items()]
    assert set(found) == DIFFERENT, "\n".join(lines)
    assert count > 100


# ---- certificates ----------------------------------------------------------------------------


SUBJECTS: dict[str, dict[str, Any]] = {
    "plain": {"common_name": "alice", "organization_name": "Example"},
    "capitals": {"common_name": "Alice Smith", "organization_unit_name": "Unit"},
    "signs": {"common_name": 'a, b+c;"d"', "organization_name": "#Example\\<x>"},
    "blanks": {"common_name": " lead and trail ", "organization_name": "two  blanks"},
    "letters": {"common_name": "zoë 漢字", "organization_name": "Ünit"},
    "expired": {"common_name": "old", "not_after": datetime(2020, 1, 1, tzinfo=timezone.utc)},
}


class Shown(Raw):
    """A connection by TLS."""

    def __init__(self, address: str, folder: Path, own: Path | None) -> None:
        super().__init__(address)
        self.socket.settimeout(PATIENCE_S)
        context = client_context(folder / "all.pem", own=own)
        try:
            self.socket = context.wrap_socket(self.socket, server_hostname="localhost")
        except BaseException:
            self.socket.close()
            raise


def principal(address: str, folder: Path, own: Path | None) -> Any:
    """The principal of a client, as a delegation token for it shows; or why there is none."""
    try:
        with Shown(address, folder, own) as raw:
            made = raw.call(
                apis.CREATE_DELEGATION_TOKEN, owner_principal_type=None, owner_principal_name=None,
                renewers=[], max_lifetime_ms=-1,
            )  # fmt: skip
    except TimeoutError:
        return "silent"
    except OSError:  # TLS's own errors, too
        return "closed"
    return int(made.error_code), made.principal_type, made.principal_name


def certificates(both: Both) -> Iterator[tuple[str, Path | None]]:
    yield "none", None
    for name, subject in SUBJECTS.items():
        path = both.folder / f"client-{name}.pem"
        path.write_text(pem_of(both.authority.issue_cert("a@example.org", **subject)))
        yield name, path
    stranger = both.folder / "client-stranger.pem"
    stranger.write_text(pem_of(trustme.CA().issue_cert("a@example.org", common_name="alice")))
    yield "stranger", stranger


def test_certificates_make_kafkas_principals(both: Both) -> None:
    differing = []
    seen = set()
    for name, path in certificates(both):
        for listener in ("NONE", "REQUESTED", *RULES):
            kafka, ours = (principal(side[listener], both.folder, path)
                           for side in (both.kafka, both.ours))  # fmt: skip
            seen.add(kafka)
            if kafka != ours:
                differing.append(f"{name} at {listener}: Kafka {kafka}, ours {ours}")
    assert differing == []
    assert {"closed", (0, "User", "alice"), (0, "User", "other")} <= seen


# ---- keys at run time ------------------------------------------------------------------------


def changes(folder: Path) -> Iterator[tuple[str, dict[str, str | None]]]:
    """Resources, and what is set there; None removes it."""
    (folder / "nonsense.pem").write_text("no key")
    inline = (folder / "second.pem").read_text()
    at = inline.index("-----BEGIN CERTIFICATE")
    own = "1"
    for file in ("second", "first", "nonsense", "nowhere", "more", "second", "subject", "more"):
        yield own, {f"{KEYSTORE}.location": str(folder / f"{file}.pem")}
    yield own, {f"{KEYSTORE}.type": "NONSENSE"}
    yield own, {f"{KEYSTORE}.password": "secret"}
    yield own, {f"{KEYSTORE}.key": inline[:at]}
    yield own, {f"{KEYSTORE}.key": inline[:at], f"{KEYSTORE}.certificate.chain": inline[at:]}
    yield own, {"ssl.keystore.location": str(folder / "second.pem")}
    yield own, {"listener.name.none.ssl.truststore.location": str(folder / "trust.pem")}
    yield "", {f"{KEYSTORE}.location": str(folder / "more.pem")}
    yield own, {f"{KEYSTORE}.location": None}


def certificate_of(address: str, folder: Path) -> str:
    """The unit and the names in the certificate that a new connection is shown."""
    host, _, port = address.rpartition(":")
    context = client_context(folder / "all.pem")
    with (
        socket.create_connection((host, int(port)), PATIENCE_S) as raw,
        context.wrap_socket(raw, server_hostname="localhost") as client,
    ):
        found: Any = client.getpeercert()
    return f"{found['subject'][-1][0][1]}, {len(found['subjectAltName'])} names"


def test_keys_change_as_in_kafka(both: Both) -> None:
    """The same changes are taken and refused, and new connections see the same certificate."""
    differing, taken = [], 0
    for resource, settings in changes(both.folder):
        answers = []
        for side in (both.kafka, both.ours):
            with Raw(side["PLAINTEXT"]) as raw:
                answers.append(raw.alter(4, resource, **settings))
        kafka, ours = answers
        taken += kafka.error_code == 0
        if kafka.error_code != ours.error_code:
            differing.append(f"{resource} {settings}: Kafka {kafka}, ours {ours}")
            continue
        shows = certificate_of(both.ours["NONE"], both.folder)
        wait_for(  # Kafka's broker follows its metadata
            lambda shows=shows: certificate_of(both.kafka["NONE"], both.folder) == shows,
            f"Kafka shows {shows} after {settings}",
        )
    assert differing == []
    assert taken > 2
