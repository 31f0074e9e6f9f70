"""For tests of mirrors: a source with everything in it, and the content of a topic."""

from __future__ import annotations

import random
import threading
from typing import Any

import kafkalog
from kafkalog import errors
from kafkalog.types import TopicPartition
from tests.support.stable import stable_ends

TOPIC, PARTITIONS = "orders", 3
START_MS = 1_735_689_600_000
Row = tuple[int, bytes | None, bytes | None, int, tuple[tuple[str, bytes | None], ...]]


def fill(where: Any, seed: str, transactions: int = 40) -> None:
    """Write records with keys, nulls, headers and their own timestamps, outside of transactions and
    in interleaved ones, some of which are aborted."""
    draw = random.Random(seed)
    with (
        kafkalog.Producer(where, transactional_id="a", batch_bytes=2_000) as a,
        kafkalog.Producer(where, transactional_id="b", compression="zstd") as b,
        kafkalog.Producer(where, compression="gzip", batch_bytes=1_000) as plain,
    ):
        for _ in range(transactions):
            for one in (a, b):
                one.begin_transaction()
            for number in range(draw.randrange(5, 80)):
                one = draw.choice([a, a, b, b, plain])
                one.send(
                    TOPIC,
                    draw.choice([None, b"v" * draw.randrange(200)]),
                    draw.choice([None, b"%d" % number]),
                    partition=draw.randrange(PARTITIONS),
                    timestamp_ms=START_MS + draw.randrange(1_000_000),
                    headers=[("name", b"%d" % number), ("", None)] if number % 3 == 0 else (),
                )
            for one in (b, a):
                draw.choice([one.commit_transaction] * 3 + [one.abort_transaction])()
    stable_ends(where, TOPIC)  # a mirror copies up to them


def rows(where: Any, topic: str) -> dict[int, list[Row]]:
    """By partition, the records that a reader of committed records sees."""
    found: dict[int, list[Row]] = {}
    for tp, offset in stable_ends(where, topic).items():
        found[tp.partition] = [
            (r.timestamp_ms, r.key, r.value, r.timestamp_type, tuple(r.headers))
            for r in read(where, tp, 0, offset)
        ]
    return found


def read(where: Any, tp: TopicPartition, begin: int, end: int) -> list[kafkalog.Record]:
    """The committed records from `begin` on, up to `end`."""
    found: list[kafkalog.Record] = []
    with kafkalog.Consumer(where, isolation="read_committed") as consumer:
        consumer.assign([tp])
        consumer.seek(tp, begin)
        while consumer.position(tp) < end:
            found += consumer.poll(20)  # a marker at the end is no record
    return found


def rest(where: Any, tp: TopicPartition, begin: int) -> list[bytes | None]:
    """The records of a consumer that resumes at `begin`: keys and values as one."""
    end = stable_ends(where, tp.topic)[tp]
    return [(r.key or b"-") + b"=" + (r.value or b"-") for r in read(where, tp, begin, end)]


def commit(where: Any, group: str, topic: str, seed: str) -> dict[TopicPartition, int]:
    """Let a group commit random offsets, each after a record."""
    draw = random.Random(seed)
    chosen = {}
    for tp, end in stable_ends(where, topic).items():
        records = read(where, tp, 0, end)
        chosen[tp] = draw.choice(records).offset + 1
    with kafkalog.Admin(where) as admin:
        admin.alter_group_offsets(group, chosen).check()
    return chosen


def values(broker: Any, topic: str) -> list[int]:
    """The committed records of a topic, whose values are numbers."""
    where = getattr(broker, "bootstrap_servers", broker)
    ends = stable_ends(where, topic)
    return [int(r.value or b"") for tp, end in ends.items() for r in read(where, tp, 0, end)]


class Running:
    """A mirror that runs while the block lasts."""

    def __init__(self, mirror: kafkalog.Mirror) -> None:
        self.mirror = mirror
        self.failed: list[BaseException] = []
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        try:
            self.mirror.run()
        except errors.KafkalogError as problem:
            self.failed.append(problem)

    def __enter__(self) -> Running:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.mirror.stop()
        self._thread.join()
