"""The programs at the beginning of docs/spark.md run exactly as printed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import kafkalog
from tests.spark.conftest import START_MS
from tests.spark.test_sink_session import records

pytestmark = pytest.mark.spark

MINUTE_MS, FLIGHTS = 60_000, 180


@pytest.fixture
def blocks(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The programs, in a working directory with the flights that they read."""
    for package in ("duckdb", "polars"):
        pytest.importorskip(package)
    text = (root / "docs" / "spark.md").read_text()
    found = re.findall(r"```python\n(.*?)```", text.split("## Setting up")[0], re.DOTALL)
    assert len(found) == 4
    monkeypatch.chdir(tmp_path)
    with kafkalog.Store("data") as store:
        (flights,) = store.create_topic("flights")
        flights.append_many(
            [b'{"delay": %d}' % (n % 30) for n in range(FLIGHTS)],
            [(b"AA", b"UA")[n % 2] for n in range(FLIGHTS)],
            [START_MS + n * MINUTE_MS for n in range(FLIGHTS)],
        )
    return [compile(block, "spark.md", "exec") for block in found]


@pytest.mark.long
def test_the_programs_without_a_stream_run(spark: Any, blocks: list[Any], capfd: Any) -> None:
    """The first and the last; a batch write replaces the output of the streams between them."""
    names: dict[str, Any] = {}
    exec(blocks[0], names)
    table = names["flights"].groupBy("carrier").count().collect()
    assert {row.carrier: row["count"] for row in table} == {"AA": 90, "UA": 90}
    late = names["flights"].where("delay >= 15").selectExpr("carrier key", "string(delay) value")
    late.write.format("kafkalog").mode("append").option("topic", "late").save(names["data"])
    exec(blocks[-1], names)
    assert names["counted"] == [("AA", 42), ("UA", 48)]
    printed = capfd.readouterr().out
    assert "avg(delay)" in printed and "AA" in printed


@pytest.mark.long
def test_the_programs_of_the_page_run(
    spark: Any, blocks: list[Any], tmp_path: Path, capfd: Any
) -> None:
    """All, one after the other."""
    names: dict[str, Any] = {}
    for block in blocks:
        exec(block, names)
    table = names["flights"].groupBy("carrier").count().collect()
    assert {row.carrier: row["count"] for row in table} == {"AA": 90, "UA": 90}
    # The last window is not closed: the watermark is inside it.
    hours = records(tmp_path / "data", "hours")
    assert len(hours) == 4 and all('"flights":30' in one for one in hours)
    late = [n % 30 for n in range(FLIGHTS) if n % 30 >= 15]
    assert sorted(records(tmp_path / "data", "late")) == sorted(f"{n}.0" for n in late)
    assert len(records(tmp_path / "data", "good")) == FLIGHTS - len(late)
    assert names["counted"] == [("AA", 42), ("UA", 48)]
    printed = capfd.readouterr().out
    assert "avg(delay)" in printed and "AA" in printed
