"""Requests of clients to a controller: create, grow and delete topics, change settings."""

from __future__ import annotations

from typing import Any

import pytest

from kafkalog.controller.events import ClientRequest, Options
from kafkalog.metadata.image import BROKER, TOPIC
from kafkalog.metadata.requests import ResourceChange, SettingChange, SettingChanges
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode
from kafkalog.wire.tables.controller import STOP_REPLICA
from kafkalog.zookeeper import entities, tree
from tests.unit.controller.driven import Driven


@pytest.fixture
def of() -> Driven:
    found = Driven(Options("PLAINTEXT", seed=7))
    found.register(1, 2, 3)
    found.elect()
    return found


def create(of: Driven, *topics: dict[str, Any], **fields: Any) -> list[Any]:
    rows = [{"num_partitions": -1, "replication_factor": -1, "assignments": [], "configs": [],
             **topic} for topic in topics]  # fmt: skip
    token = f"create{len(of.replies)}"
    said = of.ask(token, apis.CREATE_TOPICS, 7, topics=rows, timeout_ms=1, **fields)
    return list(said.topics)


def chosen(*replicas: list[int]) -> list[dict[str, Any]]:
    return [{"partition_index": n, "broker_ids": ids} for n, ids in enumerate(replicas)]


def test_a_topic_is_made(of: Driven) -> None:
    configs = [{"name": "retention.ms", "value": "1000"}]
    topic = {"name": "t", "num_partitions": 4, "replication_factor": 3, "configs": configs}
    (row,) = create(of, topic)
    assert (row.error_code, row.num_partitions, row.replication_factor) == (0, 4, 3)
    assert ("retention.ms", "1000") in [(one.name, one.value) for one in row.configs]
    node = tree.read_topic("t", of.znodes[tree.topic_path("t")].data)
    assert node.topic_id == row.topic_id
    assert [len({*node.replicas[n]}) for n in range(4)] == [3] * 4
    config = of.znodes[entities.config_path(("topics", "t"))]
    assert entities.read_config(("topics", "t"), config.data) == {"retention.ms": "1000"}
    for number in range(4):
        assert of.state("t", number) == (node.replicas[number][0], 0, node.replicas[number])
    (again,) = create(of, topic)
    assert again.error_code == ErrorCode.TOPIC_ALREADY_EXISTS


def test_a_topic_is_placed_on_dead_brokers(of: Driven) -> None:
    """A partition waits until one of its brokers is alive."""
    (row,) = create(of, {"name": "t", "assignments": chosen([8, 9], [2, 8])})
    assert row.error_code == 0
    assert (of.state("t", 0), of.state("t", 1)) == (None, (2, 0, (2,)))
    of.register(9)
    assert of.state("t", 0) == (9, 0, (9,))


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        ({"name": "a/b"}, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ({"name": "x.y"}, ErrorCode.INVALID_TOPIC_EXCEPTION),  # x_y exists
        ({"name": "__cluster_metadata"}, ErrorCode.INVALID_REQUEST),
        ({"name": "t", "num_partitions": 0}, ErrorCode.INVALID_PARTITIONS),
        ({"name": "t", "num_partitions": 10_001}, ErrorCode.INVALID_PARTITIONS),
        ({"name": "t", "replication_factor": 0}, ErrorCode.INVALID_REPLICATION_FACTOR),
        ({"name": "t", "replication_factor": 4}, ErrorCode.INVALID_REPLICATION_FACTOR),
        ({"name": "t", "num_partitions": 1, "assignments": chosen([1])},
         ErrorCode.INVALID_REQUEST),
        ({"name": "t", "assignments": chosen([1, 1])}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ({"name": "t", "assignments": chosen([1], [])}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ({"name": "t", "assignments": chosen([1], [1, 2])},
         ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ({"name": "t", "assignments": [{"partition_index": 1, "broker_ids": [1]}]},
         ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ({"name": "t", "configs": [{"name": "nonsense", "value": "1"}]},
         ErrorCode.INVALID_CONFIG),
    ],
)  # fmt: skip
def test_refused_creations(of: Driven, topic: dict[str, Any], code: ErrorCode) -> None:
    assert [row.error_code for row in create(of, {"name": "x_y"})] == [0]
    (row,) = create(of, topic)
    assert row.error_code == code and row.error_message
    assert {path for path in of.znodes if path.startswith(f"{tree.TOPICS}/")} >= {
        tree.topic_path("x_y")
    }
    assert tree.topic_path("t") not in of.znodes


def test_only_whether_it_could_be(of: Driven) -> None:
    (row,) = create(of, {"name": "t"}, validate_only=True)
    assert (row.error_code, row.topic_id.int) == (0, 0)
    twice = create(of, {"name": "u"}, {"name": "u"})
    assert [(row.name, row.error_code) for row in twice] == [("u", ErrorCode.INVALID_REQUEST)]
    assert not any(path.startswith(f"{tree.TOPICS}/") for path in of.znodes)


def test_a_topic_grows(of: Driven) -> None:
    create(of, {"name": "t", "num_partitions": 2, "replication_factor": 2})

    def more(count: int, assignments: Any = None, name: str = "t") -> int:
        row = {"name": name, "count": count, "assignments": assignments}
        token = f"more{len(of.replies)}"
        said = of.ask(token, apis.CREATE_PARTITIONS, 3, topics=[row], timeout_ms=1)
        return int(said.results[0].error_code)

    assert more(5) == 0
    node = tree.read_topic("t", of.znodes[tree.topic_path("t")].data)
    assert [len(node.replicas[n]) for n in range(5)] == [2] * 5
    assert of.state("t", 4) == (node.replicas[4][0], 0, node.replicas[4])
    assert more(5) == more(2) == ErrorCode.INVALID_PARTITIONS
    assert more(6, [{"broker_ids": [3, 1]}]) == 0
    assert of.state("t", 5) == (3, 0, (3, 1))
    for wrong in ([3], [3, 3], [3, 9]):
        assert more(7, [{"broker_ids": wrong}]) == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert more(8, [{"broker_ids": [1, 2]}]) == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert more(3, None, "none") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_topic_goes(of: Driven) -> None:
    (row,) = create(of, {"name": "t"})
    asked = [{"name": None, "topic_id": row.topic_id}]
    said = of.ask("delete", apis.DELETE_TOPICS, 6, topics=asked, timeout_ms=1)
    assert [(one.name, one.error_code) for one in said.responses] == [("t", 0)]
    assert f"{tree.DELETE_TOPICS}/t" in of.znodes
    of.answer(lambda send: send.api is STOP_REPLICA, partition_errors=[])
    assert tree.topic_path("t") not in of.znodes
    assert f"{tree.DELETE_TOPICS}/t" not in of.znodes
    said = of.ask("again", apis.DELETE_TOPICS, 6, topics=asked, timeout_ms=1)
    assert said.responses[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
    said = of.ask("none", apis.DELETE_TOPICS, 5, topic_names=["t"], timeout_ms=1)
    assert said.responses[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert [one.error_code for one in create(of, {"name": "t"})] == [0]


def test_settings_are_changed_and_told(of: Driven) -> None:
    create(of, {"name": "t"})

    def alter(*resources: ResourceChange) -> list[int]:
        token = f"alter{len(of.replies)}"
        api = apis.INCREMENTAL_ALTER_CONFIGS
        of.events.append(ClientRequest(token, api, SettingChanges([*resources]), 1))
        of.run()
        return [row["error_code"] for row in of.replies[token]["responses"]]

    one = ResourceChange(TOPIC, "t", [SettingChange("retention.ms", "5")])
    two = ResourceChange(BROKER, "2", [SettingChange("log.retention.ms", "6")])
    wrong = ResourceChange(TOPIC, "t2", [SettingChange("retention.ms", "5")])
    assert alter(one, two, wrong) == [0, 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert alter(one, one) == [ErrorCode.INVALID_REQUEST] * 2
    topic, broker = (
        entities.read_config(entity, of.znodes[entities.config_path(entity)].data)
        for entity in (("topics", "t"), ("brokers", "2"))
    )
    assert (topic, broker) == ({"retention.ms": "5"}, {"log.retention.ms": "6"})
    news = [path for path in of.znodes if path.startswith(entities.CHANGE)]
    assert [entities.read_change(path, of.znodes[path].data) for path in sorted(news)] == [
        ("topics", "t"), ("brokers", "2"),
    ]  # fmt: skip


def test_features_are_refused_one_by_one(of: Driven) -> None:
    row = {"feature": "metadata.version", "max_version_level": 9, "upgrade_type": 1}
    said = of.ask("old", apis.UPDATE_FEATURES, 1, feature_updates=[row])
    assert (said.error_code, said.results[0].error_code) == (0, ErrorCode.INVALID_REQUEST)
    said = of.ask("new", apis.UPDATE_FEATURES, 2, feature_updates=[row])
    assert said.error_code == ErrorCode.INVALID_REQUEST
