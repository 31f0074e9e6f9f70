"""Additions of the newest versions of APIs."""

from __future__ import annotations

import pytest

from kafkalog.server.broker import Broker
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode
from tests.support.raw import Raw
from tests.unit.server.transactions.test_transactions import Client, ends


def test_a_client_of_another_cluster_or_node_begins_again(broker: Broker, raw: Raw) -> None:
    """KIP-1242; with only one of the two ids the request is invalid, with none it is fine."""
    who = {"client_software_name": "x", "client_software_version": "1"}
    here = {"cluster_id": broker._node.image.cluster_id, "node_id": broker._node.node_id}
    none, invalid = ErrorCode.NONE, ErrorCode.INVALID_REQUEST
    again = ErrorCode.REBOOTSTRAP_REQUIRED
    for more, error in (
        ({}, none), (here, none), ({**here, "node_id": 99}, again),
        ({**here, "cluster_id": "other"}, again), ({"node_id": 1}, invalid),
        ({"cluster_id": here["cluster_id"]}, invalid),
    ):  # fmt: skip
        found = raw.call(apis.API_VERSIONS, 5, **who, **more)
        assert (found.error_code, bool(found.api_keys)) == (error, error is none), more


def test_a_version_that_is_coded_and_not_announced_closes_the_connection(broker: Broker) -> None:
    """As with Kafka, whose clients ask for versions first."""
    with Raw(broker.bootstrap_servers) as raw, pytest.raises(ConnectionError):
        raw.call(apis.INIT_PRODUCER_ID, 6, transactional_id="x", transaction_timeout_ms=1000)


def test_a_broker_tells_its_directory_as_a_setting(broker: Broker, raw: Raw) -> None:
    """If all settings are requested, or this one; the default for all brokers has none."""
    number = str(broker._node.node_id)
    for resource, keys, told in (
        (number, None, True), (number, ["log.dirs"], True), (number, ["node.id"], False),
        ("", None, False),
    ):  # fmt: skip
        asked = {"resource_type": 4, "resource_name": resource, "configuration_keys": keys}
        (found,) = raw.call(apis.DESCRIBE_CONFIGS, 4, resources=[asked]).results
        values = [one.value for one in found.configs if one.name == "log.dirs"]
        assert values == [broker._node.manager.path] * told, resource


def test_a_late_end_of_version_2_ends_no_later_transaction(raw: Raw) -> None:
    """KIP-1228: each end raises the epoch, so that an end with an open transaction's own epoch
    belongs to the previous one; if none is open, it is a duplicate."""
    raw.create("t", 1)
    client = Client(raw)
    client.write("t", b"a", version=12)
    asked = [{"name": "t", "partition_indexes": [0]}]

    def mark(epoch: int, version: int) -> ErrorCode:
        marker = {"producer_id": client.producer_id, "producer_epoch": epoch, "topics": asked,
                  "transaction_result": False, "transaction_version": version}  # fmt: skip
        (found,) = raw.call(apis.WRITE_TXN_MARKERS, 2, markers=[marker]).markers
        return ErrorCode(found.topics[0].partitions[0].error_code)

    assert mark(client.epoch, 2) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert ends(raw) == (0, 1)
    assert mark(client.epoch + 1, 2) is ErrorCode.NONE
    assert ends(raw) == (2, 2)
    assert mark(client.epoch + 1, 2) is ErrorCode.NONE
    assert mark(client.epoch, 2) is ErrorCode.INVALID_PRODUCER_EPOCH
