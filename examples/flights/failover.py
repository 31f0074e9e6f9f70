"""The step with a cluster: three nodes, and the leader is killed under load."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from tour import check, code, say

MISSING = ("no ZooKeeper found", "no java")
"""How the command's messages begin if it cannot have a ZooKeeper."""


def a_leader_is_killed(picture: Path) -> None:
    """Three nodes as processes, with a real ZooKeeper; skipped if there is none."""
    code("kafkalog cluster try --demo --draw " + picture.name)
    with tempfile.TemporaryDirectory(prefix="kafkalog-cluster-") as folder:
        words = ["cluster", "try", "--demo", "--dir", folder, "--port", "0", "--draw", str(picture)]
        with subprocess.Popen(
            [sys.executable, "-m", "kafkalog", *words],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        ) as ran:  # fmt: skip
            assert ran.stdout is not None
            said = []
            for line in ran.stdout:
                said.append(line)
                say(line.rstrip())
    if ran.returncode and any(words in line for line in said for words in MISSING):
        say("left out")
    else:
        check(ran.returncode == 0, "the next node leads, and nothing is lost or twice")
