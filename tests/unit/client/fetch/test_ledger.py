"""Searches with simulations are recorded as they were."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkalog.client.fetch.core import FetchState
from tests.support.ledger import HEAD, Search, record, search


def test_a_search_counts_its_failures(monkeypatch: pytest.MonkeyPatch) -> None:
    found = search("fetch", 3, 0.0)
    assert (found.first, found.count, found.failed) == (3, 1, []) and found.events > 0
    monkeypatch.setattr(FetchState, "_withdraw", lambda _self, _tp: None)
    assert search("fetch", 0, 30.0, most=1) == Search(0, 1, 0, [0])


def test_a_ledger_has_a_line_for_each_search(tmp_path: Path) -> None:
    path = tmp_path / "simulation_fetch.csv"
    record(path, Search(10, 5, 700, []), "abcdef0")
    record(path, Search(20, 5, 600, [21, 23]), "abcdef0")
    head, first, second = path.read_text().splitlines()
    assert head.split(",") == HEAD
    assert first.split(",")[1:] == ["abcdef0", "10-14", "700", "0", ""]
    assert second.split(",")[1:] == ["abcdef0", "20-24", "600", "2", "21"]
