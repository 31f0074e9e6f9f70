"""Tests without some packages: `KAFKALOG_ABSENT="polars duckdb" pytest -p tests.support.absent`.

A test that imports one of them is skipped there, and so is a file that does.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

import pytest

NAMES = frozenset(os.environ.get("KAFKALOG_ABSENT", "").split())


class Absent:
    """Comes before all finders of modules."""

    @staticmethod
    def find_spec(
        name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name in NAMES:
            pytest.skip(f"{name} is absent in this run", allow_module_level=True)
        return None


def pytest_configure() -> None:
    sys.meta_path.insert(0, Absent)
