"""The Python of docs/opentelemetry.md runs exactly as printed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest


def test_the_python_of_the_page_runs(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (root / "docs" / "opentelemetry.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert len(blocks) == 5
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    for block in blocks:
        exec(compile(block, "opentelemetry.md", "exec"), names)
    assert set(names["names"]) >= {"order", "send orders", "poll orders", "process orders"}
    assert names["data"].resource_metrics
