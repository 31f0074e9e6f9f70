"""The levels of a broker's loggers, at Apache Kafka and here: the same answers."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest

from kafkalog.logs.levels import LEVELS, ROOT
from kafkalog.wire import apis
from tests.support.raw import Raw

TOPIC, LOGGER = 2, 8
SET, DELETE, APPEND, SUBTRACT = range(4)
INVALID_REQUEST, INVALID_CONFIG = 42, 40
SOURCE = 6


class Loggers:
    """The loggers of one broker."""

    def __init__(self, raw: Raw) -> None:
        self.raw = raw
        (broker,) = raw.call(apis.METADATA, topics=[]).brokers
        self.node = str(broker.node_id)
        self.other = min(name for name in self.levels() if name != ROOT)

    def describe(self, name: str, keys: list[str] | None = None) -> Any:
        resource = {"resource_type": LOGGER, "resource_name": name, "configuration_keys": keys}
        (found,) = self.raw.call(apis.DESCRIBE_CONFIGS, resources=[resource]).results
        return found

    def levels(self) -> dict[str, str]:
        found = self.describe(self.node)
        assert (found.error_code, found.error_message) in ((0, None), (0, ""))
        return {one.name: one.value for one in found.configs}

    def alter(
        self, *changes: tuple[str, int, str | None], node: str | None = None, check: bool = False,
        twice: bool = False,
    ) -> list[tuple[int, str | None]]:  # fmt: skip
        configs = [{"name": name, "config_operation": operation, "value": value}
                   for name, operation, value in changes]  # fmt: skip
        resource = {"resource_type": LOGGER, "resource_name": node or self.node,
                    "configs": configs}  # fmt: skip
        answer = self.raw.call(
            apis.INCREMENTAL_ALTER_CONFIGS, resources=[resource] * (1 + twice), validate_only=check
        )
        return [(row.error_code, row.error_message or None) for row in answer.responses]


@pytest.fixture
def loggers(servers: str) -> Iterator[Loggers]:
    """Ours are those of this process: their levels are as before afterwards."""
    made = [
        one for name, one in logging.root.manager.loggerDict.items()
        if name.startswith("kafkalog") and isinstance(one, logging.Logger)
    ]  # fmt: skip
    kept = [(one, one.level) for one in made]
    with Raw(servers) as raw:
        yield Loggers(raw)
    for one in logging.root.manager.loggerDict.values():
        if isinstance(one, logging.Logger) and one.name.startswith("kafkalog"):
            one.setLevel(dict(kept).get(one, logging.NOTSET))


def test_levels_are_described(loggers: Loggers) -> None:
    found = loggers.describe(loggers.node)
    assert (found.resource_type, found.resource_name) == (LOGGER, loggers.node)
    names = [one.name for one in found.configs]
    assert ROOT in names and len(names) == len(set(names))
    assert {one.value for one in found.configs} <= {*LEVELS, "OFF"}
    assert {(one.read_only, one.config_source, one.is_sensitive, one.config_type,
             one.documentation, tuple(one.synonyms)) for one in found.configs} == {
        (False, SOURCE, False, 0, "", ())
    }  # fmt: skip


def test_some_levels_are_described(loggers: Loggers) -> None:
    found = loggers.describe(loggers.node, [ROOT, "no such logger"])
    assert [one.name for one in found.configs] == [ROOT]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("", "Broker id must not be empty"),
        ("x", "Broker id must be an integer, but it is: x"),
        ("4711", "Unexpected broker id, expected {} but received 4711"),
    ],
)
def test_only_its_own_loggers_are_described(loggers: Loggers, name: str, message: str) -> None:
    found = loggers.describe(name)
    assert (found.error_code, found.error_message) == (
        INVALID_REQUEST, message.format(loggers.node)
    )  # fmt: skip
    assert found.configs == []


def test_a_level_is_set_and_taken_back(loggers: Loggers) -> None:
    name = loggers.other
    before = loggers.levels()
    assert loggers.alter((ROOT, SET, "DEBUG"), (name, SET, "ERROR")) == [(0, None)]
    after = loggers.levels()
    assert (after[name], after[ROOT]) == ("ERROR", "DEBUG")
    assert loggers.alter((name, DELETE, None)) == [(0, None)]
    assert loggers.levels()[name] == "DEBUG"
    assert loggers.alter((ROOT, SET, before[ROOT])) == [(0, None)]


def test_a_check_changes_nothing(loggers: Loggers) -> None:
    before = loggers.levels()
    assert loggers.alter((loggers.other, SET, "FATAL"), check=True) == [(0, None)]
    assert loggers.levels()[loggers.other] == before[loggers.other]


LEVEL_LIST = "DEBUG, ERROR, FATAL, INFO, TRACE, WARN"


@pytest.mark.parametrize(
    ("changes", "code", "message"),
    [
        ([(ROOT, SET, "LOUD")], INVALID_CONFIG,
         "Cannot set the log level of root to LOUD as it is not a supported log level. Valid log "
         f"levels are {LEVEL_LIST}"),
        ([(ROOT, SET, "info")], INVALID_CONFIG,
         "Cannot set the log level of root to info as it is not a supported log level. Valid log "
         f"levels are {LEVEL_LIST}"),
        ([("no.such", SET, "INFO")], INVALID_CONFIG, "Logger no.such does not exist!"),
        ([("no.such", DELETE, None)], INVALID_CONFIG, "Logger no.such does not exist!"),
        ([(ROOT, DELETE, None)], INVALID_REQUEST,
         "Removing the log level of the root logger is not allowed"),
        ([(ROOT, APPEND, "INFO")], INVALID_REQUEST,
         "APPEND operation is not allowed for the BROKER_LOGGER resource"),
        ([(ROOT, SUBTRACT, "INFO")], INVALID_REQUEST,
         "SUBTRACT operation is not allowed for the BROKER_LOGGER resource"),
        ([(ROOT, 9, "INFO")], INVALID_REQUEST,
         "Unknown operation type 9 is not allowed for the BROKER_LOGGER resource"),
        ([(ROOT, SET, None)], INVALID_REQUEST, "Null value not supported for : root"),
        ([(ROOT, SET, "INFO"), (ROOT, SET, "WARN")], INVALID_REQUEST,
         "Error due to duplicate config keys"),
    ],
)  # fmt: skip
def test_changes_that_are_refused(
    loggers: Loggers, changes: list[tuple[str, int, str | None]], code: int, message: str
) -> None:
    before = loggers.levels()
    assert loggers.alter((loggers.other, SET, "FATAL"), *changes) == [(code, message)]
    assert loggers.levels()[loggers.other] == before[loggers.other]


@pytest.mark.parametrize(
    ("node", "message"),
    [
        ("x", "Node id must be an integer, but it is: x"),
        ("4711", "Unexpected node id. Expected {}, but received 4711"),
    ],
)
def test_only_its_own_loggers_are_changed(loggers: Loggers, node: str, message: str) -> None:
    found = loggers.alter((ROOT, SET, "INFO"), node=node)
    assert found == [(INVALID_REQUEST, message.format(loggers.node))]


def test_a_resource_appears_once(loggers: Loggers) -> None:
    found = loggers.alter((ROOT, SET, "INFO"), twice=True)
    assert found == [(INVALID_REQUEST, "Each resource must appear at most once.")] * 2


def test_other_resources_of_the_same_request_are_answered_too(loggers: Loggers) -> None:
    change = {"name": loggers.other, "config_operation": SET, "value": "ERROR"}
    resources = [
        {"resource_type": LOGGER, "resource_name": loggers.node, "configs": [change]},
        {"resource_type": TOPIC, "resource_name": "no-such-topic", "configs": []},
    ]
    answer = loggers.raw.call(
        apis.INCREMENTAL_ALTER_CONFIGS, resources=resources, validate_only=True
    )
    assert sorted((row.resource_type, row.error_code) for row in answer.responses) == [
        (TOPIC, 3), (LOGGER, 0),
    ]  # fmt: skip


def test_the_older_request_does_not_know_loggers(loggers: Loggers) -> None:
    change = {"name": ROOT, "value": "INFO"}
    resource = {"resource_type": LOGGER, "resource_name": loggers.node, "configs": [change]}
    answer = loggers.raw.call(apis.ALTER_CONFIGS, resources=[resource], validate_only=True)
    assert [(row.error_code, row.error_message) for row in answer.responses] == [
        (INVALID_REQUEST, "Unknown resource type 8")
    ]


def test_loggers_are_listed_among_the_resources(loggers: Loggers) -> None:
    answer = loggers.raw.call(apis.LIST_CONFIG_RESOURCES, resource_types=[LOGGER])
    assert [(one.resource_type, one.resource_name) for one in answer.config_resources] == [
        (LOGGER, loggers.node)
    ]
