"""CreateTopics, DeleteTopics, CreatePartitions and related requests: every error of Kafka, one
result per item."""

import string
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalog.config.broker import BrokerConfig
from kafkalog.kraft import plan as controller
from kafkalog.kraft.plan import Site
from kafkalog.metadata.image import MetadataImage, empty_image
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode
from tests.unit.metadata.conftest import DIRECTORY, applied, request

ZERO = uuid.UUID(int=0)


def topic(name: str, count: int = 1, factor: int = 1, **more: Any) -> dict[str, Any]:
    return {"name": name, "num_partitions": count, "replication_factor": factor, **more}


def assigned(*brokers: tuple[int, list[int]]) -> list[dict[str, Any]]:
    return [{"partition_index": index, "broker_ids": ids} for index, ids in brokers]


def create(image: MetadataImage, site: Site, *topics: dict[str, Any], **more: Any) -> Any:
    return controller.create_topics(
        image, request(apis.CREATE_TOPICS, topics=list(topics), **more), site
    )


def codes(results: list[dict[str, Any]]) -> list[str]:
    return [ErrorCode(result["error_code"]).name for result in results]


# ---- creating --------------------------------------------------------------------------------


def test_a_topic_is_made_with_its_settings(empty: MetadataImage, site: Site) -> None:
    settings = [{"name": "retention.ms", "value": "5000"}]
    plan = create(empty, site, topic("orders", 3, configs=settings))
    image = applied(empty, plan.records)
    made = image.topics["orders"]
    assert sorted(made.partitions) == [0, 1, 2]
    assert image.names == {made.id: "orders"}
    for partition in made.partitions.values():
        assert (partition.leader, partition.isr, partition.leader_epoch) == (1, (1,), 0)
        assert partition.directories == (DIRECTORY,)
    assert image.config(2, "orders") == {"retention.ms": "5000"}
    (result,) = plan.results
    assert (result["num_partitions"], result["replication_factor"]) == (3, 1)
    assert result["topic_id"] == made.id
    told = {config["name"]: (config["value"], config["config_source"])
            for config in result["configs"]}  # fmt: skip
    assert told["retention.ms"] == ("5000", 1)
    assert told["segment.bytes"] == ("1073741824", 5)
    apis.CREATE_TOPICS.encode_response(7, {"topics": plan.results})


def test_defaults_stand_for_minus_one(empty: MetadataImage) -> None:
    from kafkalog.config.server import ServerConfig

    config = ServerConfig({"num.partitions": 4, "default.replication.factor": 3})
    plan = create(empty, Site(DIRECTORY, config), topic("orders", -1, -1))
    assert plan.results[0]["num_partitions"] == 4
    assert plan.results[0]["replication_factor"] == 1


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        (topic("", 1), "INVALID_TOPIC_EXCEPTION"),
        (topic(".", 1), "INVALID_TOPIC_EXCEPTION"),
        (topic("..", 1), "INVALID_TOPIC_EXCEPTION"),
        (topic("a" * 250), "INVALID_TOPIC_EXCEPTION"),
        (topic("a b"), "INVALID_TOPIC_EXCEPTION"),
        (topic("ünder"), "INVALID_TOPIC_EXCEPTION"),
        (topic("a.b"), "INVALID_TOPIC_EXCEPTION"),  # collides with a_b
        (topic("a_b"), "TOPIC_ALREADY_EXISTS"),
        (topic("__cluster_metadata"), "INVALID_REQUEST"),
        (topic("new", 0), "INVALID_PARTITIONS"),
        (topic("new", -2), "INVALID_PARTITIONS"),
        (topic("new", 1, 0), "INVALID_REPLICATION_FACTOR"),
        (topic("new", 1, -2), "INVALID_REPLICATION_FACTOR"),
        (topic("new", 1, 2), "INVALID_REPLICATION_FACTOR"),
        (topic("new", 10_001), "POLICY_VIOLATION"),
        (topic("new", 2**31 - 1), "POLICY_VIOLATION"),
        (topic("new", 1, -1, assignments=assigned((0, [1]))), "INVALID_REQUEST"),
        (topic("new", -1, 1, assignments=assigned((0, [1]))), "INVALID_REQUEST"),
        (topic("new", -1, -1, assignments=assigned((1, [1]))), "INVALID_REPLICA_ASSIGNMENT"),
        (topic("new", -1, -1, assignments=assigned((0, []))), "INVALID_REPLICA_ASSIGNMENT"),
        (topic("new", -1, -1, assignments=assigned((0, [1, 1]))), "INVALID_REPLICA_ASSIGNMENT"),
        (topic("new", -1, -1, assignments=assigned((0, [2]))), "INVALID_REPLICA_ASSIGNMENT"),
        (
            topic("new", -1, -1, assignments=assigned((0, [1]), (0, [1]))),
            "INVALID_REPLICA_ASSIGNMENT",
        ),
        (topic("new", configs=[{"name": "retention.ms", "value": "x"}]), "INVALID_CONFIG"),
        (topic("new", configs=[{"name": "retention.ms", "value": None}]), "INVALID_CONFIG"),
        (topic("new", configs=[{"name": "retention.mss", "value": "1"}]), "INVALID_CONFIG"),
        (topic("new", configs=[{"name": "flush.ms", "value": "1"}] * 2), "INVALID_REQUEST"),
        (topic("blocked"), "TOPIC_ALREADY_EXISTS"),
        (topic("new", -1, -1, assignments=assigned((1, [1]), (0, [1]))), "NONE"),
        (topic("a" * 249), "NONE"),
    ],
)
def test_each_error_is_kafkas(
    with_topics: Callable[..., MetadataImage], site: Site, asked: dict[str, Any], code: str
) -> None:
    image = with_topics(a_b=1)
    site = site._replace(blocked=frozenset({"blocked"}))
    plan = create(image, site, asked, topic("fine") if code != "POLICY_VIOLATION" else topic("x"))
    assert codes(plan.results)[0] == code
    assert plan.results[0]["name"] == asked["name"]
    if code != "POLICY_VIOLATION":
        assert codes(plan.results)[1] == "NONE"
    if code != "NONE":
        assert plan.results[0]["error_message"]
        made = [fields["name"] for name, fields in plan.records if name == "TopicRecord"]
        assert asked["name"] not in made


def test_two_new_topics_collide_as_well(empty: MetadataImage, site: Site) -> None:
    plan = create(empty, site, topic("a.b"), topic("a_b"), topic("c"), topic("c"))
    assert {result["name"]: ErrorCode(result["error_code"]).name for result in plan.results} == {
        "c": "INVALID_REQUEST", "a.b": "NONE", "a_b": "INVALID_TOPIC_EXCEPTION",
    }  # fmt: skip


def test_validate_only_makes_nothing(empty: MetadataImage, site: Site) -> None:
    plan = create(empty, site, topic("orders", 3), topic("..", 1), validate_only=True)
    assert plan.records == []
    assert codes(plan.results) == ["NONE", "INVALID_TOPIC_EXCEPTION"]
    assert plan.results[0]["topic_id"] == ZERO
    assert plan.results[0]["num_partitions"] == 3


# ---- deleting ---------------------------------------------------------------------------------


def test_topics_go_by_name_and_by_id(with_topics: Callable[..., MetadataImage], site: Site) -> None:
    image = with_topics(a=1, b=2, c=1, d=1)
    wanted = [
        {"name": "a", "topic_id": ZERO},
        {"name": None, "topic_id": image.topics["b"].id},
        {"name": "x", "topic_id": ZERO},
        {"name": None, "topic_id": uuid.UUID(int=5)},
        {"name": "c", "topic_id": image.topics["c"].id},
        {"name": None, "topic_id": ZERO},
        {"name": "d", "topic_id": ZERO},
        {"name": None, "topic_id": image.topics["d"].id},
    ]
    plan = controller.delete_topics(image, request(apis.DELETE_TOPICS, topics=wanted), site)
    assert codes(plan.results) == [
        "NONE", "NONE", "UNKNOWN_TOPIC_OR_PARTITION", "UNKNOWN_TOPIC_ID", "INVALID_REQUEST",
        "INVALID_REQUEST", "NONE", "INVALID_REQUEST",
    ]  # fmt: skip
    after = applied(image, plan.records)
    assert sorted(after.topics) == ["c"]
    assert set(after.names.values()) == {"c"}
    apis.DELETE_TOPICS.encode_response(6, {"responses": plan.results})


def test_old_requests_name_topics_only(
    with_topics: Callable[..., MetadataImage], site: Site
) -> None:
    image = with_topics(a=1)
    asked = request(apis.DELETE_TOPICS, 5, topic_names=["a", "b", "b"])
    plan = controller.delete_topics(image, asked, site)
    assert [(r["name"], ErrorCode(r["error_code"]).name) for r in plan.results] == [
        ("a", "NONE"), ("b", "INVALID_REQUEST"),
    ]  # fmt: skip


def test_a_deleted_topic_takes_its_settings_along(empty: MetadataImage, site: Site) -> None:
    settings = [{"name": "retention.ms", "value": "5"}]
    image = applied(empty, create(empty, site, topic("a", configs=settings)).records)
    asked = request(apis.DELETE_TOPICS, 5, topic_names=["a"])
    assert not applied(image, controller.delete_topics(image, asked, site).records).configs


def test_deletion_may_be_forbidden(with_topics: Callable[..., MetadataImage]) -> None:
    from kafkalog.config.server import ServerConfig

    image = with_topics(a=1)
    site = Site(DIRECTORY, ServerConfig({"delete.topic.enable": "false"}))
    asked = request(apis.DELETE_TOPICS, 5, topic_names=["a"])
    plan = controller.delete_topics(image, asked, site)
    assert codes(plan.results) == ["TOPIC_DELETION_DISABLED"]
    assert plan.records == []


# ---- more partitions ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "count", "assignments", "code"),
    [
        ("a", 5, None, "NONE"),
        ("a", 5, [[1], [1]], "NONE"),
        ("a", 3, None, "INVALID_PARTITIONS"),
        ("a", 2, None, "INVALID_PARTITIONS"),
        ("a", -1, None, "INVALID_PARTITIONS"),
        ("a", 20_000, None, "INVALID_PARTITIONS"),
        ("a", 5, [[1]], "INVALID_REPLICA_ASSIGNMENT"),
        ("a", 4, [[2]], "INVALID_REPLICA_ASSIGNMENT"),
        ("a", 4, [[]], "INVALID_REPLICA_ASSIGNMENT"),
        ("b", 4, None, "UNKNOWN_TOPIC_OR_PARTITION"),
    ],
)
def test_a_topic_grows(
    with_topics: Callable[..., MetadataImage],
    site: Site,
    name: str,
    count: int,
    assignments: list[list[int]] | None,
    code: str,
) -> None:
    image = with_topics(a=3)
    given = assignments and [{"broker_ids": ids} for ids in assignments]
    asked = {"topics": [{"name": name, "count": count, "assignments": given}]}
    plan = controller.create_partitions(image, request(apis.CREATE_PARTITIONS, **asked), site)
    assert codes(plan.results) == [code]
    after = applied(image, plan.records)
    assert len(after.topics["a"].partitions) == (5 if code == "NONE" else 3)
    plan = controller.create_partitions(
        image, request(apis.CREATE_PARTITIONS, **asked, validate_only=True), site
    )
    assert codes(plan.results) == [code]
    assert plan.records == []


# ---- producer ids, elections, reassignments ------------------------------------------------


def test_no_producer_id_is_given_twice(empty: MetadataImage) -> None:
    image, seen = empty, set[int]()
    for _ in range(5):
        records, block = controller.allocate_producer_ids(image)
        image = applied(image, records)
        assert len(block) == 1000
        assert not seen & set(block)
        seen |= set(block)
    assert image.next_producer_id == 5000
    with pytest.raises(Exception, match="Exhausted"):
        controller.allocate_producer_ids(image._replace(next_producer_id=2**63 - 500))


def test_one_node_has_nothing_to_elect_or_move(with_topics: Callable[..., MetadataImage]) -> None:
    image = with_topics(a=1)
    asked = request(
        apis.ELECT_LEADERS, election_type=0,
        topic_partitions=[{"topic": "a", "partitions": [0, 1]}],
    )  # fmt: skip
    (result,) = controller.elect_leaders(image, asked)
    assert codes(result["partition_result"]) == [
        "ELECTION_NOT_NEEDED",
        "UNKNOWN_TOPIC_OR_PARTITION",
    ]
    every = controller.elect_leaders(image, request(apis.ELECT_LEADERS, topic_partitions=None))
    assert every == [{"topic": name, "partition_result": []} for name in sorted(image.topics)]
    moves = [{"partition_index": 0, "replicas": replicas} for replicas in (None, [1], [2], [])]
    moves.append({"partition_index": 7, "replicas": [1]})
    asked = request(apis.ALTER_PARTITION_REASSIGNMENTS, topics=[{"name": "a", "partitions": moves}])
    (result,) = controller.alter_partition_reassignments(image, asked)
    assert codes(result["partitions"]) == [
        "NO_REASSIGNMENT_IN_PROGRESS", "NONE", "INVALID_REPLICA_ASSIGNMENT",
        "INVALID_REPLICA_ASSIGNMENT", "UNKNOWN_TOPIC_OR_PARTITION",
    ]  # fmt: skip


# ---- any requests --------------------------------------------------------------------

NAMES = st.sampled_from(["a", "b", "a.b", "a_b", "", ".", "ü", "x" * 250, "__consumer_offsets"])
TOPICS = st.lists(
    st.builds(
        topic,
        NAMES,
        st.integers(-2, 4),
        st.integers(-2, 2),
        assignments=st.lists(
            st.fixed_dictionaries(
                {"partition_index": st.integers(-1, 3),
                 "broker_ids": st.lists(st.integers(0, 2), max_size=2)}
            ),
            max_size=2,
        ),
        configs=st.lists(
            st.fixed_dictionaries(
                {"name": st.sampled_from(["retention.ms", "cleanup.policy", "nonsense"]),
                 "value": st.none() | st.text(string.printable, max_size=5)}
            ),
            max_size=2,
        ),
    ),
    max_size=5,
)  # fmt: skip


@given(st.lists(st.tuples(st.sampled_from("cd"), TOPICS, st.booleans()), max_size=6))
def test_any_requests_in_a_row(steps: list[tuple[str, list[dict[str, Any]], bool]]) -> None:
    """One result for each name: with NONE it was done, with an error nothing changed."""
    image = empty_image("cluster", 1)
    site = Site(DIRECTORY, BrokerConfig())
    for kind, topics, only in steps:
        names = [one["name"] for one in topics]
        if kind == "c":
            plan = create(image, site, *topics, validate_only=only)
            apis.CREATE_TOPICS.encode_response(7, {"topics": plan.results})
        else:
            asked = request(apis.DELETE_TOPICS, 5, topic_names=names)
            plan = controller.delete_topics(image, asked, site)
            apis.DELETE_TOPICS.encode_response(5, {"responses": plan.results})
        assert sorted(r["name"] for r in plan.results) == sorted(set(names))
        before, image = image, applied(image, plan.records)
        good = {r["name"] for r in plan.results if not r["error_code"]}
        if kind == "d":
            assert set(image.topics) == set(before.topics) - good
        else:
            assert set(image.topics) == set(before.topics) | (set() if only else good)
            assert not good & set(before.topics)
        folded = [name.replace(".", "_") for name in image.topics]
        assert len(set(folded)) == len(folded)
        for made in image.topics.values():
            assert sorted(made.partitions) == list(range(len(made.partitions)))


@pytest.mark.parametrize("there", ["a.b_c", "a_b.c", "a.b.c", "a_b_c"])
def test_names_that_fold_alike_are_found_among_many(
    with_topics: Callable[..., MetadataImage], site: Site, there: str
) -> None:
    """By looking up all colliding names, if there are fewer of them than topics."""
    image = with_topics(**{there: 1}, **{f"other{n}": 1 for n in range(100)})
    wanted = {"a.b.c", "a_b_c"} - {there}
    found = [result["error_message"] for name in sorted(wanted)
             for result in create(image, site, topic(name)).results]  # fmt: skip
    assert found == [f"Topic '{name}' collides with existing topic: {there}"
                     for name in sorted(wanted)]  # fmt: skip
    assert codes(create(image, site, topic("a.b_d")).results) == ["NONE"]
