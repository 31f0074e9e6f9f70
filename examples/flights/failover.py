"""The step with a cluster: three nodes, and the leader is killed under load."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from tour import check, code, say


def a_leader_is_killed(picture: Path) -> None:
    """Three nodes as processes, which are their own controllers."""
    code("kafkalog cluster try --demo --draw " + picture.name)
    with tempfile.TemporaryDirectory(prefix="kafkalog-cluster-") as folder:
        words = ["cluster", "try", "--demo", "--dir", folder, "--port", "0", "--draw", str(picture)]
        with subprocess.Popen(
            [sys.executable, "-m", "kafkalog", *words],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        ) as ran:  # fmt: skip
            assert ran.stdout is not None
            for line in ran.stdout:
                say(line.rstrip())
    check(ran.returncode == 0, "the next node leads, and nothing is lost or twice")
