"""`kafkalog client-metrics`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import kafkalog as kl
from kafkalog.server.broker import Broker
from kafkalog.wire import apis
from tests.support.scripted import Peer
from tests.unit.cli.conftest import Command

Here = tuple[str, str]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with Broker(tmp_path / "data") as started:
        yield started


@pytest.fixture
def here(broker: Broker) -> Here:
    return "--bootstrap-server", broker.bootstrap_servers


def test_the_life_of_a_subscription(kafkalog: Command, broker: Broker, here: Here) -> None:
    ran = kafkalog("client-metrics", "alter", "--name", "slow", "--metrics", "a.,b.",
                   "--interval", "1000", *here)  # fmt: skip
    assert (ran.status, ran.out) == (0, "Altered client metrics config for slow.\n")
    ran = kafkalog("client-metrics", "--alter", "slow", "--match", "client_id=x", *here)
    assert ran.status == 0, ran.err
    assert kafkalog("client-metrics", *here).out == "slow\n"
    assert kafkalog("client-metrics", "describe", *here).out == (
        "Client metrics configs for slow are:\n"
        "  interval.ms=1000\n  match=client_id=x\n  metrics=a.,b.\n"
    )
    (row,) = kafkalog("client-metrics", "describe", "slow", "--json", *here).rows()
    assert row == {"name": "slow", "interval.ms": "1000", "match": "client_id=x",
                   "metrics": "a.,b."}  # fmt: skip
    for _ in range(2):
        ran = kafkalog("client-metrics", "delete", "--name", "slow", *here)
        assert (ran.status, ran.out) == (0, "Deleted client metrics config for slow.\n")
    assert kafkalog("client-metrics", "list", *here).out == ""


def test_a_generated_name(kafkalog: Command, broker: Broker, here: Here) -> None:
    ran = kafkalog("client-metrics", "alter", "--generate-name", "--metrics", "*", *here)
    assert ran.status == 0, ran.err
    with kl.Admin(broker.bootstrap_servers) as admin:
        (one,) = admin.list_config_resources(["client_metrics"])
    assert len(one.name) == 22 and one.name in ran.out


@pytest.mark.parametrize(
    "words",
    [
        ["alter", "--name", "a"],
        ["alter", "--metrics", "a"],
        ["alter", "a", "--generate-name", "--metrics", "a"],
        ["delete"],
        ["list", "a"],
        ["describe", "a", "b"],
        ["describe", "--metrics", "a"],
    ],
)
def test_wrong_words(kafkalog: Command, here: Here, words: list[str]) -> None:
    assert kafkalog("client-metrics", *words, *here).status == 2


def test_a_refused_setting(kafkalog: Command, here: Here) -> None:
    ran = kafkalog("client-metrics", "alter", "a", "--interval", "1", *here)
    assert ran.status == 1 and "interval.ms: found '1', wanted" in ran.err


def test_an_older_broker_lists_only_these(kafkalog: Command) -> None:
    """Kafka 3.7 to 4.0 have version 0 of the request, for clients' metrics alone."""
    with Peer({apis.LIST_CONFIG_RESOURCES: (0, 0)}) as peer:
        peer.on(apis.LIST_CONFIG_RESOURCES, {"config_resources": [{"resource_name": "old"}]})
        ran = kafkalog("client-metrics", "list", "--bootstrap-server", peer.servers)
        assert (ran.status, ran.out) == (0, "old\n"), ran.err
