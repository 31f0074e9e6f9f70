"""Replicas of a quorum in this process, over real sockets and on real directories."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from kafkalog.config.server import ServerConfig
from kafkalog.directory.manager import Manager
from kafkalog.disk.layout import BOOTSTRAP, METADATA_TOPIC
from kafkalog.kraft.records import encode
from kafkalog.kraft.snapshots import render_snapshot
from kafkalog.metadata.image import METADATA_VERSION, empty_image
from kafkalog.metadata.levels import LEVEL_NEW
from kafkalog.quorum.identity import Identity
from kafkalog.quorum.replica.answers import RAFT_APIS
from kafkalog.quorum.replica.replica import MetadataReplica
from kafkalog.raft.codec import control_record
from kafkalog.raft.log import VersionChange
from kafkalog.raft.replicas import ReplicaKey, Voter, Voters
from kafkalog.wire import apis
from kafkalog.wire.api import Api
from tests.support.scripted import CLOSE, Peer
from tests.support.waiting import LIMIT_S, wait_for

CLUSTER = "a-quorum"
LISTENER = "CONTROLLER"
FAST = {
    "controller.quorum.fetch.timeout.ms": 600, "controller.quorum.request.timeout.ms": 600,
    "controller.quorum.election.timeout.ms": 150, "controller.quorum.retry.backoff.ms": 10,
}  # fmt: skip


def directory(node: int) -> uuid.UUID:
    """The directory id of a node."""
    return uuid.UUID(int=1000 + node)


def bootstrap() -> bytes:
    """The records that a cluster begins with."""
    level = {"name": METADATA_VERSION, "feature_level": LEVEL_NEW}
    value = encode("FeatureLevelRecord", level, empty_image(CLUSTER, 1))
    return render_snapshot([value], 0, (0, 0))


def formatted(voters: Voters) -> bytes:
    """The snapshot of nothing, with the voters (kraft.version 1)."""
    values = [control_record(one, 1)[1] for one in (VersionChange(1), voters)]
    return render_snapshot([], 0, (0, 0), 1, values[1])


class Server(Peer):
    """Passes the requests on a port to a replica."""

    def __init__(self) -> None:
        super().__init__()
        self.replica: MetadataReplica | None = None
        for api in apis.BY_KEY.values():
            if api is not apis.API_VERSIONS:
                self.on(api, lambda request, version, api=api: self.ask(api, request, version))

    def ask(self, api: Api, request: Any, version: int) -> Any:
        """A replica's answer; the connection ends if there is none."""
        self.requests.clear()
        replica, done, found = self.replica, threading.Event(), []
        if replica is None:
            return CLOSE
        replica.ask(api, request, version, lambda body: (found.append(body), done.set()))
        if not done.wait(LIMIT_S) or found[0] is None or isinstance(found[0], Exception):
            return CLOSE
        return found[0]


class Replicas:
    """Nodes with a server and a directory each.  A context manager."""

    def __init__(
        self, home: Path, nodes: Iterable[int], voters: Iterable[int], dynamic: bool = True,
        settings: Mapping[str, object] | None = None,
    ) -> None:  # fmt: skip
        """`dynamic`: the voters are in the metadata log (kraft.version 1), not in the settings."""
        self.servers = {node: Server() for node in nodes}
        self.managers: dict[int, Manager] = {}
        self.home = home
        made = tuple(self.voter(node) for node in sorted(voters))
        places = {one.key.id: self.servers[one.key.id].servers for one in made}
        quorum: dict[str, object] = (
            {"controller.quorum.bootstrap.servers": ",".join(places.values())} if dynamic
            else {"controller.quorum.voters": ",".join(f"{n}@{at}" for n, at in places.items())}
        )  # fmt: skip
        known = {name: value for name, value in FAST.items() if name in ServerConfig.table}
        self.config = ServerConfig.of({
            "process.roles": "broker", "controller.listener.names": LISTENER, **known, **quorum,
            **(settings or {}),
        })  # fmt: skip
        for node in self.servers:
            folder = self.folder(node)
            folder.mkdir(parents=True)
            (folder.parent / BOOTSTRAP).write_bytes(bootstrap())
            if dynamic and node in places:
                (folder / f"{0:020d}-{0:010d}.checkpoint").write_bytes(formatted(made))

    def voter(self, node: int) -> Voter:
        """A node as a voter."""
        endpoint = LISTENER, "127.0.0.1", self.servers[node].port
        return Voter(ReplicaKey(node, directory(node)), (endpoint,))

    def folder(self, node: int) -> Path:
        """The folder of a node's metadata log."""
        return self.home / f"data{node}" / f"{METADATA_TOPIC}-0"

    def __enter__(self) -> Replicas:
        return self

    def __exit__(self, *_: object) -> None:
        for node in [*self.managers]:
            self.kill(node)
        for server in self.servers.values():
            server.__exit__()

    def start(self, *nodes: int, alone: bool = False) -> None:
        """Start nodes; `alone`: as brokers, which no other node reaches."""
        for node in nodes:
            data = self.folder(node).parent
            manager = self.managers[node] = Manager(data, self.config, node_id=node, adopt=True)
            identity = Identity(CLUSTER, node, directory(node))
            endpoints = () if alone else self.voter(node).endpoints
            replica = MetadataReplica(manager, self.config, identity, endpoints)
            self.servers[node].replica = replica
            replica.start()

    def __getitem__(self, node: int) -> MetadataReplica:
        found = self.servers[node].replica
        assert found is not None
        return found

    def kill(self, node: int) -> None:
        """End it as in a crash."""
        self[node].abandon()
        self.servers[node].replica = None
        self.managers.pop(node).abandon()

    def stop(self, node: int) -> None:
        """End it in order."""
        self[node].stop()
        self.servers[node].replica = None
        self.managers.pop(node).close()

    def active(self) -> int:
        """The active controller, once there is one that all living nodes know."""
        living = [*self.managers]

        def agreed() -> bool:
            seen = {self[node].seen()[0] for node in living}
            return len(seen) == 1 and seen <= {*living} and self[seen.pop()].is_active

        wait_for(agreed, "a controller is active")
        return self[living[0]].seen()[0]

    def call(self, node: int, api: Api, **fields: Any) -> Any:
        """A request to a replica; the answer as it travels, None if there is none."""
        version = api.versions.stop - 1
        request = api.decode_request(version, api.encode_request(version, fields))
        body = self.servers[node].ask(api, request, version)
        return None if body is CLOSE else api.decode_response(
            version, api.encode_response(version, body)
        )  # fmt: skip


__all__ = ["CLUSTER", "RAFT_APIS", "Replicas", "Server", "directory"]
