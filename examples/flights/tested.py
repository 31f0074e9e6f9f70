"""The step with a test: pytest, with the broker that comes with kafkalog."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tour import check, code, say

TESTS = Path(__file__).with_name("test_departures.py")


def with_a_broker_each() -> None:
    """Two tests of a program that talks to Kafka, each with its own broker."""
    code("def test_a_lost_answer_announces_a_gate_once(kafkalog_broker):")
    code('    kafkalog_broker.drop_response("Produce")')
    # Without other pytest plugins: loading them takes longer than the tests.
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    # Its own folder: otherwise pytest removes at its end what earlier runs left, perhaps a lot.
    with tempfile.TemporaryDirectory(prefix="kafkalog-demo-") as folder:
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p",
             "kafkalog.pytest_plugin", "--rootdir",
             TESTS.parent, "--basetemp", Path(folder, "pytest"), "-c", "/dev/null", TESTS],
            capture_output=True, text=True, timeout=120, env=environment,
        )  # fmt: skip
    for line in done.stdout.splitlines()[-1:]:
        say(line)
    check(done.returncode == 0, "2 tests pass: a lost answer, a power cut; no Docker, no mock")
