"""A node with groups of every kind and a cordoned directory goes from Apache Kafka to us, is killed
there, goes back, is killed again and comes to us: each reads everything the others wrote."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode
from tests.support import apache, trees
from tests.support.raw import Raw

pytestmark = [pytest.mark.java, pytest.mark.long, pytest.mark.timeout(300)]

Wait = Callable[..., None]
CASE = "node-4.4"
SETTINGS = """\
share.coordinator.state.topic.num.partitions=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
"""
OFFSETS = "offsets.topic.num.partitions=4\ntransaction.state.log.num.partitions=2\n"
START_S = 90.0


@contextmanager
def ours(directory: Path) -> Iterator[Raw]:
    """Our broker as a process, which is killed at the end."""
    port = apache.free_port()
    where = f"127.0.0.1:{port}"
    properties = directory.parent / "ours.properties"
    properties.write_text(f"listeners=PLAINTEXT://{where}\nlog.dirs={directory}\n{OFFSETS}")
    served = apache.Program(directory.parent / "ours.out")
    command = [sys.executable, "-m", "kafkalog", "serve", "--config", str(properties)]
    served.start(command, directory.parent, lambda: apache.answers(where))
    try:
        with Raw(where) as raw:
            yield raw
    finally:
        served.kill()


def committed(raw: Raw, group: str) -> dict[tuple[str, int], int]:
    found = raw.call(apis.OFFSET_FETCH, 7, group_id=group, topics=None)
    return {(topic.name, part.partition_index): part.committed_offset
            for topic in found.topics for part in topic.partitions}  # fmt: skip


def listed(raw: Raw) -> dict[str, str]:
    return {one.group_id: one.group_type for one in raw.call(apis.LIST_GROUPS, 5).groups}


def commit(raw: Raw, group: str, offset: int) -> bool:
    """Commit as a client that is no member; returns whether that succeeded."""
    parts = [{"partition_index": 0, "committed_offset": offset, "committed_metadata": ""}]
    (topic,) = raw.call(
        apis.OFFSET_COMMIT, 7, group_id=group, generation_id_or_member_epoch=-1, member_id="",
        topics=[{"name": "orders", "partitions": parts}],
    ).topics  # fmt: skip
    return int(topic.partitions[0].error_code) == 0


def test_a_node_changes_hands(kafka_cases: Path, tmp_path: Path, wait_until: Wait) -> None:
    given = kafka_cases / CASE
    if not given.is_dir():
        pytest.skip(f"{kafka_cases} has no {CASE}")
    directory: Path = trees.copy_tree(given / "log", tmp_path / "data")
    with ours(directory) as raw:
        assert raw.produce("orders", b"ours").error_code == 0
        wait_until(lambda: commit(raw, "by-us", 3), "we take commits", START_S)
        words = committed(raw, "word-count")
        assert words[("lines", 0)] == 1
        before = raw.offsets("orders", -1).offset
        refused = raw.create("none")
    try:
        kafka = apache.Broker(directory, OFFSETS + SETTINGS)
        apache.jars()
    except apache.Unavailable as reason:
        pytest.skip(str(reason))
    with kafka, Raw(kafka.bootstrap_servers) as raw:
        wait_until(lambda: raw.offsets("orders", -1).offset == before, "Kafka leads", START_S)
        wait_until(lambda: committed(raw, "by-us") == {("orders", 0): 3}, "it loads", START_S)
        wait_until(lambda: committed(raw, "word-count") == words, "a streams group's", START_S)
        wait_until(
            lambda: {"share": "share", "word-count": "streams", "consumer": "consumer",
                     "classic": "classic"}.items() <= listed(raw).items(),
            "it knows the kinds of all groups", START_S,
        )  # fmt: skip
        assert "cordoned" in refused.error_message
        assert raw.create("none") == refused
        assert raw.produce("orders", b"theirs").error_code == 0
        assert commit(raw, "by-kafka", 4)
        kafka.kill()
    with ours(directory) as raw:
        assert raw.offsets("orders", -1).offset == before + 1
        for group, found in (("by-us", {("orders", 0): 3}), ("by-kafka", {("orders", 0): 4})):
            wait_until(lambda g=group, f=found: committed(raw, g) == f, group, START_S)


def test_kafka_finds_no_group_that_was_deleted_here(
    kafka_cases: Path, tmp_path: Path, wait_until: Wait
) -> None:
    """A share group and a streams group; the others are there."""
    given = kafka_cases / CASE
    if not given.is_dir():
        pytest.skip(f"{kafka_cases} has no {CASE}")
    directory: Path = trees.copy_tree(given / "log", tmp_path / "data")
    with ours(directory) as raw:
        wait_until(lambda: commit(raw, "by-us", 3), "we take commits", START_S)
        for group in ("share", "word-count"):
            deleted = partial(raw.call, apis.DELETE_GROUPS, 2, groups_names=[group])
            wait_until(lambda d=deleted: d().results[0].error_code == 0, group, START_S)
    try:
        kafka = apache.Broker(directory, OFFSETS + SETTINGS)
        apache.jars()
    except apache.Unavailable as reason:
        pytest.skip(str(reason))
    with kafka, Raw(kafka.bootstrap_servers) as raw:
        left = {"consumer": "consumer", "classic": "classic", "tx-group": "classic",
                "by-us": "classic"}  # fmt: skip
        wait_until(lambda: left.items() <= listed(raw).items(), "it loads", START_S)
        found = raw.call(apis.DELETE_GROUPS, 2, groups_names=["share", "word-count"]).results
        assert {one.error_code for one in found} == {ErrorCode.GROUP_ID_NOT_FOUND}
