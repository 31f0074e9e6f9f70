"""The same requests to Apache Kafka and to our rules: the same errors, item by item."""

import contextlib
import uuid
from collections.abc import Callable
from typing import Any

import pytest

from kafkalog.client.link.connection import Connection
from kafkalog.client.link.transport import Address
from kafkalog.config.broker import BrokerConfig
from kafkalog.errors import KafkalogError
from kafkalog.kraft import plan as controller
from kafkalog.kraft.plan import Site
from kafkalog.metadata import configs
from kafkalog.metadata.image import MetadataImage
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode
from tests.support import apache
from tests.unit.metadata.conftest import DIRECTORY, applied, request

pytestmark = [pytest.mark.java, pytest.mark.slow, pytest.mark.timeout(300)]

ZERO = uuid.UUID(int=0)
SET, DELETE, APPEND, SUBTRACT = range(4)
Asked = tuple[Any, dict[str, Any]]
"""An API and a request."""
SITE = Site(DIRECTORY, BrokerConfig())


def topic(name: str, count: int = 1, factor: int = 1, **more: Any) -> dict[str, Any]:
    more.setdefault("configs", [])
    more["configs"] = [{"name": key, "value": value} for key, value in more["configs"]]
    more.setdefault("assignments", [])
    more["assignments"] = [
        {"partition_index": index, "broker_ids": ids} for index, ids in more["assignments"]
    ]
    return {"name": name, "num_partitions": count, "replication_factor": factor, **more}


def create(*topics: dict[str, Any], **more: Any) -> Asked:
    body = {"topics": list(topics), "timeout_ms": 10_000, "validate_only": False, **more}
    return apis.CREATE_TOPICS, body


def delete(*wanted: str | uuid.UUID | tuple[str, uuid.UUID] | None) -> Asked:
    def one(what: Any) -> dict[str, Any]:
        if isinstance(what, tuple):
            return {"name": what[0], "topic_id": what[1]}
        if isinstance(what, uuid.UUID):
            return {"name": None, "topic_id": what}
        return {"name": what, "topic_id": ZERO}

    return apis.DELETE_TOPICS, {"topics": [one(what) for what in wanted], "timeout_ms": 10_000}


def grow(*wanted: tuple[str, int, list[list[int]] | None]) -> Asked:
    topics = [
        {"name": name, "count": count,
         "assignments": None if ids is None else [{"broker_ids": one} for one in ids]}
        for name, count, ids in wanted
    ]  # fmt: skip
    body = {"topics": topics, "timeout_ms": 10_000, "validate_only": False}
    return apis.CREATE_PARTITIONS, body


def alter(
    *wanted: tuple[int, str, list[tuple[str, int, str | None]]],
) -> Asked:
    resources = [
        {"resource_type": kind, "resource_name": name, "configs": [
            {"name": key, "config_operation": operation, "value": value}
            for key, operation, value in changes]}
        for kind, name, changes in wanted
    ]  # fmt: skip
    return apis.INCREMENTAL_ALTER_CONFIGS, {"resources": resources, "validate_only": False}


def alter_all(kind: int, name: str, *changes: tuple[str, str | None]) -> Asked:
    one = {"resource_type": kind, "resource_name": name,
           "configs": [{"name": key, "value": value} for key, value in changes]}  # fmt: skip
    return apis.ALTER_CONFIGS, {"resources": [one], "validate_only": False}


def describe(*wanted: tuple[int, str]) -> Asked:
    resources = [
        {"resource_type": kind, "resource_name": name, "configuration_keys": ["flush.ms"]}
        for kind, name in wanted
    ]
    return apis.DESCRIBE_CONFIGS, {"resources": resources}


# Left out, because we differ on purpose: two colliding names in one request (Kafka accepts both),
# an invalid operation (UNKNOWN_SERVER_ERROR), an invalid resource type in DescribeConfigs (Kafka
# then refuses every item of the request).
REQUESTS: list[Asked] = [
    create(topic("a", 2), topic("a_b"), topic("c", -1, -1), topic("__consumer_offsets", 2)),
    create(topic("a")),
    create(topic("a.b")),
    create(topic("d"), topic("d")),
    create(topic("")),
    create(topic(".")),
    create(topic("..")),
    create(topic("x" * 249), validate_only=True),
    create(topic("x" * 250)),
    create(topic("sp ace")),
    create(topic("ü")),
    create(topic("__cluster_metadata")),
    create(topic("g", 0)),
    create(topic("g", -2)),
    create(topic("g", 1, 0)),
    create(topic("g", 1, -2)),
    create(topic("g", 1, 2)),
    create(topic("g", 0, 0)),
    create(topic("g", 10_001)),
    create(topic("g", -1, -1, assignments=[(0, [1]), (1, [1])])),
    create(topic("h", 1, -1, assignments=[(0, [1])])),
    create(topic("h", -1, 1, assignments=[(0, [1])])),
    create(topic("h", -1, -1, assignments=[(1, [1])])),
    create(topic("h", -1, -1, assignments=[(0, [1]), (2, [1])])),
    create(topic("h", -1, -1, assignments=[(0, [])])),
    create(topic("h", -1, -1, assignments=[(0, [1, 1])])),
    create(topic("h", -1, -1, assignments=[(0, [7])])),
    create(topic("h", -1, -1, assignments=[(0, [1]), (0, [1])])),
    create(topic("i", configs=[("flush.ms", "5"), ("cleanup.policy", "compact")])),
    create(topic("j", configs=[("flush.ms", "x")])),
    create(topic("j", configs=[("flush.ms", "-5")])),
    create(topic("j", configs=[("flush.ms", None)])),
    create(topic("j", configs=[("nonsense", "5")])),
    create(topic("j", configs=[("min.compaction.lag.ms", "9"), ("max.compaction.lag.ms", "8")])),
    create(topic("j", configs=[("cleanup.policy", "burn")])),
    create(topic("j"), validate_only=True),
    create(topic("a"), topic("j", 0), validate_only=True),
    grow(("a", 3, None)),
    grow(("a", 3, None)),
    grow(("a", 2, None)),
    grow(("a", 0, None)),
    grow(("a", -1, None)),
    grow(("a", 5, [[1]])),
    grow(("a", 4, [[1]])),
    grow(("a", 5, [[7]])),
    grow(("a", 5, [[]])),
    grow(("nobody", 5, None)),
    grow(("a", 6, None), ("a", 7, None), ("c", 4, None)),
    alter((2, "a", [("flush.ms", SET, "7")])),
    alter((2, "a", [("flush.ms", SET, "7")]), (2, "nobody", [("flush.ms", SET, "7")])),
    alter((2, "a", [("flush.ms", SET, None)])),
    alter((2, "a", [("flush.ms", APPEND, "1")])),
    alter((2, "a", [("flush.ms", SUBTRACT, "1")])),
    alter((2, "a", [("flush.ms", SET, "wrong")])),
    alter((2, "a", [("flush.ms", SET, "-9")])),
    alter((2, "a", [("flush.ms", SET, "1"), ("flush.ms", DELETE, None)])),
    alter((2, "a", [("nonsense", SET, "1")])),
    alter((2, "a", [("nonsense", DELETE, None)])),
    alter((2, "a", [("cleanup.policy", APPEND, "compact")])),
    alter((2, "a", [("cleanup.policy", APPEND, "burn")])),
    alter((2, "a", [("flush.ms", SET, "1")]), (2, "a", [("flush.ms", SET, "2")])),
    alter((2, "a", [("min.compaction.lag.ms", SET, "10")])),
    alter((2, "a", [("max.compaction.lag.ms", SET, "9")])),
    alter((2, "", [("flush.ms", SET, "1")])),
    alter((4, "", [("log.flush.interval.ms", SET, "50")])),
    alter((4, "1", [("log.flush.interval.ms", SET, "60")])),
    alter((4, "1", [("log.flush.interval.ms", SET, "wrong")])),
    alter((4, "1", [("log.retention.check.interval.ms", SET, "60")])),
    alter((4, "1", [("log.retention.hours", SET, "60")])),
    alter((4, "", [("somebodys.plugin", SET, "60")])),
    alter((4, "", [("log.cleanup.policy", APPEND, "compact")])),
    alter((4, "1", [("log.flush.interval.ms", APPEND, "60")])),
    alter((0, "1", [("x", SET, "60")])),
    alter((3, "1", [("x", SET, "60")])),
    alter_all(2, "a", ("flush.ms", "3"), ("retention.ms", "-1")),
    alter_all(2, "a", ("flush.ms", None)),
    alter_all(2, "a", ("flush.ms", "wrong")),
    alter_all(2, "a", ("flush.ms", "1"), ("flush.ms", "2")),
    alter_all(2, "nobody", ("flush.ms", "1")),
    alter_all(2, "a"),
    describe((2, "a"), (2, "nobody"), (2, "sp ace"), (4, "1"), (4, "")),
    describe((4, "7")),
    describe((4, "wrong")),
    describe((2, "")),
    delete("a_b", uuid.UUID(int=12345), "nobody", None),
    delete("a", "a"),
    delete(("a", uuid.UUID(int=999))),
    delete(""),
    delete("i"),
    create(topic("a_b")),
]
RESULTS = {
    apis.CREATE_TOPICS: "topics",
    apis.DELETE_TOPICS: "responses",
    apis.CREATE_PARTITIONS: "results",
    apis.INCREMENTAL_ALTER_CONFIGS: "responses",
    apis.ALTER_CONFIGS: "responses",
    apis.DESCRIBE_CONFIGS: "results",
}


def ours(image: MetadataImage, api: Any, body: Any) -> tuple[MetadataImage, list[dict[str, Any]]]:
    """The result of our rules for a request."""
    static = SITE.config
    if api is apis.DESCRIBE_CONFIGS:
        return image, configs.describe_configs(image, body, static)
    plans: dict[Any, Callable[[], Any]] = {
        apis.CREATE_TOPICS: lambda: controller.create_topics(image, body, SITE),
        apis.DELETE_TOPICS: lambda: controller.delete_topics(image, body, SITE),
        apis.CREATE_PARTITIONS: lambda: controller.create_partitions(image, body, SITE),
        apis.ALTER_CONFIGS: lambda: configs.alter_configs(image, body, static),
        apis.INCREMENTAL_ALTER_CONFIGS: lambda: configs.incremental_alter_configs(
            image, body, static
        ),
    }
    records, results = plans[api]()
    return applied(image, records), results


def codes(results: list[Any]) -> list[str]:
    """Each item's name and error, sorted."""
    found: list[str] = []
    for one in results:
        get = one.get if isinstance(one, dict) else lambda key, one=one: getattr(one, key, None)
        key = (get("resource_type"), get("resource_name"), get("name"))
        if get("name") is None and get("resource_name") is None:
            key = (*key, get("topic_id"))
        found.append(f"{key}: {ErrorCode(get('error_code')).name}")
    return sorted(found)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Any:
    try:
        apache.jars()
    except apache.Unavailable as reason:
        pytest.skip(str(reason))
    with apache.Broker(tmp_path_factory.mktemp("kafka") / "data") as running:
        yield running


def test_our_errors_are_kafkas(broker: Any, empty: MetadataImage) -> None:
    opened = [Connection(Address("127.0.0.1", broker.port))]
    image, wrong = empty, []
    for api, body in REQUESTS:
        version = min(api.max_version, 6 if api is apis.DELETE_TOPICS else api.max_version)
        try:
            theirs = opened[-1].call(api, body, version)
        except KafkalogError as error:
            wrong.append(f"{api.name} {body}: Kafka closed: {error}")
            opened.append(Connection(Address("127.0.0.1", broker.port)))
            continue
        expected = codes(getattr(theirs, RESULTS[api]))
        image, results = ours(image, api, request(api, version, **body))
        found = codes(results)
        if found != expected:
            said = [getattr(one, "error_message", "") for one in getattr(theirs, RESULTS[api])]
            wrong.append(f"{api.name} {body}: Kafka says {expected} {said}, we say {found}")
    assert not wrong, "\n".join(wrong)


def entries(result: Any) -> dict[str, tuple[Any, ...]]:
    """The description of each setting; without values and names of defaults, which differ."""
    found = {}
    for one in result:
        get = one.get if isinstance(one, dict) else lambda key, one=one: getattr(one, key)
        chain = [
            (s["name"], s["source"]) if isinstance(s, dict) else (s.name, s.source)
            for s in get("synonyms")
        ]
        given = [(name, source) for name, source in chain if source != 5]
        found[get("name")] = (
            get("config_source"), get("is_sensitive"), get("config_type"), given,
        )  # fmt: skip
    return found


def test_settings_are_described_as_kafkas(
    broker: Any, empty: MetadataImage, wait_until: Any
) -> None:
    """Source, type and synonyms of each setting that both know."""
    steps = [
        alter((4, "", [("log.cleanup.policy", DELETE, None), ("somebodys.plugin", DELETE, None)])),
        alter((4, "1", [("log.flush.interval.ms", DELETE, None)])),
        create(topic("described", configs=[("flush.ms", "5"), ("cleanup.policy", "compact")])),
        alter((4, "", [("log.flush.interval.ms", SET, "50"), ("log.retention.ms", SET, "8")])),
        alter((4, "1", [("log.retention.ms", SET, "9")])),
    ]
    asked = {
        "resources": [
            {"resource_type": kind, "resource_name": name, "configuration_keys": None}
            for kind, name in ((2, "described"), (4, "1"), (4, ""))
        ],
        "include_synonyms": True,
        "include_documentation": True,
    }
    kafka = Connection(Address("127.0.0.1", broker.port))
    image = empty
    for api, body in steps:
        kafka.call(api, body)
        image, _ = ours(image, api, request(api, **body))
    _, mine = ours(image, apis.DESCRIBE_CONFIGS, request(apis.DESCRIBE_CONFIGS, **asked))
    theirs: list[Any] = []

    def differences() -> list[str]:
        theirs[:] = kafka.call(apis.DESCRIBE_CONFIGS, asked).results
        wrong = []
        for theirs_of, mine_of in zip(theirs, mine, strict=True):
            kafkas, our = entries(theirs_of.configs), entries(mine_of["configs"])
            # Kafka sets min.insync.replicas itself, for eligible leader replicas.
            for name in sorted((set(kafkas) & set(our)) - {"min.insync.replicas"}):
                if kafkas[name] != our[name]:
                    wrong.append(
                        f"{theirs_of.resource_type} {name}: {kafkas[name]}, we {our[name]}"
                    )
        return wrong

    # Kafka's broker applies changes a moment after its answer, one setting after the other.
    with contextlib.suppress(AssertionError):
        wait_until(lambda: not differences(), "Kafka applies its own settings")
    assert differences() == []
    topics = [{one["name"] for one in mine[0]["configs"]}, {one.name for one in theirs[0].configs}]
    assert topics[0] >= topics[1]
