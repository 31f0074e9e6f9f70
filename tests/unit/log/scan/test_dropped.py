"""A dropped scan leaves no file open, and a missing package is named."""

from __future__ import annotations

import gc
import os
import sys
from pathlib import Path
from typing import Any

import pytest

import kafkalog
import kafkalog.arrow
import kafkalog.pandas
import kafkalog.polars
from kafkalog import errors
from kafkalog.log.scan.topic import TopicScan
from tests.support.waiting import wait_for


def held(folder: Path) -> list[str]:
    """Segments of the log in `folder` that this process holds open, deleted ones too."""
    links = []
    for number in os.listdir("/proc/self/fd"):
        try:
            links.append(os.readlink(f"/proc/self/fd/{number}"))
        except FileNotFoundError:  # the descriptor of the listing itself
            continue
    return [one for one in links if one.startswith(f"{folder}/") and ".log" in one]


@pytest.mark.parametrize("kind", ["scan", "topic", "views", "stream"])
def test_no_deleted_segment_stays_open(tmp_path: Path, kind: str) -> None:
    """All segments that it has read or would read are deleted half way through."""
    with kafkalog.Log(tmp_path / "log", config={"segment.bytes": 50_000}) as log:
        log.append_many([bytes(100)] * 10_000, batch_bytes=5_000)
        scan: Any = log.scan(batch_rows=100)
        if kind != "scan":
            scan = TopicScan([log], threads=2, batch_rows=100)
        begun: Any = scan.__arrow_c_stream__() if kind == "stream" else None
        if kind in ("scan", "topic"):
            begun = iter(scan)
        elif kind == "views":
            begun = scan.view_batches()
        kept = next(begun) if kind != "stream" else None
        log.roll()
        assert len(held(tmp_path / "log")) > 1
        log.delete_before(log.end_offset)
        del begun, scan
        gc.collect()
        active = [str(tmp_path / "log" / f"{log.end_offset:020}.log")]
        wait_for(lambda: held(tmp_path / "log") == active, "the end of what the scan held")
        assert kept is None or kept.__arrow_c_array__()


@pytest.mark.parametrize(
    ("package", "ask"),
    [
        ("pyarrow", lambda log: log.scan().to_arrow()),
        ("numpy", lambda log: log.scan().to_numpy()),
        ("polars", lambda log: log.scan().to_polars()),
        ("pandas", lambda log: log.scan().to_pandas()),
        ("polars", kafkalog.polars.scan),
        ("pandas", kafkalog.pandas.read),
        ("pyarrow", lambda log: kafkalog.pandas.read(log, dtype_backend="pyarrow")),
        ("pyarrow", kafkalog.arrow.dataset),
    ],
    ids=[
        *("to_arrow", "to_numpy", "to_polars", "to_pandas"),
        *("polars.scan", "pandas.read", "backend", "arrow.dataset"),
    ],
)
def test_a_package_that_is_missing_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, package: str, ask: Any
) -> None:
    """The error says how to install it."""
    with kafkalog.Log(tmp_path / "log") as log:
        log.append(b"a")
        monkeypatch.setitem(sys.modules, package, None)
        with pytest.raises(errors.MissingPackage, match=f"{package}.*pip install {package}"):
            ask(log)
