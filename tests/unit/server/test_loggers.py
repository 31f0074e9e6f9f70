"""The right to change the levels of a broker's loggers.

tests/kafka/clients/test_loggers.py compares the answers with Apache Kafka's.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkalog.config.authorizer import STANDARD_AUTHORIZER
from kafkalog.server.broker import Broker
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode
from tests.support.raw import Raw

TOPIC, LOGGER, SET = 2, 8, 0
NAME = "kafkalog.server.share_effects"


@pytest.fixture(autouse=True)
def _level_as_before() -> Iterator[None]:
    yield
    logging.getLogger(NAME).setLevel(logging.NOTSET)


def alter(raw: Raw, *others: dict[str, object]) -> list[tuple[int, int]]:
    change = {"name": NAME, "config_operation": SET, "value": "FATAL"}
    resources = [
        *others, {"resource_type": LOGGER, "resource_name": "1", "configs": [change]},
    ]  # fmt: skip
    answer = raw.call(apis.INCREMENTAL_ALTER_CONFIGS, resources=resources, validate_only=False)
    return [(row.resource_type, row.error_code) for row in answer.responses]


def describe(raw: Raw) -> int:
    resource = {"resource_type": LOGGER, "resource_name": "1", "configuration_keys": [NAME]}
    (found,) = raw.call(apis.DESCRIBE_CONFIGS, resources=[resource]).results
    return int(found.error_code)


def test_it_takes_the_right_to_the_clusters_settings(tmp_path: Path) -> None:
    config = {"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:admin"}
    denied = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    with Broker(tmp_path / "d", config=config) as broker, Raw(broker.bootstrap_servers) as raw:
        assert (describe(raw), alter(raw)) == (denied, [(LOGGER, denied)])
        assert logging.getLogger(NAME).level == logging.NOTSET
        who = "User:ANONYMOUS"
        broker.store.admin.create_acls([
            ("cluster", "kafka-cluster", who, "alter_configs"),
            ("cluster", "kafka-cluster", who, "describe_configs"),
        ]).check()  # fmt: skip
        topic = {"resource_type": TOPIC, "resource_name": "t", "configs": []}
        found = alter(raw, topic)
        assert sorted(found) == [(TOPIC, ErrorCode.TOPIC_AUTHORIZATION_FAILED), (LOGGER, 0)]
        assert describe(raw) == 0
        assert logging.getLogger(NAME).level == logging.CRITICAL


def test_a_change_is_logged(raw: Raw, caplog: pytest.LogCaptureFixture) -> None:
    assert alter(raw) == [(LOGGER, 0)]
    assert caplog.messages[-1] == f"logger {NAME}: its level is FATAL"


def test_other_resources_get_their_answers(raw: Raw) -> None:
    raw.create("t")
    change = {"name": "retention.ms", "config_operation": SET, "value": "1234567"}
    topic = {"resource_type": TOPIC, "resource_name": "t", "configs": [change]}
    assert sorted(alter(raw, topic)) == [(TOPIC, 0), (LOGGER, 0)]
    asked = {"resource_type": TOPIC, "resource_name": "t", "configuration_keys": ["retention.ms"]}
    (found,) = raw.call(apis.DESCRIBE_CONFIGS, resources=[asked]).results
    assert [one.value for one in found.configs] == ["1234567"]


@pytest.mark.parametrize("name", ["0_1", " 1", "\u0661", "1 ", "00000000001", "x"])
def test_the_number_of_a_node_has_ascii_digits(tmp_path: Path, name: str) -> None:
    """Many spellings of one number would each have all loggers as their answer."""
    with Broker(tmp_path / "d") as broker, Raw(broker.bootstrap_servers) as raw:
        resource = {"resource_type": LOGGER, "resource_name": name, "configuration_keys": []}
        (found,) = raw.call(apis.DESCRIBE_CONFIGS, resources=[resource]).results
        assert (found.error_code, found.configs) == (ErrorCode.INVALID_REQUEST, [])
        assert found.error_message == f"Broker id must be an integer, but it is: {name}"
