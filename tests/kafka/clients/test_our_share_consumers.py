"""Our share consumers, against Apache Kafka."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import kafkalog
from kafkalog import ShareConsumer, TopicPartition, errors
from tests.support import apache
from tests.support.share_script import SETTINGS

pytestmark = [pytest.mark.java, pytest.mark.long, pytest.mark.timeout(300)]

QUICK = {
    "group.share.min.heartbeat.interval.ms": "100",
    "group.share.heartbeat.interval.ms": "100",
    "group.share.assignment.interval.ms": "0",
}
LINES = "".join(f"{name}={value}\n" for name, value in {**SETTINGS, **QUICK}.items())
EXPLICIT = {"share.acknowledgement.mode": "explicit"}
Wait = Callable[..., None]
WAIT_S = 60.0


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a broker with three topics, which three groups read from the beginning."""
    try:
        apache.jars()
    except apache.Unavailable as reason:
        pytest.skip(str(reason))
    with apache.Broker(tmp_path_factory.mktemp("kafka") / "data", LINES) as broker:
        with kafkalog.Admin(broker.bootstrap_servers) as admin:
            for topic in ("t", "renewed", "implicit"):
                admin.create_topic(topic, 1 if topic == "renewed" else 2)
            for group in ("g", "renews", "implicit"):
                change = {"share.auto.offset.reset": "earliest",
                          "share.record.lock.duration.ms": 1000}  # fmt: skip
                admin.alter_configs({("group", group): change}).check()
        yield broker.bootstrap_servers


def fill(address: str, topic: str, count: int) -> None:
    with kafkalog.Producer(address) as producer:
        for number in range(count):
            producer.send(topic, b"%d" % number, partition=number % 2)


def test_workers_share_release_and_reject(kafka: str, wait_until: Wait) -> None:
    """Each record is done once; released ones come again, with a higher count."""
    fill(kafka, "t", 40)
    done: dict[bytes | None, list[int]] = {}
    with (
        ShareConsumer(kafka, "t", group="g", config=EXPLICIT) as one,
        ShareConsumer(kafka, "t", group="g", config=EXPLICIT) as other,
    ):

        def work() -> bool:
            for each in (one, other):
                for record in each.poll(100):
                    number = int(record.value or b"")
                    if number % 4 == 1 and record.delivery_count == 1:
                        each.acknowledge(record, "release")
                        continue
                    each.acknowledge(record, "reject" if number % 4 == 2 else "accept")
                    done.setdefault(record.value, []).append(record.delivery_count)
            return len(done) == 40

        wait_until(work, "all records", WAIT_S)
        for each in (one, other):
            each.commit().check()
            assert each.poll(300) == []
        both = {*one.assignment, *other.assignment}
        assert both == {TopicPartition("t", 0), TopicPartition("t", 1)}
    for value, counts in done.items():
        assert len(counts) == 1, value
        assert counts[0] >= (2 if int(value or b"") % 4 == 1 else 1)


def test_renewals_and_locks_that_end(kafka: str, wait_until: Wait) -> None:
    fill(kafka, "renewed", 1)
    with ShareConsumer(kafka, "renewed", group="renews", config=EXPLICIT) as one:
        found: list[Any] = []
        wait_until(lambda: found.extend(one.poll(100)) or found, "the record", WAIT_S)
        (record,) = found
        for _ in range(4):  # longer than its lock, in all
            one.acknowledge(record, "renew")
            assert one.commit().check() == {TopicPartition("renewed", 0): [0]}
            (again,) = one.poll(300)
            assert again == record
        with ShareConsumer(kafka, "renewed", group="renews", config=EXPLICIT) as other:
            again_there: list[Any] = []
            wait_until(
                lambda: again_there.extend(other.poll(100)) or again_there, "its lock ends", WAIT_S
            )
            assert [row.delivery_count for row in again_there] == [2]
            one.acknowledge(record)
            (problem,) = one.commit().errors.values()
            assert isinstance(problem, errors.InvalidRecordState)
            other.acknowledge(again_there[0])
            assert list(other.commit().check().values()) == [[0]]


def test_an_implicit_worker_and_its_end(kafka: str, wait_until: Wait) -> None:
    """The record whose work fails is released, and comes to the next worker at once."""
    fill(kafka, "implicit", 6)
    seen: list[bytes | None] = []
    told: list[int] = []

    def note(offsets: dict[TopicPartition, list[int]], problem: Exception | None) -> None:
        assert problem is None
        told.extend(offset for some in offsets.values() for offset in some)

    limited = {"share.acquire.mode": "record_limit", "max.poll.records": 2}
    with (
        pytest.raises(RuntimeError),
        ShareConsumer(
            kafka, "implicit", group="implicit", config=limited, on_acknowledged=note
        ) as one,
    ):
        for record in one:
            if len(seen) == 3:
                raise RuntimeError
            seen.append(record.value)
    assert len(told) == 3
    with ShareConsumer(kafka, "implicit", group="implicit") as other:
        rest: list[bytes | None] = []

        def more() -> bool:
            rest.extend(record.value for record in other.poll(100))
            return len(rest) == 3

        wait_until(more, "the rest", WAIT_S)
    assert sorted(map(int, [*seen, *rest])) == list(range(6))  # type: ignore[arg-type]
