"""Makes a data directory a broker's of a KRaft cluster: with the cluster's id and its own.

Apache Kafka wants a directory to be formatted for this; here a new one asks the controllers.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from contextlib import closing
from types import MappingProxyType
from typing import NamedTuple
from uuid import UUID

from kafkalog.client.link.transport import Address, Options
from kafkalog.config.server import ServerConfig
from kafkalog.directory.identity import Found
from kafkalog.directory.manager import Manager
from kafkalog.disk import layout
from kafkalog.disk.layout import MetaProperties
from kafkalog.errors import ArgumentError, Closed, KafkalogError, Timeout
from kafkalog.quorum.identity import Identity
from kafkalog.quorum.replica.places import controllers_of
from kafkalog.replication.inter_broker import NodeSecurity, connect, node_securities
from kafkalog.wire import apis

__all__ = ["Entry", "controllers_of", "enter", "own"]

CONTROLLERS = 2
"""The kind of endpoint that DescribeCluster asks for: it is sent to a controller."""
KINDS_SINCE = 1
"""The first version of DescribeCluster that has kinds of endpoints."""
PAUSE_S = 0.1
OPEN: Mapping[str, NodeSecurity] = MappingProxyType({})
RESPONSE_BYTES_MAX = 64 << 20
"""A Fetch of the metadata log has 8 MiB, or one batch."""


class Entry(NamedTuple):
    """The knowledge of a broker before it has any metadata."""

    identity: Identity
    bootstrap: tuple[Address, ...]
    """Where the controllers are."""
    voters: dict[int, Address]
    """The same by node, if the settings name them."""
    options: Options
    """For connections to the controllers."""
    securities: Mapping[str, NodeSecurity] = OPEN
    """The security of connections by listeners that are not PLAINTEXT."""


def enter(path: str, found: Found, config: ServerConfig, node: int, ends: threading.Event) -> Entry:
    """Check that a directory may be a broker's of this cluster; nothing is written.

    `found`: the directory's contents; `ends`: set once the process is to end.

    Raises: ArgumentError: it is that of a node of another cluster, on ZooKeeper; InvalidSetting:
    the security between nodes; Timeout: no controller answers; Closed: `ends` was set.
    """
    meta = found.meta
    bootstrap, voters = controllers_of(config)
    securities = node_securities(config)
    patience_ms = config.controller_quorum_request_timeout_ms
    options = Options(
        client_id=str(node),
        connect_timeout_ms=patience_ms,
        request_timeout_ms=patience_ms,
        response_bytes_max=RESPONSE_BYTES_MAX,
        security=securities.get(config.control_listener),
    )
    cluster = meta.cluster_id if meta is not None else None
    on_zookeeper = meta is not None and meta.version == 0
    if cluster is None or on_zookeeper:
        patience_s = config.initial_broker_registration_timeout_ms / 1000
        known, cluster = cluster, _cluster_id(bootstrap, options, patience_s, ends)
        # Kafka 3.9 leaves such a directory when it has moved a cluster from ZooKeeper to KRaft.
        if on_zookeeper and known != cluster:
            raise ArgumentError(
                f"{path}: found the directory of a node on ZooKeeper, of cluster {known}, wanted "
                f"one of cluster {cluster}, which the controllers lead"
            )
    directory_id = meta.directory_id if meta is not None else None
    identity = Identity(cluster, node, directory_id or layout.random_topic_id())
    return Entry(identity, bootstrap, voters, options, securities)


def _cluster_id(
    bootstrap: tuple[Address, ...], options: Options, patience_s: float, ends: threading.Event
) -> str:
    end_s = time.monotonic() + patience_s
    while True:
        problem = ""
        for address in bootstrap:
            if ends.is_set():
                raise Closed("no controller named the cluster's id before the process was to end")
            try:
                with closing(connect(address, options)) as connection:
                    api = apis.DESCRIBE_CLUSTER
                    version = connection.version_of(api)
                    body = {
                        "include_cluster_authorized_operations": False,
                        "endpoint_type": CONTROLLERS,
                    }
                    answer = connection.call(api, body, max(version, KINDS_SINCE))
                if not answer.error_code and answer.cluster_id:
                    return str(answer.cluster_id)
                problem = f"{address}: DescribeCluster: error {answer.error_code}"
            except KafkalogError as error:
                problem = str(error)
        if time.monotonic() >= end_s:
            raise Timeout(f"no controller named the cluster's id in {patience_s:g} s: {problem}")
        ends.wait(PAUSE_S)


def own(manager: Manager, identity: Identity) -> None:
    """Write the directory's identity."""
    directory_id: UUID = identity.directory_id
    wanted = MetaProperties(1, identity.node, identity.cluster_id, directory_id)
    if wanted != manager.meta:
        data = layout.render_meta_properties(wanted)
        manager.state.directory.replace(layout.META_PROPERTIES, data)
        manager.meta = wanted
