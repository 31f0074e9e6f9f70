"""The handlers of requests, one module per family of APIs, and the table that names them all.

A handler takes the node and a request with its decoded body; it returns the response's
fields, or None when it has answered or will.
"""

from collections.abc import Callable, Collection, Mapping
from functools import cache
from typing import Any, NamedTuple

from kafkalog.security.permissions import Kind, Operation
from kafkalog.server.handlers import (
    acls,
    api_versions,
    cluster,
    configs,
    controller,
    epochs,
    fetch,
    groups,
    list_offsets,
    log_dirs,
    loggers,
    metadata,
    produce,
    producers,
    quotas,
    records,
    sasl,
    share_states,
    shares,
    telemetry,
    tokens,
    transactions,
    users,
)
from kafkalog.server.request import Request
from kafkalog.wire import apis
from kafkalog.wire.tables.controller import (
    CONTROLLED_SHUTDOWN,
    LEADER_AND_ISR,
    STOP_REPLICA,
    UPDATE_METADATA,
)
from kafkalog.wire.tables.internal import ALLOCATE_PRODUCER_IDS, ALTER_PARTITION

__all__ = [
    "CONTROLS", "FORWARDED", "OF_CONTROLLER", "OF_VOTERS", "ROUTES", "Route", "Routes", "routes_of",
]  # fmt: skip

_DESCRIBE, _ALTER, _ACTION = Operation.DESCRIBE, Operation.ALTER, Operation.CLUSTER_ACTION
_CLUSTER = Kind.CLUSTER


class Route(NamedTuple):
    """The handler of an API, and the permission on the cluster that Kafka requires from callers."""

    handler: Callable[[Any, Request], Mapping[str, Any] | None]
    needs: tuple[tuple[Operation, Kind], ...]
    """(operation, CLUSTER): one of them admits the request.  APIs about single resources have rows
    in `kafkalog.server.guards`."""


class Routes:
    """Everything that one kind of node serves."""

    def __init__(
        self, announced: Mapping[int, range], table: Mapping[int, Route],
        commands: Mapping[int, Route] | None = None, forwarded: Collection[int] = (),
    ) -> None:  # fmt: skip
        """`announced`: the versions of each API in `table`; `commands`: a controller's, not
        announced; `forwarded`: APIs whose callers another node checks."""
        self.announced = announced
        self.forwarded = forwarded
        self._table = table
        self._commands = commands or {}

    def served(self, api: Any, version: int) -> bool:
        """True if a request of this API and version is served."""
        if api is None or api.key in self._commands:
            return api is not None and version in api.versions
        return version in self.announced.get(api.key, ())

    def route(self, api: Any) -> Route:
        """The handler of an API that is served."""
        return self._commands.get(api.key) or self._table[api.key]


ROUTES: dict[int, Route] = {
    api.key: Route(handler, tuple(needs))
    for api, handler, *needs in (
        (apis.PRODUCE, produce.produce),
        (apis.FETCH, fetch.fetch),
        (apis.LIST_OFFSETS, list_offsets.list_offsets),
        (apis.METADATA, metadata.metadata),
        (apis.OFFSET_COMMIT, groups.to_coordinator),
        (apis.OFFSET_FETCH, groups.to_coordinator),
        (apis.FIND_COORDINATOR, groups.find_coordinator),
        (apis.JOIN_GROUP, groups.to_coordinator),
        (apis.HEARTBEAT, groups.to_coordinator),
        (apis.LEAVE_GROUP, groups.to_coordinator),
        (apis.SYNC_GROUP, groups.to_coordinator),
        (apis.DESCRIBE_GROUPS, groups.to_coordinator),
        (apis.LIST_GROUPS, groups.to_coordinator),
        (apis.API_VERSIONS, api_versions.api_versions),
        (apis.SASL_HANDSHAKE, sasl.sasl_handshake),
        (apis.SASL_AUTHENTICATE, sasl.sasl_authenticate),
        (apis.CREATE_TOPICS, controller.to_controller),
        (apis.DELETE_TOPICS, controller.to_controller),
        (apis.DELETE_RECORDS, records.delete_records),
        (apis.INIT_PRODUCER_ID, transactions.init_producer_id),
        (apis.ADD_PARTITIONS_TO_TXN, transactions.to_coordinator),
        (apis.ADD_OFFSETS_TO_TXN, transactions.add_offsets),
        (apis.END_TXN, transactions.to_coordinator),
        (apis.WRITE_TXN_MARKERS, transactions.write_markers,
         (_ALTER, _CLUSTER), (_ACTION, _CLUSTER)),
        (apis.TXN_OFFSET_COMMIT, transactions.txn_offset_commit),
        (apis.DESCRIBE_TRANSACTIONS, transactions.to_coordinator),
        (apis.LIST_TRANSACTIONS, transactions.to_coordinator),
        (apis.OFFSET_FOR_LEADER_EPOCH, epochs.offset_for_leader_epoch),
        (apis.DESCRIBE_ACLS, acls.describe_acls, (_DESCRIBE, _CLUSTER)),
        (apis.CREATE_ACLS, acls.alter_acls, (_ALTER, _CLUSTER)),
        (apis.DELETE_ACLS, acls.alter_acls, (_ALTER, _CLUSTER)),
        (apis.DESCRIBE_CONFIGS, configs.describe_configs),
        (apis.ALTER_CONFIGS, controller.to_controller),
        (apis.ALTER_REPLICA_LOG_DIRS, log_dirs.alter_replica_log_dirs, (_ALTER, _CLUSTER)),
        (apis.DESCRIBE_LOG_DIRS, log_dirs.describe_log_dirs, (_DESCRIBE, _CLUSTER)),
        (apis.CREATE_PARTITIONS, controller.to_controller),
        (apis.DELETE_GROUPS, groups.to_coordinator),
        (apis.ELECT_LEADERS, controller.to_controller, (_ALTER, _CLUSTER)),
        (apis.INCREMENTAL_ALTER_CONFIGS, loggers.incremental_alter_configs),
        (apis.ALTER_PARTITION_REASSIGNMENTS, controller.to_controller, (_ALTER, _CLUSTER)),
        (apis.LIST_PARTITION_REASSIGNMENTS, controller.to_controller, (_DESCRIBE, _CLUSTER)),
        (apis.OFFSET_DELETE, groups.to_coordinator),
        (apis.UPDATE_FEATURES, controller.to_controller, (_ALTER, _CLUSTER)),
        (apis.DESCRIBE_QUORUM, cluster.describe_quorum, (_DESCRIBE, _CLUSTER)),
        (apis.DESCRIBE_CLUSTER, cluster.describe_cluster),
        (apis.DESCRIBE_PRODUCERS, producers.describe_producers),
        (apis.CREATE_DELEGATION_TOKEN, tokens.create_token),
        (apis.RENEW_DELEGATION_TOKEN, tokens.renew_token),
        (apis.EXPIRE_DELEGATION_TOKEN, tokens.expire_token),
        (apis.DESCRIBE_DELEGATION_TOKEN, tokens.describe_tokens),
        (apis.DESCRIBE_USER_SCRAM_CREDENTIALS, users.describe_user_scram_credentials,
         (_DESCRIBE, _CLUSTER)),
        (apis.ALTER_USER_SCRAM_CREDENTIALS, controller.to_controller, (_ALTER, _CLUSTER)),
        (apis.DESCRIBE_CLIENT_QUOTAS, quotas.describe_client_quotas,
         (Operation.DESCRIBE_CONFIGS, _CLUSTER)),
        (apis.ALTER_CLIENT_QUOTAS, controller.to_controller,
         (Operation.ALTER_CONFIGS, _CLUSTER)),
        (apis.UNREGISTER_BROKER, controller.to_controller, (_ALTER, _CLUSTER)),
        (apis.UNREGISTER_CONTROLLER, controller.to_controller, (_ALTER, _CLUSTER)),
        (apis.LIST_CONFIG_RESOURCES, configs.list_config_resources,
         (Operation.DESCRIBE_CONFIGS, _CLUSTER)),
        (apis.CONSUMER_GROUP_HEARTBEAT, groups.to_consumer_groups),
        (apis.CONSUMER_GROUP_DESCRIBE, groups.to_consumer_groups),
        (apis.DESCRIBE_TOPIC_PARTITIONS, metadata.describe_topic_partitions),
        (apis.SHARE_GROUP_HEARTBEAT, groups.to_share_groups),
        (apis.SHARE_GROUP_DESCRIBE, groups.to_share_groups),
        (apis.DESCRIBE_SHARE_GROUP_OFFSETS, groups.to_share_groups),
        (apis.ALTER_SHARE_GROUP_OFFSETS, groups.to_share_groups),
        (apis.DELETE_SHARE_GROUP_OFFSETS, groups.to_share_groups),
        (apis.STREAMS_GROUP_HEARTBEAT, groups.to_streams_groups),
        (apis.STREAMS_GROUP_DESCRIBE, groups.to_streams_groups),
        (apis.INITIALIZE_SHARE_GROUP_STATE, share_states.to_coordinator, (_ACTION, _CLUSTER)),
        (apis.READ_SHARE_GROUP_STATE, share_states.to_coordinator, (_ACTION, _CLUSTER)),
        (apis.WRITE_SHARE_GROUP_STATE, share_states.to_coordinator, (_ACTION, _CLUSTER)),
        (apis.DELETE_SHARE_GROUP_STATE, share_states.to_coordinator, (_ACTION, _CLUSTER)),
        (apis.READ_SHARE_GROUP_STATE_SUMMARY, share_states.to_coordinator, (_ACTION, _CLUSTER)),
        (apis.SHARE_FETCH, shares.share_fetch),
        (apis.SHARE_ACKNOWLEDGE, shares.share_acknowledge),
        (apis.GET_TELEMETRY_SUBSCRIPTIONS, telemetry.get_telemetry_subscriptions),
        (apis.PUSH_TELEMETRY, telemetry.push_telemetry),
    )
}  # fmt: skip
"""By API key: exactly the APIs that wire/tables says our broker serves."""


OF_VOTERS: dict[int, Route] = {
    api.key: Route(controller.to_controller, ((_ALTER, _CLUSTER),))
    for api in api_versions.OF_VOTERS
}
"""Served only by a broker of a KRaft cluster: changes of the voters."""
_FORWARDING = (
    controller.to_controller, acls.alter_acls, cluster.describe_quorum,
    loggers.incremental_alter_configs,
)  # fmt: skip
FORWARDED = frozenset(
    key for key, one in {**ROUTES, **OF_VOTERS}.items() if one.handler in _FORWARDING
)  # fmt: skip
"""APIs that a broker of a KRaft cluster only forwards: the controller, whose ACLs are newer, checks
the rights of the client that the envelope names."""
CONTROLS: dict[int, Route] = {
    api.key: Route(controller.command, ((_ACTION, _CLUSTER),))
    for api in (LEADER_AND_ISR, STOP_REPLICA, UPDATE_METADATA)
}
"""Requests from a cluster's controller to a member; no other client uses them, and they are not
announced."""
OF_CONTROLLER: dict[int, Route] = {
    api.key: Route(controller.as_controller, ((_ACTION, _CLUSTER),))
    for api in (ALTER_PARTITION, CONTROLLED_SHUTDOWN, ALLOCATE_PRODUCER_IDS)
}
"""Requests from brokers to the controller."""


@cache
def routes_of(
    on_zookeeper: bool = False, under_controllers: bool = False, telemetry: bool = True
) -> Routes:
    """A broker's: of a single node, of one on ZooKeeper, or of one in a KRaft cluster.

    `telemetry`: it receives clients' metrics."""
    announced = api_versions.announced(on_zookeeper, under_controllers, telemetry)
    if on_zookeeper:
        return Routes(announced, {**ROUTES, **OF_CONTROLLER}, CONTROLS)
    if under_controllers:
        return Routes(announced, {**ROUTES, **OF_VOTERS}, forwarded=FORWARDED)
    return Routes(announced, ROUTES)
