"""Which requests about the cluster a single node and a member carry out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kafkalog.errors import UnsupportedVersion
from kafkalog.server.broker import Broker, node_of
from kafkalog.server.controller_apis import single_node
from kafkalog.server.controller_apis.protection import PROTECTION
from kafkalog.server.handlers import ROUTES, acls, controller, loggers
from kafkalog.testing.standin import StandIn


def test_a_single_node_carries_out_all_that_clients_ask_of_the_controller() -> None:
    passing_on = (controller.to_controller, acls.alter_acls, loggers.incremental_alter_configs)
    routed = {key for key, route in ROUTES.items() if route.handler in passing_on}
    assert {*single_node._HANDLERS, *PROTECTION, *single_node.SETTINGS_REQUESTS} == routed


def test_a_single_node_obeys_no_controller(tmp_path: Path) -> None:
    unused: Any = None
    with Broker(tmp_path / "d") as broker:
        apis = node_of(broker).controller_apis
        for handle in (apis.handle_command, apis.handle_as_controller):
            with pytest.raises(UnsupportedVersion, match="is not part of a cluster"):
                handle(unused)


def test_a_member_has_no_metadata_log(tmp_path: Path) -> None:
    with StandIn() as zookeeper:
        config = {"node.id": 1, "zookeeper.connect": zookeeper.hosts,
                  "controlled.shutdown.enable": False}  # fmt: skip
        broker = Broker(tmp_path / "d", config=config)
        with broker, pytest.raises(UnsupportedVersion, match="has no metadata log"):
            node_of(broker).controller_apis.quorum()
