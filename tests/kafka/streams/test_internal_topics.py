"""The broker creates the internal topics of an application, as Apache Kafka does."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import kafkalog
from tests.kafka.clients.conftest import Admin
from tests.kafka.clients.servers import Server
from tests.kafka.streams.application import STREAMS, WAIT_S, Application

pytestmark = [pytest.mark.java, pytest.mark.long, pytest.mark.timeout(300)]

PARTITIONS = 3
SOURCES = {"streams": ("lines", "counts"), "streams-join": ("left", "right", "pairs")}
CREATE_TIME = {"message.timestamp.type": "CreateTime"}
NEAR = {**CREATE_TIME, "cleanup.policy": "delete", "retention.ms": str(2 * 86_400_000 + 2_000)}
"""The windows and their grace, and a day more."""
INTERNAL = {
    "streams": {
        "word-count-counted-changelog": {**CREATE_TIME, "cleanup.policy": "compact"},
        "word-count-counted-repartition": {
            **CREATE_TIME, "cleanup.policy": "delete", "retention.ms": "-1",
            "segment.bytes": "52428800",
        },
    },
    "streams-join": {
        "join-near-this-join-store-changelog": NEAR,
        "join-near-other-join-store-changelog": NEAR,
    },
}  # fmt: skip
"""The settings of each topic, by application."""


@pytest.mark.parametrize(
    "broker", [("kafkalog", "streams"), ("kafka", "streams")], indirect=True,
    ids=["kafkalog", "kafka"],
)  # fmt: skip
@pytest.mark.parametrize("kind", SOURCES)
def test_internal_topics_have_their_partitions_and_settings(
    broker: Server, kind: str, admin: Admin, started: Callable[..., Application],
    wait_until: Callable[..., None],
) -> None:  # fmt: skip
    for topic in SOURCES[kind]:
        admin.create(topic, PARTITIONS, {})
    application = started(kind, STREAMS)
    wait_until(lambda: application.ask("state") == ["RUNNING"], "it runs", WAIT_S)
    with kafkalog.Admin(broker.bootstrap) as ours:

        def listed() -> list[tuple[str, str, str]]:
            return [(one.group, one.kind, one.state) for one in ours.list_groups()]

        assert {*ours.list_topics()} == {*SOURCES[kind], *INTERNAL[kind]}
        assert all(len(admin.partitions(topic)) == PARTITIONS for topic in INTERNAL[kind])
        found = ours.describe_configs([("topic", topic) for topic in INTERNAL[kind]])
        for resource, entries in found.items():
            own = {one.name: one.value for one in entries.values() if one.source == "topic"}
            assert own == INTERNAL[kind][resource.name], resource.name
        wait_until(lambda: listed() == [(application.group, "streams", "Stable")], "it is stable")
        application.stop()
        assert listed() == [(application.group, "streams", "Empty")]
        ours.delete_groups([application.group]).check()
        assert not listed()
