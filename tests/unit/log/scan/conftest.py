"""Logs to scan, and their records as plain rows."""

from collections.abc import Iterable
from typing import Any, NamedTuple

import pytest

import kafkalog
from tests.support import batches


class Kept(NamedTuple):
    """A record of a log; `aborted`: its transaction was aborted or is open."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    aborted: bool = False


class Writer:
    """Appends batches to a log and keeps the records that a reader must find."""

    def __init__(self, log: Any) -> None:
        self.log = log
        self.kept: list[Kept] = []

    def batch(self, rows: Iterable[batches.Row], aborted: bool = False, **how: Any) -> None:
        listed = list(rows)
        span = self.log.append_batches(batches.batch(listed, **how))
        for offset, row in enumerate(listed, span.base_offset):
            headers = tuple(row.headers)
            kept = Kept(offset, row.timestamp_ms, row.key, row.value, headers, aborted)
            self.kept.append(kept)


@pytest.fixture
def log(tmp_path):
    with kafkalog.Log(tmp_path / "orders-3") as opened:
        yield opened


@pytest.fixture
def writer(log):
    return Writer(log)


def row(i: int) -> batches.Row:
    """Row `i` of a log with every kind of field; timestamps rise and fall."""
    headers = [("a", b"%d" % i), ("", None), ("naïve", b"")][: i % 5 % 4]
    return batches.Row(
        value=None if i % 11 == 3 else b"value %d" % i * (i % 3),
        key=None if i % 4 == 0 else b"k%d" % (i % 7) * (i % 5),
        timestamp_ms=1_700_000_000_000 + 1000 * (i - i % 8) + 137 * (i * 7 % 8),
        headers=headers,
    )


@pytest.fixture
def mixed(writer):
    """About 600 rows in batches of different sizes, with each codec in turn."""
    names = list(batches.CODECS)
    first = 0
    for number in range(30):
        count = 1 + number * 5 % 39
        writer.batch((row(i) for i in range(first, first + count)), codec=names[number % 5])
        first += count
    return writer
