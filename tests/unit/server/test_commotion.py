"""Everything at once: topics are created and deleted, settings change, clients read and write."""

from __future__ import annotations

import contextlib
import itertools
import random
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from kafkalog.directory.manager import Manager
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode
from tests.support.effort import SEED
from tests.support.raw import Raw
from tests.unit.server.conftest import MakeBroker

TOPICS = ("a", "b", "c")
TOPIC = 2
ROUNDS = 60
FINE = {
    ErrorCode.NONE,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.TOPIC_ALREADY_EXISTS,
    ErrorCode.OFFSET_OUT_OF_RANGE,
    ErrorCode.INVALID_PARTITIONS,
    ErrorCode.POLICY_VIOLATION,
}
"""Possible answers when the topic has just been deleted or recreated."""


def produce(raw: Raw, chance: random.Random) -> int:
    codec = chance.choice(("none", "gzip"))
    topic, acks = chance.choice(TOPICS), chance.choice((-1, 1))
    return int(raw.produce(topic, b"v" * 100, codec=codec, acks=acks).error_code)


def consume(raw: Raw, chance: random.Random) -> int:
    found = raw.fetch(chance.choice(TOPICS), chance.choice((0, 1)), max_wait_ms=5)
    return int(found.error_code)


def look(raw: Raw, chance: random.Random) -> int:
    raw.call(apis.METADATA, topics=None)
    raw.call(apis.DESCRIBE_LOG_DIRS, topics=None)
    return int(raw.offsets(chance.choice(TOPICS), chance.choice((-1, -2, -3, 0))).error_code)


def change(raw: Raw, chance: random.Random) -> int:
    settings = [
        {"compression_type": chance.choice(("producer", "gzip", "zstd"))},
        {"cleanup_policy": chance.choice(("compact", "delete"))},
        {"internal_segment_bytes": str(chance.randrange(500, 5000))},
        {"kafkalog_durability": chance.choice(("fsync", "os"))},
        {"retention_ms": None},
    ]
    return int(raw.alter(TOPIC, chance.choice(TOPICS), **chance.choice(settings)).error_code)


def cut(raw: Raw, chance: random.Random) -> int:
    part = {"partition_index": 0, "offset": -1}
    asked = {"topics": [{"name": chance.choice(TOPICS), "partitions": [part]}], "timeout_ms": 1000}
    return int(raw.call(apis.DELETE_RECORDS, **asked).topics[0].partitions[0].error_code)


def come_and_go(raw: Raw, chance: random.Random) -> int:
    topic = chance.choice(TOPICS)
    if chance.random() < 0.5:
        return int(raw.create(topic, chance.randrange(1, 4)).error_code)
    found = raw.call(apis.DELETE_TOPICS, 5, topic_names=[topic], timeout_ms=1000)
    return int(found.responses[0].error_code)


def commit(raw: Raw, chance: random.Random) -> int:
    raw.call(apis.FIND_COORDINATOR, 2, key="g", key_type=0)
    part = {"partition_index": 0, "committed_offset": 1}
    found = raw.call(
        apis.OFFSET_COMMIT, 8, group_id="g", generation_id_or_member_epoch=-1, member_id="",
        topics=[{"name": chance.choice(TOPICS), "partitions": [part]}],
    ).topics[0].partitions[0]  # fmt: skip
    code = int(found.error_code)
    return 0 if code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS else code


WORK = [produce, produce, produce, consume, consume, look, change, cut, come_and_go, commit]


Work = Callable[[Raw, random.Random], int]


def run(address: str, work: Work, seed: int) -> set[int]:
    """The error codes of all rounds."""
    chance = random.Random(seed)
    with Raw(address) as raw:
        return {work(raw, chance) for _ in range(ROUNDS)}


@pytest.mark.timeout(300)
def test_a_busy_broker_answers_everything_and_ends_in_order(make_broker: MakeBroker) -> None:
    broker = make_broker(log_cleaner_backoff_ms=10, log_retention_check_interval_ms=10)
    seen: dict[str, set[int]] = {}

    def one(index: int) -> None:
        work = WORK[index]
        seen[f"{work.__name__} {index}"] = run(broker.bootstrap_servers, work, SEED + index)

    threads = [threading.Thread(target=one, args=(index,)) for index in range(len(WORK))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(seen) == len(WORK)  # each ran to its end
    assert {name: codes - FINE for name, codes in seen.items() if codes - FINE} == {}
    broker.close()
    broker = make_broker()
    with Raw(broker.bootstrap_servers) as raw:
        for topic in raw.call(apis.METADATA, topics=None).topics:
            if not topic.is_internal:
                for partition in topic.partitions:
                    place = partition.partition_index
                    assert raw.offsets(topic.name, -1, place).error_code == 0


SERVE = """
import sys
from kafkalog.server.broker import Broker
broker = Broker(sys.argv[1], config={"group.initial.rebalance.delay.ms": 0})
print(broker.bootstrap_servers, flush=True)
sys.stdin.read()
"""


@pytest.mark.timeout(300)
def test_a_busy_broker_that_is_killed_starts_again_whole(
    make_broker: MakeBroker, tmp_path: Path
) -> None:
    path = str(tmp_path / "data")
    child = subprocess.Popen(
        [sys.executable, "-c", SERVE, path],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    address = child.stdout.readline().strip()
    kill_after = random.Random(SEED).randrange(20, 300)
    done = itertools.count(1)

    def one(index: int) -> None:
        def counted(raw: Raw, chance: random.Random) -> int:
            if next(done) == kill_after:
                child.kill()
            return WORK[index](raw, chance)

        with contextlib.suppress(OSError):  # the broker's end
            run(address, counted, SEED + index)

    threads = [threading.Thread(target=one, args=(index,)) for index in range(len(WORK))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    child.kill()
    child.wait()
    broker = make_broker()
    with Raw(broker.bootstrap_servers) as raw:
        for topic in raw.call(apis.METADATA, topics=None).topics:
            for partition in topic.partitions if not topic.is_internal else ():
                place = partition.partition_index
                assert raw.offsets(topic.name, -1, place).error_code == 0
                assert raw.produce(topic.name, b"v", partition=place).error_code == 0
    broker.close()
    with Manager(path, mode="r") as manager:
        for tp in manager.partitions():
            report = manager.get(*tp).verify()
            assert report.clean, (tp, report.findings)
