"""Requests about the cluster on a single node, which changes its own metadata log."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NoReturn

from kafkalog.errors import UnsupportedVersion
from kafkalog.metadata import translation
from kafkalog.metadata.source import Charge, free
from kafkalog.server.controller_apis.protection import PROTECTION
from kafkalog.server.controller_apis.settings_requests import SETTINGS_REQUESTS
from kafkalog.server.failures import codes_by_name
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from kafkalog.config.server import ServerConfig
    from kafkalog.metadata.configs import KeyCheck
    from kafkalog.metadata.image import MetadataImage
    from kafkalog.metadata.requests import NewTopics
    from kafkalog.metadata.source import Changeable, Quorum
    from kafkalog.server.request import Request

__all__ = ["SingleNode"]

Fields = Mapping[str, Any]
DISABLED_SINCE = 3
"""Versions of DeleteTopics before this one do not know TOPIC_DELETION_DISABLED."""


class SingleNode:
    """ControllerApis of a node that is its own controller."""

    def __init__(
        self, metadata: Changeable, config: ServerConfig, keys: KeyCheck | None = None
    ) -> None:
        """`metadata`: what the requests change; `config`: the settings of the start; `keys`:
        refuses settings of listeners whose keys cannot be used."""
        self._metadata, self._config, self._keys = metadata, config, keys

    def handle(self, request: Request) -> Fields:
        """As ControllerApis.handle; every client sees the change from its answer on, and open logs
        have applied changed settings."""
        protecting = PROTECTION.get(request.api.key)
        if protecting is not None:
            return protecting(self._metadata.alter, request)
        settings = SETTINGS_REQUESTS.get(request.api.key)
        if settings is None:
            return _HANDLERS[request.api.key](self._metadata, request)
        asked, plan = settings.convert(request.body), settings.plan
        return {
            "responses": self._metadata.alter(
                lambda image: plan(image, asked, self._config, self._keys)
            )
        }

    def handle_command(self, request: Request) -> NoReturn:
        """Raises: UnsupportedVersion."""
        raise self._no_cluster()

    def handle_as_controller(self, request: Request) -> NoReturn:
        """Raises: UnsupportedVersion."""
        raise self._no_cluster()

    def change(
        self, request: Request, plan_of: Callable[[MetadataImage], Any]
    ) -> Mapping[str, Any]:
        """As ControllerApis.change."""
        return self._metadata.alter(plan_of)[0]

    def create_topics(self, wanted: NewTopics) -> dict[str, ErrorCode]:
        """As ControllerApis.create_topics."""
        return codes_by_name(self._metadata.create_topics(wanted))

    def quorum(self) -> Quorum:
        """As ControllerApis.quorum."""
        return self._metadata.quorum()

    def _no_cluster(self) -> UnsupportedVersion:
        return UnsupportedVersion(f"node {self._metadata.image.node_id} is not part of a cluster")


def _charge(request: Request) -> Charge:
    """Counts created and deleted partitions against the client's quota."""
    return free if request.meter is None else request.meter.mutate


def _create_topics(metadata: Changeable, request: Request) -> Fields:
    asked = translation.new_topics(request.body)
    return {"topics": metadata.create_topics(asked, _charge(request))}


def _delete_topics(metadata: Changeable, request: Request) -> Fields:
    """Requests that wait for a deleted topic are answered, too."""
    asked = translation.deleted_topics(request.body)
    results = metadata.delete_topics(asked, _charge(request))
    if request.version < DISABLED_SINCE:
        for result in results:
            if result["error_code"] == ErrorCode.TOPIC_DELETION_DISABLED:
                result["error_code"] = ErrorCode.INVALID_REQUEST
    return {"responses": results}


def _create_partitions(metadata: Changeable, request: Request) -> Fields:
    asked = translation.more_partitions(request.body)
    return {"results": metadata.create_partitions(asked, _charge(request))}


def _update_features(metadata: Changeable, request: Request) -> Fields:
    result = metadata.update_features(translation.features(request.body, request.version))
    return translation.features_answer(result, request.body, request.version)


def _elect_leaders(metadata: Changeable, request: Request) -> Fields:
    """Every partition is already led by its only replica."""
    elections = translation.elections(request.body)
    return {"replica_election_results": metadata.elect_leaders(elections)}


def _alter_reassignments(metadata: Changeable, request: Request) -> Fields:
    """Replicas cannot move anywhere else."""
    body = request.body
    return {
        "allow_replication_factor_change": body.allow_replication_factor_change,
        "responses": metadata.alter_partition_reassignments(translation.moves(body)),
    }


_HANDLERS: Mapping[int, Callable[[Changeable, Request], Fields]] = {
    apis.CREATE_TOPICS.key: _create_topics,
    apis.DELETE_TOPICS.key: _delete_topics,
    apis.CREATE_PARTITIONS.key: _create_partitions,
    apis.UPDATE_FEATURES.key: _update_features,
    apis.ELECT_LEADERS.key: _elect_leaders,
    apis.ALTER_PARTITION_REASSIGNMENTS.key: _alter_reassignments,
    # No reassignment is ever in progress.
    apis.LIST_PARTITION_REASSIGNMENTS.key: lambda _metadata, _request: {"topics": []},
    apis.UNREGISTER_BROKER.key: lambda metadata, request: metadata.unregister_broker(
        request.body.broker_id
    ),
    apis.UNREGISTER_CONTROLLER.key: lambda metadata, request: metadata.unregister_controller(
        request.body.controller_id
    ),
}
"""By API key."""
