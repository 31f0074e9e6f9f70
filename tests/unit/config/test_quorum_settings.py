"""Settings of a node of a KRaft cluster that agree, and those that contradict each other."""

from __future__ import annotations

import pytest

from kafkalog.config.served import check_served
from kafkalog.config.server import ServerConfig
from kafkalog.errors import InvalidSetting
from kafkalog.server.network.listeners import planned
from tests.support.quorum_settings import REFUSED, TAKEN, settings_of


def named(row: tuple[str, ...]) -> str:
    return " ".join(row)


@pytest.mark.parametrize("row", TAKEN, ids=named)
def test_settings_that_agree_are_taken(row: tuple[str, ...]) -> None:
    config = ServerConfig(settings_of(row))
    check_served(config)
    planned(config)


@pytest.mark.parametrize(("setting", "row"), REFUSED, ids=str)
def test_settings_that_contradict_each_other_are_refused(
    setting: str, row: tuple[str, ...]
) -> None:
    with pytest.raises(InvalidSetting, match=setting):
        check_served(ServerConfig(settings_of(row)))


def test_brokers_do_not_reach_each_other_by_the_controllers_listener() -> None:
    given = {
        "process.roles": "broker,controller", "listeners": "CONTROLLER://h:1,OUTER://h:2",
        "controller.listener.names": "CONTROLLER", "controller.quorum.voters": "1@h:1",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,OUTER:PLAINTEXT", "node.id": 1,
    }  # fmt: skip
    assert ServerConfig(given).inner_listener == "OUTER"
