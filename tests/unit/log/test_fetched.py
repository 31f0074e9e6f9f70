"""Batches in memory as Records and as columns are those that a log of the same bytes reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kafkalog import errors
from kafkalog.batch.control import marker_batch
from kafkalog.batch.walk import whole_batches
from kafkalog.log.fetched import Decoder
from kafkalog.log.log import Log
from kafkalog.log.scan.scan import COLUMNS
from kafkalog.types import Record
from tests.support.batches import Row, batch

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
ROWS = 300


@pytest.fixture(params=CODECS)
def batches(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[bytes, list[Record]]:
    """Bytes of a log, and the records that the log itself reads from them."""
    with Log(tmp_path / "t-0") as log:
        for part in range(5):
            log.append_many(
                [b"value %d" % i * (i % 7) if i % 5 else None for i in range(ROWS)],
                keys=[b"key %d" % i if i % 3 else None for i in range(ROWS)],
                timestamps_ms=[1_700_000_000_000 + part * 1000 + i for i in range(ROWS)],
                headers=[[("a", b"1"), ("ä", None), ("a", b"")][: i % 4] for i in range(ROWS)],
                compression=request.param,
            )
        return log.read_batches(0, 1 << 24), list(log.read())


def records(decoder: Decoder, data: Any, start: int = 0, aborted: Any = ()) -> list[Record]:
    return [
        r
        for some in decoder.records("t", 0, data, start, aborted)
        for r in some.records(0, len(some))
    ]


def test_the_records_are_those_of_the_log(batches: tuple[bytes, list[Record]]) -> None:
    """From any start, from any kind of memory, with one decoder repeatedly."""
    data, wanted = batches
    decoder = Decoder()
    for start in (0, 1, ROWS - 1, ROWS, 5 * ROWS - 1, 5 * ROWS):
        assert records(decoder, data, start) == wanted[start:]
    assert records(decoder, memoryview(bytearray(data))) == wanted
    assert records(decoder, b"") == []
    other = [r for some in decoder.records("other", 7, data) for r in some.records(0, len(some))]
    assert other == [r._replace(topic="other", partition=7) for r in wanted]


def test_columns_are_those_of_a_scan(tmp_path: Path) -> None:
    with Log(tmp_path / "t-0") as log:
        log.append_many([b"%d" % i for i in range(1000)], keys=[b"k"] * 1000)
        data, wanted = log.read_batches(0, 1 << 24), log.scan(start=10).to_numpy()
    (found,) = Decoder(COLUMNS).batches("t", 0, data, 10)
    assert (len(found), found.last_offset) == (990, 999)
    for name in found.columns:
        assert list(found.numpy(name)) == list(wanted[name]), name
    some = Decoder(("offset", "value"))
    (found,) = some.batches("t", 0, data, 10, stop=20)
    assert (found.columns, [*found.numpy("offset")]) == (("value", "offset"), [*range(10, 20)])
    (found,) = some.batches("t", 0, data, 990)  # the next call starts afresh
    assert [*found.numpy("offset")] == [*range(990, 1000)]
    (found,) = Decoder(COLUMNS).batches("t", 0, data, 10)
    pyarrow = pytest.importorskip("pyarrow")
    table = pyarrow.record_batch(found)
    assert table.column("offset").to_pylist() == [*range(10, 1000)]


def test_a_batch_that_is_cut_off_waits_for_the_next_answer(
    batches: tuple[bytes, list[Record]],
) -> None:
    data, wanted = batches
    sizes = [batch.batch_bytes for batch, _ in whole_batches(data)]
    decoder = Decoder()
    for cut in (0, 1, 16, 60, sizes[0] - 1):
        assert records(decoder, data[:cut]) == []
    found = records(decoder, data[: sizes[0] + 61])
    assert found == wanted[: len(found)]
    assert found


def test_damage_is_reported_after_the_good_records(batches: tuple[bytes, list[Record]]) -> None:
    """The error names the partition; the decoder works with the next answer."""
    data, wanted = batches
    sizes = [batch.batch_bytes for batch, _ in whole_batches(data)]
    bad = bytearray(data)
    bad[sum(sizes[:2]) - 1] ^= 1
    decoder = Decoder()
    found: list[Record] = []
    with pytest.raises(errors.CorruptMessage, match=r"^t-0: "):
        for some in decoder.records("t", 0, bad):
            found += some.records(0, len(some))
    assert 0 < len(found) < len(wanted)
    assert found == wanted[: len(found)]
    assert records(decoder, data) == wanted
    with pytest.raises(errors.MessageTooLarge if data[22] & 7 else AssertionError):
        assert not records(Decoder(limit_bytes=10), data)


def test_wrong_bits_never_crash(batches: tuple[bytes, list[Record]], rng: Any) -> None:
    data, _ = batches
    for _ in range(40):
        bad = bytearray(data)
        for _ in range(rng.randrange(1, 4)):
            bad[rng.randrange(len(bad))] ^= 1 << rng.randrange(8)
        for checked in (True, False):
            for columns in (COLUMNS, None):
                decoder = Decoder(columns, check_crcs=checked)
                read = decoder.batches if columns else decoder.records
                try:
                    for _ in read("t", 0, bad, aborted=((1, 0),)):
                        pass
                except errors.KafkalogError:
                    continue


def transactional(base_offset: int, producer_id: int) -> bytes:
    """A batch of two records in a transaction."""
    rows = [Row(b"v", b"k", 1_000), Row(b"w", b"k", 1_000)]
    return batch(
        rows, producer_id=producer_id, producer_epoch=0, base_sequence=base_offset,
        transactional=True, base_offset=base_offset,
    )  # fmt: skip


def marker(offset: int, producer_id: int, commit: bool) -> bytes:
    data = bytearray(marker_batch(producer_id, 0, commit, 0, 1_000))
    data[:8] = offset.to_bytes(8, "big")
    return bytes(data)


def test_aborted_transactions_are_left_out() -> None:
    """Two producers interleave; one aborts twice, around one that it commits."""
    data = b"".join(
        (
            transactional(0, producer_id=1), transactional(2, producer_id=2),
            transactional(4, producer_id=1), marker(6, 1, commit=False),
            transactional(7, producer_id=1), marker(9, 1, commit=True),
            marker(10, 2, commit=True), transactional(11, producer_id=1),
        )
    )  # fmt: skip
    decoder = Decoder()
    every = [0, 1, 2, 3, 4, 5, 7, 8, 11, 12]
    assert [r.offset for r in records(decoder, data)] == every
    # The second aborted transaction ends after these bytes.
    aborted = ((1, 0), (1, 11))
    assert [r.offset for r in records(decoder, data, 0, aborted)] == [2, 3, 7, 8]
    assert [r.offset for r in records(decoder, data, 8, aborted)] == [8]
    columns = Decoder(COLUMNS)
    (found,) = columns.batches("t", 0, data, 0, aborted)
    assert list(found.numpy("offset")) == [2, 3, 7, 8]
