"""Rights of a caller, as handlers ask for them: by the authorizer of a broker, if it has one."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkalog import Admin, Producer
from kafkalog._native import lib
from kafkalog.config.authorizer import STANDARD_AUTHORIZER
from kafkalog.errors import Timeout
from kafkalog.security.acls import Acl, Pattern, Permission
from kafkalog.security.authorizer import Authorizer
from kafkalog.security.permissions import Kind, Operation, everything
from kafkalog.security.principal import Principal
from kafkalog.server.admission import FIRST, NUMBERS_KEPT, Admission
from kafkalog.server.broker import Broker, node_of
from kafkalog.server.network.listeners import INSIDE
from kafkalog.server.network.reactor import (
    ANONYMOUS,
    REAUTHENTICATES,
    UNIDENTIFIED,
    UNIDENTIFIED_RAW,
)
from kafkalog.server.network.rights import Denied
from kafkalog.server.request import Peer
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode
from tests.support.raw import Raw

READ, WRITE, DESCRIBE = Operation.READ, Operation.WRITE, Operation.DESCRIBE


def peer(admission: Admission, name: str = "alice", host: str = "/10.0.0.1") -> Peer:
    return Peer("client", host, 0, admission.number_of(Principal("User", name), host))


@pytest.fixture
def ruled(broker: Broker) -> Admission:
    """Alice may read t, and whatever begins with a, from 10.0.0.1."""
    authorizer = Authorizer(["User:root"])
    for name, pattern in (("t", Pattern.LITERAL), ("a", Pattern.PREFIXED)):
        authorizer.add(Acl(Kind.TOPIC, name, pattern, "User:alice", "10.0.0.1", READ,
                           Permission.ALLOW))  # fmt: skip
    return Admission(node_of(broker).reactor, authorizer)


def test_connections_are_anonymous(broker: Broker) -> None:
    admission = node_of(broker).admission
    assert str(admission.principal(ANONYMOUS)) == "User:ANONYMOUS"


def test_without_an_authorizer_everything_is_allowed(broker: Broker) -> None:
    admission = node_of(broker).admission
    alice = peer(admission)
    assert not admission.guards(alice) and not admission.authorizes
    assert admission.allows(alice, WRITE, Kind.TOPIC, "x")
    assert admission.allows_any(alice, WRITE, Kind.TOPIC)
    assert admission.operations(alice, Kind.TOPIC, "x") == everything(Kind.TOPIC)


def test_rights_are_for_a_principal_at_a_host(ruled: Admission) -> None:
    alice = peer(ruled)
    assert ruled.guards(alice)
    assert ruled.allows(alice, READ, Kind.TOPIC, "t")
    assert ruled.allowed(alice, READ, Kind.TOPIC, ["t", "ab", "u"]) == {"t", "ab"}
    assert not ruled.allows(alice, WRITE, Kind.TOPIC, "t")
    assert not ruled.allows(peer(ruled, host="/10.0.0.2"), READ, Kind.TOPIC, "t")
    assert not ruled.allows(peer(ruled, "bob"), READ, Kind.TOPIC, "t")
    assert ruled.allows_any(alice, READ, Kind.TOPIC)
    assert not ruled.allows_any(alice, WRITE, Kind.TOPIC)
    assert ruled.operations(alice, Kind.TOPIC, "t") == 1 << READ | 1 << DESCRIBE


def test_super_users_and_this_process_are_not_guarded(ruled: Admission) -> None:
    root = peer(ruled, "root")
    assert not ruled.guards(root) and ruled.allows(root, WRITE, Kind.TOPIC, "x")
    inside = Peer("client", "inside", INSIDE, ANONYMOUS)
    assert not ruled.guards(inside) and ruled.allows(inside, WRITE, Kind.TOPIC, "x")


@pytest.mark.parametrize("number", [UNIDENTIFIED, UNIDENTIFIED_RAW, REAUTHENTICATES])
def test_nothing_is_allowed_before_authentication(
    broker: Broker, ruled: Admission, number: int
) -> None:
    """With an authorizer and without."""
    nobody = Peer("client", "/10.0.0.1", 0, number)
    for admission in (ruled, node_of(broker).admission):
        assert not admission.allows(nobody, READ, Kind.TOPIC, "t")
        assert admission.allowed(nobody, READ, Kind.TOPIC, ["t"]) == set()
        assert not admission.allows_any(nobody, READ, Kind.TOPIC)
        assert admission.operations(nobody, Kind.TOPIC, "t") == 0
    assert ruled.guards(nobody)


def test_this_process_needs_no_rights(tmp_path: Path) -> None:
    config = {"authorizer.class.name": STANDARD_AUTHORIZER}
    with (
        Broker(tmp_path / "data", config=config) as broker,
        Raw(broker.bootstrap_servers) as raw,
    ):
        with Admin(broker.store) as admin:
            admin.create_topics([("t", 1)]).check()
        with Producer(broker.store) as producer:
            producer.send("t", b"v").result()
        assert raw.produce("t", b"v").error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED


def test_a_principal_at_a_host_has_one_number(ruled: Admission) -> None:
    assert peer(ruled) == peer(ruled)
    assert peer(ruled).principal != peer(ruled, host="/10.0.0.2").principal


def test_versions_are_announced_to_everybody(tmp_path: Path) -> None:
    config = {"authorizer.class.name": STANDARD_AUTHORIZER}
    with (
        Broker(tmp_path / "data", config=config) as broker,
        Raw(broker.bootstrap_servers) as raw,
    ):
        found = raw.call(apis.API_VERSIONS, client_software_name="x", client_software_version="1")
        assert found.error_code == 0


def test_numbers_that_no_connection_holds_are_used_again(broker: Broker) -> None:
    """More anonymous clients than there are numbers, from as many addresses, one after the
    other."""
    admission = node_of(broker).admission
    hosts = (f"/10.{n >> 16}.{n >> 8 & 255}.{n & 255}" for n in range(lib.KL_PRINCIPALS_MAX + 10))
    anonymous = Principal("User", "ANONYMOUS")
    assert max(admission.number_of(anonymous, host) for host in hosts) < NUMBERS_KEPT


def test_held_numbers_are_looked_for_seldom(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Work is counted, not time: if all are held, the looks grow with the logarithm of their
    number, until none is left."""
    admission = Admission(node_of(broker).reactor)
    looks: list[int] = []

    def unheld(first: int, end: int) -> list[int]:
        looks.append(end)
        return []

    monkeypatch.setattr(admission._reactor, "unheld", unheld)
    for number in range(FIRST, lib.KL_PRINCIPALS_MAX):
        assert admission.number_of(Principal("User", f"{number}"), "/10.0.0.1") == number
    assert len(looks) < 10
    with pytest.raises(Timeout, match="no more are accepted"):
        admission.number_of(Principal("User", "more"), "/10.0.0.1")


def test_a_lent_number_is_not_used_again_before_it_is_given_back(broker: Broker) -> None:
    """No connection holds it: the request of its principal came over that of a node."""
    admission = node_of(broker).admission
    lent = admission.lend(Principal("User", "lent"), "/10.0.0.1")
    again = admission.lend(Principal("User", "lent"), "/10.0.0.1")
    assert again == lent
    admission.give_back(again)
    others = (Principal("User", f"{n}") for n in range(4 * NUMBERS_KEPT))
    assert lent not in {admission.number_of(one, "/10.0.0.1") for one in others}
    assert admission.principal(lent).name == "lent"
    admission.give_back(lent)
    others = (Principal("User", f"later {n}") for n in range(4 * NUMBERS_KEPT))
    assert lent in {admission.number_of(one, "/10.0.0.1") for one in others}


def test_a_denial_never_has_the_name_of_another_principal(
    ruled: Admission, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Its line may be written when its connection is gone, and its number is another's."""
    monkeypatch.setattr("kafkalog.server.admission.NUMBERS_KEPT", 0)
    alice, bob = Principal("User", "alice"), Principal("User", "bob")
    number = ruled.number_of(alice, "/10.0.0.1")
    late = Denied(number, 0, Operation.WRITE, Kind.TOPIC, "t", 0)
    ruled._tell(late)
    ruled._reap_at = 0
    while ruled.number_of(bob, "/10.0.0.2") != number:
        bob = Principal("User", bob.name + "x")
    ruled._tell(late)
    ruled._tell(late._replace(tenure=1))
    lines = [one.getMessage() for one in caplog.records if one.name == "kafkalog.server.denials"]
    assert len(lines) == 3
    assert "'User:alice' at '10.0.0.1'" in lines[0] and "'User:bob" in lines[2]
    assert "'unknown' at 'unknown', operation WRITE on TOPIC 't'" in lines[1]
