"""A controller's own listener, over real sockets and a real metadata log."""

from __future__ import annotations

import contextlib
import ipaddress
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from kafkalog import Admin
from kafkalog.errors import ArgumentError, InvalidSetting, UnsupportedVersion
from kafkalog.server.broker import Broker
from kafkalog.server.controller import Controller
from kafkalog.server.controllers.envelope import FORWARDED
from kafkalog.server.controllers.registration import SINCE, is_due
from kafkalog.server.controllers.routes import CONTROLLERS_ROUTES
from kafkalog.server.guards import GUARDS
from kafkalog.wire import apis, headers
from kafkalog.wire.error_codes import ErrorCode
from kafkalog.wire.tables.other_records import PRINCIPAL
from tests.support.controller_nodes import CLUSTER, combined, controller, formatted
from tests.support.raw import Raw
from tests.support.waiting import wait_for

OF_KAFKA = {
    1: (4, 18), 17: (0, 1), 18: (0, 5), 19: (2, 7), 20: (1, 6), 29: (1, 3), 30: (1, 3), 31: (1, 3),
    32: (1, 4), 33: (0, 2), 36: (0, 2), 37: (0, 3), 38: (1, 3), 39: (1, 2), 40: (1, 2), 41: (1, 3),
    43: (0, 2), 44: (0, 1), 45: (0, 1), 46: (0, 0), 49: (0, 1), 50: (0, 0), 51: (0, 0), 52: (0, 2),
    53: (0, 1), 54: (0, 1), 55: (0, 2), 56: (2, 3), 57: (0, 2), 58: (0, 0), 59: (0, 1), 60: (0, 2),
    62: (0, 4), 63: (0, 2), 64: (0, 0), 67: (0, 0), 70: (0, 0), 73: (0, 0), 80: (0, 1), 81: (0, 0),
    82: (0, 0), 94: (0, 0),
}  # fmt: skip
"""The versions that a controller of Apache Kafka 4.4.0 announces (tests/kafka/quorum/test_own.py
asks one)."""
ANONYMOUS = {"type": "User", "name": "ANONYMOUS", "token_authenticated": False}
HERE = ipaddress.ip_address("127.0.0.1").packed
CONTROLLERS = 2


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Controller]:
    """The only controller of a cluster; it is active."""
    path = formatted(tmp_path_factory.mktemp("active") / "1")
    with Controller(str(path), controller()) as made:
        wait_for(lambda: made.server.replica.is_active, "it is active")
        yield made


@pytest.fixture(scope="module")
def standby(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Controller]:
    """One of two voters; it is alone, and never active."""
    path = formatted(tmp_path_factory.mktemp("standby") / "1")
    settings = controller(1, voters="1@127.0.0.1:1,2@127.0.0.1:2")
    with Controller(str(path), settings) as made:
        yield made


@pytest.fixture
def raw(running: Controller) -> Iterator[Raw]:
    with Raw(running.bootstrap_controllers) as made:
        yield made


def topic(name: str) -> dict[str, Any]:
    entry = {"name": name, "num_partitions": 1, "replication_factor": 1, "configs": []}
    return {"topics": [entry], "timeout_ms": 10_000, "validate_only": False}


def enveloped(raw: Raw, api: Any, version: int, **body: Any) -> tuple[int, Any]:
    """A request in an envelope: the envelope's error, and the response in it."""
    who = struct.pack(">h", 0) + PRINCIPAL.encode(0, ANONYMOUS)
    data = headers.encode_request_header(api, version, 7, "client") + api.encode_request(
        version, body
    )
    found = raw.call(
        apis.ENVELOPE, 0, request_data=data, request_principal=who, client_host_address=HERE
    )
    if found.response_data is None:
        return found.error_code, None
    number, pos = headers.decode_response_header(api, version, bytes(found.response_data))
    assert number == 7
    return found.error_code, api.decode_response(version, bytes(found.response_data), pos)


def registered(raw: Raw, node: int) -> int:
    """Register a broker; its epoch."""
    found = raw.call(
        apis.BROKER_REGISTRATION, 4, broker_id=node, cluster_id=CLUSTER,
        incarnation_id=UUID(int=node), log_dirs=[UUID(int=1000 + node)], rack=None,
        listeners=[{"name": "PLAINTEXT", "host": "h", "port": 9, "security_protocol": 0}],
        features=[
            {"name": name, "min_supported_version": 0, "max_supported_version": 99}
            for name in (
                "metadata.version", "kraft.version", "transaction.version", "group.version",
                "share.version", "streams.version", "eligible.leader.replicas.version",
            )
        ],
    )  # fmt: skip
    assert found.error_code == 0
    beat = {"broker_id": node, "broker_epoch": found.broker_epoch, "want_shut_down": False,
            "current_metadata_offset": found.broker_epoch, "want_fence": False}  # fmt: skip
    assert not raw.call(apis.BROKER_HEARTBEAT, 1, **beat).is_fenced
    return int(found.broker_epoch)


def test_it_announces_the_same_as_kafkas(raw: Raw) -> None:
    found = raw.call(apis.API_VERSIONS, 4, client_software_name="t", client_software_version="1")
    assert {one.api_key: (one.min_version, one.max_version) for one in found.api_keys} == OF_KAFKA


def test_every_request_needs_a_permission_or_has_rules() -> None:
    for key in CONTROLLERS_ROUTES.announced:
        assert CONTROLLERS_ROUTES.route(apis.BY_KEY[key]).needs or key in GUARDS
    assert set(CONTROLLERS_ROUTES.announced) > FORWARDED


def test_clients_find_the_controllers(running: Controller, raw: Raw) -> None:
    """Once it has registered itself; a client that looks for brokers is refused."""
    wait_for(lambda: running.server.replica.image.controllers, "it is registered")
    asked = {"include_cluster_authorized_operations": False}
    found = raw.call(apis.DESCRIBE_CLUSTER, 1, endpoint_type=CONTROLLERS, **asked)
    (one,) = found.brokers
    assert f"{one.host}:{one.port}" == running.bootstrap_controllers
    assert (found.cluster_id, found.controller_id, found.endpoint_type) == (CLUSTER, 1, CONTROLLERS)
    refused = raw.call(apis.DESCRIBE_CLUSTER, 1, endpoint_type=1, **asked)
    assert refused.error_code == ErrorCode.MISMATCHED_ENDPOINT_TYPE
    old = raw.call(apis.DESCRIBE_CLUSTER, 0, **asked)
    assert old.error_code == ErrorCode.INVALID_REQUEST
    unknown = raw.call(apis.DESCRIBE_CLUSTER, 1, endpoint_type=9, **asked)
    assert unknown.error_code == ErrorCode.UNSUPPORTED_ENDPOINT_TYPE


def test_the_metadata_log_is_fetched_and_no_other_partition(raw: Raw) -> None:
    def fetched(topic_id: UUID) -> Any:
        partition = {"partition": 0, "current_leader_epoch": 1, "fetch_offset": 0,
                     "last_fetched_epoch": 0, "partition_max_bytes": 1 << 20}  # fmt: skip
        return raw.call(
            apis.FETCH, 17, max_wait_ms=0, min_bytes=0, max_bytes=1 << 20,
            replica_state={"replica_id": 9, "replica_epoch": -1},
            topics=[{"topic_id": topic_id, "partitions": [partition]}],
        )  # fmt: skip

    (row,) = fetched(UUID(int=1)).responses[0].partitions
    assert row.current_leader.leader_id == 1
    assert row.records or row.snapshot_id.end_offset >= 0
    other = fetched(UUID(int=5))
    assert other.error_code or not other.responses or other.responses[0].partitions[0].error_code


def test_produce_and_other_requests_of_brokers_close_the_connection(running: Controller) -> None:
    for api, version in ((apis.PRODUCE, 9), (apis.JOIN_GROUP, 9)):
        with Raw(running.bootstrap_controllers) as raw:
            raw.send_bytes(api, version, b"nonsense")
            with pytest.raises(ConnectionError):
                raw.receive_frame()


def test_nonsense_ends_at_most_its_connection(running: Controller, raw: Raw) -> None:
    for key, versions in CONTROLLERS_ROUTES.announced.items():
        for data in (b"", b"\x7f\xff\xff\xff" * 10):
            with Raw(running.bootstrap_controllers) as other:
                other.send_bytes(apis.BY_KEY[key], versions.stop - 1, data)
                with contextlib.suppress(ConnectionError):
                    other.receive_frame()
    asked = {"include_cluster_authorized_operations": False, "endpoint_type": CONTROLLERS}
    assert raw.call(apis.DESCRIBE_CLUSTER, 1, **asked).controller_id == 1


def test_a_topic_is_created_by_request_and_in_an_envelope(running: Controller, raw: Raw) -> None:
    registered(raw, 5)
    (row,) = raw.call(apis.CREATE_TOPICS, 7, **topic("direct")).topics
    assert row.error_code == 0
    error, answer = enveloped(raw, apis.CREATE_TOPICS, 7, **topic("forwarded"))
    assert (error, answer.topics[0].error_code) == (0, 0)
    wait_for(lambda: {"direct", "forwarded"} <= {*running.server.replica.image.topics}, "both are")


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({"request_data": b""}, ErrorCode.INVALID_REQUEST),
        ({"request_data": struct.pack(">hhih", 3, 12, 1, -1) + b"\0"}, ErrorCode.INVALID_REQUEST),
        ({"request_data": struct.pack(">hhih", 19, 99, 1, -1) + b"\0"},
         ErrorCode.UNSUPPORTED_VERSION),
        ({"request_data": struct.pack(">hhih", 19, 7, 1, -1) + b"\0\xff"},
         ErrorCode.INVALID_REQUEST),
        ({"request_principal": None}, ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE),
        ({"request_principal": b"\0\5xx"}, ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE),
        ({"client_host_address": b"123"}, ErrorCode.INVALID_REQUEST),
    ],
    ids=["empty", "Metadata", "version", "body", "no principal", "principal", "address"],
)  # fmt: skip
def test_an_envelope_that_cannot_be_opened_is_refused(
    raw: Raw, changed: dict[str, Any], code: ErrorCode
) -> None:
    who = struct.pack(">h", 0) + PRINCIPAL.encode(0, ANONYMOUS)
    data = headers.encode_request_header(apis.CREATE_TOPICS, 7, 7, "c")
    data += apis.CREATE_TOPICS.encode_request(7, topic("never"))
    body = {"request_data": data, "request_principal": who, "client_host_address": HERE, **changed}
    found = raw.call(apis.ENVELOPE, 0, **body)
    assert (found.error_code, found.response_data) == (code, None)


def test_another_controller_must_be_asked(standby: Controller) -> None:
    """The envelope says so to the broker; its client does not learn of it."""
    with Raw(standby.bootstrap_controllers) as raw:
        (row,) = raw.call(apis.CREATE_TOPICS, 7, **topic("never")).topics
        assert row.error_code == ErrorCode.NOT_CONTROLLER
        error, answer = enveloped(raw, apis.CREATE_TOPICS, 7, **topic("never"))
        assert (error, answer) == (ErrorCode.NOT_CONTROLLER, None)


def test_a_controllers_own_settings_are_described(raw: Raw) -> None:
    resource = {"resource_type": 4, "resource_name": "1", "configuration_keys": ["process.roles"]}
    (found,) = raw.call(apis.DESCRIBE_CONFIGS, 4, resources=[resource]).results
    assert [(one.name, one.value) for one in found.configs] == [("process.roles", "controller")]


def test_a_controllers_own_loggers_are_described_and_changed(raw: Raw) -> None:
    name = "kafkalog.server.share_effects"
    change = {"name": name, "config_operation": 0, "value": "FATAL"}
    resource = {"resource_type": 8, "resource_name": "1", "configs": [change]}
    (row,) = raw.call(
        apis.INCREMENTAL_ALTER_CONFIGS, 1, resources=[resource], validate_only=True
    ).responses
    assert (row.error_code, row.error_message) == (0, None)
    asked = {"resource_type": 8, "resource_name": "1", "configuration_keys": [name]}
    (found,) = raw.call(apis.DESCRIBE_CONFIGS, 4, resources=[asked]).results
    assert [one.name for one in found.configs] == [name]


def test_a_registration_is_due_until_the_metadata_have_it(running: Controller) -> None:
    wait_for(lambda: running.server.replica.image.controllers, "it is registered")
    image = running.server.replica.image
    known = image.controllers[1].incarnation_id
    assert not is_due(image, 1, known)
    assert is_due(image, 1, UUID(int=3))
    assert is_due(image, 2, known)
    old = image._replace(features={"metadata.version": SINCE - 1})
    assert not is_due(old, 2, known)


def test_a_limit_of_connections_takes_effect_while_it_runs(tmp_path: Path) -> None:
    """As a setting of all brokers, which its own is, too."""
    with Controller(str(formatted(tmp_path / "1")), controller()) as made:
        replica = made.server.replica
        wait_for(lambda: replica.is_active and replica.image.controllers, "it is registered")
        with Raw(made.bootstrap_controllers) as raw:
            assert raw.alter(4, "", max_connections_per_ip="1").error_code == 0
            wait_for(lambda: replica.image.config(4, ""), "the setting is known")

            def refused() -> bool:
                try:
                    with Raw(made.bootstrap_controllers) as other:
                        other.call(apis.DESCRIBE_CLUSTER, 1, endpoint_type=CONTROLLERS)
                except ConnectionError:
                    return True
                return False

            wait_for(refused, "a second connection is refused")


# ---- starts ----------------------------------------------------------------------------------


def test_a_directory_must_be_formatted(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="kafkalog storage format"):
        Controller(str(tmp_path / "new"), controller())
    with pytest.raises(ArgumentError, match="kafkalog storage format"):
        Broker(tmp_path / "new", config=combined())
    assert not (tmp_path / "new").exists()


def test_a_broker_is_no_controller_alone(tmp_path: Path) -> None:
    with pytest.raises(InvalidSetting, match="kafkalog serve runs a controller"):
        Broker(formatted(tmp_path / "1"), config=controller())
    with pytest.raises(InvalidSetting, match="wanted controller"):
        Controller(str(tmp_path / "1"), combined())


def test_the_metadata_log_is_in_the_data_directory(tmp_path: Path) -> None:
    path = formatted(tmp_path / "1")
    with pytest.raises(InvalidSetting, match=r"metadata\.log\.dir"):
        Controller(str(path), {**controller(), "metadata.log.dir": str(tmp_path / "2")})
    Controller(str(path), {**controller(), "metadata.log.dir": str(path)}).close()


def test_a_node_is_broker_and_controller(tmp_path: Path) -> None:
    """Its metadata survive a crash, and its clients are served."""
    path, settings = formatted(tmp_path / "1"), combined()
    with Broker(path, config=settings) as broker, Raw(broker.bootstrap_servers) as raw:
        assert raw.create("orders").error_code == 0
        wait_for(lambda: raw.produce("orders", b"one").error_code == 0, "it leads")
        broker.abandon()
    with Broker(path, config=settings) as broker, Raw(broker.bootstrap_servers) as raw:
        asked = [{"name": "orders"}]
        found = raw.call(apis.METADATA, 12, topics=asked)
        assert [one.node_id for one in found.brokers] == [1]
        wait_for(
            lambda: raw.call(apis.METADATA, 12, topics=asked).topics[0].partitions[0].leader_id > 0,
            "it leads again",
        )
        wait_for(lambda: raw.produce("orders", b"two").base_offset == 1, "it goes on")


def test_a_client_of_brokers_is_told_where_it_is(standby: Controller) -> None:
    """The error names the option that asks controllers."""
    with (
        Admin(standby.bootstrap_controllers) as admin,
        pytest.raises(UnsupportedVersion, match="--bootstrap-controller"),
    ):
        admin.describe_quorum()
