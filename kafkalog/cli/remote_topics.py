"""`kafkalog topics --bootstrap-server`: the topics of a cluster, listed and changed."""

import argparse
from typing import TYPE_CHECKING, Any

from kafkalog.cli.common import UsageError, json_line, table
from kafkalog.cli.remote import config_changes, names_of, open_cluster, refuse, say

if TYPE_CHECKING:
    from kafkalog.client.cluster import Cluster, PartitionInfo

__all__ = ["run"]


def run(options: argparse.Namespace, action: str, words: list[str]) -> int:
    """Do one action."""
    refuse(options, "is for --dir", draw=None)
    names = names_of(words, options.topic)
    with open_cluster(options) as cluster:
        if action in ("create", "delete", "alter") and not names:
            raise UsageError(f"{action}: which topic? give its name")
        ACTIONS[action](cluster, options, names)
    return 0


def _create(cluster: "Cluster", options: argparse.Namespace, names: list[str]) -> None:
    from kafkalog.client.topics import create_topic
    from kafkalog.errors import TopicExists

    config = config_changes(options.config, "--config")
    assignment = _assignment(options.replica_assignment)
    if assignment and (options.partitions or options.replication_factor):
        raise UsageError("--replica-assignment says how many there are: leave the numbers out")
    for name in names:
        try:
            create_topic(
                cluster,
                name,
                options.partitions or -1,
                options.replication_factor or -1,
                config,
                assignment,
            )
        except TopicExists:
            if not options.if_not_exists:
                raise
            say(f"topic {name} is there already")
        else:
            say(f"created topic {name}")


def _assignment(text: str | None) -> list[list[int]]:
    """`1:2,2:1`: the nodes of each partition."""
    try:
        return [[int(n) for n in part.split(":")] for part in (text or "").split(",") if part]
    except ValueError:
        raise UsageError(
            f"--replica-assignment: found {text!r}, wanted node:node,... as in 1:2,2:1"
        ) from None


def _alter(cluster: "Cluster", options: argparse.Namespace, names: list[str]) -> None:
    from kafkalog.client.topics import TOPIC, alter_configs, create_partitions

    changes = config_changes(options.config, "--config")
    if options.partitions is None and not changes:
        raise UsageError("alter: what? give --partitions N or --config NAME=VALUE")
    for name in _existing(cluster, names, options.if_exists):
        if options.partitions is not None:
            create_partitions(cluster, name, options.partitions)
            say(f"topic {name} has {options.partitions} partitions")
        if changes:
            alter_configs(cluster, TOPIC, name, {**changes})
            say(f"topic {name}: " + ", ".join(f"{k}={v}" for k, v in changes.items()))


def _delete(cluster: "Cluster", options: argparse.Namespace, names: list[str]) -> None:
    from kafkalog.client.topics import delete_topic

    for name in _existing(cluster, names, options.if_exists):
        delete_topic(cluster, name)
        say(f"deleted topic {name}")


def _existing(cluster: "Cluster", names: list[str], if_exists: bool) -> list[str]:
    """The names, all of which must exist unless they need not."""
    from kafkalog.errors import UnknownTopicOrPartition

    found = []
    for name in names:
        try:
            cluster.topic(name)
            found.append(name)
        except UnknownTopicOrPartition:
            if not if_exists:
                raise _unknown(cluster, name) from None
            say(f"there is no topic {name}")
    return found


def _unknown(cluster: "Cluster", name: str) -> UsageError:
    import difflib

    from kafkalog.client.topics import list_topics

    topics = list_topics(cluster, internal=True)
    near = difflib.get_close_matches(name, topics, 1)
    some = ", ".join(topics[:10]) or "none"
    hint = f"did you mean {near[0]}?" if near else f"the cluster has {some}"
    return UsageError(f"no topic {name!r}; {hint}")


def _list(cluster: "Cluster", options: argparse.Namespace, names: list[str]) -> None:
    from kafkalog.client.topics import list_topics

    found = list_topics(cluster, internal=not options.exclude_internal)
    for name in _chosen(cluster, found, names):
        print(json_line({"topic": name}) if options.json else name)


def _chosen(cluster: "Cluster", found: list[str], names: list[str]) -> list[str]:
    for name in names:
        if name not in found:
            raise _unknown(cluster, name)
    return names or found


def _describe(cluster: "Cluster", options: argparse.Namespace, names: list[str]) -> None:
    from kafkalog.client.topics import list_topics

    found = list_topics(cluster, internal=not options.exclude_internal or bool(names))
    chosen = _chosen(cluster, found, names)
    ends = _ends(cluster, chosen)
    rows = []
    for name in chosen:
        changed = _changed(cluster, name)
        for p in cluster.topic(name).partitions.values():
            if _wanted(p, options):
                rows.append(_row(cluster, name, p, ends, changed))
    if options.json:
        for row in rows:
            print(json_line(row))
    else:
        _print(rows, len(cluster.nodes))


def _ends(cluster: "Cluster", names: list[str]) -> dict[Any, tuple[int, int]]:
    """By partition that has a leader: where its log begins and ends."""
    from kafkalog.client.offsets import EARLIEST, LATEST, list_offsets
    from kafkalog.types import TopicPartition

    led = [
        TopicPartition(name, p.partition)
        for name in names
        for p in cluster.topic(name).partitions.values()
        if p.leader >= 0
    ]
    starts = list_offsets(cluster, dict.fromkeys(led, EARLIEST))
    ends = list_offsets(cluster, dict.fromkeys(led, LATEST))
    return {tp: (starts[tp].offset, ends[tp].offset) for tp in led}


def _changed(cluster: "Cluster", name: str) -> dict[str, str | None]:
    """The settings that were given to the topic itself."""
    from kafkalog.client.topics import TOPIC, describe_configs

    return {c.name: c.value for c in describe_configs(cluster, TOPIC, name) if c.source == 1}


def _wanted(p: "PartitionInfo", options: argparse.Namespace) -> bool:
    if options.under_replicated_partitions and len(p.isr) >= len(p.replicas):
        return False
    return not (options.unavailable_partitions and p.leader >= 0)


def _row(
    cluster: "Cluster",
    name: str,
    p: "PartitionInfo",
    ends: dict[Any, tuple[int, int]],
    changed: dict[str, str | None],
) -> dict[str, Any]:
    start, end = ends.get((name, p.partition), (-1, -1))
    return {
        "topic": name,
        "partition": p.partition,
        "topic_id": str(cluster.topics[name].topic_id),
        "leader": p.leader,
        "leader_epoch": p.leader_epoch,
        "replicas": list(p.replicas),
        "isr": list(p.isr),
        "start_offset": start,
        "end_offset": end,
        "config": changed,
    }


def _print(rows: list[dict[str, Any]], nodes: int) -> None:
    if not rows:
        print("no topic")
        return
    heads = ["topic", "part", "leader", "replicas", "isr", "start", "end", "records"]
    cells = []
    for row in rows:
        known = row["start_offset"] >= 0
        cells.append(
            [
                row["topic"],
                str(row["partition"]),
                str(row["leader"]) if row["leader"] >= 0 else "none",
                ",".join(map(str, row["replicas"])),
                ",".join(map(str, row["isr"])) or "none",
                str(row["start_offset"]) if known else "-",
                str(row["end_offset"]) if known else "-",
                str(row["end_offset"] - row["start_offset"]) if known else "-",
            ]
        )
    print(table(heads, cells, left=frozenset({0})))
    settings = {row["topic"]: row["config"] for row in rows if row["config"]}
    for name, config in settings.items():
        print(f"{name}: " + ", ".join(f"{k}={v}" for k, v in config.items()))
    topics = len({row["topic"] for row in rows})
    print(
        f"{topics} topic{'s' if topics > 1 else ''}, {len(rows)} "
        f"partition{'s' if len(rows) > 1 else ''} on {nodes} node{'s' if nodes > 1 else ''}"
    )


ACTIONS = {
    "create": _create,
    "alter": _alter,
    "delete": _delete,
    "list": _list,
    "describe": _describe,
}
