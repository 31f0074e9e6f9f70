"""Apache Kafka is the referee: the same requests, the same answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from kafkalog.wire import apis
from kafkalog.wire.api import Api
from tests.support import apache, trees
from tests.support.raw import Raw
from tests.support.waiting import wait_for
from tests.unit.coordinator.both_sides import SETTINGS, KafkaSide, OurSide, Side
from tests.unit.coordinator.group_kinds import CASE, GROUPS, said
from tests.unit.coordinator.scripts import SCRIPTS, all_asked

pytestmark = [pytest.mark.java, pytest.mark.slow, pytest.mark.timeout(300)]

MORE = {"offsets.topic.num.partitions": 4, "auto.create.topics.enable": "false"}
NEWER = {
    "share.coordinator.state.topic.num.partitions": 1,
    "share.coordinator.state.topic.replication.factor": 1,
    "share.coordinator.state.topic.min.isr": 1,
    # Members of newer protocols that the directory still has expire soon after the start.
    **{
        f"group.{kind}.{name}": 1_000 if "session" in name else 500
        for kind in ("consumer", "share", "streams")
        for name in ("min.session.timeout.ms", "session.timeout.ms",
                     "min.heartbeat.interval.ms", "heartbeat.interval.ms")
    },
}  # fmt: skip


@pytest.fixture(scope="module")
def broker(
    tmp_path_factory: pytest.TempPathFactory, kafka_cases: Path
) -> Iterator[apache.Broker]:  # fmt: skip
    """An Apache Kafka with groups of each type, and the topics of the scripts."""
    try:
        apache.jars()
    except apache.Unavailable as reason:
        pytest.skip(str(reason))
    given = {**SETTINGS, **MORE, **NEWER}
    settings = "".join(f"{name}={value}\n" for name, value in given.items())
    directory = tmp_path_factory.mktemp("kafka") / "data"
    if (kafka_cases / CASE).is_dir():
        trees.copy_tree(kafka_cases / CASE / "log", directory)
    with apache.Broker(directory, settings) as broker:
        with Raw(broker.bootstrap_servers) as raw:
            raw.alter(4, "1", cordoned_log_dirs=None)
            wait_for(lambda: not raw.create("any").error_code, "no directory is cordoned")
        KafkaSide(broker.port).prepare()
        yield broker


@pytest.fixture(scope="module")
def asked(broker: apache.Broker) -> Iterator[dict[str, Future[Side]]]:
    """The answers to each script."""
    with all_asked(lambda: KafkaSide(broker.port)) as sides:
        yield sides


def test_kafka_answers_for_a_group_of_each_type_as_the_table_says(
    broker: apache.Broker, kafka_cases: Path, wait_until: Callable[..., None]
) -> None:
    """tests/kafka/golden/test_node.py checks the same table against our broker."""
    if not (kafka_cases / CASE).is_dir():
        pytest.skip(f"{kafka_cases} has no {CASE}")
    with Raw(broker.bootstrap_servers) as raw:

        def are_empty() -> bool:
            groups = {one.group_id: one for one in raw.call(apis.LIST_GROUPS, 5).groups}
            newer = [GROUPS[kind] for kind in ("consumer", "share", "streams")]
            return all(one in groups and groups[one].group_state == "Empty" for one in newer)

        def begun() -> Any:
            return raw.call(
                apis.INIT_PRODUCER_ID, 4, transactional_id="types", transaction_timeout_ms=60_000
            )

        wait_until(are_empty, "their members are gone")
        wait_until(lambda: not begun().error_code, "there is a coordinator of transactions")
        producer = begun()

        def ask(api: Api, version: int, fields: dict[str, Any]) -> Any:
            if api is apis.TXN_OFFSET_COMMIT:
                fields |= {"producer_id": producer.producer_id,
                           "producer_epoch": producer.producer_epoch}  # fmt: skip
            return raw.call(api, version, **fields)

        for (request, kind), (wanted, found) in said(ask).items():
            assert found == wanted, f"{request} of a {kind} group"


@pytest.mark.parametrize("name", SCRIPTS)
def test_kafka_answers_the_same(name: str, asked: dict[str, Future[Side]]) -> None:
    ours = OurSide()
    SCRIPTS[name](ours)
    pairs = zip(asked[name].result().transcript, ours.transcript, strict=True)
    for number, (kafka, kafkalog) in enumerate(pairs):
        assert kafkalog == kafka, f"answer {number}"
