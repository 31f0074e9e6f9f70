"""`kafkalog.Mirror` between two brokers: each record once, unchanged, however the mirror ends."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import kafkalog
from kafkalog import errors
from kafkalog.types import TopicPartition
from tests.support import brokers, mirrors
from tests.support.effort import SEED, rounds
from tests.support.mirrors import PARTITIONS, TOPIC
from tests.support.waiting import wait_for


@pytest.fixture
def source(tmp_path: Path) -> Iterator[str]:
    with brokers.running("kafkalog", tmp_path / "source") as where:
        with kafkalog.Admin(where) as admin:
            admin.create_topic(TOPIC, PARTITIONS, config={"retention.ms": "-1"})
        yield where


@pytest.fixture
def target(tmp_path: Path) -> Iterator[str]:
    with brokers.running("kafkalog", tmp_path / "target") as where:
        yield where


def test_records_settings_and_groups_come_over(source: str, target: str) -> None:
    """Keys, values, headers, times and partitions; a second mirror has nothing left to do."""
    mirrors.fill(source, "over")
    places = mirrors.commit(source, "readers", TOPIC, "over")
    status = kafkalog.Mirror(source, target, TOPIC, groups="read.*").copy()
    assert mirrors.rows(target, TOPIC) == mirrors.rows(source, TOPIC)
    assert status.records == sum(map(len, mirrors.rows(source, TOPIC).values()))
    assert (status.topics, status.partitions, status.lag) == (1, PARTITIONS, 0)
    with kafkalog.Admin(target) as admin:
        settings = admin.describe_configs([("topic", TOPIC)])["topic", TOPIC]
        assert settings["retention.ms"].value == "-1"
        moved = admin.list_group_offsets("readers")
    for tp, offset in places.items():
        here, there = mirrors.rest(source, tp, offset), mirrors.rest(target, tp, moved[tp].offset)
        assert there[len(there) - len(here) :] == here
    again = kafkalog.Mirror(source, target, TOPIC, groups="read.*").copy()
    assert (again.records, again.groups) == (0, 0)


def test_the_limit_of_a_transaction_counts_the_memory_of_its_pieces(
    source: str, target: str
) -> None:
    """The mirror remembers more of a small batch between two markers than it received."""
    with kafkalog.Producer(source, transactional_id="x") as producer:
        for number in range(200):
            producer.begin_transaction()
            producer.send(TOPIC, b"%d" % number, partition=0)
            producer.commit_transaction()
    large = kafkalog.Mirror(source, target, TOPIC, name="a", rename="a.{}").copy()
    small = kafkalog.Mirror(
        source, target, TOPIC, name="b", rename="b.{}", transaction_bytes=100_000
    ).copy()
    assert large.records == small.records == 200
    assert small.transactions >= large.transactions + 2
    wanted = [row[2:] for row in mirrors.rows(source, TOPIC)[0]]
    for copy in ("a", "b"):
        assert [row[2:] for row in mirrors.rows(target, f"{copy}.{TOPIC}")[0]] == wanted


def test_a_mirror_that_is_killed_goes_on_where_it_was(source: str, target: str) -> None:
    """kill -9 at random moments between writes to the source: each record is copied once."""
    draw = random.Random(SEED)
    command = [
        *(sys.executable, "-m", "kafkalog", "mirror", "--once", "--from", source, "--to", target),
        *("--topics", TOPIC, "--transaction-bytes", "8000", "--groups", ".*"),
    ]
    copies = [TopicPartition(TOPIC, number) for number in range(PARTITIONS)]

    def copied(admin: kafkalog.Admin) -> int:
        try:
            ends = admin.list_offsets(dict.fromkeys(copies, "latest"), timeout_ms=1_000).done
        except errors.KafkalogError:
            return 0
        return sum(at.offset for at in ends.values())

    with kafkalog.Admin(target) as admin:
        for number in rounds(3):
            mirrors.fill(source, f"{SEED} {number}", 8)
            wanted = copied(admin) + draw.randrange(1, 300)
            with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
                wait_for(
                    lambda p=process, n=wanted: p.poll() is not None or copied(admin) >= n,
                    "it copies",
                )
                process.kill()
    mirrors.commit(source, "g", TOPIC, "killed")
    assert subprocess.run(command, stdout=subprocess.DEVNULL).returncode == 0
    assert mirrors.rows(target, TOPIC) == mirrors.rows(source, TOPIC), f"seed {SEED}"
    with kafkalog.Admin(target) as admin:
        assert len(admin.list_group_offsets("g")) == PARTITIONS


def running(mirror: kafkalog.Mirror) -> tuple[threading.Thread, list[BaseException]]:
    failed: list[BaseException] = []

    def run() -> None:
        try:
            mirror.run()
        except errors.KafkalogError as problem:
            failed.append(problem)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, failed


def test_new_topics_partitions_and_settings_are_picked_up(source: str, target: str) -> None:
    mirror = kafkalog.Mirror(source, target, "o.*", rename="dc1.{}", name="m", refresh_ms=200)
    thread, failed = running(mirror)
    try:
        with kafkalog.Admin(source) as admin, kafkalog.Admin(target) as copy:

            def setting(name: str) -> Any:
                return copy.describe_configs([("topic", "dc1.other")])["topic", "dc1.other"][name]

            admin.create_topic("other", 1, config={"segment.ms": "700000"})
            send(source, "other", 0, b"first")
            wait_for(lambda: "dc1.other" in copy.list_topics(), "the topic is created")
            wait_for(lambda: setting("segment.ms").value == "700000", "its setting is followed")
            admin.create_partitions({"other": 2}).check()
            send(source, "other", 1, b"second")
            admin.alter_configs({("topic", "other"): {"segment.ms": None}}).check()
            wait_for(lambda: setting("segment.ms").source != "topic", "the default is back")
            wait_for(lambda: mirror.status.records == 2, "both are copied")
            admin.delete_topic("other")
            send(source, TOPIC, 0, b"third")
            wait_for(lambda: mirror.status.records == 3, "a deleted topic stops no other")
    finally:
        mirror.stop()
        thread.join()
    assert failed == []
    assert [[r[2] for r in some] for some in mirrors.rows(target, "dc1.other").values()] == [
        [b"first"], [b"second"],
    ]  # fmt: skip


def send(where: str, topic: str, partition: int, value: bytes) -> None:
    """Send to a partition that may have just been created."""
    with kafkalog.Producer(where) as producer:
        producer.send(topic, value, partition=partition).result()


def test_of_two_of_one_name_the_second_ends_the_first(source: str, target: str) -> None:
    first = kafkalog.Mirror(source, target, TOPIC, name="one")
    thread, failed = running(first)
    try:
        send(source, TOPIC, 0, b"1")
        wait_for(lambda: first.status.records == 1, "the first copies")
        kafkalog.Mirror(source, target, TOPIC, name="one").copy()
        send(source, TOPIC, 0, b"2")
        wait_for(lambda: failed, "the first ends")
    finally:
        first.stop()
        thread.join()
    assert isinstance(failed[0], errors.ProducerFenced)
    kafkalog.Mirror(source, target, TOPIC, name="one").copy()
    assert [r[2] for r in mirrors.rows(target, TOPIC)[0]] == [b"1", b"2"]


def test_foreign_topics_are_skipped_by_name(source: str, target: str) -> None:
    """A target topic with foreign records, a source topic that was recreated, a copy that was
    deleted: none is mixed up, and the others are copied."""
    said: list[str] = []

    def aside() -> set[str]:
        status = kafkalog.Mirror(source, target, ".*", on_warning=said.append).copy()
        return set(status.aside)

    for topic in ("anew", "gone", "theirs"):
        send(source, topic, 0, b"1")
    send(target, "theirs", 0, b"0")
    assert aside() == {"theirs"}
    assert "theirs-0 of the target has records that this mirror did not write" in said[0]
    with kafkalog.Admin(source) as admin, kafkalog.Admin(target) as copy:
        admin.delete_topic("anew")
        copy.delete_topic("gone")
    wait_for(lambda: send(source, "anew", 0, b"2") is None, "it is recreated")
    send(source, TOPIC, 1, b"3")
    assert aside() == {"anew", "gone", "theirs"}
    assert [r[2] for r in mirrors.rows(target, "anew")[0]] == [b"1"]
    assert [r[2] for r in mirrors.rows(target, TOPIC)[1]] == [b"3"]


def test_records_deleted_before_their_copy_are_reported(source: str, target: str) -> None:
    said: list[str] = []
    send(source, TOPIC, 0, b"0")
    kafkalog.Mirror(source, target, TOPIC).copy()
    for value in (b"1", b"2", b"3"):
        send(source, TOPIC, 0, value)
    with kafkalog.Admin(source) as admin:
        admin.delete_records({(TOPIC, 0): 3}).check()
    kafkalog.Mirror(source, target, TOPIC, on_warning=said.append).copy()
    assert said == [f"{TOPIC}-0: the source removed offsets 1 to 2 before they were copied"]
    assert [r[2] for r in mirrors.rows(target, TOPIC)[0]] == [b"0", b"3"]


def test_a_mirror_does_not_copy_its_own_topics(source: str) -> None:
    for rename in ("{}", "{}.copy"):
        with pytest.raises(errors.ArgumentError, match="of the same cluster"):
            kafkalog.Mirror(source, source, ".*", rename=rename).copy()
    send(source, TOPIC, 0, b"1")
    status = kafkalog.Mirror(source, source, TOPIC, rename="{}.copy").copy()
    assert status.records == 1


@pytest.mark.parametrize(
    "wrong",
    [{"topics": "("}, {"rename": "copy"}, {"rename": "a b{}"}, {"name": "a/b"}, {"groups": "["},
     {"exclude": "("}, {"target_alias": "a.b"}, {"target_alias": ""}, {"accept_loss": "["},
     {"transaction_bytes": 0}, {"replication_factor": 1 << 20}, {"compression": "rar"},
     {"refresh_s": 0}, {"refresh_ms": 0}, {"refresh_ms": 1, "refresh_s": 1}, {"source": "h:port"}],
)  # fmt: skip
def test_absurd_arguments_are_refused_by_name(wrong: dict[str, Any]) -> None:
    given: dict[str, Any] = {"source": "h:1", "target": "h:2", "topics": "t", **wrong}
    with pytest.raises(errors.ArgumentError):
        kafkalog.Mirror(**given)


def test_a_cluster_that_nobody_serves_is_told_at_once(target: str) -> None:
    with pytest.raises(errors.PeerGone):
        kafkalog.Mirror("127.0.0.1:1", target, "t").run()
