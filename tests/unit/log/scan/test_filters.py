"""A scan's filters in C give the same records as filters in Python."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import kafkalog
from kafkalog import errors
from kafkalog.log.scan import topic as topic_scan
from kafkalog.log.scan.topic import TopicScan
from kafkalog.types import Record
from tests.support import batches

SEED = 20_261_125
KEYS = (None, b"", b"a", b"ab", b"abc", b"b", b"\xff", b"\xff\xff", b"a" * 40)


def fill(log: kafkalog.Log, rng: random.Random) -> None:
    """Append batches with all codecs, some in transactions: some aborted, one open."""
    sequence = 0
    for number in range(30):
        rows = [
            batches.Row(
                value=rng.randbytes(rng.randrange(30)),
                key=rng.choice(KEYS),
                timestamp_ms=1_000 * number + rng.randrange(-3_000, 3_000),
            )
            for _ in range(rng.randrange(1, 40))
        ]
        how: dict[str, Any] = {}
        if number % 3 == 0:
            how = {"producer_id": 7, "producer_epoch": 0, "transactional": True}
            how["base_sequence"] = sequence
            sequence += len(rows)
        log.append_batches(batches.batch(rows, codec=rng.choice(list(batches.CODECS)), **how))
        if how and number < 27:
            log.append_marker(7, 0, rng.random() < 0.5)


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[kafkalog.Log]]:
    """Three logs: as written, compacted, with a later start."""
    opened = []
    for number in range(3):
        rng = random.Random(SEED + number)
        config = {"index.interval.bytes": 300}
        path = tmp_path_factory.mktemp("filters") / f"t-{number}"
        log = kafkalog.Log(path, config=config)
        fill(log, rng)
        if number == 1:
            log.roll()
            before = len(list(log))
            log.close()
            log = kafkalog.Log(path, config={**config, "cleanup.policy": "compact"})
            log.compact()
            assert 0 < len(list(log)) < before
        opened.append(log)
        if number == 2:
            log.delete_before(77)
    yield opened
    for log in opened:
        log.close()


def some_filter(rng: random.Random) -> dict[str, Any]:
    asked: dict[str, Any] = {}
    if rng.random() < 0.4:
        asked["start_time_ms"] = rng.randrange(-4_000, 34_000)
    if rng.random() < 0.4:
        asked["stop_time_ms"] = rng.randrange(-4_000, 34_000)
    if rng.random() < 0.7:
        name = rng.choice(["key", "key_prefix"])
        asked[name] = rng.choice([*[one for one in KEYS if one is not None], b"aa", b"z"])
    asked["isolation"] = rng.choice(["read_uncommitted", "read_committed"])
    return asked


def fits(record: Record, asked: dict[str, Any]) -> bool:
    if not asked.get("start_time_ms", -(2**63)) <= record.timestamp_ms:
        return False
    if not record.timestamp_ms < asked.get("stop_time_ms", 2**63 - 1):
        return False
    if "key" in asked and record.key != asked["key"]:
        return False
    prefix = asked.get("key_prefix")
    return prefix is None or (record.key is not None and record.key.startswith(prefix))


@pytest.mark.parametrize("round_", range(8))
def test_the_records_that_python_would_choose(logs: list[kafkalog.Log], round_: int) -> None:
    rng = random.Random(SEED * 10 + round_)
    for _ in range(25):
        asked = some_filter(rng)
        for log in logs:
            start, stop = sorted(rng.sample(range(log.start_offset, log.end_offset + 1), 2))
            isolation = asked["isolation"]
            wanted = [one for one in log.read(start, stop, isolation) if fits(one, asked)]
            scan = log.scan(start, stop, **asked)
            assert list(scan.records()) == wanted, (asked, start, stop)
            assert scan.count() == len(wanted)
            values = [one.value for one in wanted]
            assert (
                log.scan(start, stop, columns=["value"], **asked).to_numpy()["value"].tolist()
                == values
            )


def test_a_topic(logs: list[kafkalog.Log], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_scan, "PIECE_BYTES", 1_000)
    rng = random.Random(SEED)
    for _ in range(10):
        asked = some_filter(rng)
        scan = TopicScan(logs, columns=["offset", "partition"], threads=2, **asked)
        found = scan.to_numpy()
        wanted = [
            (one.partition, one.offset)
            for log in logs
            for one in log.read(isolation=asked["isolation"])
            if fits(one, asked)
        ]
        assert list(zip(found["partition"], found["offset"], strict=True)) == wanted
        assert scan.count() == len(wanted)


def test_keys_that_cannot_be_asked_for(tmp_path: Path) -> None:
    with kafkalog.Log(tmp_path / "log") as log:
        for name in ("key", "key_prefix"):
            with pytest.raises(errors.ArgumentError, match=f"{name}: found str, wanted bytes"):
                log.scan(**{name: "a"})  # type: ignore[arg-type]
        with pytest.raises(errors.ArgumentError, match="give only one"):
            log.scan(key=b"a", key_prefix=b"a")
