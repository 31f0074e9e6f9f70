"""Compacts the journals of groups and transactions, which every delivery reads whole.

A broker compacts them in the background, for the first time half a minute after its start.  A
directory that is open only for deliveries never runs that long.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kafkalog import Broker

_log = logging.getLogger("pyspark_kafkalog")

JOURNALS = ("__consumer_offsets", "__transaction_state")
SEGMENTS = {
    "offsets.topic.segment.bytes": 4 << 20,
    "transaction.state.log.segment.bytes": 4 << 20,
}
"""For directories that a sink creates.  Small, because only sealed segments are compacted."""


def compact_journals(broker: Broker) -> None:
    """Compact the journals that are dirty enough by their settings.

    A failure is only logged: the batch has been written.
    """
    from kafkalog.log.compaction import compact, due, look
    from kafkalog.server.broker import node_of

    manager = node_of(broker).manager
    try:
        for tp in [tp for journal in JOURNALS for tp in manager.partitions(journal)]:
            if manager.folders.written(tp):
                log = manager.handle(tp)
                if due(look(log), log.config, manager.clock.now_ms()):
                    compact(log)
    except Exception as error:
        _log.warning("%s: journals are not compacted: %s", broker.path, error)
