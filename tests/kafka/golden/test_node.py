"""A whole node that Apache Kafka 4.4.0 wrote: groups of every kind, share groups' state, a cordoned
directory and a snapshot are read unchanged, and extended."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import kafkalog
from kafkalog.coordinator.groups.records import FOREIGN
from kafkalog.coordinator.partitions import partition_for
from kafkalog.directory.manager import Manager
from kafkalog.disk.layout import uuid_text
from kafkalog.kraft.kraftlog import MetadataLog
from kafkalog.metadata.image import INTERNAL_TOPICS
from kafkalog.server.broker import Broker
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode
from tests.kafka.golden.test_groups import loaded
from tests.support import kafka_data, trees
from tests.support.answers import read_all
from tests.support.raw import Raw
from tests.unit.coordinator.group_calls import Desk
from tests.unit.coordinator.group_kinds import CASE, said

SHARE_STATE = "__share_group_state"


@pytest.fixture
def case(kafka_cases: Path) -> Path:
    given = kafka_cases / CASE
    if not given.is_dir():
        pytest.skip(f"{kafka_cases} has no {CASE}")
    return given


@pytest.fixture
def node(case: Path, tmp_path: Path) -> Path:
    """A copy of Kafka's directory."""
    copy: Path = trees.copy_tree(case / "log", tmp_path / "log")
    return copy


def expected(case: Path, name: str) -> Any:
    return json.loads((case / "expected" / name).read_text(encoding="utf-8"))


def check(manager: Manager, metadata: MetadataLog, case: Path) -> None:
    """Check topics, records, and the broker whose directory is cordoned."""
    image = metadata.image
    assert not metadata.problems
    assert not image.foreign
    assert {
        name: {"partitions": len(topic.partitions), "topic_id": uuid_text(topic.id),
               "internal": False}
        for name, topic in image.topics.items() if name not in INTERNAL_TOPICS
    } == expected(case, "metadata.json")["topics"]  # fmt: skip
    assert dict(image.config(4, "1"))["cordoned.log.dirs"] == "*"
    read = 0
    for partition in kafka_data.partitions():
        if partition.case == CASE and partition.topic not in INTERNAL_TOPICS:
            kafkas = kafka_data.expected_records(partition)
            assert read_all(manager.get(partition.topic, partition.number)) == kafkas
            read += len(kafkas)
    assert read > 90


@pytest.mark.parametrize("snapshots", [True, False])
def test_it_opens_from_its_snapshot_or_its_log_and_again(
    node: Path, case: Path, snapshots: bool
) -> None:
    if not snapshots:
        for path in (node / "__cluster_metadata-0").glob("*.checkpoint"):
            if int(path.name.partition("-")[0]):  # the one at 0 is Kafka's first
                path.unlink()
    for _ in range(2):
        with Manager(node) as manager, MetadataLog.open(manager) as metadata:
            check(manager, metadata, case)
            metadata.register([("PLAINTEXT", "127.0.0.1", 9092, 0)])
            assert metadata.take_snapshot() is not None


def test_groups_of_each_kind_are_listed(case: Path) -> None:
    kinds = {name: kind for name, (kind, _) in expected(case, "listed.json").items()}
    assert kinds == {"classic": "classic", "consumer": "consumer", "share": "share",
                     "tx-group": "classic", "word-count": "streams"}  # fmt: skip
    desk = loaded(case)
    assert {name: one.group_type for name, one in desk.listed().items()} == kinds
    for name, kind in kinds.items():
        assert name in desk.listed(types_filter=[kind.capitalize()])
    assert desk.listed(types_filter=["share"])["share"].protocol_type == "share"


def left(desk: Desk) -> Desk:
    """The members of the streams group leave it."""
    (group,) = desk.call(apis.STREAMS_GROUP_DESCRIBE, 1, {"group_ids": ["word-count"]}).groups
    assert group.members
    for one in group.members:
        body = {"group_id": "word-count", "member_id": one.member_id, "member_epoch": -1}
        assert not desk.call(apis.STREAMS_GROUP_HEARTBEAT, 1, body).error_code
    return desk


def ended(desk: Desk, group: str, end: int) -> list[int]:
    """The kinds of a group's tombstones from an offset of its journal on, without its offsets'."""
    journal = desk.journal.batches[partition_for(group, 4)]
    keys = [one.key for batch in journal for one in batch.records
            if one.offset >= end and one.key and one.value is None]  # fmt: skip
    return [kind for key in keys if (kind := int.from_bytes(key[:2], "big")) > 2]


@pytest.mark.parametrize(("group", "last"), [("share", [15, 11]), ("word-count", [17, 23])])
def test_a_group_of_a_newer_kind_is_deleted_as_kafka_does(
    case: Path, group: str, last: list[int]
) -> None:
    """All its live records get tombstones: assignments first, the group last."""
    desk = left(loaded(case))
    end = desk.journal.ends[partition_for(group, 4)]
    (result,) = desk.delete(group).results
    assert result.error_code == 0
    kinds = ended(desk, group, end)
    assert kinds[-len(last) :] == last
    order = [*FOREIGN["share"], *FOREIGN["streams"]]
    assert kinds == sorted(kinds, key=order.index)
    desk.restart()
    assert group not in desk.listed()
    (result,) = desk.delete(group).results
    assert result.error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_a_classic_member_takes_an_empty_streams_group_over(case: Path) -> None:
    """As in Kafka: its records get tombstones, its offsets stay."""
    desk = left(loaded(case))
    end, before = desk.journal.ends[partition_for("word-count", 4)], desk.offsets("word-count")
    desk.stable(1, "word-count")
    assert ended(desk, "word-count", end)[-2:] == [17, 23]
    desk.restart()
    assert desk.listed()["word-count"].group_type == "classic"
    assert desk.offsets("word-count") == before != {}


def test_a_share_group_takes_no_classic_member_and_no_offsets(case: Path) -> None:
    """As in Kafka; nothing is written to it."""
    desk = loaded(case)
    ends = dict(desk.journal.ends)
    assert desk.join(group="share").error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    (refused,) = desk.commit({("orders", 0): 1}, group="share").topics
    assert refused.partitions[0].error_code == ErrorCode.GROUP_ID_NOT_FOUND
    found = desk.describe("share", version=6)
    assert found.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert found.error_message == "Group share is not a classic group."
    assert desk.journal.ends == ends


def test_each_api_answers_for_a_group_of_each_type_as_kafka_does(case: Path) -> None:
    """tests/kafka/referee/test_groups.py checks the same table against Apache Kafka."""
    desk = left(loaded(case))
    desk.topics = {"orders": 2, "lines": 1}
    (group,) = desk.call(apis.CONSUMER_GROUP_DESCRIBE, 1, {"group_ids": ["consumer"]}).groups
    desk.leave(*((member.member_id, None) for member in group.members), group="consumer")
    for (request, kind), (wanted, found) in said(desk.call).items():
        assert found == wanted, f"{request} of a {kind} group"


def outlive(desk: Desk) -> None:
    """Wait until the offsets of all groups have expired: years, most of them at once."""
    committed = [offset.commit_ms for shard in desk.core.shards.values()
                 for group in shard.groups.values() for offsets in group.offsets.values()
                 for offset in offsets.values()]  # fmt: skip
    desk.now_ms += max(committed) - desk.wall_ms + 8 * 24 * 3_600_000
    desk.wait(3_600_000)


def test_a_share_group_does_not_expire(case: Path) -> None:
    """It has no offsets that could expire."""
    desk = loaded(case)
    outlive(desk)
    assert {"share", "tx-group"} & set(desk.listed()) == {"share"}


@pytest.mark.parametrize("group", ["consumer", "word-count"])
def test_offsets_of_a_group_of_a_newer_kind_expire_and_the_group_with_them(
    case: Path, group: str
) -> None:
    """Its records get tombstones, as when it is deleted."""
    desk = loaded(case)
    end = desk.journal.ends[partition_for(group, 4)]
    assert desk.offsets(group)
    outlive(desk)
    assert desk.offsets(group) == {}
    assert group not in desk.listed()
    kinds = ended(desk, group, end)
    kinds, member = kinds[3:], kinds[:3]  # its member goes before it: its session is over
    assert member == ([8, 7, 5] if group == "consumer" else [22, 21, 19])
    order = [*FOREIGN["consumer"], *FOREIGN["streams"]]
    assert kinds == sorted(kinds, key=order.index) != []
    desk.restart()
    assert group not in desk.listed()


def test_a_deleted_topic_takes_the_offsets_of_groups_of_newer_kinds_with_it(case: Path) -> None:
    """The groups stay; so does a share group, which has no offsets."""
    desk = loaded(case)
    before = {group: desk.offsets(group) for group in ("consumer", "share", "word-count")}
    desk.step(lambda step: desk.core.drop_topics(["orders", "lines"], step))
    desk.restart()
    for group, offsets in before.items():
        left = {where: at for where, at in offsets.items() if where[0] not in ("orders", "lines")}
        assert desk.offsets(group) == left
    assert desk.offsets("consumer") == {} != before["consumer"]
    assert {"consumer", "share", "word-count"} <= set(desk.listed())


def test_the_state_of_share_groups_is_a_log_like_others(node: Path) -> None:
    with kafkalog.Log(node / f"{SHARE_STATE}-0") as log:
        keys = [record.key for record in log.read()]
        assert len(keys) > 2
        assert all(key is not None and b"share" in key for key in keys)
        assert log.verify().clean


def test_a_broker_serves_it(node: Path) -> None:
    with Broker(node) as broker, Raw(broker.bootstrap_servers) as raw:
        found = raw.call(apis.METADATA, topics=None).topics
        names = {topic.name for topic in found if not topic.error_code}
        assert {"orders", "tx", "counts", "zstd-codec", SHARE_STATE} <= names
        assert raw.offsets("zstd-codec", -1).offset == 12
        assert raw.produce("orders", b"ours").error_code == 0


def test_nothing_is_placed_in_its_cordoned_directory(node: Path) -> None:
    """Until the setting is removed; with Kafka's error messages."""
    why = "All brokers are currently fenced, or have all their log directories cordoned."
    with Broker(node) as broker, Raw(broker.bootstrap_servers) as raw:

        def enlarge() -> Any:
            more = [{"name": "orders", "count": 3, "assignments": None}]
            return raw.call(apis.CREATE_PARTITIONS, topics=more, timeout_ms=30_000).results[0]

        made, more = raw.create("ours"), enlarge()
        assert made.error_code == more.error_code == ErrorCode.INVALID_REPLICATION_FACTOR
        assert made.error_message == f"Unable to replicate the partition 1 time(s): {why}"
        assert more.error_message == why
        assert raw.alter(4, "1", cordoned_log_dirs=None).error_code == 0
        assert raw.create("ours").error_code == enlarge().error_code == 0
