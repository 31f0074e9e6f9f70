"""Reassignments and elections that clients ask for, and the balance of leaderships.

Steps, as defined in kafkalog.controller.active.  The rules are those of Apache Kafka's
ReplicationControlManager (KIP-455, KIP-460).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kafkalog.controller.active import Active, Steps
from kafkalog.controller.topic_rules import check_assignments
from kafkalog.metadata.configs import Refused
from kafkalog.metadata.image import MetadataImage, Partition, Topic
from kafkalog.quorum.deciding import Deciding
from kafkalog.quorum.partition_changes import Election, in_move, wanted
from kafkalog.quorum.sessions import Committed
from kafkalog.quorum.writing import MetadataRecord, MetadataRecords
from kafkalog.wire.error_codes import ErrorCode

__all__ = [
    "alter_reassignments", "elect_leaders", "elect_unclean", "list_reassignments", "rebalance",
]  # fmt: skip

Body = dict[str, Any]
PREFERRED, UNCLEAN = 0, 1
ELECTIONS_MAX = 1000
"""Elections in one append of a clock's work."""


# ---- elections ---------------------------------------------------------------------------------


def elect_leaders(store: Committed, active: Active, request: Any, version: int) -> Steps[Body]:
    """ElectLeaders; a request for all partitions returns only those with something to report."""
    kind = request.election_type if version > 0 else PREFERRED
    if kind not in (PREFERRED, UNCLEAN):
        return {"error_code": ErrorCode.INVALID_REQUEST, "replica_election_results": []}
    deciding = Deciding(store.image, active.options.config)
    asked = request.topic_partitions
    if asked is None:
        pairs = [(name, list(topic.partitions)) for name, topic in store.image.topics.items()]
    else:
        pairs = [(one.topic, one.partitions) for one in asked]
    records: list[MetadataRecord] = []
    results: list[Body] = []
    done: set[tuple[str, int]] = set()
    for name, numbers in pairs:
        rows: list[Body] = []
        results.append({"topic": name, "partition_result": rows})
        for number in numbers:
            made, code, why = _elected(deciding, name, number, kind)
            if (name, number) not in done:
                records += made
            done.add((name, number))
            if asked is not None or code != ErrorCode.ELECTION_NOT_NEEDED:
                row = {"partition_id": number, "error_code": code, "error_message": why}
                rows.append(row)
    yield MetadataRecords(records, atomic=False)
    return {"error_code": ErrorCode.NONE, "replica_election_results": results}


def _elected(
    deciding: Deciding, name: str, number: int, kind: int
) -> tuple[list[MetadataRecord], ErrorCode, str | None]:
    topic = deciding.image.topics.get(name)
    one = None if topic is None else topic.partitions.get(number)
    if topic is None or one is None:
        missing = f"topic as {name}" if topic is None else f"partition as {name}-{number}"
        return [], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such {missing}"
    if one.leader >= 0 if kind == UNCLEAN else one.leader == one.replicas[0]:
        why = "Leader election not needed for topic partition."
        return [], ErrorCode.ELECTION_NOT_NEEDED, why
    how = Election.UNCLEAN if kind == UNCLEAN else Election.PREFERRED
    made = deciding.record((topic, one), wanted(one, how))
    if made:
        return made, ErrorCode.NONE, None
    if kind == UNCLEAN:
        why = "Eligible topic partition leaders are not available."
        return [], ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, why
    why = "The preferred leader was not available."
    return [], ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, why


def rebalance(store: Committed, active: Active) -> Steps[None]:
    """Move leaderships back to the preferred leaders (auto.leader.rebalance.enable)."""
    yield from _elect(store, active, Election.PREFERRED, (
        (topic, one) for topic, one in store.image.partitions() if one.leader != one.replicas[0]
    ))  # fmt: skip


def elect_unclean(store: Committed, active: Active) -> Steps[None]:
    """Elect leaders out of sync for partitions without any, where their topics allow it."""
    deciding = Deciding(store.image, active.options.config)
    rows = [row for row in deciding.leaderless() if deciding.unclean(row[0].name)]
    yield from _elect(store, active, Election.UNCLEAN, rows)


def _elect(
    store: Committed, active: Active, how: Election, rows: Iterable[tuple[Topic, Partition]]
) -> Steps[None]:
    deciding = Deciding(store.image, active.options.config)
    records: list[MetadataRecord] = []
    for topic, one in rows:
        records += deciding.record((topic, one), wanted(one, how))
        if len(records) >= ELECTIONS_MAX:
            yield MetadataRecords(records)
            records = []
    yield MetadataRecords(records)


# ---- reassignments -----------------------------------------------------------------------------


def alter_reassignments(store: Committed, active: Active, request: Any) -> Steps[Body]:
    """AlterPartitionReassignments: move partitions to other brokers, or cancel that."""
    deciding = Deciding(store.image, active.options.config)
    change_factor = request.allow_replication_factor_change
    records: list[MetadataRecord] = []
    responses = []
    done: set[tuple[str, int]] = set()
    for topic in request.topics:
        rows = []
        for asked in topic.partitions:
            row = {"partition_index": asked.partition_index, "error_code": ErrorCode.NONE,
                   "error_message": None}  # fmt: skip
            key = topic.name, asked.partition_index
            try:
                if key not in done:
                    records += _move(deciding, topic.name, asked, change_factor)
                done.add(key)
            except Refused as error:
                row.update(error_code=error.code, error_message=str(error))
            rows.append(row)
        responses.append({"name": topic.name, "partitions": rows})
    yield MetadataRecords(records)
    return {"error_code": ErrorCode.NONE, "error_message": None, "responses": responses,
            "allow_replication_factor_change": change_factor}  # fmt: skip


def _move(deciding: Deciding, name: str, asked: Any, change_factor: bool) -> list[MetadataRecord]:
    """The record of one move.  Raises: Refused."""
    topic = deciding.image.topics.get(name)
    number = asked.partition_index
    one = None if topic is None else topic.partitions.get(number)
    if topic is None or one is None:
        missing = f"a topic named {name}" if topic is None else f"partition {name}:{number}"
        raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find {missing}.")
    if asked.replicas is None:
        return _cancel(deciding, topic, one)
    origin = _without(one.replicas, one.adding_replicas)
    check_assignments(deciding.image.brokers, [asked.replicas])
    if not change_factor and len(asked.replicas) != len(origin):
        raise Refused(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"The replication factor is changed from {len(origin)} to {len(asked.replicas)}",
        )
    removing = tuple(sorted({*one.replicas} - {*asked.replicas}))
    adding = tuple(sorted({*asked.replicas} - {*one.replicas}))
    to = wanted(one)._replace(
        replicas=(*asked.replicas, *removing), removing=removing or one.removing_replicas,
        adding=adding or one.adding_replicas,
    )  # fmt: skip
    return deciding.record((topic, one), to)


def _cancel(deciding: Deciding, topic: Topic, one: Partition) -> list[MetadataRecord]:
    if not in_move(one):
        raise Refused(
            ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "No partition reassignment is in progress."
        )
    replicas = _without(one.replicas, one.adding_replicas)
    isr = _without(one.isr, one.adding_replicas)
    if not isr:
        if not deciding.unclean(topic.name):
            raise Refused(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Unable to revert partition assignment for {topic.name}:{one.partition} because "
                "it would require an unclean leader election.",
            )
        isr = replicas[:1]
    to = wanted(one, deciding.election(topic))._replace(
        isr=isr, replicas=replicas, removing=(), adding=()
    )
    return deciding.record((topic, one), to)


def _without(those: tuple[int, ...], others: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(one for one in those if one not in others)


def list_reassignments(image: MetadataImage, request: Any) -> Body:
    """ListPartitionReassignments: the moves under way."""
    names = [(one.name, one.partition_indexes) for one in request.topics or ()]
    if request.topics is None:
        names = [(name, list(topic.partitions)) for name, topic in image.topics.items()]
    rows = []
    for name, numbers in names:
        found = [
            {"partition_index": number, "replicas": list(one.replicas),
             "adding_replicas": list(one.adding_replicas),
             "removing_replicas": list(one.removing_replicas)}
            for number in dict.fromkeys(numbers)
            if (one := image.partition(name, number)) is not None and in_move(one)
        ]  # fmt: skip
        if found:
            rows.append({"name": name, "partitions": found})
    return {"error_code": ErrorCode.NONE, "error_message": None, "topics": rows}
