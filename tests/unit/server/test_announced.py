"""The APIs announced by a node of a cluster on ZooKeeper, and by a node that is alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kafkalog import errors
from kafkalog.client.admin import Admin
from kafkalog.server.broker import Broker, node_of
from kafkalog.server.handlers.api_versions import OF_CONTROLLER, OF_METADATA_LOG, announced
from kafkalog.testing.standin import StandIn
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode
from tests.support.raw import Raw
from tests.support.waiting import wait_for

OF_KAFKA = {*range(3), 3, 7, *range(8, 48), *range(48, 52), 56, 57, 58, 60, 61, 65, 66, 67, 68, 69}
"""The APIs of Apache Kafka 3.9.2 on ZooKeeper, except the controller's requests to brokers."""
NEWER = {apis.LIST_CONFIG_RESOURCES.key, apis.DESCRIBE_TOPIC_PARTITIONS.key}
"""Served from what each node knows; Kafka has them only with KRaft."""


@pytest.fixture(scope="module")
def member(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A cluster of one node."""
    with StandIn() as inside:
        config = {"node.id": 1, "zookeeper.connect": inside.hosts,
                  "controlled.shutdown.enable": False}  # fmt: skip
        with Broker(tmp_path_factory.mktemp("d") / "1", config=config) as broker:
            wait_for(lambda: node_of(broker).metadata.controller == 1, "it is the controller")
            yield broker


def versions(broker: Broker, version: int = 4) -> Any:
    with Raw(broker.bootstrap_servers) as raw:
        return raw.call(
            apis.API_VERSIONS, version, client_software_name="t", client_software_version="1"
        )


def test_a_member_announces_the_same_as_kafka(member: Broker) -> None:
    """No features either, which are levels in the metadata log: as Kafka's, epoch 0."""
    found = versions(member)
    keys = {one.api_key for one in found.api_keys}
    assert keys <= OF_KAFKA | NEWER
    assert keys == set(announced(True))
    assert {api.key for api in OF_CONTROLLER} <= keys
    assert keys & {api.key for api in OF_METADATA_LOG} == set()
    assert (found.supported_features, found.finalized_features) == ([], [])
    assert found.finalized_features_epoch == 0


def test_a_node_alone_announces_its_metadata_log(tmp_path: Path) -> None:
    with Broker(tmp_path / "d") as broker:
        found = versions(broker)
    keys = {one.api_key for one in found.api_keys}
    assert {api.key for api in OF_METADATA_LOG} <= keys
    assert not keys & {api.key for api in OF_CONTROLLER}
    assert {one.name for one in found.finalized_features} >= {"metadata.version"}


@pytest.mark.parametrize("api", OF_METADATA_LOG, ids=lambda api: api.name)
def test_unannounced_requests_are_refused_at_once(member: Broker, api: Any) -> None:
    """For clients that do not look: NOT_CONTROLLER would be retried until their time is up."""
    with Raw(member.bootstrap_servers) as raw:
        for version in api.served:
            assert raw.call(api, version).error_code == ErrorCode.UNSUPPORTED_VERSION
        assert raw.call(apis.METADATA, 12, topics=[]).controller_id == 1, "the connection stays"


def test_our_client_says_so_at_once(member: Broker) -> None:
    with Admin(member.bootstrap_servers) as admin:
        with pytest.raises(errors.UnsupportedVersion, match="DescribeQuorum"):
            admin.describe_quorum()
        with pytest.raises(errors.UnsupportedVersion, match="UnregisterBroker"):
            admin.unregister_broker(9)


@pytest.mark.parametrize("key", sorted(set(announced(True)) - {apis.API_VERSIONS.key}))
def test_a_member_serves_announced_requests(member: Broker, key: int) -> None:
    """It may refuse an empty request, but not as unsupported."""
    api = next((api for api in OF_CONTROLLER if api.key == key), None) or apis.BY_KEY[key]
    body = {"acks": 1} if api is apis.PRODUCE else {}
    with Raw(member.bootstrap_servers) as raw:
        found = raw.call(api, announced(True)[key].stop - 1, **body)
    code = getattr(found, "error_code", 0)
    assert code not in (ErrorCode.UNSUPPORTED_VERSION, ErrorCode.NOT_CONTROLLER)
