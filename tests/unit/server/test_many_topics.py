"""A change to one topic among many costs only what that topic costs."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from types import FrameType
from typing import Any

import pytest

from kafkalog.metadata import settings
from kafkalog.metadata.configs import incremental_alter_configs
from kafkalog.server.broker import Broker
from kafkalog.wire import apis
from tests.unit.metadata.conftest import request

TOPICS = 50


def looks(change: Callable[[], Any]) -> int:
    """How often a topic's settings are computed while `change` runs in this thread."""
    count = 0
    wanted = settings.topic_overrides.__code__

    def profile(frame: FrameType, event: str, _arg: Any) -> None:
        nonlocal count
        count += event == "call" and frame.f_code is wanted

    sys.setprofile(profile)
    try:
        change()
    finally:
        sys.setprofile(None)
    return count


@pytest.fixture
def many(broker: Broker) -> Broker:
    """A broker with TOPICS topics, half of which have their own settings."""
    topics = [
        {"name": f"t{n}", "num_partitions": 1, "replication_factor": 1,
         "configs": [{"name": "retention.ms", "value": str(n)}] if n % 2 else []}
        for n in range(TOPICS)
    ]  # fmt: skip
    broker._metadata.create_topics(request(apis.CREATE_TOPICS, topics=topics))
    return broker


@pytest.mark.parametrize("name", ["t1", "t2"], ids=["with settings", "without"])
def test_a_topic_that_goes_is_the_only_one_looked_at(many: Broker, name: str) -> None:
    body = request(apis.DELETE_TOPICS, topics=[{"name": name}], timeout_ms=1)
    assert looks(lambda: many._metadata.delete_topics(body)) <= 2
    assert name not in many._metadata.image.topics


@pytest.mark.parametrize("configs", [[], [{"name": "retention.ms", "value": "7"}]])
def test_a_topic_that_comes_is_the_only_one_looked_at(many: Broker, configs: list[Any]) -> None:
    topic = {"name": "new", "num_partitions": 1, "replication_factor": 1, "configs": configs}
    body = request(apis.CREATE_TOPICS, topics=[topic])
    assert looks(lambda: many._metadata.create_topics(body)) <= 4
    assert many._manager.topic_config("new").retention_ms == (7 if configs else -1)


def test_a_brokers_default_reaches_all(many: Broker) -> None:
    """A default that every topic inherits is computed for every topic."""
    ops = [{"name": "log.retention.ms", "config_operation": 0, "value": "99"}]
    resource = {"resource_type": 4, "resource_name": "", "configs": ops}
    body = request(apis.INCREMENTAL_ALTER_CONFIGS, resources=[resource])
    plan = partial(incremental_alter_configs, asked=body, static=many.config)
    assert looks(lambda: many._metadata.alter(plan)) >= TOPICS
    assert many._manager.topic_config("t2").retention_ms == 99
    assert many._manager.topic_config("t3").retention_ms == 3
