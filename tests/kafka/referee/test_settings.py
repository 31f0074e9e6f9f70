"""Apache Kafka starts with every value of every setting that our broker accepts.

One JVM checks all of them: Kafka's own classes check what a start checks.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from kafkalog.config.declare import Flag, Rate, Ratio, Setting, Whole, Word, Words
from kafkalog.config.served import check_served
from kafkalog.config.server import ServerConfig
from kafkalog.config.topic import TopicConfig
from kafkalog.config.zookeeper import ZooKeeperSettings
from kafkalog.errors import InvalidSetting
from kafkalog.metadata.configs import Refused, checked_topic_configs
from kafkalog.metadata.image import empty_image
from tests.support import apache
from tests.support.quorum_settings import REFUSED, TAKEN, settings_of

pytestmark = [pytest.mark.java, pytest.mark.slow, pytest.mark.timeout(300)]

PLACES = {
    "advertised.listeners", "control.plane.listener.name", "inter.broker.listener.name",
    "cordoned.log.dirs", "listener.security.protocol.map", "listeners",
    "security.inter.broker.protocol", "process.roles", "controller.listener.names",
    "controller.quorum.bootstrap.servers", "controller.quorum.voters",
}  # fmt: skip
"""They depend on each other, on the data directory, and on a controller's listener, which a single
node of ours does not have."""
ZOOKEEPERS = {
    "controlled.shutdown.max.retries", "controlled.shutdown.retry.backoff.ms",
    "leader.imbalance.per.broker.percentage", "zookeeper.connect",
    "zookeeper.connection.timeout.ms", "zookeeper.session.timeout.ms",
    *ZooKeeperSettings.table,
}  # fmt: skip
"""Settings of a cluster on ZooKeeper: Kafka 4 no longer knows them."""
CLASSES = {"sasl.login.callback.handler.class", "sasl.server.callback.handler.class"}
"""Empty means none here; Kafka refuses an empty name of a class."""
BY_ADMINS = {"follower.replication.throttled.rate", "leader.replication.throttled.rate"}
"""Kafka accepts them only while it runs, and does not declare them with the others."""
OF_AUTHORIZER = {"allow.everyone.if.no.acl.found", "super.users"}
"""The authorizer reads them itself; Kafka's broker does not declare them."""
NUMBERS = {-3, -2, -1, 0, 1, 2, 14, 100, 101, 1023, 1024, (1 << 20) - 1, 1 << 20, (1 << 20) + 1,
           1 << 15, (1 << 31) - 1, 1 << 31, (1 << 63) - 1}  # fmt: skip
ASKED_MIN = 900
"""Values that both sides are asked for; fewer would mean that the sweep is broken."""


def values(setting: Setting[Any]) -> Iterator[str]:
    """Values to try: bounds and their neighbours, every choice."""
    if isinstance(setting, Flag):
        yield from ("true", "false")
    elif isinstance(setting, Whole):
        ends = {setting.low, setting.high, setting.default} - {None}
        beside = {end + step for end in ends if end is not None for step in (-1, 0, 1)}
        yield from map(str, sorted(NUMBERS | beside))
    elif isinstance(setting, (Ratio, Rate)):
        yield from ("0", "0.5", "1", "1.5", "0.0001", "1e300", "-1")
    elif isinstance(setting, Words):
        yield from ("", "*", "0:1", "0:1,1:1", *setting.choices, ",".join(setting.choices))
    elif isinstance(setting, Word):
        yield from (setting.choices or ("x",))


def taken() -> Iterator[tuple[str, str, str]]:
    """(scope, name, value) of every value that our broker accepts."""
    image, static = empty_image("cluster", 1), ServerConfig()
    for setting in TopicConfig.table.values():
        for value in () if setting.name.startswith("kafkalog.") else values(setting):
            try:
                checked_topic_configs(image, "t", {setting.name: value}, static)
            except Refused:
                continue
            yield "topic", setting.name, value
    broker = {name: one for one in TopicConfig.table.values() for name in (one.synonym, *one.also)}
    for name, one in {**broker, **ServerConfig.table}.items():
        if not name or name.startswith("kafkalog.") or name in PLACES:
            continue
        for value in values(one):
            if name in CLASSES and not value:
                continue
            try:
                check_served(ServerConfig.of({name: value}))
            except InvalidSetting:
                continue
            yield "broker", name, value


def answers(lines: list[tuple[str, ...]]) -> list[str]:
    """Kafka's answer to each line."""
    text = "".join("\t".join(line) + "\n" for line in lines)
    try:
        said = apache.ask("Settings", text=text)
    except apache.Unavailable as reason:
        pytest.skip(str(reason))
    found = said.splitlines()
    assert len(found) == len(lines)
    return found


def test_kafka_starts_with_whatever_we_take() -> None:
    asked = list(taken())
    assert len(asked) > ASKED_MIN
    refused = [(*one, why) for one, why in zip(asked, answers([*asked]), strict=True)
               if why != "ok"]  # fmt: skip
    assert refused == []


def test_kafka_takes_and_refuses_the_same_nodes_of_a_quorum() -> None:
    rows = [*TAKEN, *(row for _, row in REFUSED)]
    asked = [";".join("=".join(pair) for pair in settings_of(row).items()) for row in rows]
    found = answers([("node", "", one) for one in asked])
    taken = {row for row, why in zip(rows, found, strict=True) if why == "ok"}
    assert taken == {*TAKEN}


def test_defaults_are_kafkas_but_for_those_that_are_documented() -> None:
    """docs/compatibility.md lists the others, from the same declarations."""
    topics = [("topic", one) for one in TopicConfig.table.values()]
    brokers = [("broker", one) for one in ServerConfig.table.values()]
    left_out = PLACES | ZOOKEEPERS | BY_ADMINS | OF_AUTHORIZER
    every = [(scope, one) for scope, one in topics + brokers if one.name not in left_out]
    asked = [pair for pair in every if not pair[1].name.startswith("kafkalog.")]
    found = answers([(scope, one.name) for scope, one in asked])
    wrong = []
    for (scope, one), theirs in zip(asked, found, strict=True):
        ours = one.served if one.kafka is None else one.kafka
        if theirs == "null":  # no default: ours is empty too, or follows another setting
            continue
        if one.name == "node.id":  # Kafka requires one
            continue
        if theirs == "unknown" or (theirs != ours and one.parse(theirs) != ours):
            wrong.append(f"{scope} {one.name}: Kafka {theirs}, we {one.show(ours)}")
        if one.kafka is not None and one.kafka == one.served:
            wrong.append(f"{scope} {one.name}: is documented to differ, and does not")
    assert wrong == []
