"""Scans of a topic in a store, a log or a directory, for data frame packages."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

from kafkalog.arguments import text
from kafkalog.errors import ArgumentError
from kafkalog.log.log import Log
from kafkalog.log.scan.topic import TopicScan
from kafkalog.store import Store

__all__ = ["Where", "check_where", "scan_of"]

Where: TypeAlias = Store | Log | str | os.PathLike[str]
"""A Store; a Log; the path of a data directory or of a folder of partitions, which another process
may be writing to."""


_ADDRESSES = re.compile(r"([^/,\s]+:[0-9]{1,5})(,[^/,\s]+:[0-9]{1,5})*")


def check_where(where: Where) -> None:
    """Refuse a broker's address, which is not a path.

    Raises: ArgumentError, which names what reads from a broker.
    """
    if isinstance(where, str) and _ADDRESSES.fullmatch(where) and not os.path.exists(where):
        raise ArgumentError(
            f"where: found {where!r}, wanted a Store, a Log or a path, not a broker's address; "
            "kafkalog.Consumer reads there, and each batch of its poll_arrow() makes a frame"
        )


@contextmanager
def scan_of(where: Where, topic: str | None, **options: Any) -> Iterator[TopicScan]:
    """A scan of a topic; logs opened for it are closed at the end.

    Raises: ArgumentError, UnknownTopicOrPartition, NotFound, what opening a log raises.
    """
    if isinstance(where, Log):
        if topic not in (None, where.topic):
            raise ArgumentError(f"topic: found {topic!r}, wanted {where.topic!r} or None: a log")
        if options.pop("partitions", None) is not None:
            raise ArgumentError("partitions: a log is one; give a store or a path")
        yield TopicScan([where], **options)
        return
    check_where(where)
    name = text("topic", topic)
    if isinstance(where, Store):
        yield where.scan(name, **options)
        return
    if not isinstance(where, (str, os.PathLike)):
        raise ArgumentError(f"where: found {type(where).__name__}, wanted a Store, a Log or a path")
    with Store(where, mode="r") as store:
        yield store.scan(name, **options)
