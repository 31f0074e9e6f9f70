"""AlterConfigs, IncrementalAlterConfigs, DescribeConfigs: Kafka's rules, sources and errors."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalog.config.broker import BrokerConfig
from kafkalog.config.server import ServerConfig
from kafkalog.config.topic import TopicConfig
from kafkalog.metadata import configs
from kafkalog.metadata.image import MetadataImage, empty_image
from kafkalog.metadata.settings import topic_overrides
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode
from tests.unit.metadata.conftest import applied, request

SET, DELETE, APPEND, SUBTRACT = range(4)
TOPIC, BROKER = 2, 4
STATIC = BrokerConfig({"log.retention.hours": 2, "log.segment.bytes": 1_000_000})


@pytest.fixture
def image(with_topics: Callable[..., MetadataImage]) -> MetadataImage:
    return with_topics(a=1, b=1)


def incremental(
    image: MetadataImage, resource: tuple[int, str], *changes: tuple[str, int, str | None],
    validate_only: bool = False,
) -> tuple[MetadataImage, str]:  # fmt: skip
    """The image after one resource's change, and the error's name."""
    asked = {
        "resource_type": resource[0],
        "resource_name": resource[1],
        "configs": [
            {"name": name, "config_operation": operation, "value": value}
            for name, operation, value in changes
        ],
    }
    body = request(apis.INCREMENTAL_ALTER_CONFIGS, resources=[asked], validate_only=validate_only)
    records, results = configs.incremental_alter_configs(image, body, STATIC)
    apis.INCREMENTAL_ALTER_CONFIGS.encode_response(1, {"responses": results})
    (result,) = results
    assert (result["resource_type"], result["resource_name"]) == resource
    code = ErrorCode(result["error_code"]).name
    assert code == "NONE" or result["error_message"]
    assert code == "NONE" or not records
    return applied(image, records), code


def described(image: MetadataImage, resource: tuple[int, str], *keys: str, **more: Any) -> Any:
    """The error of DescribeConfigs for one resource, and its settings by name."""
    asked = {
        "resource_type": resource[0],
        "resource_name": resource[1],
        "configuration_keys": list(keys) or None,
    }
    body = request(apis.DESCRIBE_CONFIGS, resources=[asked], **more)
    results = configs.describe_configs(image, body, STATIC)
    apis.DESCRIBE_CONFIGS.encode_response(4, {"results": results})
    (result,) = results
    return result["error_code"], {entry["name"]: entry for entry in result["configs"]}


def test_a_broker_says_null_where_others_speak_for_a_setting() -> None:
    """As in Kafka: clients then get the addresses of the listeners themselves."""
    asked = request(apis.DESCRIBE_CONFIGS, resources=[{
        "resource_type": BROKER, "resource_name": "1",
        "configuration_keys": ["advertised.listeners"],
    }])  # fmt: skip
    (result,) = configs.describe_configs(empty_image("cluster", 1), asked, ServerConfig())
    (entry,) = result["configs"]
    assert (result["error_code"], entry["value"], entry["config_source"]) == (0, None, 5)


def test_settings_are_set_and_taken_away(image: MetadataImage) -> None:
    topic = (TOPIC, "a")
    image, code = incremental(image, topic, ("flush.ms", SET, "7"), ("retention.ms", SET, "-1"))
    assert code == "NONE"
    assert image.config(*topic) == {"flush.ms": "7", "retention.ms": "-1"}
    image, code = incremental(image, topic, ("flush.ms", DELETE, None))
    assert image.config(*topic) == {"retention.ms": "-1"}
    image, code = incremental(image, topic, ("flush.ms", DELETE, None))
    assert code == "NONE"
    after, code = incremental(image, topic, ("flush.ms", SET, "1"), validate_only=True)
    assert code == "NONE"
    assert after.configs == image.configs


def test_lists_grow_and_shrink(image: MetadataImage) -> None:
    topic = (TOPIC, "a")
    image, _ = incremental(image, topic, ("cleanup.policy", APPEND, "compact"))
    assert image.config(*topic) == {"cleanup.policy": "delete,compact"}
    image, _ = incremental(image, topic, ("cleanup.policy", APPEND, "compact,delete"))
    assert image.config(*topic) == {"cleanup.policy": "delete,compact"}
    image, _ = incremental(image, topic, ("cleanup.policy", SUBTRACT, "delete"))
    assert image.config(*topic) == {"cleanup.policy": "compact"}
    image, _ = incremental(image, (BROKER, ""), ("log.cleanup.policy", APPEND, "compact"))
    assert image.config(BROKER, "") == {"log.cleanup.policy": "delete,compact"}


@pytest.mark.parametrize(
    ("resource", "change", "code"),
    [
        ((TOPIC, "x"), ("flush.ms", SET, "1"), "UNKNOWN_TOPIC_OR_PARTITION"),
        ((TOPIC, "a"), ("flush.ms", SET, None), "INVALID_REQUEST"),
        ((TOPIC, "a"), ("flush.ms", APPEND, "1"), "INVALID_CONFIG"),
        ((TOPIC, "a"), ("flush.ms", SUBTRACT, "1"), "INVALID_CONFIG"),
        ((TOPIC, "a"), ("flush.ms", 9, "1"), "INVALID_REQUEST"),
        ((TOPIC, "a"), ("flush.ms", SET, "-2"), "INVALID_CONFIG"),
        ((TOPIC, "a"), ("nonsense", SET, "1"), "INVALID_CONFIG"),
        ((TOPIC, "a"), ("nonsense", APPEND, "1"), "INVALID_CONFIG"),
        ((TOPIC, "a"), ("cleanup.policy", APPEND, "burn"), "INVALID_CONFIG"),
        ((BROKER, "2"), ("log.flush.interval.ms", SET, "1"), "INVALID_REQUEST"),
        ((BROKER, "x"), ("log.flush.interval.ms", SET, "1"), "INVALID_REQUEST"),
        ((BROKER, "1"), ("log.flush.interval.ms", SET, "x"), "INVALID_REQUEST"),
        ((BROKER, "1"), ("log.retention.hours", SET, "1"), "INVALID_REQUEST"),
        ((BROKER, "1"), ("broker.id", SET, "7"), "INVALID_REQUEST"),
        ((BROKER, ""), ("log.dirs", SET, "/elsewhere"), "INVALID_REQUEST"),
        ((BROKER, ""), ("log.initial.task.delay.ms", SET, "1"), "INVALID_REQUEST"),
        ((BROKER, "1"), ("log.flush.interval.ms", SET, "1"), "NONE"),
        ((BROKER, ""), ("my.plugins.setting", SET, "1"), "NONE"),
        ((8, "1"), ("root", SET, "INFO"), "INVALID_REQUEST"),
        ((16, "m"), ("metrics", SET, "a., b.,a."), "NONE"),
        ((16, "m"), ("metrics", SET, ""), "NONE"),
        ((16, "m"), ("metrics", SET, "*"), "NONE"),
        ((16, "m"), ("metrics", SET, "a,,b"), "INVALID_CONFIG"),
        ((16, "m"), ("metrics", SET, None), "INVALID_REQUEST"),
        ((16, "m"), ("metrics", APPEND, "c"), "INVALID_CONFIG"),
        ((16, ""), ("metrics", SET, "a"), "INVALID_REQUEST"),
        ((16, "m"), ("nope", SET, "x"), "INVALID_REQUEST"),
        ((16, "m"), ("interval.ms", SET, "99"), "INVALID_REQUEST"),
        ((16, "m"), ("interval.ms", SET, "-1"), "INVALID_REQUEST"),
        ((16, "m"), ("interval.ms", SET, "3600001"), "INVALID_REQUEST"),
        ((16, "m"), ("interval.ms", SET, "3000000000"), "INVALID_CONFIG"),
        ((16, "m"), ("interval.ms", SET, "x"), "INVALID_CONFIG"),
        ((16, "m"), ("interval.ms", SET, " 100 "), "NONE"),
        ((16, "m"), ("interval.ms", SET, "3600000"), "NONE"),
        ((16, "m"), ("match", SET, "client_id= a.* , client_source_port=[0-9]+"), "NONE"),
        ((16, "m"), ("match", SET, ""), "NONE"),
        ((16, "m"), ("match", SET, "client_id"), "INVALID_CONFIG"),
        ((16, "m"), ("match", SET, "client_id="), "INVALID_CONFIG"),
        ((16, "m"), ("match", SET, "client_id=a=b"), "INVALID_CONFIG"),
        ((16, "m"), ("match", SET, "client_id=a("), "INVALID_CONFIG"),
        ((16, "m"), ("match", SET, "nope=x"), "INVALID_CONFIG"),
        ((16, "m"), ("match", SET, ","), "INVALID_CONFIG"),
        ((32, "g"), ("x", SET, "x"), "INVALID_REQUEST"),
        ((3, "g"), ("x", SET, "x"), "INVALID_REQUEST"),
    ],
)
def test_each_error_is_kafkas(
    image: MetadataImage,
    resource: tuple[int, str],
    change: tuple[str, int, str | None],
    code: str,
) -> None:
    after, found = incremental(image, resource, change)
    assert found == code
    assert (after.configs == {}) == (code != "NONE")


def test_values_that_do_not_go_together_are_refused(image: MetadataImage) -> None:
    topic = (TOPIC, "a")
    image, _ = incremental(image, topic, ("min.compaction.lag.ms", SET, "100"))
    _, code = incremental(image, topic, ("max.compaction.lag.ms", SET, "99"))
    assert code == "INVALID_CONFIG"


def test_the_same_setting_or_resource_twice_is_refused(image: MetadataImage) -> None:
    _, code = incremental(image, (TOPIC, "a"), ("flush.ms", SET, "1"), ("flush.ms", SET, "2"))
    assert code == "INVALID_REQUEST"
    one = {"resource_type": TOPIC, "resource_name": "a",
           "configs": [{"name": "flush.ms", "value": "1"}]}  # fmt: skip
    body = request(apis.ALTER_CONFIGS, resources=[one, one])
    records, results = configs.alter_configs(image, body, STATIC)
    assert [ErrorCode(r["error_code"]).name for r in results] == ["INVALID_REQUEST"] * 2
    assert not records


def test_alter_replaces_all_of_a_resource(image: MetadataImage) -> None:
    image, _ = incremental(
        image, (TOPIC, "a"), ("flush.ms", SET, "1"), ("preallocate", SET, "true")
    )
    resources = [
        {"resource_type": TOPIC, "resource_name": "a",
         "configs": [{"name": "retention.ms", "value": "9"}]},
        {"resource_type": TOPIC, "resource_name": "b",
         "configs": [{"name": "retention.ms", "value": "wrong"}]},
    ]  # fmt: skip
    records, results = configs.alter_configs(
        image, request(apis.ALTER_CONFIGS, resources=resources), STATIC
    )
    assert [ErrorCode(r["error_code"]).name for r in results] == ["NONE", "INVALID_CONFIG"]
    image = applied(image, records)
    assert image.configs == {(TOPIC, "a"): {"retention.ms": "9"}}


def test_a_setting_that_only_kafka_knows_stays(image: MetadataImage) -> None:
    fields = {"resource_type": TOPIC, "resource_name": "a", "name": "future.setting", "value": "1"}
    image = applied(image, [("ConfigRecord", fields)])
    image, code = incremental(image, (TOPIC, "a"), ("flush.ms", SET, "1"))
    assert code == "NONE"
    assert image.config(TOPIC, "a") == {"future.setting": "1", "flush.ms": "1"}
    _, told = described(image, (TOPIC, "a"), "future.setting")
    assert (told["future.setting"]["value"], told["future.setting"]["config_source"]) == ("1", 1)
    assert topic_overrides(image, "a", STATIC.topic) == {"flush.ms": 1}


# ---- describing ---------------------------------------------------------------------------------


def chain(entry: dict[str, Any]) -> list[tuple[str, str, int]]:
    return [(one["name"], one["value"], one["source"]) for one in entry["synonyms"]]


def test_a_topics_setting_names_all_its_sources(image: MetadataImage) -> None:
    image, _ = incremental(image, (BROKER, ""), ("log.retention.ms", SET, "30"))
    image, _ = incremental(image, (BROKER, "1"), ("log.retention.ms", SET, "20"))
    image, _ = incremental(image, (TOPIC, "a"), ("retention.ms", SET, "10"))
    code, told = described(image, (TOPIC, "a"), include_synonyms=True, include_documentation=True)
    assert code == 0
    assert set(told) == set(TopicConfig.table)
    assert chain(told["retention.ms"]) == [
        ("retention.ms", "10", 1),
        ("log.retention.ms", "20", 2),
        ("log.retention.ms", "30", 3),
        ("log.retention.ms", "7200000", 4),
        ("log.retention.ms", "-1", 5),
    ]
    assert told["retention.ms"]["value"] == "10"
    assert told["retention.ms"]["config_type"] == 5
    assert told["retention.ms"]["documentation"]
    assert chain(told["segment.bytes"])[0] == ("log.segment.bytes", "1000000", 4)
    assert chain(told["flush.ms"]) == [("log.flush.interval.ms", str(2**63 - 1), 5)]
    assert (told["preallocate"]["value"], told["preallocate"]["config_type"]) == ("false", 1)
    assert (told["cleanup.policy"]["value"], told["cleanup.policy"]["config_type"]) == ("delete", 7)
    # The described values are in effect.
    assert topic_overrides(image, "a", STATIC.topic)["retention.ms"] == 10
    assert topic_overrides(image, "b", STATIC.topic)["retention.ms"] == 20


def test_only_requested_settings(image: MetadataImage) -> None:
    _, told = described(image, (TOPIC, "a"), "flush.ms", "nonsense")
    assert list(told) == ["flush.ms"]
    assert told["flush.ms"]["synonyms"] == []
    assert told["flush.ms"]["documentation"] is None
    body = request(
        apis.DESCRIBE_CONFIGS,
        resources=[{"resource_type": TOPIC, "resource_name": "a", "configuration_keys": []}],
    )
    (result,) = configs.describe_configs(image, body, STATIC)
    assert len(result["configs"]) == len(TopicConfig.table)


def test_a_brokers_settings(image: MetadataImage) -> None:
    image, _ = incremental(
        image, (BROKER, ""), ("log.flush.interval.ms", SET, "30"), ("plugin.password", SET, "x")
    )
    image, _ = incremental(image, (BROKER, "1"), ("log.flush.interval.ms", SET, "20"))
    code, told = described(image, (BROKER, "1"), include_synonyms=True)
    assert code == 0
    assert [source for _, _, source in chain(told["log.flush.interval.ms"])] == [2, 3, 5]
    assert told["log.flush.interval.ms"]["value"] == "20"
    assert not told["log.flush.interval.ms"]["read_only"]
    assert told["log.initial.task.delay.ms"]["read_only"]
    assert told["log.cleaner.io.max.bytes.per.second"]["value"] == "1.7976931348623157E308"
    assert told["plugin.password"]["value"] is None
    assert told["plugin.password"]["is_sensitive"]
    assert chain(told["plugin.password"]) == [("plugin.password", None, 3)]
    code, told = described(image, (BROKER, ""))
    assert {name: entry["config_source"] for name, entry in told.items()} == {
        "log.flush.interval.ms": 3, "plugin.password": 3,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("resource", "code"),
    [
        ((TOPIC, "x"), "UNKNOWN_TOPIC_OR_PARTITION"),
        ((TOPIC, "a b"), "INVALID_TOPIC_EXCEPTION"),
        ((BROKER, "2"), "INVALID_REQUEST"),
        ((BROKER, "x"), "INVALID_REQUEST"),
        ((8, "1"), "INVALID_REQUEST"),
        ((1, "1"), "INVALID_REQUEST"),
        ((32, "g"), "NONE"),
    ],
)
def test_invalid_resources(image: MetadataImage, resource: tuple[int, str], code: str) -> None:
    found, told = described(image, resource)
    assert ErrorCode(found).name == code
    assert not told


# ---- any requests ---------------------------------------------------------------------------

NAMES = [
    "cleanup.policy", "flush.ms", "min.compaction.lag.ms", "max.compaction.lag.ms", "nonsense",
    "leader.replication.throttled.replicas",
]  # fmt: skip
VALUES = [None, "", "5", "delete", "compact", "compact,delete", "0:1", "*"]
CHANGES = st.lists(
    st.tuples(st.sampled_from(NAMES), st.integers(SET, SUBTRACT), st.sampled_from(VALUES)),
    max_size=3,
)


@given(st.lists(st.tuples(st.sampled_from("ab"), CHANGES), max_size=8))
def test_whatever_is_accepted_is_obeyed(
    steps: list[tuple[str, list[tuple[str, int, str | None]]]],
) -> None:
    """After any changes each topic's settings are valid, and equal to the described ones."""

    image = empty_image("cluster", 1)
    for name in "ab":
        fields = {
            "name": name,
            "topic_id": __import__("uuid").uuid5(__import__("uuid").NAMESPACE_OID, name),
        }
        image = applied(image, [("TopicRecord", fields)])
    for name, changes in steps:
        image, _ = incremental(image, (TOPIC, name), *changes)
        for topic in "ab":
            config = TopicConfig.of(topic_overrides(image, topic, STATIC.topic), STATIC.topic)
            _, told = described(image, (TOPIC, topic))
            for key, setting in TopicConfig.table.items():
                assert setting.parse(told[key]["value"]) == config[key]


def test_subscriptions_to_clients_metrics_are_described(image: MetadataImage) -> None:
    """As by Kafka 4.4: also one that does not exist, with the defaults."""
    at = (16, "m")
    code, entries = described(image, at, include_synonyms=True)
    assert (code, {name: (e["value"], e["config_source"], e["config_type"], e["synonyms"])
                   for name, e in entries.items()}) == (
        0, {"interval.ms": ("300000", 5, 3, []), "match": ("", 5, 7, []),
            "metrics": ("", 5, 7, [])},
    )  # fmt: skip
    image, _ = incremental(image, at, ("metrics", SET, "a.,b."))
    _, entries = described(image, at, include_synonyms=True, include_documentation=True)
    entry = entries["metrics"]
    assert (entry["value"], entry["config_source"], entry["read_only"]) == ("a.,b.", 7, False)
    assert entry["synonyms"] == [{"name": "metrics", "value": "a.,b.", "source": 7}]
    assert "beginnings" in entry["documentation"]
    image, _ = incremental(image, at, ("metrics", DELETE, None))
    assert image.configs == {}, "one without settings is gone"


def test_there_is_no_nameless_subscription(image: MetadataImage) -> None:
    assert described(image, (16, ""))[0] == ErrorCode.INVALID_REQUEST


def test_a_cluster_on_zookeeper_has_no_subscriptions() -> None:
    after, code = incremental(empty_image("cluster", 1), (16, "m"), ("metrics", SET, "a"))
    assert (code, after.configs) == ("INVALID_REQUEST", {})
