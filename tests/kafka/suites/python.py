"""kafka-python's integration tests, out of its source package."""

from __future__ import annotations

import shutil
import sys
import venv
import xml.etree.ElementTree as ET
from pathlib import Path

from tests.kafka.suites.suite import RUN_S, Outcome, Place, Suite, call, fetched
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
USER, PASSWORD = "alice", "alice-secret"
"""Those of the tests."""
FIXTURES = """


def _reached(cls, broker_id, transport="PLAINTEXT", sasl_mechanism=None, partitions=4, **given):
    host, port = os.environ[f"KAFKA_{transport}"].split(":")
    fixture = cls(host, int(port), broker_id, transport=transport, partitions=partitions,
                  sasl_mechanism=sasl_mechanism, external=True)
    fixture.ssl_dir = os.environ["KAFKA_CERTIFICATES"]
    fixture.child.dump_logs = lambda: None
    return fixture


def _topic_names(fixture):
    with KafkaAdminClient(**client_params(fixture, "names")) as admin:
        return admin.list_topics()


KafkaFixture.instance = classmethod(_reached)
KafkaFixture.start = lambda self: None
KafkaFixture.get_topic_names = _topic_names
"""
"""Put at the end of the tests' fixtures: instead of starting a broker with the security that a test
wants, and asking Kafka's commands, they use the listener of ours that has it."""
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


def run(folder: Path, place: Place, only: str | None) -> dict[str, Outcome]:
    report = folder / "report.xml"
    command = [str(folder / "venv/bin/python"), "-m", "pytest", "-q", "test/integration"]
    command += ["-k", only] if only else []
    fixtures = folder / "source" / "test" / "integration" / "conftest.py"
    if FIXTURES not in (text := fixtures.read_text()):
        fixtures.write_text(text + FIXTURES)
    shutil.copy(place.authority, folder / "ca-cert")  # as the tests call it
    env = {
        **{f"KAFKA_{protocol}": where for protocol, where in place.at.items()},
        "KAFKA_CERTIFICATES": str(folder),
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
    excused={},
    settings={"node.id": "0", "auto.create.topics.enable": "true", "num.partitions": "4"},
    listeners={"SASL_PLAINTEXT": None, "SSL": None},
    plain={USER: PASSWORD},
    scram=[(USER, "SCRAM-SHA-256", PASSWORD), (USER, "SCRAM-SHA-512", PASSWORD)],
)  # fmt: skip
