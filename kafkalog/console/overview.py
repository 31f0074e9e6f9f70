"""The cluster as the console shows it: nodes, leaders, moves, the quorum, the last hour."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, TypeVar

from kafkalog import errors
from kafkalog.client.calls.quorum import QuorumInfo, QuorumReplica
from kafkalog.console.asked import Asked
from kafkalog.console.known import Known
from kafkalog.console.person import Person
from kafkalog.watch.history import BYTES_PER_S, LAG, RECORDS_PER_S

__all__ = ["cluster", "history"]

T = TypeVar("T")
MOVES_MAX = 200
UNHEALTHY_MAX = 200


def cluster(person: Person, asked: Asked) -> dict[str, Any]:
    """The cluster; parts that the user may not see are null, and `hidden` says why."""
    hidden: dict[str, str] = {}

    def tried(name: str, call: Callable[[], T]) -> T | None:
        try:
            return call()
        except errors.KafkalogError as problem:
            hidden[name] = str(problem)
            return None

    info = person.admin.describe_cluster()
    quorum = tried("quorum", person.admin.describe_quorum)
    moves = tried("moves", person.admin.list_partition_reassignments)
    dirs = tried("dirs", lambda: person.admin.describe_log_dirs(partitions=[]).done)
    known = person.known()
    leads, holds, behind = _counts(known)
    return {
        "id": info.cluster_id, "controller": info.controller, "hidden": hidden,
        "nodes": [
            {"node": one.node, "host": one.host, "port": one.port, "rack": one.rack,
             "leads": leads[one.node], "replicas": holds[one.node], "behind": behind[one.node],
             "dirs": [{"path": d.path, "total": d.total_bytes, "free": d.usable_bytes,
                       "failed": d.failed is not None} for d in (dirs or {}).get(one.node, ())]}
            for one in info.nodes
        ],
        "quorum": None if quorum is None else _quorum(quorum),
        "moves": None if moves is None else [
            {"topic": tp.topic, "partition": tp.partition, "replicas": one.replicas,
             "adding": one.adding, "removing": one.removing}
            for tp, one in sorted(moves.items())[:MOVES_MAX]
        ],
        **_unhealthy(known),
    }  # fmt: skip


def history(person: Person, asked: Asked) -> dict[str, Any]:
    """The last hour of a series: `kind` cluster, topic or group, its `name`, and `value`."""
    kind = asked.one_of("kind", ("cluster", "topic", "group"), "cluster")
    value = asked.one_of("value", (RECORDS_PER_S, BYTES_PER_S, LAG), RECORDS_PER_S)
    return {"points": person.points(kind, asked.text("name", ""), value)}


def _counts(known: Known) -> tuple[Counter[int], Counter[int], Counter[int]]:
    """By node: partitions that it leads, replicas that it has, those that are not in sync."""
    holds, behind = Counter[int](), Counter[int]()
    leads = Counter(p.leader for one in known.topics.values() for p in one.partitions.values())
    # Many partitions have the same nodes.
    alike = Counter(p.replicas for one in known.topics.values() for p in one.partitions.values())
    for replicas, count in alike.items():
        for node in replicas:
            holds[node] += count
    for name in known.under:
        for one in known.topics[name].partitions.values():
            behind.update(set(one.replicas) - set(one.isr))
    return leads, holds, behind


def _unhealthy(known: Known) -> dict[str, Any]:
    some = [
        (name, one)
        for name in known.topics if name in known.under or name in known.offline
        for one in known.topics[name].partitions.values()
        if one.leader < 0 or len(one.isr) < len(one.replicas)
    ]  # fmt: skip
    return {
        "topics": len(known.topics),
        "partitions": sum(len(topic.partitions) for topic in known.topics.values()),
        "unhealthy_count": len(some), "offline": sum(known.offline.values()),
        "unhealthy": [
            {"topic": name, "partition": one.partition, "leader": one.leader,
             "replicas": one.replicas, "isr": one.isr}
            for name, one in some[:UNHEALTHY_MAX]
        ],
    }  # fmt: skip


def _quorum(found: QuorumInfo) -> dict[str, Any]:
    def row(one: QuorumReplica, kind: str) -> dict[str, Any]:
        return {
            "node": one.node, "kind": kind, "end": one.end_offset,
            "lag": max(0, _end(found) - one.end_offset), "fetched_ms": one.fetched_ms,
            "caught_up_ms": one.caught_up_ms,
        }  # fmt: skip

    return {
        "leader": found.leader, "epoch": found.leader_epoch, "high_watermark": found.high_watermark,
        "replicas": [row(one, "voter") for one in found.voters]
        + [row(one, "observer") for one in found.observers],
    }  # fmt: skip


def _end(found: QuorumInfo) -> int:
    return max((one.end_offset for one in found.voters if one.node == found.leader), default=0)
