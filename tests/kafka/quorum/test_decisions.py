"""Our controller writes the records that Apache Kafka's writes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkalog.metadata.image import BROKER, TOPIC
from kafkalog.wire.tables.cluster import UNREGISTER_BROKER
from kafkalog.wire.tables.internal import ALLOCATE_PRODUCER_IDS
from tests.kafka.quorum import deciding
from tests.kafka.quorum.deciding import (
    SETTINGS,
    Ours,
    Step,
    Theirs,
    acl,
    alter_isr,
    assign,
    beat,
    configure,
    create,
    delete,
    elect,
    epoch,
    feature,
    more,
    move,
    quota,
    register,
    replace,
    scram,
    taken,
    without_acls,
)
from tests.kafka.quorum.nodes import Quorum
from tests.support import apache

pytestmark = [pytest.mark.java, pytest.mark.long, pytest.mark.timeout(600)]
UNCLEAN = {"unclean_leader_election_enable": "true"}


@pytest.fixture(scope="module")
def quorum(memory: Path) -> Iterator[Quorum]:
    try:
        with Quorum(memory / "decisions", [], SETTINGS) as running:
            yield running
    except apache.Unavailable as reason:
        pytest.skip(f"Apache Kafka cannot run here: {reason}")


def test_the_same_records(quorum: Quorum) -> None:
    wrong = []
    with Theirs(quorum) as theirs:
        begun = theirs.written()
        ours = Ours(quorum.cluster, begun[1:-1])  # without the transaction's begin and end
        assert list(map(str, ours.written())) == list(map(str, begun))
        for number, step in enumerate(STEPS):
            one, other = taken(theirs, step), taken(ours, step)
            if one != other:
                wrong.append(deciding.difference(f"{number} {step.api.name}", one, other))
    print("\n".join(wrong))
    assert not wrong


def restart(number: int, life: int, clean: bool) -> list[Step]:
    """A broker that is alive begins another life."""
    return [
        beat(number, want_fence=True),
        register(number, life, lambda side: epoch(side, number) if clean else -1),
        beat(number),
    ]


STEPS: list[Step] = [
    *(step for number in (2, 3, 4, 5) for step in (register(number, 1), beat(number))),
    beat(2),
    # leaders and ISRs
    create("t", [2, 3, 4], [3, 4, 2], min_insync_replicas="2"),
    create("u", [2, 3], **UNCLEAN),
    beat(2, want_fence=True),
    beat(3, want_fence=True),
    beat(4, want_fence=True),
    beat(4),
    beat(3),
    beat(2),
    alter_isr("t", 4, 2),
    alter_isr("t", 4, 2, 3),
    alter_isr("t", 4),
    alter_isr("t", 4, 5),
    alter_isr("u", 2, 3),
    # unclean deaths
    *restart(4, 2, clean=False),
    alter_isr("t", 2, 4),
    *restart(2, 2, clean=True),
    *restart(3, 2, clean=False),
    *restart(4, 3, clean=False),
    *restart(2, 3, clean=False),
    elect(1, ("t", 0), ("t", 1)),
    elect(0, ("t", 0), ("t", 1), ("t", 7), ("none", 0)),
    # controlled shutdown
    create("c", [2, 3], [3, 2]),
    beat(2, want_shut_down=True),
    beat(3),
    beat(4),
    beat(5),
    beat(2, want_shut_down=True),
    create("d", [2]),
    create("d", [2, 4], [2]),
    register(2, 9, lambda side: epoch(side, 2)),
    beat(2, want_fence=True),
    alter_isr("c", 3, 2),
    elect(0, ("c", 0)),
    register(6, 1),
    beat(6),
    # moves
    create("m", [6, 3]),
    move("m", [3, 6]),
    move("m", [4, 6]),
    alter_isr("m", 3, 6, 4),
    move("m", [5, 3]),
    move("m", None),
    move("m", None),
    move("m", [5]),
    alter_isr("m", 6, 4, 5),
    move("m", [9]),
    # settings
    configure(TOPIC, "t", retention_ms="5"),
    configure(TOPIC, "t", retention_ms="5"),
    configure(TOPIC, "t", min_insync_replicas="1", retention_ms=None),
    configure(BROKER, "", min_insync_replicas="2"),
    configure(BROKER, "", min_insync_replicas=None),
    configure(BROKER, "6", min_insync_replicas="2"),
    configure(BROKER, "6", log_cleaner_threads="2"),
    configure(BROKER, "6", log_cleaner_threads="2"),
    configure(BROKER, "77", log_cleaner_threads="2"),
    configure(BROKER, "6", listener_name_plaintext_ssl_keystore_location="/none"),
    replace(TOPIC, "t", retention_ms="9", cleanup_policy="compact"),
    replace(TOPIC, "t"),
    replace(TOPIC, "none", retention_ms="9"),
    configure(TOPIC, "t", retention_ms="x"),
    beat(3, want_fence=True),
    beat(6, want_fence=True),
    beat(6),
    beat(3),
    # what protects a cluster
    scram("alice", 1, 4096),
    scram("alice", 2, 1),
    scram("alice", 1, None),
    scram("alice", 1, None),
    quota("alice", producer_byte_rate=1000.0),
    quota("alice", producer_byte_rate=1000.0, request_percentage=5.0),
    quota("alice", producer_byte_rate=None, nonsense=1.0),
    quota("alice", producer_byte_rate=None),
    acl("User:alice", "t"),
    acl("User:alice", "t"),
    without_acls("User:alice"),
    feature("transaction.version", 1, 2),
    feature("transaction.version", 2, 1),
    feature("transaction.version", 9, 1),
    feature("metadata.version", 31, 2),
    feature("eligible.leader.replicas.version", 0, 2),
    beat(4, want_fence=True),
    beat(5, want_fence=True),
    beat(5),
    beat(4),
    feature("eligible.leader.replicas.version", 1, 1),
    # min.insync.replicas while replicas are eligible, and brokers that are gone
    create("k", [3, 4, 5], min_insync_replicas="3"),
    beat(3, want_fence=True),
    beat(4, want_fence=True),
    configure(TOPIC, "k", min_insync_replicas="2"),
    configure(BROKER, "", min_insync_replicas="3"),
    beat(3),
    beat(4),
    alter_isr("k", 5, 3),
    alter_isr("k", 5, 3, 4),
    move("k", [3, 6]),
    alter_isr("k", 5),
    beat(5, want_fence=True),
    beat(5),
    alter_isr("k", 5, 3, 6),
    # directories
    register(7, 1, directories=2),
    beat(7),
    create("e", [7, 3], [3, 7]),
    assign(7, 1, "e", 0, 1, 5),
    assign(7, 0, "e", 0, 0),
    assign(7, 9, "e", 0),
    beat(7, offline_log_dirs=[deciding.directory(7, 1)]),
    beat(7, cordoned_log_dirs=[deciding.directory(7, 0)]),
    beat(7),
    Step(ALLOCATE_PRODUCER_IDS, lambda side: {"broker_id": 7, "broker_epoch": epoch(side, 7)}),
    Step(ALLOCATE_PRODUCER_IDS, lambda side: {"broker_id": 7, "broker_epoch": 1}),
    delete("t"),
    delete("no"),
    create("n", [3, 4], min_insync_replicas="2"),
    beat(4, want_fence=True),
    Step(UNREGISTER_BROKER, lambda _: {"broker_id": 4}),
    register(4, 20),
    beat(4),
    Step(UNREGISTER_BROKER, lambda _: {"broker_id": 7}),
    Step(UNREGISTER_BROKER, lambda _: {"broker_id": 77}),
    more("u", 4, [[3, 4], [4, 3]]),
    more("u", 4, [[3, 4]]),
    more("u", 5, [[2, 7]]),
    more("u", 5, [[2]]),
]
