"""kafka-python's integration tests, out of its source package."""

from __future__ import annotations

import sys
import venv
import xml.etree.ElementTree as ET
from pathlib import Path

from tests.kafka.suites.suite import RUN_S, Outcome, Suite, call, fetched
from tests.support import apache

VERSION = "3.0.12"
SERVICE = """
class ExternalService:
    def __init__(self, host, port):
        self.host, self.port = host, port
    def open(self): pass
    def close(self): pass

class SpawnedService: pass
"""
"""A file that the tests import and the package lacks, with what an external broker needs."""
WITH = [
    "pytest",
    "pytest-timeout",
    "pytest-mock",
    "mock",
    "lz4",
    "zstandard",
    "python-snappy",
    "crc32c",
]


def prepare(folder: Path) -> None:
    download = [sys.executable, "-m", "pip", "download", "--no-binary", ":all:", "--no-deps", "-q"]
    source = fetched([*download, f"kafka-python=={VERSION}"], folder)
    source.rename(folder / "source")
    # Otherwise the standard library's package of this name is found.
    (folder / "source" / "test" / "__init__.py").touch()
    (folder / "source" / "test" / "service.py").write_text(SERVICE)
    venv.create(folder / "venv", with_pip=True)
    call([str(folder / "venv/bin/pip"), "install", "-q", "./source", *WITH], folder)


def run(folder: Path, bootstrap: str, only: str | None) -> dict[str, Outcome]:
    report = folder / "report.xml"
    command = [str(folder / "venv/bin/python"), "-m", "pytest", "-q", "test/integration"]
    command += ["-k", only] if only else []
    env = {
        "KAFKA_URI": f"kafka://{bootstrap}",
        "KAFKA_VERSION": apache.VERSION,
        "PYTHONPATH": ".",
        "KAFKA_ROOT": ".",
    }
    call([*command, f"--junitxml={report}"], folder / "source", RUN_S, env)
    outcomes: dict[str, Outcome] = {}
    for case in ET.parse(report).iter("testcase"):
        ends = {child.tag for child in case}
        failed, skipped = ends & {"failure", "error"}, "skipped" in ends
        outcomes[case.attrib["name"]] = "failed" if failed else "skipped" if skipped else "passed"
    return outcomes


SUITE = Suite(
    "kafka-python", VERSION, prepare, run,
    excused={
        "test_create_describe_delete_acls": "ACLs",
        "test_ssl_handshake": "TLS; and a template that the package leaves out",
        "test_legacy_kafka_client_ssl": "TLS; and a template that the package leaves out",
    },
    settings={"node.id": "0", "auto.create.topics.enable": "true", "num.partitions": "4"},
)  # fmt: skip
