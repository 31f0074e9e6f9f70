"""Bytes that never change: messages as Apache Kafka 4.1.1 writes and reads them.

`test_kafkas_codec.py` checks these against Kafka itself; here they are checked without it.
"""

from __future__ import annotations

from typing import Any, NamedTuple
from uuid import UUID

import pytest

from kafkalog.wire import apis, records
from kafkalog.wire.api import Api
from tests.unit.wire.strategies import plain

ID = UUID(int=0x0102030405060708090A0B0C0D0E0F10)
ID_HEX = ID.bytes.hex()
BROKER = {"node_id": 1, "host": "h", "port": 9092}
ONE = {"leader_id": 1, "replica_nodes": [1], "isr_nodes": [1]}


class Golden(NamedTuple):
    """A message, the fields given to the encoder, and its bytes."""

    api: Api
    kind: str
    version: int
    fields: dict[str, Any]
    data: str


GOLDEN = [
    Golden(
        apis.METADATA, "request", 12,
        {"topics": [{"topic_id": ID, "name": None}], "allow_auto_topic_creation": False},
        "02" + ID_HEX + "00" + "00" + "00" + "00" + "00",
    ),
    Golden(
        apis.METADATA, "response", 1,
        {
            "brokers": [BROKER],
            "controller_id": 1,
            "topics": [{"name": "t", "partitions": [ONE]}],
        },
        "00000001" + "00000001" + "000168" + "00002384" + "ffff" + "00000001"
        "00000001" + "0000" + "000174" + "00"
        "00000001" + "0000" + "00000000" + "00000001" + "0000000100000001" * 2,
    ),
    Golden(
        apis.METADATA, "response", 12,
        {
            "brokers": [BROKER],
            "cluster_id": "c",
            "controller_id": 1,
            "topics": [{"name": "t", "topic_id": ID, "partitions": [{**ONE, "leader_epoch": 3}]}],
        },
        "00000000" + "02" + "00000001" + "0268" + "00002384" + "00" + "00" + "0263" + "00000001"
        "02" + "0000" + "0274" + ID_HEX + "00"
        "02" + "0000" + "00000000" + "00000001" + "00000003" + "0200000001" * 2 + "01" + "00"
        "80000000" + "00" + "00",
    ),
    Golden(
        apis.API_VERSIONS, "response", 3,
        {
            "api_keys": [{"api_key": 18, "min_version": 0, "max_version": 4}],
            "finalized_features_epoch": 9,
            "finalized_features": [
                {"name": "metadata.version", "max_version_level": 27, "min_version_level": 27}
            ],
        },
        "0000" + "02" + "0012" + "0000" + "0004" + "00" + "00000000"
        "02" + "0108" + "0000000000000009"
        "0217" + "02" + "11" + b"metadata.version".hex() + "001b" + "001b" + "00",
    ),
    Golden(
        apis.FETCH, "request", 12,
        {
            "max_wait_ms": 500,
            "min_bytes": 1,
            "topics": [
                {
                    "topic": "t",
                    "partitions": [{"fetch_offset": 7, "partition_max_bytes": 1 << 20}],
                }
            ],
        },
        "ffffffff" + "000001f4" + "00000001" + "7fffffff" + "00" + "00000000" + "ffffffff"
        "02" + "0274" + "02" + "00000000" + "ffffffff" + "0000000000000007" + "ffffffff"
        "ffffffffffffffff" + "00100000" + "00" + "00" + "01" + "01" + "00",
    ),
    Golden(
        apis.FETCH, "response", 12,
        {
            "responses": [
                {
                    "topic": "t",
                    "partitions": [
                        {
                            "high_watermark": 8,
                            "last_stable_offset": 8,
                            "log_start_offset": 0,
                            "aborted_transactions": None,
                            "current_leader": {"leader_id": 2, "leader_epoch": 5},
                            "records": b"batch",
                        }
                    ],
                }
            ]
        },
        "00000000" + "0000" + "00000000" + "02" + "0274" + "02" + "00000000" + "0000"
        "0000000000000008" + "0000000000000008" + "0000000000000000" + "00" + "ffffffff"
        "06" + b"batch".hex() + "01" + "0109" + "00000002" + "00000005" + "00" + "00" + "00",
    ),
    Golden(
        apis.PRODUCE, "request", 9,
        {
            "acks": -1,
            "timeout_ms": 30_000,
            "topic_data": [
                {"name": "t", "partition_data": [{"index": 0, "records": b"batch"}]}
            ],
        },
        "00" + "ffff" + "00007530" + "02" + "0274" + "02" + "00000000"
        "06" + b"batch".hex() + "00" + "00" + "00",
    ),
    Golden(
        apis.JOIN_GROUP, "request", 5,
        {
            "group_id": "g",
            "session_timeout_ms": 10_000,
            "rebalance_timeout_ms": 300_000,
            "group_instance_id": None,
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": b"\0\1"}],
        },
        "000167" + "00002710" + "000493e0" + "0000" + "ffff" + "0008" + b"consumer".hex()
        + "00000001" + "0005" + b"range".hex() + "00000002" + "0001",
    ),
]  # fmt: skip


@pytest.mark.parametrize("golden", GOLDEN, ids=lambda g: f"{g.api.name}-{g.kind}-{g.version}")
def test_golden_messages(golden: Golden) -> None:
    message = golden.api.request if golden.kind == "request" else golden.api.response
    assert message.encode(golden.version, golden.fields).hex() == golden.data
    found, end = message.decode(golden.version, bytes.fromhex(golden.data))
    assert end == len(golden.data) // 2
    assert holds(plain(found, message.fields, golden.version), golden.fields)


def holds(found: Any, given: Any) -> bool:
    """True if all given fields are found."""
    if isinstance(given, dict):
        return all(holds(found[name], value) for name, value in given.items())
    if isinstance(given, list):
        return len(found) == len(given) and all(map(holds, found, given))
    return bool(found == given)


def test_a_golden_metadata_record() -> None:
    fields = {
        "partition_id": 0, "topic_id": ID, "replicas": [1], "isr": [1], "leader": 1,
        "leader_epoch": 0, "partition_epoch": 0, "directories": [ID],
    }  # fmt: skip
    value = records.METADATA.encode("PartitionRecord", 1, fields)
    assert value.hex() == (
        "010301" + "00000000" + ID_HEX + "0200000001" * 2 + "01" + "01" + "00000001"
        "00000000" + "00000000" + "02" + ID_HEX + "00"
    )
    assert records.METADATA.decode(value)[2].directories == [ID]


def test_a_member_without_its_classic_part() -> None:
    """Null in a tagged field is a varint 0, as Kafka 4.1 wrote it for a group of type consumer."""
    value = bytes.fromhex(
        "0000" + "00" + "00" + "0361" + "62" + "0268" + "0202" + "74" + "00" + "00007530" + "00"
        "01" + "00" + "01" + "00"
    )
    version, found = records.OFFSETS.decode_value("ConsumerGroupMemberMetadata", value)
    assert found.classic_member_metadata is None
    assert (found.client_id, found.subscribed_topic_names) == ("ab", ["t"])
    encode = records.OFFSETS.encode_value
    assert encode("ConsumerGroupMemberMetadata", version, found) == value
    default = encode("ConsumerGroupMemberMetadata", version, {"server_assignor": None})
    version, found = records.OFFSETS.decode_value("ConsumerGroupMemberMetadata", default)
    assert found.classic_member_metadata.session_timeout_ms == 0
