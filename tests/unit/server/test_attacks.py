"""Attacks on a secured broker: what an attacker learns, and whether others are served."""

from __future__ import annotations

import random
import re
import resource
import select
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from kafkalog.clock import ManualClock
from kafkalog.config.authorizer import STANDARD_AUTHORIZER
from kafkalog.disk.secret import SECRET
from kafkalog.security.acls import ALL, ANY, Pattern, Permission
from kafkalog.security.permissions import Kind
from kafkalog.security.scram import ClientExchange, Mechanism, new_salt, salted_password
from kafkalog.server.admission import Admission
from kafkalog.server.broker import Broker, node_of
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode
from tests.support import sasl
from tests.support.certificates import Certificates, client_context
from tests.support.raw import Raw
from tests.support.sasl import USERS, authenticate, handshake, plain
from tests.support.waiting import LIMIT_S, wait_for
from tests.unit.net.test_tls import hello

OK, FAILED = ErrorCode.NONE, ErrorCode.SASL_AUTHENTICATION_FAILED
SCRAM = "SCRAM-SHA-256"


def is_closed(raw: Raw) -> bool:
    try:
        return raw.socket.recv(1) == b""
    except ConnectionResetError:
        return True


# ---- which users there are ---------------------------------------------------------------------


def put_users(broker: Broker) -> None:
    """SCRAM credentials as Kafka's tools write them."""
    with Raw(broker.bootstrap_servers) as raw:
        authenticate(raw)
        rows = [
            {"name": user, "mechanism": 1, "iterations": 4096, "salt": (salt := new_salt()),
             "salted_password": salted_password(Mechanism.SCRAM_SHA_256, password, salt, 4096)}
            for user, password in USERS.items()
        ]  # fmt: skip
        found = raw.call(apis.ALTER_USER_SCRAM_CREDENTIALS, deletions=[], upsertions=rows)
        assert {one.error_code for one in found.results} == {OK}


def with_wrong_password(broker: Broker, user: str, mechanism: str = SCRAM) -> list[bytes]:
    """The frames that a client gets, without correlation ids."""
    frames = []
    with Raw(broker.bootstrap_servers) as raw:
        handshake(raw, mechanism)

        def answer(message: bytes) -> bytes:
            raw.send(apis.SASL_AUTHENTICATE, 2, {"auth_bytes": message})
            frames.append(raw.receive_frame()[4:])
            return bytes(apis.SASL_AUTHENTICATE.decode_response(2, frames[-1], 1).auth_bytes)

        if mechanism == "PLAIN":
            answer(plain(user, "wrong"))
        else:
            exchange = ClientExchange(Mechanism.named(mechanism), user, "wrong")
            answer(exchange.step(answer(exchange.step(b""))))
        assert is_closed(raw)
    return frames


def salt_for(broker: Broker, user: str) -> bytes:
    """The salt that the broker tells a client who claims to be this user."""
    found = re.search(rb",s=([^,]+),i=", with_wrong_password(broker, user)[0])
    assert found is not None
    return found[1]


def scram_settings(**more: object) -> dict[str, object]:
    return sasl.settings("PLAIN", SCRAM, connection_failed_authentication_delay_ms=0, **more)


def test_answers_do_not_say_whether_a_user_exists(tmp_path: Path) -> None:
    """By PLAIN they are the same bytes; by SCRAM all but nonce and salt, which are as long."""
    with Broker(tmp_path / "data", config=scram_settings()) as broker:
        put_users(broker)
        users = ("alice", "bob", "nobody", "no", "x" * 5)
        answers = [with_wrong_password(broker, user, "PLAIN") for user in users]
        assert all(one == answers[0] for one in answers)
        seen = [with_wrong_password(broker, user) for user in users]
        assert len({final for _, final in seen}) == 1
        shapes = {re.sub(rb"r=[^,]+|s=[^,]+", lambda at: b"%d" % len(at[0]), first)
                  for first, _ in seen}  # fmt: skip
        assert len(shapes) == 1


def test_the_salt_of_an_unknown_user_outlives_a_restart(tmp_path: Path) -> None:
    """As a real one does; another directory has another, and so has another user."""
    salts: dict[str, list[bytes]] = {}
    for folder in ("data", "data", "other"):
        with Broker(tmp_path / folder, config=scram_settings()) as broker:
            if not salts or folder == "other":
                put_users(broker)
            for user in ("nobody", "somebody", "alice"):
                salts.setdefault(user, []).append(salt_for(broker, user))
    for first, second, other in salts.values():
        assert first == second != other
    assert len({found[0] for found in salts.values()}) == 3
    assert (tmp_path / "data" / SECRET).stat().st_mode & 0o077 == 0


def test_a_broker_without_sasl_has_no_secret(tmp_path: Path) -> None:
    with Broker(tmp_path / "data"):
        pass
    assert not (tmp_path / "data" / SECRET).exists()


# ---- others are served -------------------------------------------------------------------------


def test_wrong_passwords_in_parallel(tmp_path: Path) -> None:
    """100 of them are answered after the delay and not before; other clients go on without one,
    and can log in."""
    clock = ManualClock()
    config = sasl.settings("PLAIN", connection_failed_authentication_delay_ms=10_000,
                           connections_max_idle_ms=-1,
                           kafkalog_authentication_max_ms=2**31 - 1)  # fmt: skip
    with Broker(tmp_path / "data", config=config, clock=clock) as broker, ExitStack() as stack:

        def connected() -> Raw:
            return stack.enter_context(Raw(broker.bootstrap_servers))

        before = connected()
        authenticate(before)
        wrong = [connected() for _ in range(100)]
        for one in wrong:
            handshake(one)
            one.send(apis.SASL_AUTHENTICATE, 2, {"auth_bytes": plain("alice", "wrong")})
        for _ in range(3):
            assert before.call(apis.METADATA, topics=None).brokers
            later = connected()
            assert authenticate(later).error_code == OK
            assert later.call(apis.METADATA, topics=None).brokers
        assert select.select([one.socket for one in wrong], [], [], 0)[0] == []

        def answered(one: Raw) -> bool:
            clock.advance(10_000)
            return bool(select.select([one.socket], [], [], 0)[0])

        for one in wrong:
            wait_for(lambda one=one: answered(one), "it is answered")  # type: ignore[misc]
            assert one.receive(apis.SASL_AUTHENTICATE, 2).error_code == FAILED
            assert is_closed(one)
        assert before.call(apis.METADATA, topics=None).brokers


@pytest.fixture
def many_files() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 9_000
    if hard != resource.RLIM_INFINITY and hard < wanted:
        pytest.skip(f"only {hard} files may be open, wanted {wanted}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.long
def test_5000_half_open_handshakes(tmp_path: Path, many_files: None) -> None:
    """They stop after the first bytes: a client that has authenticated is served all the time, and
    a new one after them; 1,000 of each network thread stay open."""
    certificates = Certificates(tmp_path)
    config = sasl.encrypted(certificates, "PLAIN", num_network_threads=2)
    context, first = client_context(certificates.trust), hello(certificates)
    with Broker(tmp_path / "data", config=config) as broker, ExitStack() as stack:

        def connected() -> Raw:
            raw = stack.enter_context(Raw(broker.bootstrap_servers))
            raw.socket = context.wrap_socket(raw.socket, server_hostname="localhost")
            assert authenticate(raw).error_code == OK
            return raw

        client = connected()
        assert client.create("t").error_code == OK
        address = client.socket.getpeername()
        for number in range(5_000):
            half = stack.enter_context(socket.create_connection(address, LIMIT_S))
            half.sendall(first)
            if number % 100 == 0:
                assert client.produce("t", b"v").error_code == OK
                assert client.fetch("t", number // 100).error_code == OK
        assert connected().fetch("t").error_code == OK
        stats = node_of(broker).reactor.stats
        wait_for(lambda: stats().handshakes_failed >= 3_000, "the oldest are closed")
        assert stats().connections <= 2 * 1_000 + 2
        assert client.produce("t", b"v").error_code == OK


# ---- strange names -----------------------------------------------------------------------------

STRANGE = [
    "\0", "a\0b", "a\nb", "a\r\nb", "a,b", "a=b", " ", "a ", "ü", "u\u0308", "\U0001f600", "\u202e",
    "'\"", "\\", "%s", "**", "*a", "User:*", "\x1b[31m", "../a", "x" * 10_000,
]  # fmt: skip
DENIED = ErrorCode.GROUP_AUTHORIZATION_FAILED


def authorizing(**more: object) -> dict[str, object]:
    config = sasl.settings("PLAIN", SCRAM, connection_failed_authentication_delay_ms=0, **more)
    return {**config, "authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:bob"}


def acl_on(name: str, who: str = "alice", pattern: int = Pattern.LITERAL) -> dict[str, Any]:
    return {
        "resource_type": Kind.GROUP, "resource_name": name, "resource_pattern_type": pattern,
        "principal": f"User:{who}", "host": "*", "operation": ALL,
        "permission_type": Permission.ALLOW,
    }  # fmt: skip


def create(raw: Raw, *acls: dict[str, Any]) -> set[int]:
    return {one.error_code for one in raw.call(apis.CREATE_ACLS, creations=list(acls)).results}


def delete(raw: Raw, **chosen: object) -> int:
    """The number of deleted ACLs."""
    every = {
        "resource_type_filter": ANY, "resource_name_filter": None, "pattern_type_filter": ANY,
        "principal_filter": None, "host_filter": None, "operation": ANY, "permission_type": ANY,
    }  # fmt: skip
    (found,) = raw.call(apis.DELETE_ACLS, filters=[{**every, **chosen}]).filter_results
    assert found.error_code == OK
    return len(found.matching_acls)


def allowed(raw: Raw, names: list[str]) -> list[str]:
    """The groups of which the client may know."""
    found = raw.call(apis.DESCRIBE_GROUPS, groups=names, include_authorized_operations=False)
    assert sorted(one.group_id for one in found.groups) == sorted(names)
    seen = {one.group_id for one in found.groups if one.error_code != DENIED}
    return [name for name in names if name in seen]


def logged_in(stack: ExitStack, broker: Broker, user: str, password: str | None = None) -> Raw:
    """By PLAIN, or with a password by SCRAM."""
    raw = stack.enter_context(Raw(broker.bootstrap_servers))
    found = authenticate(raw, user) if password is None else sasl.scram(raw, user, password)
    assert found.error_code == OK
    return raw


def test_acls_of_resources_with_strange_names(tmp_path: Path) -> None:
    """Each is for its own name alone, after a restart, too, and is deleted by its name."""
    some = STRANGE[::2]
    for begins in (True, False):
        with Broker(tmp_path / "data", config=authorizing()) as broker, ExitStack() as stack:
            alice, bob = (logged_in(stack, broker, user) for user in ("alice", "bob"))
            if begins:
                assert allowed(alice, STRANGE) == []
                assert create(bob, *map(acl_on, some)) == {OK}
            assert allowed(alice, STRANGE) == some
            if not begins:
                for name in some:
                    assert delete(bob, resource_name_filter=name) == 1
                assert allowed(alice, STRANGE) == []


def test_prefixes_with_strange_names_and_the_empty_one(tmp_path: Path) -> None:
    """A prefix is compared byte by byte; the empty one, which would be all, is refused."""
    with Broker(tmp_path / "data", config=authorizing()) as broker, ExitStack() as stack:
        alice, bob = (logged_in(stack, broker, user) for user in ("alice", "bob"))
        for pattern in (Pattern.PREFIXED, Pattern.LITERAL):
            assert create(bob, acl_on("", pattern=pattern)) == {ErrorCode.INVALID_REQUEST}
        assert allowed(alice, STRANGE) == []
        for prefix in ("\0", "a\n", "u", "\U0001f600", "x" * 9_999, "*"):
            assert create(bob, acl_on(prefix, pattern=Pattern.PREFIXED)) == {OK}
            wanted = [name for name in STRANGE if name.startswith(prefix)]
            assert wanted and allowed(alice, STRANGE) == wanted
            assert delete(bob) == 1


def test_the_wildcard_is_no_name(tmp_path: Path) -> None:
    """A literal `*` is every name; nothing else with a star is."""
    with Broker(tmp_path / "data", config=authorizing()) as broker, ExitStack() as stack:
        alice, bob = (logged_in(stack, broker, user) for user in ("alice", "bob"))
        assert create(bob, acl_on("a"), acl_on("**"), acl_on("?"), acl_on("User:*")) == {OK}
        assert allowed(alice, ["*", *STRANGE]) == ["**", "User:*"]
        assert delete(bob, resource_name_filter="*") == 0
        assert create(bob, acl_on("*")) == {OK}
        assert allowed(alice, ["*", *STRANGE]) == ["*", *STRANGE]
        assert delete(bob, resource_name_filter="*") == 1
        assert allowed(alice, ["*", *STRANGE]) == ["**", "User:*"]


def test_principals_with_strange_names(tmp_path: Path) -> None:
    """An ACL is for the user with exactly this name: SCRAM has all but NUL."""
    users = [name for name in STRANGE if "\0" not in name and len(name) < 100]
    with Broker(tmp_path / "data", config=authorizing()) as broker, ExitStack() as stack:
        bob = logged_in(stack, broker, "bob")
        salted = salted_password(Mechanism.SCRAM_SHA_256, "secret", b"salt", 4096)
        rows = [{"name": user, "mechanism": 1, "iterations": 4096, "salt": b"salt",
                 "salted_password": salted} for user in users]  # fmt: skip
        found = bob.call(apis.ALTER_USER_SCRAM_CREDENTIALS, deletions=[], upsertions=rows)
        assert {one.error_code for one in found.results} == {OK}
        assert create(bob, *(acl_on(f"g{i}", user) for i, user in enumerate(users))) == {OK}
        groups = [f"g{i}" for i in range(len(users))]
        for number, user in enumerate(users):
            assert allowed(logged_in(stack, broker, user, "secret"), groups) == [f"g{number}"]


@pytest.mark.parametrize("name", [b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80"])
def test_names_that_are_not_utf_8_close_the_connection(tmp_path: Path, name: bytes) -> None:
    """Names of principals and of resources; others are served."""
    with Broker(tmp_path / "data", config=authorizing()) as broker, ExitStack() as stack:
        bob = logged_in(stack, broker, "bob")
        for field in ("resource_name", "principal"):
            other = logged_in(stack, broker, "bob")
            row = {**acl_on("a", "b"), field: "User:zzzz"}
            data = apis.CREATE_ACLS.encode_request(3, {"creations": [row]})
            other.send_bytes(apis.CREATE_ACLS, 3, data.replace(b"z" * len(name), name, 1))
            assert is_closed(other)
        assert delete(bob) == 0


def test_connections_that_come_and_go_never_get_the_rights_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Numbers of principals are used again at once, while others log in."""
    monkeypatch.setattr("kafkalog.server.admission.NUMBERS_KEPT", 0)
    taken_back: list[int] = []
    reap = Admission._reap

    def counted(admission: Admission) -> None:
        reap(admission)
        taken_back.append(len(admission._free))

    monkeypatch.setattr(Admission, "_reap", counted)
    users = [f"user{number}" for number in range(12)]
    with Broker(tmp_path / "data", config=authorizing()) as broker, ExitStack() as stack:
        bob = logged_in(stack, broker, "bob")
        salted = salted_password(Mechanism.SCRAM_SHA_256, "secret", b"salt", 4096)
        rows = [{"name": user, "mechanism": 1, "iterations": 4096, "salt": b"salt",
                 "salted_password": salted} for user in users]  # fmt: skip
        bob.call(apis.ALTER_USER_SCRAM_CREDENTIALS, deletions=[], upsertions=rows)
        assert create(bob, *(acl_on(user, user) for user in users)) == {OK}

        def run(seed: int) -> None:
            draw = random.Random(seed)
            for _ in range(20):
                user = draw.choice(users)
                with Raw(broker.bootstrap_servers) as raw:
                    assert sasl.scram(raw, user, "secret").error_code == OK
                    assert allowed(raw, users) == [user]
                    if draw.random() < 0.5:
                        assert allowed(raw, users) == [user]

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(run, range(4)))
        assert sum(taken_back) > 10
