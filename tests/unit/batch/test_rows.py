"""The batches that coordinators write from rows are the same as those made from columns."""

from __future__ import annotations

import random

import pytest

from kafkalog._native import ffi
from kafkalog.batch.columns import Columns
from kafkalog.batch.encode import HEADER_BYTES, rows_batch, sealed
from kafkalog.errors import ArgumentError

PRODUCER = {"producer_id": 7, "producer_epoch": 3, "base_sequence": -1, "attributes": 16}


def by_columns(rows: list[tuple[bytes | None, bytes | None]], timestamp_ms: int) -> bytes:
    columns = Columns(
        [value for _, value in rows], [key for key, _ in rows], default_timestamp_ms=timestamp_ms
    )
    body = bytearray(columns.bytes_max)
    encoded = columns.encode(body, len(body))
    assert encoded.record_count == len(rows)
    records = bytes(body[HEADER_BYTES : HEADER_BYTES + encoded.records_bytes])
    return sealed(records, encoded, ffi.new("kl_stamp *", PRODUCER))


def test_rows_and_columns_encode_alike() -> None:
    rng = random.Random(5)

    def part() -> bytes | None:
        return rng.choice([None, b"", rng.randbytes(rng.randrange(300)), rng.randbytes(20_000)])

    for _ in range(100):
        rows = [(part(), part()) for _ in range(rng.choice([1, 1, 2, 5, 100]))]
        assert rows_batch(rows, 123_456, 7, 3, 16) == by_columns(rows, 123_456)


@pytest.mark.parametrize(
    "rows", [[], [b"kv"], [(b"k",)], [(b"k", b"v", b"x")], [("k", b"v")], [(b"k", 1)], 1, None]
)
def test_invalid_rows_are_named(rows: object) -> None:
    with pytest.raises(ArgumentError, match="rows: "):
        rows_batch(rows, 1)  # type: ignore[arg-type]
