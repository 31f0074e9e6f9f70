"""A user's program, for a type checker: it is not run.

Mistakes are marked; a mark without a mistake is an error, too.  So each mark shows that the type
before it is known.
"""

from __future__ import annotations

import kafkalog
from kafkalog import Admin, Broker, Log, Producer, Scan, Store, TopicPartition


def number(value: int) -> None:
    """Takes nothing else: a mistake, unless the type is not known."""


def stores(broker: Broker) -> None:
    store: Store = broker.store
    log: Log = store["t"][0]
    number(store["t"][0])  # type: ignore[arg-type]
    logs: list[Log] = list(store["t"])
    assert log in logs


def frames(scan: Scan, store: Store) -> None:
    number(scan.to_polars())  # type: ignore[arg-type]
    number(scan.to_pandas())  # type: ignore[arg-type]
    number(scan.to_numpy()["value"])  # type: ignore[arg-type]
    number(kafkalog.polars.scan(store, "t"))  # type: ignore[arg-type]
    number(kafkalog.pandas.read("data", "t"))  # type: ignore[arg-type]
    kafkalog.pandas.read(3, "t")  # type: ignore[arg-type]


def clients(admin: Admin, producer: Producer) -> None:
    tp = TopicPartition("t", 0)
    admin.alter_configs({("topic", "t"): {"retention.ms": 1, "cleanup.policy": ("append", "x")}})
    producer.send_offsets({tp: 5}, "g")
    producer.send_offsets({tp: (5, -1, "")}, kafkalog.GroupMetadata("g"))
    producer.send_offsets({tp: "5"}, "g")  # type: ignore[dict-item]
