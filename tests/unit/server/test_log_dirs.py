"""Directories that a client names cost little, however they are named."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from kafkalog.server.broker import Broker
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode
from tests.support.raw import Raw


def test_a_directory_is_looked_for_once(
    broker: Broker, raw: Raw, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not once for each of the thousands of names in its path."""
    raw.create("t", 1)
    link, here = tmp_path / "link", str(Path(broker.path).resolve())
    link.symlink_to(here)
    paths = [here, f"{here}/.", str(link), "/a" * 16_000, "/" + "x" * 32_000, "no\0path", ".", ""]
    looks, lstat = list[object](), os.lstat

    def look(path: Any, **more: Any) -> os.stat_result:
        looks.append(path)
        return lstat(path, **more)

    monkeypatch.setattr(os, "lstat", look)
    codes = []
    for path in paths:
        dirs = [{"path": path, "topics": [{"name": "t", "partitions": [0]}]}]
        (topic,) = raw.call(apis.ALTER_REPLICA_LOG_DIRS, dirs=dirs).results
        codes.append(topic.partitions[0].error_code)
    assert codes == [ErrorCode.NONE] * 3 + [ErrorCode.LOG_DIR_NOT_FOUND] * 5
    assert len(looks) < 1_000
