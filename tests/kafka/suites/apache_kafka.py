"""Kafka's own tests of the requests of groups, and of quotas, out of its test jars.

They start a Kafka for each test, in their own JVM.  For our broker a class of ours takes the place
of the one that does so: `java/RaftClusterInvocationContext.java`.  Left out of the count, as
skipped, are tests that want several brokers, and those that are repeated with a combined node.
"""

from __future__ import annotations

import re
import sys
import tempfile
import xml.etree.ElementTree as ET
from pathlib import Path

from tests.kafka.suites.suite import RUN_S, Outcome, Place, Suite, call
from tests.support import apache, prepared

VERSION = "4.3.0"
"""The newest version whose test jars are published."""
HERE = Path(__file__).parent / "java"
SERVER = (
    "ConsumerGroupDescribeRequestTest", "ConsumerGroupHeartbeatRequestTest",
    "ConsumerProtocolMigrationTest", "DeleteGroupsRequestTest",
    "DescribeGroupsRequestTest", "HeartbeatRequestTest", "JoinGroupRequestTest",
    "LeaveGroupRequestTest", "ListGroupsRequestTest", "OffsetCommitRequestTest",
    "OffsetDeleteRequestTest", "OffsetFetchRequestTest", "ShareFetchAcknowledgeRequestTest",
    "ShareGroupDescribeRequestTest", "ShareGroupHeartbeatRequestTest",
    "StreamsGroupDescribeRequestTest", "StreamsGroupHeartbeatRequestTest", "SyncGroupRequestTest",
    "TxnOffsetCommitRequestTest", "WriteTxnMarkersRequestTest",
)  # fmt: skip
CLASSES = [
    *(f"kafka.server.{name}" for name in SERVER),
    "org.apache.kafka.server.quota.ClientQuotasRequestTest",
]
_NUMBER = re.compile(r"\(.*")


def _jars() -> Path:
    """The folder of the jars of Kafka, of its tests and of JUnit."""
    return apache.fetched(
        HERE / "pom.xml", f"kafka-requests-{VERSION}", "kafka_2.13-*-test.jar",
        f"-Dkafka.version={VERSION}",
    )  # fmt: skip


def _stand_in() -> Path:
    """The jar with the class that starts our broker."""
    return prepared.compiled(
        "suites/requests", [HERE / "RaftClusterInvocationContext.java"], _jars()
    )  # fmt: skip


def prepare(folder: Path) -> None:
    _stand_in()


def run(folder: Path, place: Place, only: str | None) -> dict[str, Outcome]:
    path = f"{_jars()}/*" if place.side == "kafka" else f"{_stand_in()}:{_jars()}/*"
    with tempfile.TemporaryDirectory() as brokers:
        command = [
            *("java", *prepared.QUICK, "-Xmx1g", f"-Dkafkalog.folder={brokers}"),
            f"-Dkafkalog.serve={sys.executable} -m kafkalog serve",
            *("-cp", path, "org.junit.platform.console.ConsoleLauncher", "execute"),
            *("--config", "junit.jupiter.extensions.autodetection.enabled=true"),
            *("--disable-banner", "--disable-ansi-colors", f"--reports-dir={folder}"),
            *(word for one in CLASSES for word in ("-c", one) if only is None or only in one),
        ]
        call(command, folder, RUN_S)
    return outcomes(folder / "TEST-junit-jupiter.xml")


def outcomes(report: Path) -> dict[str, Outcome]:
    """The worst result of each test among its settings."""
    found: dict[str, Outcome] = {}
    for case in ET.parse(report).iter("testcase"):
        name = (
            f"{case.attrib['classname'].rpartition('.')[2]}.{_NUMBER.sub('', case.attrib['name'])}"
        )
        ends = {child.tag for child in case}
        if ends & {"failure", "error"}:
            found[name] = "failed"
        elif "skipped" in ends:
            found.setdefault(name, "skipped")
        elif found.get(name) != "failed":
            found[name] = "passed"
    return found


_HASHED = "rows in the order of Kafka's hash table"
_LAST = "topics that do not exist are not the last ones"
_SETTING = "the setting group.coordinator.rebalance.protocols: deprecated, and ignored here"
_STREAMS_OFF = "testStreamsGroupHeartbeatIsInaccessibleWhenDisabled"
EXCUSED = {
    "ClientQuotasRequestTest": {"testAlterIpQuotasRequest": "looks into Kafka's own objects"},
    "ConsumerGroupDescribeRequestTest": {
        "testConsumerGroupDescribeWithNewGroupCoordinator": _HASHED,
    },
    "ConsumerGroupHeartbeatRequestTest": {
        "testConsumerGroupHeartbeatIsInaccessibleWhenDisabledByStaticConfig": _SETTING,
    },
    "ConsumerProtocolMigrationTest": {
        "testDowngradeWithDisabledMigrationPolicy": "Kafka 4.4.0 refuses the classic member, too",
        "testOnlineMigrationWithNonEmptyUserDataInAssignment": "the words of an error",
    },
    "ListGroupsRequestTest": {"testListGroupsWithNewConsumerGroupProtocol": _HASHED},
    "OffsetFetchRequestTest": {
        "testMultiGroupsOffsetFetchWithNewConsumerGroupProtocol": _LAST,
        "testMultiGroupsOffsetFetchWithOldConsumerGroupProtocol": _LAST,
    },
    "StreamsGroupHeartbeatRequestTest": {
        "testFencedMemberCanRejoinWithEpochZero": "Kafka 4.4.0 answers the offsets' interval, too",
        f"{_STREAMS_OFF}ByStaticGroupCoordinatorProtocolConfig": _SETTING,
    },
}
"""Why tests of a class fail here."""
SUITE = Suite(
    "kafka", VERSION, prepare, run,
    {f"{kind}.{test}": why for kind, tests in EXCUSED.items() for test, why in tests.items()},
)  # fmt: skip
