"""Our consumer with `group.protocol=consumer`, against Apache Kafka."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import kafkalog
from kafkalog import TopicPartition, errors
from tests.support import apache

pytestmark = [pytest.mark.slow, pytest.mark.java]

QUICK = """\
group.consumer.min.heartbeat.interval.ms=100
group.consumer.heartbeat.interval.ms=100
group.consumer.min.session.timeout.ms=3000
group.consumer.session.timeout.ms=3000
group.consumer.assignment.interval.ms=0
"""
FOUR = [TopicPartition("t", number) for number in range(4)]
Wait = Callable[..., None]
JOIN_S = 60.0


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a broker with topic t."""
    try:
        apache.jars()
    except apache.Unavailable as reason:
        pytest.skip(str(reason))
    with apache.Broker(tmp_path_factory.mktemp("kafka") / "data", QUICK) as broker:
        with kafkalog.Admin(broker.bootstrap_servers) as admin:
            admin.create_topic("t", 4)
        with kafkalog.Producer(broker.bootstrap_servers) as producer:
            for number in range(40):
                producer.send("t", b"%d" % number, partition=number % 4)
        yield broker.bootstrap_servers


def joined(address: str, group: str, pattern: str | None = None, **options: Any) -> Any:
    made = kafkalog.Consumer(
        address, group=group, group_protocol="consumer", auto_offset_reset="earliest", **options
    )
    made.subscribe(["t"] if pattern is None else None, pattern=pattern)
    return made


def read_all(consumer: Any, wait_until: Wait) -> None:
    """Until it has the forty records."""
    count = 0

    def enough() -> bool:
        nonlocal count
        count += len(consumer.poll(20))
        return count == 40

    wait_until(enough, "the records", JOIN_S)


def shared(*some: Any) -> bool:
    """Poll each; True if all have partitions, and each partition one owner."""
    for one in some:
        one.poll(20)
    return sorted(tp for one in some for tp in one.assignment) == FOUR and all(
        one.assignment for one in some
    )


@pytest.mark.parametrize("assignor", ["uniform", "range"])
def test_members_share_commit_and_leave(kafka: str, assignor: str, wait_until: Wait) -> None:
    """A commit is made in an epoch that has risen since the partitions were given."""
    config = {"group.remote.assignor": assignor}
    one = joined(kafka, assignor, config=config)
    read_all(one, wait_until)
    other = joined(kafka, assignor, config=config)
    wait_until(lambda: shared(one, other), "both have some", JOIN_S)
    one.commit()
    other.close()
    wait_until(lambda: shared(one), "the first has all", JOIN_S)
    one.commit()
    one.close()
    with kafkalog.Consumer(kafka, group=assignor) as reader:
        committed = reader.committed(FOUR)
    assert {tp: found.offset for tp, found in committed.items()} == dict.fromkeys(FOUR, 10)


def test_kafka_resolves_a_pattern(kafka: str, wait_until: Wait) -> None:
    with joined(kafka, "pattern", "t+") as one:
        read_all(one, wait_until)
        assert one.assignment == FOUR


def test_a_static_member_returns(kafka: str, wait_until: Wait) -> None:
    """While it is there, its instance id is refused to another."""
    one = joined(kafka, "static", group_instance_id="i")
    wait_until(lambda: shared(one), "its partitions", JOIN_S)
    with (
        joined(kafka, "static", group_instance_id="i") as other,
        pytest.raises(errors.KafkalogError, match="instance"),
    ):
        wait_until(lambda: shared(other), "the refusal", JOIN_S)
    one.close()
    with joined(kafka, "static", group_instance_id="i") as again:
        wait_until(lambda: shared(again), "its partitions", JOIN_S)


def test_a_dead_members_partitions_go_to_the_other(kafka: str, wait_until: Wait) -> None:
    one, dead = joined(kafka, "dead"), joined(kafka, "dead")
    wait_until(lambda: shared(one, dead), "both have some", JOIN_S)
    dead._heartbeats.stop()  # its process has ended
    wait_until(lambda: shared(one), "the first has all", JOIN_S)
    one.close()
    dead.close(commit=False, timeout_ms=0)
