"""The znodes of ACLs, SCRAM credentials and quotas, as Kafka 3.9.2 writes them."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from kafkalog.controller import acls as acl_rules
from kafkalog.controller import users as user_rules
from kafkalog.controller.client_quotas import alter_client_quotas
from kafkalog.errors import BadZnode, InvalidRequest
from kafkalog.metadata.image import MetadataImage, empty_image
from kafkalog.metadata.requests import QuotaChange, QuotaChanges
from kafkalog.security.acls import ALL, Acl, Pattern, Permission
from kafkalog.security.permissions import Kind, Operation
from kafkalog.security.scram import Mechanism, credential_of
from kafkalog.zookeeper import acls, entities, protecting, users
from kafkalog.zookeeper.acls import Resource
from kafkalog.zookeeper.documents import DENIED, ZNODE_BYTES_MAX
from kafkalog.zookeeper.loading import Znode, load
from kafkalog.zookeeper.session import Create, Delete, Set
from tests.unit.zookeeper.test_tree import ZNODES

PLAIN = Acl(Kind.TOPIC, "plain", Pattern.LITERAL, "User:bob", "*", Operation.READ,
            Permission.ALLOW)  # fmt: skip
PRE = Acl(Kind.TOPIC, "pre", Pattern.PREFIXED, "User:bob", "127.0.0.1", Operation.READ,
          Permission.DENY)  # fmt: skip


def data(path: str) -> bytes:
    found = ZNODES[path].data
    assert found is not None
    return found


@pytest.mark.parametrize("acl", [PLAIN, PRE])
def test_acls_have_kafkas_bytes(acl: Acl) -> None:
    """And so have their notifications."""
    resource = Resource.of(acl)
    path = acls.path_of(resource)
    assert acls.read_acls(resource, data(path)) == (acl,)
    assert acls.write_acls([acl]) == data(path)
    folder, told = acls.operations(resource, None, {acl: True})
    assert folder == Create(path, data(path))
    assert isinstance(told, Create) and told.sequence
    recorded = f"{told.path}0000000000"
    assert told.data == data(recorded)
    assert acls.read_change(acl.pattern, recorded, data(recorded)) == resource


def test_every_kind_has_the_folder_that_kafka_creates() -> None:
    for pattern, root in acls.ROOTS.items():
        for kind in Kind:
            path = acls.path_of(Resource(kind, pattern, "x"))
            assert path.rpartition("/")[0] in ZNODES
            assert acls.kind_named(path.split("/")[-2]) == kind
        assert acls.CHANGES[pattern] in ZNODES and root in ZNODES


@pytest.mark.parametrize("operation", [ALL, *set(Operation) - {Operation.TWO_PHASE_COMMIT}])
def test_operations_survive_a_round_trip(operation: int) -> None:
    acl = PLAIN._replace(operation=operation, permission=Permission.DENY)
    assert acls.read_acls(Resource.of(acl), acls.write_acls([acl])) == (acl,)


def test_acls_are_added_and_removed() -> None:
    """On top of others' ACLs, with the version of the znode that was read."""
    resource = Resource.of(PLAIN)
    path = acls.path_of(resource)
    other = PLAIN._replace(principal="User:al/ice ü")
    znode = Znode(acls.write_acls([PLAIN]), version=7)
    assert acls.operations(resource, znode, {PLAIN: True}) == ()
    assert acls.operations(resource, znode, {other: False}) == ()
    assert acls.operations(resource, None, {other: False}) == ()
    changed, _ = acls.operations(resource, znode, {other: True})
    assert changed == Set(path, acls.write_acls([PLAIN, other]), 7)
    changed, _ = acls.operations(resource, znode, {other: True, PLAIN: False})
    assert changed == Set(path, acls.write_acls([other]), 7)
    gone, told = acls.operations(resource, znode, {PLAIN: False})
    assert gone == Delete(path, 7)
    assert isinstance(told, Create) and told.data == b"TOPIC:plain"
    assert acls.read_acls(resource, b"") == () == acls.read_acls(resource, None)


@pytest.mark.parametrize(
    "bad",
    [
        b"{", b"[]", DENIED, b'{"version":2,"acls":[]}', b'{"version":1}',
        b'{"version":1,"acls":[{}]}',
        b'{"version":1,"acls":[{"principal":"bob","permissionType":"Allow","host":"*",'
        b'"operation":"Read"}]}',
        b'{"version":1,"acls":[{"principal":"User:bob","permissionType":"Perhaps","host":"*",'
        b'"operation":"Read"}]}',
        b'{"version":1,"acls":[{"principal":"User:bob","permissionType":"Allow","host":"*",'
        b'"operation":"Dance"}]}',
        b'{"version":1,"acls":[{"principal":"User:bob","permissionType":"Allow","host":"",'
        b'"operation":"Read"}]}',
    ],
)  # fmt: skip
def test_unreadable_acls_are_named_and_not_replaced(bad: bytes) -> None:
    resource = Resource.of(PLAIN)
    with pytest.raises(BadZnode, match="/kafka-acl/Topic/plain: "):
        acls.read_acls(resource, bad)
    with pytest.raises(BadZnode):
        acls.operations(resource, Znode(bad), {PLAIN: True})


@pytest.mark.parametrize("bad", [b"", b"plain", b"DANCE:plain", b"TOPIC:", b"\xff:x", None])
def test_unreadable_notifications_are_named(bad: bytes | None) -> None:
    with pytest.raises(BadZnode, match="/p: "):
        acls.read_change(Pattern.LITERAL, "/p", bad)


def test_notifications_of_older_brokers_are_read() -> None:
    assert acls.read_change(Pattern.LITERAL, "/p", b"TransactionalId:a:b") == (5, 3, "a:b")
    bad = b'{"version":1,"resourceType":"TOPIC","name":"a","patternType":"LITERAL"}'
    with pytest.raises(BadZnode, match="patternType"):
        acls.read_change(Pattern.PREFIXED, "/p", bad)


@pytest.mark.parametrize("name", ["a/b", ".", "..", "a\nb", "\x7f", "\ue000", "\U0001f600"])
def test_names_that_no_znode_has_are_refused(name: str) -> None:
    with pytest.raises(InvalidRequest, match="ZooKeeper cannot store"):
        acls.check_resource(PLAIN._replace(name=name))


def test_operations_that_kafka_3_9_lacks_are_refused() -> None:
    """It could not read the whole znode."""
    with pytest.raises(InvalidRequest, match="TWO_PHASE_COMMIT"):
        acls.check_resource(PLAIN._replace(operation=Operation.TWO_PHASE_COMMIT))


def test_a_resource_has_no_more_acls_than_a_znode_holds() -> None:
    many = {PLAIN._replace(principal=f"User:{n:030000}"): True for n in range(40)}
    assert sum(len(acl.principal) for acl in many) > ZNODE_BYTES_MAX
    with pytest.raises(InvalidRequest, match="bytes of ACLs"):
        acls.operations(Resource.of(PLAIN), None, many)


# ---- credentials and quotas --------------------------------------------------------------------

ALICE = ("users", "alice")


def test_a_credential_has_kafkas_bytes() -> None:
    path = entities.config_path(ALICE)
    found = users.read(ALICE, data(path))
    assert (found.quotas, found.problems) == ({}, ())
    ((mechanism, credential),) = found.credentials.items()
    assert (mechanism, credential.iterations, credential.salt) == (1, 4096, b"salt")
    text = users.write_credential(credential)
    assert entities.write_config({mechanism.sasl_name: text}) == data(path)
    assert load(ZNODES, 1).image.scram == {("alice", 1): credential}


@pytest.mark.parametrize(
    "text",
    ["", "salt=c2FsdA==", "salt=c2FsdA==,stored_key=AAAA,server_key=AAAA,iterations=4096",
     "salt=c2FsdA==,stored_key={key},server_key={key},iterations=1",
     "salt=c2FsdA==,stored_key={key},server_key={key},iterations=x",
     "salt=c2FsdA==,stored_key={key},server_key={key},iterations=99999999999",
     "salt=!,stored_key={key},server_key={key},iterations=4096",
     "salt=c2FsdA==,stored_key={key},server_key={key},iterations=4096,more=1",
     "salt=c2FsdA==,salt={key},server_key={key},iterations=4096"],
)  # fmt: skip
def test_an_unreadable_credential_lets_nobody_in_and_is_not_shown(text: str) -> None:
    """The others of its user, and their quotas, stay."""
    key = users.write_credential(credential_of(Mechanism.SCRAM_SHA_256, "x")).split(",")[1][11:]
    secret = text.replace("{key}", key)
    good = users.write_credential(credential_of(Mechanism.SCRAM_SHA_512, "x"))
    settings = {"SCRAM-SHA-256": secret, "SCRAM-SHA-512": good, "producer_byte_rate": "7"}
    found = users.read(ALICE, entities.write_config(settings))
    assert [*found.credentials] == [Mechanism.SCRAM_SHA_512]
    assert found.quotas == {"producer_byte_rate": 7.0}
    (problem,) = found.problems
    assert str(problem).startswith("/config/users/alice: SCRAM-SHA-256: ")
    assert key not in str(problem)


@pytest.mark.parametrize(
    "bad",
    [b'{"version":1,"config":{"SCRAM-SHA-256":["s3cret"]}}', b'"s3cret"', b"s3cret",
     b'{"version":"s3cret"}', b'{"version":1,"config":"s3cret"}',
     b'{"version":1,"config":{"SCRAM-SHA-256":"s3cret\\ud800"}}'],
)  # fmt: skip
def test_unreadable_settings_of_a_user_are_named_and_not_shown(bad: bytes) -> None:
    found = users.read(ALICE, bad)
    assert (found.credentials, found.quotas) == ({}, None)
    (problem,) = found.problems
    assert "/config/users/alice: " in str(problem)
    assert "s3cret" not in str(problem)
    with pytest.raises(BadZnode) as caught:
        protecting.settings_operations(ALICE, Znode(bad), {"producer_byte_rate": "1"})
    assert "s3cret" not in str(caught.value)


def test_only_users_have_credentials() -> None:
    credential = users.write_credential(credential_of(Mechanism.SCRAM_SHA_256, "x"))
    for entity in (("users", "<default>"), ("clients", "c"), ("users", "u", "clients", "c")):
        found = users.read(entity, entities.write_config({"SCRAM-SHA-256": credential}))
        assert (found.credentials, len(found.problems)) == ({}, 1)


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [("producer_byte_rate", 1_000_000.0, "1000000"), ("consumer_byte_rate", 2.0**53, str(2**53)),
     ("connection_creation_rate", 100.0000001, "100"), ("request_percentage", 12.5, "12.5"),
     ("request_percentage", 50, "50.0"), ("controller_mutation_rate", 1e7, "1.0E7"),
     ("controller_mutation_rate", 12345678.5, "1.23456785E7"),
     ("controller_mutation_rate", 0.0001, "1.0E-4"), ("request_percentage", 0.001, "0.001")],
)  # fmt: skip
def test_numbers_are_written_as_java_writes_them(name: str, value: float, text: str) -> None:
    assert users.quota_text(name, value) == text
    found = users.read(("clients", "c"), entities.write_config({name: text}))
    assert found.quotas == {name: pytest.approx(value)}


@pytest.mark.parametrize("text", ["x", "", "nan", "inf", "0", "-1"])
def test_a_rate_that_is_no_number_is_left_out(text: str) -> None:
    found = users.read(("clients", "c"), entities.write_config({"producer_byte_rate": text}))
    assert found.quotas == {}
    assert "/config/clients/c: producer_byte_rate: " in str(found.problems[0])


@pytest.mark.parametrize("path", [
    path for path in ZNODES if path.startswith("/config/") and path.split("/")[2] in entities.QUOTAS
    and b"rate" in (ZNODES[path].data or b"") + (ZNODES[path].data or b"").replace(b"cent", b"rate")
])  # fmt: skip
def test_quotas_have_kafkas_bytes(path: str) -> None:
    """Planned by the rules of a single node, for each entity that Kafka was given."""
    entity = tuple(path.removeprefix("/config/").split("/"))
    ((pairs, values),) = load({path: ZNODES[path], **parents(path)}, 1).image.quotas.items()
    image = protecting.planned_on(empty_image("", 1))
    change = QuotaChange(pairs, tuple(values.items()))
    records, _ = alter_client_quotas(image, QuotaChanges([change], False), lambda _: True)
    changes = protecting.changes_of(image, records)
    assert (changes.acls, [*changes.settings]) == ({}, [entity])
    written, told = protecting.settings_operations(entity, None, changes.settings[entity])
    assert written == Create(path, data(path))
    assert isinstance(told, Create)
    assert told.data == entities.write_change(entity)
    assert any(told.data == one.data for one in ZNODES.values()), "Kafka announced it like this"


def parents(path: str) -> dict[str, Znode]:
    parts = path.split("/")
    return {"/".join(parts[:end]): Znode(None) for end in range(2, len(parts))}


# ---- from records ------------------------------------------------------------------------------


def known(**parts: Any) -> MetadataImage:
    return protecting.planned_on(empty_image("", 1)._replace(**parts))


def test_records_of_acls_become_changes_of_resources() -> None:
    other = PLAIN._replace(operation=Operation.WRITE)
    image = known(acls={UUID(int=1): PLAIN})
    records, results = acl_rules.create_acls(image, [PLAIN, other, PRE])
    assert [one["error_code"] for one in results] == [0, 0, 0]
    changes = protecting.changes_of(image, records)
    assert changes.acls == {Resource.of(other): {other: True}, Resource.of(PRE): {PRE: True}}
    records, _ = acl_rules.delete_acls(image, [acl_rules.AclFilter()])
    assert protecting.changes_of(image, records).acls == {Resource.of(PLAIN): {PLAIN: False}}


def test_records_of_credentials_become_settings() -> None:
    """They keep a user's quotas, and the reverse."""
    name = "al/ice ü*"
    entity = ("users", "al%2Fice%20%C3%BC%2A")
    image = known()
    new = user_rules.Upsertion(name, 1, 4096, b"salt", b"salted")
    records, results = user_rules.alter_user_scram_credentials(image, [], [new])
    assert results[0]["error_code"] == 0
    changes = protecting.changes_of(image, records).settings
    znode = Znode(entities.write_config({"producer_byte_rate": "7"}), 3)
    written, _ = protecting.settings_operations(entity, znode, changes[entity])
    assert isinstance(written, Set) and written.version == 3
    found = users.read(entity, written.data)
    assert (found.quotas, [*found.credentials], found.problems) == (
        {"producer_byte_rate": 7.0}, [Mechanism.SCRAM_SHA_256], (),
    )  # fmt: skip
    image = known(scram=users.credentials(entity, found))
    records, _ = user_rules.alter_user_scram_credentials(image, [user_rules.Deletion(name, 1)], [])
    changes = protecting.changes_of(image, records).settings
    gone, _ = protecting.settings_operations(entity, Znode(written.data, 4), changes[entity])
    assert gone == Set(entities.config_path(entity), znode.data or b"", 4)
    assert protecting.settings_operations(entity, None, changes[entity]) == ()
