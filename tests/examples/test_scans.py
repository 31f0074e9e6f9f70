"""The Python of docs/scans.md runs exactly as printed."""

import re

import pytest


def test_the_python_of_the_page_runs(root, tmp_path, monkeypatch) -> None:
    for package in ("duckdb", "polars", "pyarrow"):
        pytest.importorskip(package)
    blocks = re.findall(r"```python\n(.*?)```", (root / "docs" / "scans.md").read_text(), re.DOTALL)
    assert len(blocks) == 14
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, "scans.md", "exec"), names)
    assert names["rows"] == 4
