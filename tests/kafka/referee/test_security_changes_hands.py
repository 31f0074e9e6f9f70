"""A directory with ACLs, SCRAM credentials, quotas and delegation tokens goes from Apache Kafka to
us and back: each shows what the other left, and allows the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kafkalog.security.scram import Mechanism, salted_password
from kafkalog.server.broker import Broker
from kafkalog.wire import apis
from tests.support import authorization
from tests.support.authorization_requests import (
    ALLOW,
    DENY,
    DESCRIBE,
    GROUP,
    LITERAL,
    PREFIXED,
    READ,
    TOPIC,
    WRITE,
)
from tests.support.raw import Raw
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.java, pytest.mark.long, pytest.mark.timeout(300)]

USER = "nothing"
Acl = tuple[int, str, int, str, str, int, int]
FIRST: list[Acl] = [
    (TOPIC, "orders", LITERAL, f"User:{USER}", "*", WRITE, ALLOW),
    (TOPIC, "or", PREFIXED, "User:*", "10.0.0.1", READ, ALLOW),
    (TOPIC, "*", LITERAL, "User:bob", "*", READ, DENY),
    (GROUP, "gr ü", LITERAL, "User:b,ö=b", "*", READ, ALLOW),
]
SECOND: list[Acl] = [
    (TOPIC, "orders", LITERAL, f"User:{USER}", "*", READ, ALLOW),
    (TOPIC, "other", LITERAL, f"User:{USER}", "*", DESCRIBE, DENY),
]


def add_acls(raw: Raw, acls: list[Acl]) -> None:
    names = ("resource_type", "resource_name", "resource_pattern_type", "principal", "host",
             "operation", "permission_type")  # fmt: skip
    creations = [dict(zip(names, one, strict=True)) for one in acls]
    found = raw.call(apis.CREATE_ACLS, creations=creations)
    assert not any(one.error_code for one in found.results)


def remove_acls(raw: Raw, principal: str, operation: int) -> None:
    one = {"resource_type_filter": 1, "resource_name_filter": None, "pattern_type_filter": 1,
           "principal_filter": principal, "host_filter": None, "operation": operation,
           "permission_type": 1}  # fmt: skip
    (found,) = raw.call(apis.DELETE_ACLS, filters=[one]).filter_results
    assert not found.error_code and len(found.matching_acls) == 1


def add_user(raw: Raw, user: str, mechanism: int) -> None:
    salted = salted_password(Mechanism(mechanism), "pencil", user.encode(), 4096)
    row = {"name": user, "mechanism": mechanism, "iterations": 4096, "salt": user.encode(),
           "salted_password": salted}  # fmt: skip
    found = raw.call(apis.ALTER_USER_SCRAM_CREDENTIALS, deletions=[], upsertions=[row])
    assert not found.results[0].error_code


def set_quota(raw: Raw, user: str | None, key: str, value: float | None) -> None:
    op = {"key": key, "value": value or 0.0, "remove": value is None}
    entity = [{"entity_type": "user", "entity_name": user}]
    found = raw.call(apis.ALTER_CLIENT_QUOTAS, entries=[{"entity": entity, "ops": [op]}],
                     validate_only=False)  # fmt: skip
    assert not found.entries[0].error_code


def add_token(raw: Raw, owner: str) -> Any:
    renewers = [{"principal_type": "User", "principal_name": "bob"}]
    made = raw.call(apis.CREATE_DELEGATION_TOKEN, owner_principal_type="User",
                    owner_principal_name=owner, renewers=renewers, max_lifetime_ms=-1)  # fmt: skip
    assert not made.error_code
    return made


def shown(raw: Raw) -> dict[str, Any]:
    """Everything about security that a broker describes."""
    acls = raw.call(apis.DESCRIBE_ACLS, resource_type_filter=1, resource_name_filter=None,
                    pattern_type_filter=1, principal_filter=None, host_filter=None, operation=1,
                    permission_type=1)  # fmt: skip
    users = raw.call(apis.DESCRIBE_USER_SCRAM_CREDENTIALS, users=None)
    quotas = raw.call(apis.DESCRIBE_CLIENT_QUOTAS, components=[], strict=False)
    tokens = raw.call(apis.DESCRIBE_DELEGATION_TOKEN, owners=None)
    return {
        "acls": sorted(
            (one.resource_type, one.resource_name, one.pattern_type, acl.principal, acl.host,
             acl.operation, acl.permission_type) for one in acls.resources for acl in one.acls
        ),
        "users": sorted(
            (one.user, sorted((info.mechanism, info.iterations) for info in one.credential_infos))
            for one in users.results
        ),
        "quotas": sorted(
            (str([(part.entity_type, part.entity_name) for part in one.entity]),
             sorted((value.key, value.value) for value in one.values)) for one in quotas.entries
        ),
        "tokens": sorted(
            (one.token_id, bytes(one.hmac), one.principal_name, one.token_requester_principal_name,
             one.issue_timestamp, one.expiry_timestamp, one.max_timestamp,
             [each.principal_name for each in one.renewers]) for one in tokens.tokens
        ),
    }  # fmt: skip


def operations(address: str) -> dict[str, tuple[int, int]]:
    """The error and the user's authorized operations, by topic."""
    with authorization.connect(address, USER) as raw:
        found = raw.call(
            apis.METADATA, 10, topics=[{"name": name} for name in ("orders", "other")],
            allow_auto_topic_creation=False, include_topic_authorized_operations=True,
        )  # fmt: skip
    return {one.name: (one.error_code, one.topic_authorized_operations) for one in found.topics}


def test_security_changes_hands(kafka_jars: Path, tmp_path: Path) -> None:
    directory = tmp_path / "kafka" / "data"
    directory.parent.mkdir()
    with authorization.kafka(directory) as address:
        with authorization.connect(address, authorization.ADMIN) as raw:
            for topic in ("orders", "other"):
                assert not raw.create(topic).error_code
            add_acls(raw, FIRST)
            add_user(raw, "alice", 1)
            add_user(raw, "b,ö=b", 2)
            set_quota(raw, "alice", "producer_byte_rate", 1000.0)
            set_quota(raw, None, "request_percentage", 12.5)
            first_token = add_token(raw, "alice")
            wait_for(lambda: len(shown(raw)["tokens"]) == 1, "Kafka has the token")
            first = shown(raw)
        allowed = operations(address)
    assert [len(rows) for rows in first.values()] == [len(FIRST), 2, 2, 1]
    config = {**authorization.settings(), "listeners": "SASL_PLAINTEXT://127.0.0.1:0"}
    with Broker(directory, config=config) as broker:
        address = broker.bootstrap_servers
        with authorization.connect(address, authorization.ADMIN) as raw:
            assert shown(raw) == first
            assert operations(address) == allowed
            add_acls(raw, SECOND)
            remove_acls(raw, "User:bob", READ)
            add_user(raw, "carol", 1)
            set_quota(raw, "alice", "producer_byte_rate", None)
            set_quota(raw, "carol", "consumer_byte_rate", 7.0)
            second_token = add_token(raw, "carol")
            second = shown(raw)
        allowed_then = operations(address)
    assert [len(rows) for rows in second.values()] == [len(FIRST) + 1, 3, 2, 2]
    assert allowed_then != allowed
    assert {row[0] for row in second["tokens"]} == {first_token.token_id, second_token.token_id}
    with authorization.kafka(directory) as address:
        with authorization.connect(address, authorization.ADMIN) as raw:
            wait_for(lambda: shown(raw) == second, "Kafka has all of it")
        assert operations(address) == allowed_then
