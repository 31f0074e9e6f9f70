"""`kafkalog cluster id`, `endpoints`, `log-dirs`, `unregister`: a cluster's nodes and their
data."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from kafkalog.cli.common import UsageError, warn
from kafkalog.cli.remote import names_of, say
from kafkalog.cli.rows import show_rows
from kafkalog.client.calls.nodes import (
    describe_cluster,
    describe_log_dirs,
    unregister_broker,
)

if TYPE_CHECKING:
    from kafkalog.client.link.cluster import Cluster

__all__ = ["cluster_id", "endpoints", "log_dirs", "unregister"]


def cluster_id(cluster: Cluster, options: argparse.Namespace, words: list[str]) -> int:
    """As `kafka-cluster.sh cluster-id`."""
    _no_words("id", words)
    say(f"Cluster ID: {describe_cluster(cluster).cluster_id}")
    return 0


def endpoints(cluster: Cluster, options: argparse.Namespace, words: list[str]) -> int:
    """As `kafka-cluster.sh list-endpoints`."""
    _no_words("endpoints", words)
    fenced = options.include_fenced_brokers
    nodes = describe_cluster(cluster, fenced).nodes
    rows = [one._asdict() | {"state": "fenced" if one.fenced else "unfenced"} for one in nodes]
    fields = ("node", "host", "port", "rack", *(("state",) if fenced else ()))
    show_rows(rows, fields, as_json=options.json, none="no node")
    return 0


def log_dirs(cluster: Cluster, options: argparse.Namespace, words: list[str]) -> int:
    """As `kafka-log-dirs.sh`; 1: a directory, or a node, failed."""
    some = _nodes("log-dirs", words) or None
    topics = set(names_of([], options.topic_list))
    found = describe_log_dirs(cluster, some)
    rows: list[dict[str, Any]] = []
    for node, dirs in found.done.items():
        for one in dirs:
            kept = {
                f"{tp.topic}-{tp.partition}": {
                    "size_bytes": info.size_bytes, "offset_lag": info.lag, "is_future": info.future
                }
                for tp, info in sorted(one.replicas.items())
                if not topics or tp.topic in topics
            }  # fmt: skip
            rows.append({
                "node": node, "log_dir": one.path, "error": str(one.failed) if one.failed else None,
                "replicas": len(kept), "bytes": sum(row["size_bytes"] for row in kept.values()),
                "usable_bytes": one.usable_bytes, "total_bytes": one.total_bytes,
                "partitions": kept,
            })  # fmt: skip
    fields = ("node", "log_dir", "replicas", "bytes", "usable_bytes", "error")
    show_rows(rows, fields, as_json=options.json, none="no log directory")
    for node, why in found.errors.items():
        warn(f"node {node}: {why}")
    return int(bool(found.errors) or any(row["error"] for row in rows))


def unregister(cluster: Cluster, options: argparse.Namespace, words: list[str]) -> int:
    """As `kafka-cluster.sh unregister`."""
    nodes = _nodes("unregister", words)
    if len(nodes) != 1:
        raise UsageError(f"cluster unregister: found {len(nodes)} nodes, wanted one")
    unregister_broker(cluster, nodes[0])
    say(f"broker {nodes[0]} is no longer registered")
    return 0


def _no_words(action: str, words: list[str]) -> None:
    if words:
        raise UsageError(f"cluster {action}: found {words[0]!r}, wanted no name")


def _nodes(action: str, words: list[str]) -> list[int]:
    names = names_of(words)
    for name in names:
        if not name.isdecimal():
            raise UsageError(f"cluster {action}: found {name!r}, wanted a node's number")
    return [int(name) for name in names]
