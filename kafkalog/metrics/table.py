"""The table of all metrics: docs/metrics.md, the exporter and its test are made from it."""

from __future__ import annotations

from kafkalog.metrics.clients_table import CLIENTS
from kafkalog.metrics.cluster_table import CLUSTER, NODE
from kafkalog.metrics.coordinator_table import COORDINATORS
from kafkalog.metrics.network_table import NETWORK, TOPICS
from kafkalog.metrics.share_table import SHARES
from kafkalog.metrics.storage_table import STORAGE

__all__ = ["BY_NAME", "METRICS", "PARTS"]

PARTS = (
    ("The node", NODE),
    ("Topics", TOPICS),
    ("Connections and requests", NETWORK),
    ("Logs", STORAGE),
    ("Replicas and controllers", CLUSTER),
    ("Groups and transactions", COORDINATORS),
    ("Clients that send metrics", CLIENTS),
    ("Records of share groups", SHARES),
)
"""Headings, and the metrics below each."""
METRICS = tuple(one for _, metrics in PARTS for one in metrics)
BY_NAME = {one.name: one for one in METRICS}
