"""The step of `make demo` with three nodes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.conftest import ROOT
from tests.support.waiting import LIMIT_S

STEP = "import failover, pathlib; failover.a_leader_is_killed(pathlib.Path({picture!r}))"


def ran(picture: Path, **surroundings: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", STEP.format(picture=str(picture))],
        cwd=ROOT / "examples" / "flights",
        env={**os.environ, **surroundings},
        capture_output=True,
        text=True,
        timeout=4 * LIMIT_S,
    )


@pytest.mark.long
@pytest.mark.java
def test_a_leader_is_killed_and_nothing_is_lost(tmp_path: Path) -> None:
    if find_spec("pyspark") is None or find_spec("kazoo") is None or not shutil.which("java"):
        pytest.skip("without java, kazoo or pyspark, which brings a ZooKeeper along")
    done = ran(tmp_path / "failover.svg", ZOOKEEPER_HOME="", KAFKA_HOME="")
    assert done.returncode == 0, done
    assert "kill -9 of node" in done.stdout and "leads: the first acknowledgement" in done.stdout
    assert "0 are lost, 0 are there twice, all are in order" in done.stdout
    assert "✓ the next node leads, and nothing is lost or twice" in done.stdout
    ElementTree.parse(tmp_path / "failover.svg")
