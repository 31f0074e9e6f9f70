"""The first records of an active controller: those of a new cluster, and the end of a transaction
that another controller did not end (KIP-868).

Source: Apache Kafka's ActivationRecordsGenerator.
"""

from __future__ import annotations

from collections.abc import Sequence

from kafkalog.controller.active import Active, Steps
from kafkalog.metadata.image import METADATA_VERSION
from kafkalog.metadata.levels import LEVEL_MIN
from kafkalog.quorum.sessions import Committed
from kafkalog.quorum.writing import MetadataRecord, MetadataRecords

__all__ = ["ABORT", "activation", "in_batches"]

TRANSACTIONS_SINCE = 13
"""The first metadata.version that has transactions of the metadata log: 3.6-IV1."""
ABORT: MetadataRecord = ("AbortTransactionRecord", {"reason": "Controller failover"})
"""The end of a transaction whose controller did not end it."""
END: MetadataRecord = ("EndTransactionRecord", {})


def begin(name: str) -> MetadataRecord:
    """The begin of a transaction."""
    return "BeginTransactionRecord", {"name": name}


def activation(
    store: Committed, active: Active, bootstrap: Sequence[MetadataRecord], in_transaction: bool
) -> Steps[None]:
    """Write them.  `bootstrap`: for a new cluster; `in_transaction`: one has not ended."""
    records: list[MetadataRecord] = [ABORT] if in_transaction else []
    if METADATA_VERSION in store.image.features or not bootstrap:
        yield MetadataRecords(records)
        return
    level = next(
        (one["feature_level"] for name, one in bootstrap
         if name == "FeatureLevelRecord" and one["name"] == METADATA_VERSION),
        LEVEL_MIN,
    )  # fmt: skip
    if level < TRANSACTIONS_SINCE:
        yield MetadataRecords([*records, *bootstrap])
        return
    # A transaction of their own, however many they are.
    records += [begin("Bootstrap records"), *bootstrap, END]
    yield MetadataRecords(records, atomic=False)


def in_batches(
    image_level: int, records: Sequence[MetadataRecord], atomic: bool, most: int
) -> list[Sequence[MetadataRecord]]:
    """Records as appends of at most `most`; if all or none must be written, in a transaction."""
    if len(records) <= most or (atomic and image_level < TRANSACTIONS_SINCE):
        return [records] if records else []
    if atomic:
        records = [begin("Large request"), *records, END]
    return [records[at : at + most] for at in range(0, len(records), most)]
