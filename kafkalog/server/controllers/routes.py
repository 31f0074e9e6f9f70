"""Everything that a controller's listener serves, as Apache Kafka 4.4.0's.

Source: ControllerApis, and the ApiVersions of a controller.
"""

from __future__ import annotations

from kafkalog.security.permissions import Kind, Operation
from kafkalog.server.controllers import handlers
from kafkalog.server.handlers import (
    Route,
    Routes,
    acls,
    configs,
    controller,
    loggers,
    sasl,
    tokens,
    users,
)
from kafkalog.wire import apis

__all__ = ["CONTROLLERS_ROUTES"]

_ALTER, _ACTION = (Operation.ALTER, Kind.CLUSTER), (Operation.CLUSTER_ACTION, Kind.CLUSTER)
_DESCRIBE = Operation.DESCRIBE, Kind.CLUSTER
_ask = controller.to_controller

_TABLE: dict[int, Route] = {
    api.key: Route(handler, tuple(needs))
    for api, handler, *needs in (
        # Between voters, and from observers of the metadata log.
        (apis.FETCH, _ask, _ACTION),
        (apis.FETCH_SNAPSHOT, _ask, _ACTION),
        (apis.VOTE, _ask, _ACTION),
        (apis.BEGIN_QUORUM_EPOCH, _ask, _ACTION),
        (apis.END_QUORUM_EPOCH, _ask, _ACTION),
        (apis.UPDATE_RAFT_VOTER, _ask, _ACTION),
        # From brokers and controllers.
        (apis.BROKER_REGISTRATION, _ask, _ACTION),
        (apis.BROKER_HEARTBEAT, _ask, _ACTION),
        (apis.CONTROLLER_REGISTRATION, _ask, _ACTION),
        (apis.ALTER_PARTITION, _ask, _ACTION),
        (apis.ALLOCATE_PRODUCER_IDS, _ask, _ACTION),
        (apis.ASSIGN_REPLICAS_TO_DIRS, _ask, _ACTION),
        (apis.ENVELOPE, handlers.open_envelope, _ACTION),
        # From clients.
        (apis.API_VERSIONS, handlers.api_versions),
        (apis.SASL_HANDSHAKE, sasl.sasl_handshake),
        (apis.SASL_AUTHENTICATE, sasl.sasl_authenticate),
        (apis.DESCRIBE_CLUSTER, handlers.describe_cluster),
        (apis.DESCRIBE_QUORUM, _ask, _DESCRIBE),
        (apis.ADD_RAFT_VOTER, _ask, _ALTER),
        (apis.REMOVE_RAFT_VOTER, _ask, _ALTER),
        (apis.UNREGISTER_BROKER, _ask, _ALTER),
        (apis.UNREGISTER_CONTROLLER, _ask, _ALTER),
        (apis.UPDATE_FEATURES, _ask, _ALTER),
        (apis.CREATE_TOPICS, _ask),
        (apis.DELETE_TOPICS, _ask),
        (apis.CREATE_PARTITIONS, _ask),
        (apis.ELECT_LEADERS, _ask, _ALTER),
        (apis.ALTER_PARTITION_REASSIGNMENTS, _ask, _ALTER),
        (apis.LIST_PARTITION_REASSIGNMENTS, _ask, _DESCRIBE),
        (apis.DESCRIBE_CONFIGS, configs.describe_configs),
        (apis.ALTER_CONFIGS, _ask),
        (apis.INCREMENTAL_ALTER_CONFIGS, loggers.incremental_alter_configs),
        (apis.DESCRIBE_ACLS, acls.describe_acls, _DESCRIBE),
        (apis.CREATE_ACLS, handlers.alter_acls, _ALTER),
        (apis.DELETE_ACLS, handlers.alter_acls, _ALTER),
        (apis.ALTER_CLIENT_QUOTAS, _ask, (Operation.ALTER_CONFIGS, Kind.CLUSTER)),
        (apis.DESCRIBE_USER_SCRAM_CREDENTIALS, users.describe_user_scram_credentials, _DESCRIBE),
        (apis.ALTER_USER_SCRAM_CREDENTIALS, _ask, _ALTER),
        (apis.CREATE_DELEGATION_TOKEN, tokens.create_token),
        (apis.RENEW_DELEGATION_TOKEN, tokens.renew_token),
        (apis.EXPIRE_DELEGATION_TOKEN, tokens.expire_token),
        (apis.DESCRIBE_DELEGATION_TOKEN, tokens.describe_tokens),
    )
}  # fmt: skip
CONTROLLERS_ROUTES = Routes(
    {key: apis.BY_KEY[key].served or apis.BY_KEY[key].versions for key in _TABLE}, _TABLE
)
"""For Dispatch."""
