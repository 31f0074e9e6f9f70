"""The paths below /api/, and what answers each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kafkalog.console import changes, groups, overview, records, topics
from kafkalog.console.asked import Asked
from kafkalog.console.person import Person

__all__ = ["CHANGES", "READERS", "READS"]

READS: Mapping[str, Callable[[Person, Asked], Any]] = {
    "topics": topics.topics,
    "measures": topics.measures,
    "partitions": topics.partitions,
    "layout": topics.layout,
    "configs": topics.configs,
    "records": records.read_records,
    "record": records.read_record,
    "raw": records.read_raw,
    "groups": groups.groups,
    "group": groups.group,
    "transactions": groups.transactions,
    "cluster": overview.cluster,
    "history": overview.history,
}
READERS = frozenset({"records", "record", "raw"})
"""Those that read records, which may take long."""
CHANGES: Mapping[str, Callable[[Person, dict[str, Any]], Any]] = {
    "produce": changes.produce,
    "create-topic": changes.create_topic,
    "delete-topic": changes.delete_topic,
    "reset-offsets": changes.reset_offsets,
}
