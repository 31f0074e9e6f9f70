"""Single steps of `make demo`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

LIMIT_S = 120
STEP = "import tested; tested.with_a_broker_each()"


@pytest.mark.slow
def test_a_broker_per_test_leaves_folders_of_other_runs_alone(root: Path, tmp_path: Path) -> None:
    """It neither removes those folders nor waits for them."""
    user = subprocess.run(["id", "-un"], capture_output=True, text=True, check=True).stdout.strip()
    left = [tmp_path / f"pytest-of-{user}" / f"pytest-{n}" / "test0" for n in range(8)]
    for folder in left:
        folder.mkdir(parents=True, mode=0o700)
    environment = {**os.environ, "PYTEST_DEBUG_TEMPROOT": str(tmp_path)}
    subprocess.run(
        [sys.executable, "-c", STEP], cwd=root / "examples" / "flights", env=environment,
        timeout=LIMIT_S, check=True,
    )  # fmt: skip
    assert [folder for folder in left if not folder.is_dir()] == []


WORK = """
from pathlib import Path
from types import SimpleNamespace
import sys, workers
jobs = [SimpleNamespace(value=b'{"number": %d}' % number) for number in range(200)]
workers.share_the_work(Path(sys.argv[1]), jobs)
"""


@pytest.mark.slow
def test_workers_of_a_share_group_share_one_partition(root: Path, tmp_path: Path) -> None:
    """The step checks that each job was done once."""
    done = subprocess.run(
        [sys.executable, "-c", WORK, str(tmp_path / "data")], cwd=root / "examples" / "flights",
        timeout=LIMIT_S, check=True, capture_output=True, text=True,
    )  # fmt: skip
    assert done.stdout.count("✓") == 4
