"""ApiVersions: what is served here.  The same bytes for every client, built once per version."""

import re
from collections.abc import Mapping
from functools import cache, lru_cache

from kafkalog.metadata.levels import SUPPORTED
from kafkalog.server.node import Node, Serving
from kafkalog.server.request import Request
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode
from kafkalog.wire.tables.controller import CONTROLLED_SHUTDOWN
from kafkalog.wire.tables.internal import ALLOCATE_PRODUCER_IDS, ALTER_PARTITION

__all__ = ["announced", "answer_versions", "api_versions", "refusal", "rows_of"]

SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
"""KIP-511: names and versions of client software."""
OF_CONTROLLER = (ALTER_PARTITION, ALLOCATE_PRODUCER_IDS, CONTROLLED_SHUTDOWN)
"""APIs that brokers use at the controller; they find its versions here."""
OF_METADATA_LOG = (apis.DESCRIBE_QUORUM, apis.UNREGISTER_BROKER, apis.UNREGISTER_CONTROLLER)
"""APIs about the metadata log (KRaft), which nodes of a cluster on ZooKeeper do not have: a client
that sees them there asks until its time is up.  Kafka 3.9 on ZooKeeper leaves them out, too."""
OF_VOTERS = (apis.ADD_RAFT_VOTER, apis.REMOVE_RAFT_VOTER)
"""APIs that change the voters, which only a cluster under controllers of its own can."""
OF_FEATURES = (
    apis.CONSUMER_GROUP_HEARTBEAT, apis.CONSUMER_GROUP_DESCRIBE,
    apis.SHARE_GROUP_HEARTBEAT, apis.SHARE_GROUP_DESCRIBE, apis.DESCRIBE_SHARE_GROUP_OFFSETS,
    apis.ALTER_SHARE_GROUP_OFFSETS, apis.DELETE_SHARE_GROUP_OFFSETS,
    apis.INITIALIZE_SHARE_GROUP_STATE, apis.READ_SHARE_GROUP_STATE, apis.WRITE_SHARE_GROUP_STATE,
    apis.DELETE_SHARE_GROUP_STATE, apis.READ_SHARE_GROUP_STATE_SUMMARY,
    apis.SHARE_FETCH, apis.SHARE_ACKNOWLEDGE,
    apis.STREAMS_GROUP_HEARTBEAT, apis.STREAMS_GROUP_DESCRIBE,
)  # fmt: skip
"""APIs of features, which are levels in the metadata log."""
OF_TELEMETRY = (apis.GET_TELEMETRY_SUBSCRIPTIONS, apis.PUSH_TELEMETRY)
"""APIs of clients' metrics: as in Kafka, clients that see them use them."""
Rows = tuple[tuple[int, int, int], ...]
"""Keys of APIs, with their first and last versions."""
NAMED_SINCE = 3
"""From this version on, clients name their software."""
ZERO_SINCE = 4
"""A feature whose lowest level is 0 must not be reported to older clients (KAFKA-17492)."""


def api_versions(node: Node, request: Request) -> None:
    """Every API with its versions, and the levels of features."""
    telemetry, body = node.telemetry, request.body
    named = request.version >= NAMED_SINCE and telemetry.enabled
    if named and _refused(node, request) is ErrorCode.NONE:
        name, version = body.client_software_name, body.client_software_version
        telemetry.software.note(request.connection, name, version)
    rows = _rows(node.on_zookeeper, node.under_controllers, telemetry.enabled)
    answer_versions(node, request, rows)


def answer_versions(node: Serving, request: Request, rows: Rows) -> None:
    """Answer with these APIs and versions."""
    error = _refused(node, request)
    if error is not ErrorCode.NONE:
        request.answer({"error_code": error})
        return
    image = node.image
    on = tuple((name, level) for name, level in image.features.items() if name in SUPPORTED)
    # Features are levels in the metadata log: a cluster on ZooKeeper has none.
    epoch = 0 if node.on_zookeeper else image.offset
    data = _encoded(request.version, on, epoch, rows, with_features=not node.on_zookeeper)
    request.answer_bytes(data, 0)  # always header version 0: the client knows no version yet


def _refused(node: Serving, request: Request) -> ErrorCode:
    """Check the client's software name, and that it reached the intended node (KIP-1242)."""
    body = request.body
    software = (body.client_software_name, body.client_software_version)
    if request.version >= NAMED_SINCE and not all(map(SOFTWARE.fullmatch, software)):
        return ErrorCode.INVALID_REQUEST
    if (body.cluster_id is None) != (body.node_id == -1):
        return ErrorCode.INVALID_REQUEST
    here = (node.image.cluster_id, node.node_id)
    elsewhere = body.cluster_id is not None and (body.cluster_id, body.node_id) != here
    return ErrorCode.REBOOTSTRAP_REQUIRED if elsewhere else ErrorCode.NONE


@cache
def announced(
    member: bool, under_controllers: bool = False, telemetry: bool = True
) -> Mapping[int, range]:
    """The versions of each API that is announced, by key.  `member`: by a node on ZooKeeper, each
    of which may be asked as the controller; `under_controllers`: by a broker of a KRaft cluster;
    `telemetry`: by one that receives clients' metrics."""
    more = (*OF_VOTERS,) if under_controllers else (*OF_CONTROLLER,) if member else ()
    served = {**apis.SERVED, **{api.key: api.versions for api in more}}
    hidden = {api.key for api in (*OF_METADATA_LOG, *OF_FEATURES, *OF_TELEMETRY) if member}
    if not telemetry:
        hidden |= {api.key for api in OF_TELEMETRY}
    return {key: served[key] for key in served.keys() - hidden}


@cache
def _rows(member: bool, under_controllers: bool, telemetry: bool) -> Rows:
    return rows_of(announced(member, under_controllers, telemetry))


def rows_of(versions: Mapping[int, range]) -> Rows:
    """Keys with their first and last versions, for `answer_versions`."""
    return tuple((key, one.start, one.stop - 1) for key, one in sorted(versions.items()))


@lru_cache(maxsize=64)
def _encoded(
    version: int, on: tuple[tuple[str, int], ...], epoch: int, rows: Rows, *, with_features: bool
) -> bytes:
    """The features that are `on`, as the metadata has them at offset `epoch`."""
    return apis.API_VERSIONS.encode_response(
        version,
        {
            "api_keys": [
                {"api_key": key, "min_version": low, "max_version": high} for key, low, high in rows
            ],
            "supported_features": [
                {"name": name, "min_version": low, "max_version": high}
                for name, (low, high) in SUPPORTED.items()
                if with_features and (low > 0 or version >= ZERO_SINCE)
            ],
            "finalized_features_epoch": epoch,
            "finalized_features": [
                {"name": name, "max_version_level": level, "min_version_level": level}
                for name, level in on
            ],
        },
    )


def refusal() -> tuple[bytes, int]:
    """The answer to a version that is not served, and its header's version.

    In version 0, with the versions of ApiVersions itself, so that clients retry with one of those.
    """
    api = apis.API_VERSIONS
    own = {"api_key": api.key, "min_version": api.min_version, "max_version": api.max_version}
    response = {"error_code": ErrorCode.UNSUPPORTED_VERSION, "api_keys": [own]}
    return api.encode_response(0, response), 0
