"""A start imports no more than it needs: counted, as times differ from machine to machine."""

from __future__ import annotations

import subprocess
import sys

import pytest

LOG = "import kafkalog; kafkalog.Log"
HELP = "from kafkalog.cli import main; main(['--help'])"
BROKER = (
    "import kafkalog, sys, tempfile\n"
    "with tempfile.TemporaryDirectory() as path, kafkalog.Broker(path): pass"
)
HEAVY = {"numpy", "pyarrow", "polars", "pandas", "zstandard", "snappy", "lz4", "cffi", "asyncio",
         "dataclasses", "inspect", "unittest", "http", "urllib.request", "pyspark"}  # fmt: skip


def imported(program: str) -> set[str]:
    """The modules that a program imports beyond those of Python's own start."""
    code = f"import sys; before = set(sys.modules)\n{program}\n"
    code += "print('modules', *sorted(set(sys.modules) - before))"
    done = subprocess.run(
        [sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    return set(done.stdout.rpartition("modules ")[2].split())


@pytest.mark.parametrize(
    ("program", "own", "others", "absent"),
    [
        (LOG, 45, 50, {"json", "datetime", "logging", "socket", "base64", "ipaddress",
                       "kafkalog.server", "kafkalog.client", "kafkalog.wire.apis"}),
        (HELP, 10, 45, {"json", "datetime", "difflib", "shutil", "logging", "kafkalog._native",
                        "kafkalog.log.log", "kafkalog.config"}),
        (BROKER, 440, 95, {"kafkalog.raft.messages", "kafkalog.raft.codec", "kafkalog.quorum",
                            "kafkalog.cluster", "kafkalog.zookeeper", "kafkalog.mirror", "kazoo",
                            "kafkalog.replication.fetcher", "kafkalog.server.replica_manager",
                            "kafkalog.server.controller_apis.quorum_broker", "kafkalog.store",
                            "kafkalog.client.producer", "kafkalog.client.consumer",
                            "difflib", "pathlib", "urllib", "concurrent"}),
    ],
    ids=["Log", "--help", "Broker"],
)  # fmt: skip
def test_a_start_imports_no_more_than_it_needs(
    program: str, own: int, others: int, absent: set[str]
) -> None:
    found = imported(program)
    ours = {name for name in found if name.partition(".")[0] == "kafkalog"}
    assert found & (HEAVY | absent) == set()
    assert 0 < len(ours) <= own
    assert 0 < len(found - ours) <= others


def test_a_client_connects_without_a_look_at_installed_packages() -> None:
    """Its version is asked for by each broker (KIP-511)."""
    program = (
        "import kafkalog, tempfile\n"
        "with tempfile.TemporaryDirectory() as path, kafkalog.Broker(path, '127.0.0.1:0') as b:\n"
        "    with kafkalog.Admin(b.bootstrap_servers) as admin: admin.describe_cluster()"
    )
    found = imported(program)
    assert "kafkalog.client.admin" in found
    assert found & {"importlib.metadata", "email.parser", "csv", "zipfile"} == set()
