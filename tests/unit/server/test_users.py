"""SCRAM credentials: changed and described over the wire, kept in the metadata."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)

import kafkalog
from kafkalog import aio, errors
from kafkalog.directory.manager import Manager
from kafkalog.kraft.kraftlog import MetadataLog
from kafkalog.kraft.snapshots import list_snapshots
from kafkalog.security.scram import Mechanism, credential_of, salted_password
from kafkalog.server.broker import Broker, node_of
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode
from tests.support.raw import Raw

SHA_256, SHA_512 = Mechanism.SCRAM_SHA_256, Mechanism.SCRAM_SHA_512
OK = ErrorCode.NONE
TWICE = "A user credential cannot be altered twice in the same request"


def upsertion(user: str, mechanism: int = 1, iterations: int = 4096, **more: Any) -> Any:
    salted = salted_password(SHA_256, "secret", b"salt", 4096)
    return {"name": user, "mechanism": mechanism, "iterations": iterations, "salt": b"salt",
            "salted_password": salted, **more}  # fmt: skip


def deletion(user: str, mechanism: int = 1) -> dict[str, Any]:
    return {"name": user, "mechanism": mechanism}


def alter(raw: Raw, *changes: dict[str, Any]) -> dict[str, tuple[int, str | None]]:
    """Change credentials; the error of each user."""
    found = raw.call(
        apis.ALTER_USER_SCRAM_CREDENTIALS,
        deletions=[one for one in changes if "salt" not in one],
        upsertions=[one for one in changes if "salt" in one],
    )
    assert len({one.user for one in found.results}) == len(found.results)
    return {one.user: (one.error_code, one.error_message) for one in found.results}


def described(raw: Raw, *users: str, every: bool = False) -> dict[str, Any]:
    wanted = None if every else [{"name": user} for user in users]
    found = raw.call(apis.DESCRIBE_USER_SCRAM_CREDENTIALS, users=wanted)
    assert (found.error_code, found.error_message) == (OK, "")
    return {
        one.user: one.error_code or [(i.mechanism, i.iterations) for i in one.credential_infos]
        for one in found.results
    }


def test_a_credential_is_added_replaced_and_deleted(raw: Raw, broker: Broker) -> None:
    """The metadata has exactly what the password gives, and an answer never shows a key."""
    assert alter(raw, upsertion("alice"), upsertion("b,=ü", 2, 16384)) == {
        "alice": (OK, None), "b,=ü": (OK, None)
    }  # fmt: skip
    image = node_of(broker).image
    assert image.scram["alice", SHA_256] == credential_of(SHA_256, "secret", 4096, b"salt")
    assert described(raw, every=True) == {"alice": [(1, 4096)], "b,=ü": [(2, 16384)]}
    assert described(raw, "alice") == {"alice": [(1, 4096)]}
    assert alter(raw, upsertion("alice", 2)) == {"alice": (OK, None)}
    assert alter(raw, upsertion("alice", 1, 5000)) == {"alice": (OK, None)}
    assert described(raw, "alice") == {"alice": [(1, 5000), (2, 4096)]}
    assert alter(raw, deletion("alice"), deletion("b,=ü", 2)) == {
        "alice": (OK, None), "b,=ü": (OK, None)
    }  # fmt: skip
    assert described(raw) == {"alice": [(2, 4096)]}


REFUSED = {
    "missing": ([deletion("x")], ErrorCode.RESOURCE_NOT_FOUND),
    "other mechanism": ([deletion("known", 2)], ErrorCode.RESOURCE_NOT_FOUND),
    "few": ([upsertion("x", iterations=4095)], ErrorCode.UNACCEPTABLE_CREDENTIAL),
    "many": ([upsertion("x", iterations=16385)], ErrorCode.UNACCEPTABLE_CREDENTIAL),
    "negative": ([upsertion("x", iterations=-1)], ErrorCode.UNACCEPTABLE_CREDENTIAL),
    "no name": ([upsertion("")], ErrorCode.UNACCEPTABLE_CREDENTIAL),
    "no name to delete": ([deletion("")], ErrorCode.UNACCEPTABLE_CREDENTIAL),
    "mechanism 0": ([upsertion("x", 0)], ErrorCode.UNSUPPORTED_SASL_MECHANISM),
    "mechanism 3": ([deletion("x", 3)], ErrorCode.UNSUPPORTED_SASL_MECHANISM),
    "empty salted password": ([upsertion("x", salted_password=b"")],
                              ErrorCode.UNACCEPTABLE_CREDENTIAL),
    "long salt": ([upsertion("x", salt=b"s" * 1025)], ErrorCode.UNACCEPTABLE_CREDENTIAL),
    "twice": ([upsertion("x"), upsertion("x")], ErrorCode.DUPLICATE_RESOURCE),
    "two mechanisms": ([upsertion("x"), upsertion("x", 2)], ErrorCode.DUPLICATE_RESOURCE),
    "deleted and added": ([deletion("known"), upsertion("known")], ErrorCode.DUPLICATE_RESOURCE),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_a_change_that_is_refused_changes_nothing(raw: Raw, broker: Broker, what: str) -> None:
    """With Kafka's code and a message, once per user; other users of the request change."""
    assert alter(raw, upsertion("known"))["known"][0] == OK
    changes, code = REFUSED[what]
    before = node_of(broker).image.scram
    found = alter(raw, *changes, upsertion("other"))
    user = changes[0]["name"]
    assert found.pop("other") == (OK, None)
    assert list(found) == [user] and found[user][0] == code and found[user][1]
    after = dict(node_of(broker).image.scram)
    assert after.pop(("other", 1))
    assert after == before


def test_describing_unknown_users(raw: Raw) -> None:
    """A user without a credential, and one that was named twice."""
    alter(raw, upsertion("alice"))
    assert described(raw, "alice", "bob") == {
        "alice": [(1, 4096)], "bob": ErrorCode.RESOURCE_NOT_FOUND
    }  # fmt: skip
    assert described(raw, "alice", "alice") == {"alice": ErrorCode.DUPLICATE_RESOURCE}


def test_credentials_survive_a_restart_and_a_snapshot(make_broker: Any) -> None:
    """Byte for byte the same in both; and the directory is served."""
    with make_broker() as broker, Raw(broker.bootstrap_servers) as raw:
        alter(raw, upsertion("alice"), upsertion("bob", 2))
        before = node_of(broker).image.scram
    for _ in range(2):
        with make_broker() as broker:
            assert node_of(broker).image.scram == before
            path = broker.store.path
        with Manager(path) as manager, MetadataLog.open(manager) as metadata:
            assert metadata.take_snapshot() is not None
            assert len(list_snapshots(f"{path}/__cluster_metadata-0")) >= 1


def test_nothing_shows_a_key(raw: Raw, broker: Broker) -> None:
    """Neither the image nor a credential in text has one."""
    alter(raw, upsertion("alice"))
    image = node_of(broker).image
    credential = image.scram["alice", 1]
    for key in credential[:3]:
        assert repr(key)[2:-1] not in repr(image)


# ---- clients -----------------------------------------------------------------------------------


@pytest.fixture
def admin(broker: Broker) -> Iterator[kafkalog.Admin]:
    with kafkalog.Admin(broker.bootstrap_servers) as made:
        yield made


def test_our_admin(admin: kafkalog.Admin, broker: Broker) -> None:
    """Passwords are salted in the client; plain tuples will do."""
    changes = [
        kafkalog.UserScramCredentialUpsertion("alice", "SCRAM-SHA-512", "secret", 8192, b"pepper"),
        ("bob", "SCRAM-SHA-256", "other"),
    ]
    assert admin.alter_user_scram_credentials(changes).check() == {"alice": None, "bob": None}
    image = node_of(broker).image
    assert image.scram["alice", 2] == credential_of(SHA_512, "secret", 8192, b"pepper")
    assert len(image.scram["bob", 1].salt) == 26
    info = kafkalog.ScramCredentialInfo
    found = admin.describe_user_scram_credentials()
    assert dict(found) == {"alice": (info("SCRAM-SHA-512", 8192),),
                           "bob": (info("SCRAM-SHA-256", 4096),)}  # fmt: skip
    assert dict(admin.describe_user_scram_credentials([])) == {}
    gone = admin.alter_user_scram_credentials([
        kafkalog.UserScramCredentialDeletion("bob", "SCRAM-SHA-256"), ("eve", "SCRAM-SHA-256"),
        ("alice", "SCRAM-SHA-256", "x", 7),
    ])  # fmt: skip
    assert list(gone.done) == ["bob"]
    assert {user: problem.code for user, problem in gone.errors.items()} == {
        "eve": ErrorCode.RESOURCE_NOT_FOUND, "alice": ErrorCode.UNACCEPTABLE_CREDENTIAL
    }  # fmt: skip
    with pytest.raises(errors.KafkalogError, match="'bob': RESOURCE_NOT_FOUND"):
        admin.describe_user_scram_credentials(["bob"])["bob"]


@pytest.mark.parametrize(("change", "why"), [
    (("a", "SCRAM-SHA-1", "hunter2"), "SCRAM-SHA-1"), (("a", "PLAIN"), "PLAIN"),
    (("a", "SCRAM-SHA-256", ""), "password"), (("a", "SCRAM-SHA-256", b"hunter2"), "password"),
    ("hunter2", "alterations"), (("hunter2",), "alterations"),
    (("a", "SCRAM-SHA-256", "hunter2", 0), "iterations"),
    (("a", "SCRAM-SHA-256", "hunter2", 4096, 7), "salt"),
])  # fmt: skip
def test_our_admin_refuses_arguments(admin: kafkalog.Admin, change: Any, why: str) -> None:
    """The message names the argument and has no password."""
    with pytest.raises(errors.ArgumentError, match=why) as failed:
        admin.alter_user_scram_credentials([change])
    assert "hunter2" not in str(failed.value)
    assert "hunter2" not in repr(kafkalog.UserScramCredentialUpsertion("a", "b", "hunter2"))


def test_our_admin_for_asyncio(broker: Broker) -> None:
    """Both calls are awaited."""

    async def run() -> Any:
        async with aio.Admin(broker.bootstrap_servers) as admin:
            await admin.alter_user_scram_credentials([("alice", "SCRAM-SHA-256", "secret")])
            return await admin.describe_user_scram_credentials(["alice"])

    assert list(asyncio.run(run())["alice"]) == [("SCRAM-SHA-256", 4096)]


def test_confluent_kafka(broker: Broker) -> None:
    """librdkafka salts a password as we do."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 8192)
    change = UserScramCredentialUpsertion("alice", info, b"secret", b"salt")
    admin.alter_user_scram_credentials([change])["alice"].result()
    found = node_of(broker).image.scram["alice", 1]
    assert found == credential_of(SHA_256, "secret", 8192, b"salt")
    (row,) = (
        admin.describe_user_scram_credentials(["alice"])["alice"].result().scram_credential_infos
    )
    assert (row.mechanism, row.iterations) == (ScramMechanism.SCRAM_SHA_256, 8192)
    gone = UserScramCredentialDeletion("alice", ScramMechanism.SCRAM_SHA_256)
    admin.alter_user_scram_credentials([gone])["alice"].result()
    assert node_of(broker).image.scram == {}
