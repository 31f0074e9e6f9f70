"""Groups with members of both protocols: the same requests to Apache Kafka and to our broker, the
same answers and the same records, under each policy; and a mixed group that changes hands."""

from __future__ import annotations

from itertools import zip_longest
from pathlib import Path
from pprint import pformat
from typing import Any

import pytest

from kafkalog.server.broker import Broker
from kafkalog.wire import apis
from tests.kafka.referee.test_consumer_groups import jars, stored
from tests.support import apache
from tests.support.migration_script import SETTINGS, Mixed, assignment, live_groups
from tests.support.raw import Raw

pytestmark = [pytest.mark.java, pytest.mark.long, pytest.mark.timeout(300)]

POLICIES = ["disabled", "upgrade", "downgrade", "bidirectional"]


SOONER = (
    ("rolling: heartbeat c []", {"error_code": 27}),
    (
        "rolling: heartbeat c []",
        {"error_code": 0},
    ),
)
"""In a consumer group of classic members only, Kafka leaves the partitions of a member that is gone
alone until somebody joins; here a heartbeat of the others assigns them."""


def of_policy(policy: str) -> dict[str, str]:
    return {
        **SETTINGS,
        "group.consumer.migration.policy": policy,
        "group.initial.rebalance.delay.ms": "0",
    }


def lines(settings: dict[str, str]) -> str:
    return "".join(f"{name}={value}\n" for name, value in settings.items())


def differences(ours: list[Any], theirs: list[Any]) -> list[Any]:
    """Items that are not the same in two lists, each with its place."""
    pairs = enumerate(zip_longest(ours, theirs))
    return [(number, mine, kafkas) for number, (mine, kafkas) in pairs if mine != kafkas]


@pytest.mark.parametrize("policy", POLICIES)
def test_kafka_answers_and_writes_the_same(tmp_path: Path, policy: str) -> None:
    """Each answer; each record of consumer groups in the order of the writes; the classic groups
    that are left."""
    jars()
    settings = of_policy(policy)
    with Broker(tmp_path / "ours", config=settings) as broker, Raw(broker.bootstrap_servers) as raw:
        ours = Mixed(raw)
        ours.prepare()
        ours.run()
    with (
        apache.Broker(tmp_path / "kafkas", lines(settings)) as kafka,
        Raw(kafka.bootstrap_servers) as raw,
    ):
        theirs = Mixed(raw)
        theirs.prepare()
        theirs.run()
    different = differences(ours.transcript, theirs.transcript)
    if policy == "upgrade":
        different = [one for one in different if one[1:] != SOONER]
    assert not different, pformat(different)
    found: list[Any] = []
    for script, directory in ((ours, tmp_path / "ours"), (theirs, tmp_path / "kafkas")):
        records = stored(directory)
        found.append((script.in_order(records), live_groups(records, script.names)))
    different = differences(*(records for records, _ in found))
    assert not different, pformat(different)
    assert found[0][1] == found[1][1]


def test_a_mixed_group_changes_hands(tmp_path: Path) -> None:
    """From Kafka to us and back: its classic member and the other go on with their partitions."""
    jars()
    directory, settings = tmp_path / "data", of_policy("bidirectional")
    with apache.Broker(directory, lines(settings)) as kafka, Raw(kafka.bootstrap_servers) as raw:
        script = Mixed(raw)
        script.prepare()
        script.classic("c", assignment(0, 1, 2, 3, 4))
        script.enter("n", "t")
        script.join("c")
        script.sync("c")
        script.beat("n")
        before = script.plain(script.describe())
    with Broker(directory, config=settings) as broker, Raw(broker.bootstrap_servers) as raw:
        script.raw = raw
        script.find()
        assert script.plain(script.describe()) == before
        assert not script.pulse("c").error_code
        script.commit(script.id_of("c"), script.told["c"], 0)
        script.enter("m", "t")
        assert script.pulse("c").error_code == 27
        script.join("c")
        script.sync("c")
        script.beat("n")
        script.beat("n", owns=True)
        script.beat("m")
        before = script.plain(script.describe())
    with apache.Broker(directory, lines(settings)) as kafka, Raw(kafka.bootstrap_servers) as raw:
        script.raw = raw
        script.find()
        assert script.plain(script.describe()) == before
        script.beat("n", -1)
        script.beat("m", -1)
        assert script.pulse("c").error_code == 22, "n raised the group epoch before it was m's turn"
    with Broker(directory, config=settings) as broker, Raw(broker.bootstrap_servers) as raw:
        script.raw = raw
        script.find()
        (listed,) = raw.call(apis.LIST_GROUPS, 5).groups
        assert listed.group_type == "classic"
        assert not script.join("c").error_code
