"""Clients of a broker of ours, whose requests a controller of Apache Kafka or of ours answers; and
transactions over both kinds of brokers."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

import kafkalog
from kafkalog.types import TopicPartition
from kafkalog.wire import apis
from tests.kafka.quorum.nodes import CONTROLLER, KAFKA, OURS, Quorum, until
from tests.support import apache
from tests.support.raw import Raw

pytestmark = [pytest.mark.java, pytest.mark.long, pytest.mark.timeout(600)]
THEIRS, MINE = 2, 3


@pytest.fixture(scope="module", params=[KAFKA, OURS])
def quorum(request: pytest.FixtureRequest, memory: Path) -> Iterator[Quorum]:
    """Under a controller of either kind."""
    home, kinds = memory / f"requests-{request.param}", {CONTROLLER: request.param}
    try:
        with Quorum(home, [THEIRS, MINE], kinds=kinds) as running:
            running.nodes[THEIRS].begin(KAFKA)
            running.nodes[MINE].begin(OURS)
            running.all_known()
            yield running
    except apache.Unavailable as reason:
        pytest.skip(f"Apache Kafka cannot run here: {reason}")


@pytest.fixture
def admin(quorum: Quorum) -> Iterator[kafkalog.Admin]:
    """It knows our broker only, so all its requests go there first."""
    with kafkalog.Admin(quorum.nodes[MINE].address) as made:
        yield made


def test_topics_are_administered(quorum: Quorum, admin: kafkalog.Admin) -> None:
    admin.create_topics([("run", -1, -1, {}, ([MINE, THEIRS],))]).check()
    quorum.led("run", MINE)
    admin.create_partitions({"run": 2}, {"run": [[THEIRS, MINE]]}).check()
    quorum.led("run", THEIRS, 1)
    admin.alter_configs({("topic", "run"): {"retention.ms": "12345"}}).check()
    until(
        lambda: admin.describe_configs([("topic", "run")]).check()[("topic", "run")][
            "retention.ms"
        ].value == "12345",
        "the setting is known",
    )  # fmt: skip
    quorum.produce("run", range(10))
    admin.delete_records({("run", 0): 5}).check()
    admin.delete_topics(["run"]).check()
    folder = quorum.nodes[MINE].data / "run-0"
    until(lambda: not folder.exists(), "its folder is gone")


def test_a_replica_is_moved_and_back(quorum: Quorum, admin: kafkalog.Admin) -> None:
    admin.create_topics([("moved", -1, -1, {}, ([THEIRS],))]).check()
    quorum.led("moved", THEIRS)
    quorum.produce("moved", range(100))
    folder = quorum.nodes[MINE].data / "moved-0"
    for to, is_here in ((MINE, True), (THEIRS, False)):
        admin.alter_partition_reassignments({("moved", 0): [to]}).check()
        quorum.led("moved", to)
        quorum.in_sync("moved", to)
        until(lambda: not admin.list_partition_reassignments(), "it has moved")
        until(lambda is_here=is_here: folder.exists() == is_here, f"a folder: {is_here}")
    assert quorum.consumed("moved", 100, "movers") == [b"%d" % n for n in range(100)]


def test_the_first_replica_is_elected(quorum: Quorum, admin: kafkalog.Admin) -> None:
    admin.create_topics([("elected", -1, -1, {}, ([MINE, THEIRS],))]).check()
    quorum.in_sync("elected", MINE, THEIRS)
    quorum.nodes[MINE].stop()
    quorum.led("elected", THEIRS)
    quorum.nodes[MINE].begin()
    quorum.in_sync("elected", MINE, THEIRS)
    admin.elect_leaders([("elected", 0)]).check()
    quorum.led("elected", MINE)


def test_the_quorum_is_described(quorum: Quorum, admin: kafkalog.Admin) -> None:
    """By its leader: our broker is an observer that has caught up."""
    found = admin.describe_quorum()
    assert found.leader == CONTROLLER
    assert {one.node for one in found.observers} == {THEIRS, MINE}
    ends = {one.node: one.end_offset for one in found.observers}
    assert abs(ends[MINE] - ends[THEIRS]) < 100


def coordinated_by(quorum: Quorum, node: int) -> str:
    """A transactional id that a broker coordinates."""
    names = [f"named{number}" for number in range(32)]

    def found() -> str | None:
        with contextlib.suppress(OSError), Raw(quorum.nodes[MINE].address) as raw:
            rows = raw.call(
                apis.FIND_COORDINATOR, 4, key_type=1, coordinator_keys=names
            ).coordinators
            return next((row.key for row in rows if row.node_id == node), None)
        return None

    name: str = until(found, f"{node} coordinates some")
    return name


@pytest.mark.parametrize("coordinator", [THEIRS, MINE], ids=["theirs", "ours"])
def test_transactions_span_both_kinds(quorum: Quorum, coordinator: int) -> None:
    topic = f"spanned{coordinator}"
    quorum.create(topic, [THEIRS, MINE], [MINE, THEIRS])
    name = coordinated_by(quorum, coordinator)
    with kafkalog.Producer(quorum.bootstrap, transactional_id=name) as producer:
        for n in range(4):
            with contextlib.suppress(KeyError), producer.transaction():
                for partition in (0, 1):
                    producer.send(topic, b"%d" % n, partition=partition)
                producer.send_offsets({TopicPartition(topic, 0): n}, "spanning")
                producer.flush()
                if n % 2:
                    raise KeyError(n)
    found: list[bytes] = []
    with kafkalog.Consumer(
        quorum.bootstrap, isolation="read_committed", auto_offset_reset="earliest"
    ) as consumer:
        consumer.assign([TopicPartition(topic, n) for n in (0, 1)])
        until(lambda: found.extend(one.value for one in consumer.poll(500)) or len(found) >= 4,
              "what was committed")  # fmt: skip
    assert sorted(found) == [b"0", b"0", b"2", b"2"]
    for partition in (0, 1):
        assert quorum.same(topic, THEIRS, MINE, partition=partition) == 8
