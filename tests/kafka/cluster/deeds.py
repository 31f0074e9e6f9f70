"""Changes to a cluster of Kafka 3.9, each of which creates another kind of znode."""

from __future__ import annotations

from typing import Any

from kafkalog.wire import apis
from tests.support.raw import Raw

SETTINGS = """
authorizer.class.name=kafka.security.authorizer.AclAuthorizer
allow.everyone.if.no.acl.found=true
super.users=User:ANONYMOUS
"""
USER = "al/ice ü*"
TOPIC_SETTINGS = {"retention.ms": "1000", "cleanup.policy": "compact,delete"}


def create(raw: Raw, topics: dict[str, list[list[int]]]) -> None:
    """Create topics, with the brokers of each partition."""
    rows = [
        {
            "name": name,
            "num_partitions": -1,
            "replication_factor": -1,
            "assignments": [
                {"partition_index": number, "broker_ids": brokers}
                for number, brokers in enumerate(partitions)
            ],
            "configs": [{"name": key, "value": value} for key, value in TOPIC_SETTINGS.items()]
            if name == "plain"
            else [],
        }
        for name, partitions in topics.items()
    ]
    done = raw.call(apis.CREATE_TOPICS, 5, topics=rows, timeout_ms=30_000, validate_only=False)
    assert not any(row.error_code for row in done.topics), done


def settings(raw: Raw) -> None:
    """Set settings of a broker and of all brokers; quotas; a credential; access rules."""
    rows = [
        {"resource_type": 4, "resource_name": name,
         "configs": [{"name": key, "config_operation": 0, "value": value}]}
        for name, key, value in [("1", "log.cleaner.threads", "2"),
                                 ("", "log.retention.ms", "86400000")]
    ]  # fmt: skip
    for row in rows:
        done: Any = raw.call(
            apis.INCREMENTAL_ALTER_CONFIGS, 1, resources=[row], validate_only=False
        )
        assert not done.responses[0].error_code, done
    for entity, key, value in [
        ({"user": USER}, "producer_byte_rate", 1e6),
        ({"client-id": None}, "consumer_byte_rate", 5e5),
        ({"user": "bob", "client-id": "c1"}, "request_percentage", 12.5),
        ({"user": None, "client-id": None}, "request_percentage", 50.0),
        ({"ip": "127.0.0.1"}, "connection_creation_rate", 100.0),
    ]:
        named = [{"entity_type": kind, "entity_name": name} for kind, name in entity.items()]
        ops = [{"key": key, "value": value, "remove": False}]
        done = raw.call(
            apis.ALTER_CLIENT_QUOTAS, 1, validate_only=False,
            entries=[{"entity": named, "ops": ops}],
        )  # fmt: skip
        assert not done.entries[0].error_code, done
    credential = {"name": "alice", "mechanism": 1, "iterations": 4096, "salt": b"salt",
                  "salted_password": bytes(32)}  # fmt: skip
    done = raw.call(apis.ALTER_USER_SCRAM_CREDENTIALS, 0, deletions=[], upsertions=[credential])
    assert not done.results[0].error_code, done
    rules = [
        {"resource_type": 2, "resource_name": name, "resource_pattern_type": pattern,
         "principal": "User:bob", "host": host, "operation": 3, "permission_type": permission}
        for name, pattern, host, permission in [("plain", 3, "*", 3), ("pre", 4, "127.0.0.1", 2)]
    ]  # fmt: skip
    done = raw.call(apis.CREATE_ACLS, 2, creations=rules)
    assert not any(row.error_code for row in done.results), done


def producer_id(raw: Raw) -> int:
    """The first id of the block that a broker allocates."""
    while True:
        done = raw.call(
            apis.INIT_PRODUCER_ID, 4, transactional_id=None, transaction_timeout_ms=60_000,
            producer_id=-1, producer_epoch=-1,
        )  # fmt: skip
        if not done.error_code:
            return int(done.producer_id)
        assert done.error_code == 14, done  # COORDINATOR_LOAD_IN_PROGRESS: no block yet
