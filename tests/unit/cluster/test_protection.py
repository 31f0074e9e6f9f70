"""A member follows the ACLs, credentials and quotas of its tree, and changes them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from kafkalog import errors
from kafkalog.cluster.node import session_watch
from kafkalog.cluster.node.member import Member
from kafkalog.config.broker import BrokerConfig
from kafkalog.controller import acls as acl_rules
from kafkalog.controller import users as user_rules
from kafkalog.controller.client_quotas import alter_client_quotas
from kafkalog.metadata.image import BROKER, Change, MetadataImage
from kafkalog.metadata.requests import QuotaChange, QuotaChanges
from kafkalog.security.acls import ANY, Acl, AclFilter, Pattern, Permission
from kafkalog.security.permissions import Kind, Operation
from kafkalog.testing.standin import StandIn
from kafkalog.zookeeper import acls, entities
from kafkalog.zookeeper.acls import Resource
from kafkalog.zookeeper.notifications import OBSOLETE_MS
from kafkalog.zookeeper.session import Committed, Create, Delete, Session, Set, open_session
from tests.support.waiting import wait_for
from tests.unit.cluster.test_member import registered

READ = Acl(Kind.TOPIC, "t", Pattern.LITERAL, "User:alice", "*", Operation.READ, Permission.ALLOW)
WRITE = READ._replace(operation=Operation.WRITE)
PREFIX = READ._replace(pattern=Pattern.PREFIXED, name="pre")
ALICE = ("users", "alice")


def _ignored(_: object) -> None:
    """Another session's watches."""


def write(session: Session, resource: Resource, data: bytes | None, told: bool = True) -> None:
    """Write a resource's ACLs as Kafka does: the znode, then its notification."""
    path = acls.path_of(resource)
    session.ensure(acls.folders_of(resource))
    there = session.read(path)
    if data is None:
        assert session.commit([Delete(path)]).done
    else:
        assert session.commit([Set(path, data) if there else Create(path, data)]).done
    if told:
        announce(session, resource)


def announce(session: Session, resource: Resource) -> None:
    path = f"{acls.CHANGES[resource.pattern]}/acl_changes_"
    assert session.commit([Create(path, acls.write_change(resource), sequence=True)]).done


def those(member: Member) -> set[Acl]:
    return set(member.image.acls.values())


def create(*some: Acl) -> Callable[[MetadataImage], Any]:
    return lambda image: acl_rules.create_acls(image, some)


def delete(one: AclFilter) -> Callable[[MetadataImage], Any]:
    return lambda image: acl_rules.delete_acls(image, [one])


def quota(value: float | None, **pairs: str | None) -> Callable[[MetadataImage], Any]:
    entity = tuple(sorted((kind.replace("_", "-"), name) for kind, name in pairs.items()))
    change = QuotaChanges([QuotaChange(entity, (("producer_byte_rate", value),))], False)
    return lambda image: alter_client_quotas(image, change, lambda _: True)


def user(name: str = "alice", salted: bytes = b"salted") -> Callable[[MetadataImage], Any]:
    new = user_rules.Upsertion(name, 1, 4096, b"salt", salted)
    return lambda image: user_rules.alter_user_scram_credentials(image, [], [new])


# ---- reading -----------------------------------------------------------------------------------


def test_acls_are_read_at_the_start_and_when_they_are_announced() -> None:
    with StandIn() as inside, open_session(inside.hosts, _ignored) as other:
        write(other, Resource.of(READ), acls.write_acls([READ]))
        with registered(inside) as (member, _):
            assert those(member) == {READ}
            heard: list[Change] = []
            member.listen(heard.append)
            write(other, Resource.of(READ), acls.write_acls([READ, WRITE]))
            wait_for(lambda: those(member) == {READ, WRITE}, "one more")
            assert heard[-1].old.acls.items() < heard[-1].new.acls.items()
            write(other, Resource.of(PREFIX), acls.write_acls([PREFIX]))
            wait_for(lambda: those(member) == {READ, WRITE, PREFIX}, "of prefixes, too")
            write(other, Resource.of(READ), None)
            wait_for(lambda: those(member) == {PREFIX}, "deleted")


def test_the_first_acl_of_a_cluster_is_noticed() -> None:
    """No folder of ACLs is there when the node starts."""
    with (
        StandIn() as inside,
        registered(inside) as (member, _),
        open_session(inside.hosts, _ignored) as other,
    ):
        write(other, Resource.of(PREFIX), acls.write_acls([PREFIX]))
        wait_for(lambda: those(member) == {PREFIX}, "it is read")


@pytest.mark.parametrize("bad", [b"{", b'{"version":9}'])
def test_unreadable_acls_deny_everything_about_their_resource(
    bad: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """At the start as well as later; they are named, once."""
    with StandIn() as inside, open_session(inside.hosts, _ignored) as other:
        write(other, Resource.of(READ), bad)
        write(other, Resource.of(PREFIX), acls.write_acls([PREFIX]))
        with registered(inside) as (member, _):
            denied = acls.denial(Resource.of(READ))
            assert those(member) == {denied, PREFIX}
            write(other, Resource.of(PREFIX), bad)
            wait_for(lambda: those(member) == {denied, acls.denial(Resource.of(PREFIX))}, "both")
            announce(other, Resource.of(READ))
            with pytest.raises(errors.BadZnode, match="/kafka-acl/Topic/t"):
                member.alter(create(WRITE))
            write(other, Resource.of(READ), acls.write_acls([READ]))
            wait_for(lambda: READ in those(member) and denied not in those(member), "readable")
    for path in ("/kafka-acl/Topic/t: ", "/kafka-acl-extended/prefixed/Topic/pre: "):
        assert sum(one.getMessage().startswith(path) for one in caplog.records) == 1


def test_an_unreadable_notification_has_all_acls_read() -> None:
    with StandIn() as inside, open_session(inside.hosts, _ignored) as other:
        write(other, Resource.of(READ), acls.write_acls([READ]))
        with registered(inside) as (member, _):
            write(other, Resource.of(READ), acls.write_acls([WRITE]), told=False)
            path = f"{acls.CHANGES[Pattern.LITERAL]}/acl_changes_"
            assert other.commit([Create(path, b"nonsense", sequence=True)]).done
            wait_for(lambda: those(member) == {WRITE}, "all is read")
            write(other, Resource.of(READ), acls.write_acls([READ]))
            wait_for(lambda: those(member) == {READ}, "it goes on")


def test_a_lost_notification_has_all_acls_read() -> None:
    """Others deleted it before this node saw it."""
    with StandIn() as inside, open_session(inside.hosts, _ignored) as other:
        write(other, Resource.of(READ), acls.write_acls([READ]))
        with registered(inside) as (member, _):
            write(other, Resource.of(READ), acls.write_acls([WRITE]), told=False)
            folder = acls.CHANGES[Pattern.LITERAL]
            names = [f"{folder}/acl_changes_{number:010d}" for number in (1, 2)]
            assert other.commit([
                Create(f"{folder}/acl_changes_", b"TOPIC:t", sequence=True), Delete(names[0]),
                Create(f"{folder}/acl_changes_", b"TOPIC:u", sequence=True),
            ]).done  # fmt: skip
            wait_for(lambda: those(member) == {WRITE}, "all is read")


def test_other_children_of_the_folder_are_ignored() -> None:
    with StandIn() as inside, open_session(inside.hosts, _ignored) as other:
        write(other, Resource.of(READ), acls.write_acls([READ]))
        other.ensure([f"{acls.CHANGES[Pattern.LITERAL]}/zzz", f"{entities.CHANGES}/zzz"])
        with registered(inside) as (member, _), second(inside) as another:
            write(other, Resource.of(READ), None)
            wait_for(lambda: not those(member), "revoked")
            another.alter(user())
            wait_for(lambda: bool(member.image.scram), "the credential")


def test_a_lost_notification_of_settings_has_all_settings_read() -> None:
    with (
        StandIn() as inside,
        open_session(inside.hosts, _ignored) as other,
        registered(inside) as (member, _),
    ):
        member.alter(user())
        member.alter(user("bob"))
        last = int((other.children(entities.CHANGES) or [])[-1][-10:])
        other.ensure(["/config/brokers"])
        said = entities.write_config({"message.max.bytes": "7000"})
        assert other.commit([
            Set(entities.config_path(ALICE), entities.write_config({})),
            Create("/config/brokers/1", said),
            Create(entities.CHANGE, entities.write_change(ALICE), sequence=True),
            Delete(f"{entities.CHANGE}{last + 1:010d}"),
            Create(entities.CHANGE, entities.write_change(("users", "bob")), sequence=True),
        ]).done  # fmt: skip
        wait_for(lambda: [*member.image.scram] == [("bob", 1)], "the credential is gone")
        assert member.image.configs[BROKER, "1"] == {"message.max.bytes": "7000"}


def test_an_entity_that_no_znode_can_have_holds_up_nothing() -> None:
    with StandIn() as inside, registered(inside) as (member, _):
        for bad in (("users", ".."), ("users", "u", "clients", ".")):
            told = Create(entities.CHANGE, entities.write_change(bad), sequence=True)
            assert member.session.commit([told]).done
        told = Create("/kafka-acl-changes/acl_changes_", b"TOPIC:..", sequence=True)
        member.session.ensure(["/kafka-acl-changes"])
        assert member.session.commit([told]).done
        member.alter(user())
        assert [*member.image.scram] == [("alice", 1)]
        for change in (user("."), quota(1, client_id=".."), quota(1, user="u", client_id=".")):
            with pytest.raises(errors.InvalidRequest, match="ZooKeeper cannot store"):
                member.alter(change)
        assert member.session.children("/config/users") == ["alice"]


@contextmanager
def unreadable(member: Member, *paths: str) -> Iterator[None]:
    """These cannot be listed."""
    session: Any = member.session
    children, whole = session.children, session.tree

    def fail(path: str) -> None:
        if path in paths:
            raise errors.BadZnode(f"{path}: as said")

    def listed(path: str, watch: bool = False) -> Any:
        fail(path)
        return children(path, watch)

    def walked(*roots: str) -> Any:
        for root in roots:
            fail(root)
        return whole(*roots)

    session.children, session.tree = listed, walked
    try:
        yield
    finally:
        session.children, session.tree = children, whole


def test_unreadable_folders_are_read_again_without_a_notification(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(session_watch, "INCOMPLETE_RETRY_S", 0.01)
    with StandIn() as inside, open_session(inside.hosts, _ignored) as other:
        write(other, Resource.of(READ), acls.write_acls([READ]))
        with registered(inside) as (member, _):
            member.alter(user())
            member.alter(quota(7, user="alice"))
            quotas = member.image.quotas
            with unreadable(member, "/config/users", "/kafka-acl"):
                inside.expire(member.session.id)
                wait_for(lambda: len(those(member)) == len(Kind), "everything is denied")
                wait_for(lambda: not member.image.scram, "nobody is let in")
                assert member.image.quotas == quotas
            wait_for(lambda: those(member) == {READ}, "the ACLs")
            wait_for(lambda: [*member.image.scram] == [("alice", 1)], "the credentials")


@pytest.mark.parametrize("announced", [False, True])
def test_one_unreadable_resource_is_read_again_without_a_notification(
    monkeypatch: pytest.MonkeyPatch, announced: bool
) -> None:
    """Also if another resource changes in between."""
    monkeypatch.setattr(session_watch, "INCOMPLETE_RETRY_S", 60 if announced else 0.01)
    with StandIn() as inside, open_session(inside.hosts, _ignored) as other:
        write(other, Resource.of(READ), b"{")
        with registered(inside) as (member, _):
            assert those(member) == {acls.denial(Resource.of(READ))}
            write(other, Resource.of(READ), acls.write_acls([READ]), told=False)
            wanted = {READ}
            if announced:
                write(other, Resource.of(PREFIX), acls.write_acls([PREFIX]))
                wanted.add(PREFIX)
            wait_for(lambda: those(member) == wanted, "it is read again")


def test_a_stored_denial_is_not_that_of_an_unreadable_folder() -> None:
    everything = acls.denial(Resource(Kind.TOPIC, Pattern.LITERAL, "*"))
    with StandIn() as inside, open_session(inside.hosts, _ignored) as other:
        write(other, Resource.of(everything), acls.write_acls([everything]))
        write(other, Resource.of(PREFIX), acls.write_acls([PREFIX]))
        with (
            registered(inside) as (member, _),
            unreadable(member, "/kafka-acl-extended/prefixed"),
        ):
            inside.expire(member.session.id)
            wait_for(lambda: len(member.image.acls) == len(Kind) + 1, "both")
            member.alter(delete(AclFilter(Kind.TOPIC, "*", ANY)))
            assert other.read("/kafka-acl/Topic/*") is None
            assert everything in those(member), "the folder is still unreadable"


def test_quotas_that_become_unreadable_stay_through_a_lost_session() -> None:
    with (
        StandIn() as inside,
        open_session(inside.hosts, _ignored) as other,
        registered(inside) as (member, _),
    ):
        member.alter(user())
        member.alter(quota(7, user="alice"))
        quotas = member.image.quotas
        assert other.commit([Set(entities.config_path(ALICE), b"{")]).done
        inside.expire(member.session.id)
        wait_for(lambda: not member.image.scram, "it is read")
        assert member.image.quotas == quotas != {}


def test_after_a_lost_session_everything_is_read_again() -> None:
    """Also changes without a notification that is left."""
    with StandIn() as inside, open_session(inside.hosts, _ignored) as other:
        write(other, Resource.of(READ), acls.write_acls([READ]))
        with registered(inside) as (member, _):
            member.alter(user())
            member.alter(user("bob"))
            member.alter(quota(7, user="alice"))
            write(other, Resource.of(READ), acls.write_acls([WRITE]), told=False)
            path = entities.config_path(ALICE)
            assert other.commit([Set(path, entities.write_config({}))]).done
            other.ensure(["/config/clients"])
            path = entities.config_path(("clients", "c"))
            assert other.commit([Create(path, entities.write_config({"request_percentage": "5"}))])
            assert those(member) == {READ}
            inside.expire(member.session.id)
            wait_for(lambda: those(member) == {WRITE}, "the ACLs")
            wait_for(lambda: [*member.image.scram] == [("bob", 1)], "the credentials")
            wait_for(lambda: member.image.quotas == {
                (("client-id", "c"),): {"request_percentage": 5.0}}, "the quotas")  # fmt: skip


def test_credentials_and_quotas_follow_their_notifications() -> None:
    """A user's credentials that become unreadable are no longer accepted; its quotas stay."""
    with (
        StandIn() as inside,
        open_session(inside.hosts, _ignored) as other,
        registered(inside) as (first, _),
        second(inside) as member,
    ):
        first.alter(user())
        first.alter(quota(7, user="alice"))
        first.alter(quota(8, user="alice", client_id=None))
        first.alter(quota(9, client_id="c"))
        wait_for(lambda: len(member.image.quotas) == 3, "the other one has them")
        assert member.image.scram == first.image.scram != {}
        assert member.image.quotas == first.image.quotas
        assert first.image.quotas[(("client-id", None), ("user", "alice"))] == {
            "producer_byte_rate": 8.0
        }
        path = entities.config_path(ALICE)
        told = Create(entities.CHANGE, entities.write_change(ALICE), sequence=True)
        assert other.commit([Set(path, b"{"), told]).done
        wait_for(lambda: not member.image.scram, "no credential")
        assert member.image.quotas[(("user", "alice"),)] == {"producer_byte_rate": 7.0}
        first.alter(quota(None, client_id="c"))
        wait_for(lambda: len(member.image.quotas) == 2, "one quota less")


@contextmanager
def second(inside: StandIn) -> Iterator[Member]:
    """Another member, node 2."""
    member = Member(inside.hosts, 2, "PLAINTEXT", BrokerConfig())
    try:
        member.register([("PLAINTEXT", "127.0.0.1", 9093, 0)])
        yield member
    finally:
        member.close()


# ---- changes -----------------------------------------------------------------------------------


def test_a_change_is_in_effect_when_it_is_answered_and_everywhere_soon() -> None:
    with StandIn() as inside, registered(inside) as (first, _), second(inside) as member:
        results = first.alter(create(READ, WRITE, PREFIX))
        assert [one["error_code"] for one in results] == [0, 0, 0]
        assert those(first) == {READ, WRITE, PREFIX}
        wait_for(lambda: those(member) == those(first), "the other has them")
        znode = first.session.read("/kafka-acl/Topic/t")
        assert znode is not None and znode.data == acls.write_acls([READ, WRITE])
        (result,) = member.alter(delete(AclFilter(Kind.TOPIC, "t", ANY)))
        assert len(result["matching_acls"]) == 2
        assert those(member) == {PREFIX}
        assert first.session.read("/kafka-acl/Topic/t") is None
        wait_for(lambda: those(first) == {PREFIX}, "the first one, too")


def test_two_nodes_change_one_resource_at_the_same_time() -> None:
    """The one that is later reads again what the other wrote."""
    others = [READ._replace(principal=f"User:{n}") for n in range(3)]
    with StandIn() as inside, registered(inside) as (member, _):
        left = list(others)

        def meet(operations: Sequence[Any], commit: Callable[[], Committed]) -> Committed:
            if left and any(one.path == "/kafka-acl/Topic/t" for one in operations):
                mine = left.pop()
                with open_session(inside.hosts, _ignored) as other:
                    known = other.read("/kafka-acl/Topic/t")
                    data = acls.read_acls(Resource.of(mine), known.data if known else None)
                    inside.on_the_way, kept = lambda _, arrive: arrive(), inside.on_the_way
                    write(other, Resource.of(mine), acls.write_acls([*data, mine]))
                    inside.on_the_way = kept
            return commit()

        inside.on_the_way = meet
        member.alter(create(READ))
        assert those(member) == {READ, *others}


def test_a_lost_answer_is_an_error_and_repeating_does_no_harm() -> None:
    with StandIn() as inside, registered(inside) as (member, _):
        inside.lose("/kafka-acl/Topic/t", done=True)
        with pytest.raises(errors.ZooKeeperAway):
            member.alter(create(READ))
        wait_for(lambda: those(member) == {READ}, "it was done, and is announced")
        assert member.alter(create(READ))[0]["error_code"] == 0
        znode = member.session.read("/kafka-acl/Topic/t")
        assert znode is not None and znode.version == 0


def test_a_request_is_planned_on_everything_that_was_written_before() -> None:
    """Also by others, an instant ago."""
    with StandIn() as inside, registered(inside) as (first, _), second(inside) as member:
        for n in range(20):
            first.alter(user(f"user{n}"))
            gone = [user_rules.Deletion(f"user{n}", 1)]
            (result,) = member.alter(
                lambda image, gone=gone: user_rules.alter_user_scram_credentials(image, gone, [])
            )
            assert result["error_code"] == 0, result


def test_bad_names_change_nothing() -> None:
    with StandIn() as inside, registered(inside) as (member, _):
        with pytest.raises(errors.InvalidRequest, match="ZooKeeper cannot store"):
            member.alter(create(READ, READ._replace(name="a/b")))
        (result,) = member.alter(create(READ._replace(host="10.0.0.0/8")))
        assert result["error_code"] == 35, "no masks in Kafka 3.9"
        assert those(member) == set()


def test_old_notifications_are_deleted() -> None:
    with (
        StandIn() as inside,
        open_session(inside.hosts, _ignored) as other,
        registered(inside) as (member, _),
    ):
        inside.now_ms = 1  # 1970
        write(other, Resource.of(READ), acls.write_acls([READ]))
        wait_for(lambda: those(member) == {READ}, "read")
        inside.now_ms = 4_000_000_000_000 + OBSOLETE_MS
        write(other, Resource.of(READ), acls.write_acls([WRITE]))
        wait_for(lambda: those(member) == {WRITE}, "read")
        assert other.children(acls.CHANGES[Pattern.LITERAL]) == ["acl_changes_0000000001"]


def test_no_secret_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with StandIn() as inside, registered(inside) as (member, _):
        member.alter(user(salted=b"s3cret"))
        znode = member.session.read(entities.config_path(ALICE))
        assert znode is not None and znode.data is not None
        key = znode.data.split(b"stored_key=")[1][:20].decode()
        bad = znode.data.replace(b"iterations=4096", b"iterations=1")
        told = Create(entities.CHANGE, entities.write_change(ALICE), sequence=True)
        assert member.session.commit([Set(entities.config_path(ALICE), bad), told]).done
        wait_for(lambda: not member.image.scram, "not accepted")
        assert member.alter(user())[0]["error_code"] == 0
        assert [*member.image.scram] == [("alice", 1)]
    assert "/config/users/alice: SCRAM-SHA-256" in caplog.text
    assert key not in caplog.text and "s3cret" not in caplog.text
