"""`kafkalog cluster status`: nodes, leaders, and every partition that is not as it should be."""

from __future__ import annotations

import argparse
from collections import Counter
from typing import TYPE_CHECKING, Any

from kafkalog.cli.cluster.looking import Look, chosen, look, sizes
from kafkalog.cli.common import json_line, plural, show_bytes, table
from kafkalog.client.calls.copies import copy_offsets
from kafkalog.client.calls.nodes import ReplicaOf
from kafkalog.client.calls.replicas import Reassignment, list_reassignments
from kafkalog.errors import KafkalogError

if TYPE_CHECKING:
    from kafkalog.client.link.cluster import Cluster
    from kafkalog.client.link.metadata import PartitionInfo
    from kafkalog.types import TopicPartition

__all__ = ["run"]

Row = dict[str, Any]
SHOWN_MAX = 50
"""Partitions shown in the table; JSON has all."""
PATIENCE_MS = 3_000
"""Shown for nodes that do not report how far, or how large, their replicas are."""
MIN_ISR = "min.insync.replicas"
OFFLINE, UNDER_MIN, UNDER, MOVING = (
    "offline", "under min isr", "under-replicated", "moving",
)  # fmt: skip


def run(cluster: Cluster, options: argparse.Namespace, words: list[str]) -> int:
    """Show it; returns 1 if there is a problem."""
    found = look(cluster)
    some = chosen(found, words)
    moving = _moving(cluster)
    ends = _ends(cluster, found, some)
    least = _least(cluster, found, some)
    partitions = [_partition(found, tp, ends, least, moving.get(tp)) for tp in some]
    wrong = [row for row in partitions if row["state"] not in ("in sync", MOVING)]
    nodes = _nodes(found, partitions, sizes(cluster, found, PATIENCE_MS))
    if options.json:
        for row in (*nodes, *partitions):
            print(json_line(row))
    else:
        _show(found, nodes, partitions, wrong)
    return 1 if wrong or found.controller < 0 else 0


# ---- what is asked -------------------------------------------------------------------------


def _moving(cluster: Cluster) -> dict[TopicPartition, Reassignment]:
    """Empty if nobody can say: an old broker, or no controller now."""
    try:
        return list_reassignments(cluster)
    except KafkalogError:
        return {}


def _ends(cluster: Cluster, found: Look, some: list[TopicPartition]) -> dict[ReplicaOf, int]:
    """The log ends on live nodes, as far as these report them."""
    copies = [
        ReplicaOf(*tp, node)
        for tp in some
        for node in found.partitions[tp].replicas
        if node in found.nodes
    ]
    return copy_offsets(cluster, copies, timeout_ms=PATIENCE_MS).done


def _least(cluster: Cluster, found: Look, some: list[TopicPartition]) -> dict[str, int]:
    """min.insync.replicas of topics with a replica out of sync."""
    from kafkalog.client.calls.configs import ConfigResource, describe_configs

    topics = {
        tp.topic
        for tp in some
        if len(found.partitions[tp].isr) < len(found.partitions[tp].replicas)
    }
    resources = [ConfigResource("topic", name) for name in sorted(topics)]
    results = describe_configs(cluster, resources, [MIN_ISR])
    values = {one.name: row[MIN_ISR].value for one, row in results.done.items() if MIN_ISR in row}
    return {name: int(value) for name, value in values.items() if value}


# ---- rows ----------------------------------------------------------------------------------


def _partition(
    found: Look, tp: TopicPartition, ends: dict[ReplicaOf, int], least: dict[str, int],
    move: Reassignment | None,
) -> Row:  # fmt: skip
    info = found.partitions[tp]
    end = ends.get(ReplicaOf(*tp, info.leader))
    behind = {
        str(node): None if at is None or end is None else max(end - at, 0)
        for node in info.replicas
        if node != info.leader
        for at in (ends.get(ReplicaOf(*tp, node)),)
    }
    return {
        "topic": tp.topic,
        "partition": tp.partition,
        "state": _state(info, least.get(tp.topic, 1), move),
        "leader": info.leader,
        "leader_epoch": info.leader_epoch,
        "replicas": list(info.replicas),
        "isr": list(info.isr),
        "min_isr": least.get(tp.topic),
        "behind": behind,
        "adding": list(move.adding) if move else [],
        "removing": list(move.removing) if move else [],
    }


def _state(info: PartitionInfo, least: int, move: Reassignment | None) -> str:
    if info.leader < 0:
        return OFFLINE
    if len(info.isr) < least:
        return UNDER_MIN
    adding = set(move.adding) if move else set()
    if set(info.replicas) - set(info.isr) - adding:
        return UNDER
    return MOVING if move else "in sync"


def _nodes(
    found: Look, partitions: list[Row], held: dict[int, dict[TopicPartition, int]]
) -> list[Row]:
    leads = Counter(row["leader"] for row in partitions)
    first = Counter(row["replicas"][0] for row in partitions if row["replicas"])
    replicas = Counter(node for row in partitions for node in row["replicas"])
    lags: Counter[int] = Counter()
    out: Counter[int] = Counter()
    for row in partitions:
        lags.update({int(node): lag for node, lag in row["behind"].items() if lag})
        out.update(node for node in row["replicas"] if node not in row["isr"])
    return [
        {
            "node": node,
            "address": found.nodes.get(node),
            "rack": found.racks.get(node),
            "controller": node == found.controller,
            "replicas": replicas[node],
            "leads": leads[node],
            "preferred": first[node],
            "not_in_sync": out[node],
            "behind": lags[node] if node in found.nodes else None,
            "bytes": sum(held[node].values()) if node in held else None,
        }
        for node in sorted({*found.nodes, *replicas})
    ]


# ---- for people ----------------------------------------------------------------------------


def _show(found: Look, nodes: list[Row], partitions: list[Row], wrong: list[Row]) -> None:
    topics = len({row["topic"] for row in partitions})
    controller = found.controller if found.controller >= 0 else "NONE"
    print(
        f"cluster {found.cluster_id}: {plural(len(found.nodes), 'node')}, controller {controller}, "
        f"{plural(topics, 'topic')}, {plural(len(partitions), 'partition')}"
    )
    print(_node_table(nodes))
    listed = wrong + [row for row in partitions if row["state"] == MOVING]
    if listed:
        print()
        print(_partition_table(listed[:SHOWN_MAX]))
        if len(listed) > SHOWN_MAX:
            print(f"... {plural(len(listed) - SHOWN_MAX, 'partition')} more: --json shows all")
    print()
    for line in _said(found, nodes, partitions, wrong):
        print(line)


def _node_table(nodes: list[Row]) -> str:
    heads = ["node", "address", "rack", "copies", "leads", "first", "not in sync", "behind", "size"]
    cells = [
        [
            f"{row['node']}{'*' if row['controller'] else ''}",
            row["address"] or "away",
            row["rack"] or "-",
            str(row["replicas"]),
            str(row["leads"]),
            str(row["preferred"]),
            str(row["not_in_sync"]),
            "-" if row["behind"] is None else f"{row['behind']:,}",
            "-" if row["bytes"] is None else show_bytes(row["bytes"]),
        ]
        for row in nodes
    ]
    return table(heads, cells, left=frozenset({0, 1, 2}))


def _partition_table(rows: list[Row]) -> str:
    heads = ["topic", "part", "state", "leader", "replicas", "isr", "behind"]
    cells = [
        [
            row["topic"],
            str(row["partition"]),
            row["state"] + (f" ({row['min_isr']})" if row["state"] == UNDER_MIN else ""),
            str(row["leader"]) if row["leader"] >= 0 else "none",
            _numbers(row["replicas"]),
            _numbers(row["isr"]) or "none",
            _behind(row),
        ]
        for row in rows
    ]
    return table(heads, cells, left=frozenset({0, 2, 4, 5, 6}))


def _behind(row: Row) -> str:
    """How far each replica is that is not in sync; `+` is being added, `-` is being
    removed."""
    marks = {**dict.fromkeys(row["adding"], "+"), **dict.fromkeys(row["removing"], "-")}
    lags = []
    for name, lag in row["behind"].items():
        node = int(name)
        if node in row["isr"] and node not in marks:
            continue
        lags.append(f"{marks.get(node, '')}{node}: {'?' if lag is None else f'{lag:,}'}")
    return "  ".join(lags) or "-"


def _numbers(nodes: list[int]) -> str:
    return ",".join(map(str, nodes))


def _said(found: Look, nodes: list[Row], partitions: list[Row], wrong: list[Row]) -> list[str]:
    """The state in sentences, each with what can be done."""
    states = Counter(row["state"] for row in partitions)
    lines = []
    if found.controller < 0:
        lines.append(
            "no controller: no leader can be elected and no topic created until there is one"
        )
    away = [str(row["node"]) for row in nodes if row["address"] is None]
    if away:
        lines.append(f"away: node {', '.join(away)}; start it, or move its replicas to others: "
                     "kafkalog cluster reassign")  # fmt: skip
    if states[OFFLINE]:
        lines.append(
            f"{plural(states[OFFLINE], 'partition')} offline: start a node that was in sync, or "
            "lose records: kafkalog cluster elect --unclean"
        )
    if states[UNDER_MIN]:
        lines.append(
            f"{plural(states[UNDER_MIN], 'partition')} under {MIN_ISR}: acks=all is refused there "
            "until more replicas are in sync"
        )
    if states[UNDER]:
        lines.append(f"{plural(states[UNDER], 'partition')} under-replicated")
    if states[MOVING]:
        lines.append(
            f"{plural(states[MOVING], 'partition')} moving: kafkalog cluster reassign --watch"
        )
    other = sum(row["leader"] not in (-1, row["replicas"][0]) and row["replicas"][0] in row["isr"]
                for row in partitions)  # fmt: skip
    if other:
        lines.append(f"{plural(other, 'partition')} not led by the first replica, which is in "
                     "sync: kafkalog cluster elect")  # fmt: skip
    if not wrong and not states[MOVING]:
        lines.append("all replicas are in sync")
    return lines
