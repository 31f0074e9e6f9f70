"""The settings of a node of a KRaft cluster: its roles, where the controllers are, and the metadata
log that controllers keep."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from kafkalog.config.declare import Flag, Long, Settings, Whole, Word, Words

__all__ = ["QUORUM", "Around", "QuorumConfig"]

BROKER, CONTROLLER = "broker", "controller"
ADDRESS = r"(\[[0-9A-Fa-f:.%\w]+\]|[^\s:/\[\],@]+):[0-9]{1,5}"
PLACES = ("controller.quorum.bootstrap.servers", "controller.quorum.voters")
NAMES = "controller.listener.names"


class Around(NamedTuple):
    """The other settings of a node that must agree with those of its quorum; names in capitals."""

    node: int | None
    """None: the data directory says it."""
    listeners: set[str]
    advertised: set[str]
    inner: str
    """inter.broker.listener.name; empty: not given."""
    zookeeper: str


class QuorumConfig(Settings):
    """The settings of a node of a KRaft cluster; a broker takes them with its own."""

    scope = "broker"

    process_roles = Words(
        (),
        "broker: this node joins the KRaft cluster whose controllers are named by the next "
        "settings; controller: it is one of these; broker,controller: both; empty: a single node, "
        "or a node of a cluster on ZooKeeper.",
        choices=(BROKER, CONTROLLER),
    )
    controller_listener_names = Words(
        (),
        "The names of the controllers' listeners; brokers and controllers use the first.",
        pattern=r"[A-Za-z0-9_.\-]+",
        example="listener names",
    )
    controller_quorum_bootstrap_servers = Words(
        (),
        "Controllers to ask for the leader of the quorum.",
        pattern=ADDRESS,
        example="host:port",
    )
    controller_quorum_voters = Words(
        (),
        "The controllers of a quorum that cannot change.",
        pattern=rf"[0-9]{{1,10}}@{ADDRESS}",
        example="id@host:port",
    )
    controller_quorum_request_timeout_ms = Whole(
        2000, "How long a request to a controller, or a connection, may take.", unit="ms", low=1
    )
    controller_quorum_fetch_timeout_ms = Whole(
        2000,
        "How long the leader of the quorum may be silent before another controller is asked, or "
        "elected; and how long it leads while most voters do not fetch.",
        unit="ms",
        low=1,
    )
    controller_quorum_election_timeout_ms = Whole(
        1000,
        "How long a controller waits for votes, or for the leader of an epoch, before it becomes a "
        "candidate.",
        unit="ms",
        low=1,
    )
    controller_quorum_election_backoff_max_ms = Whole(
        1000,
        "Accepted, with no effect: the waits between elections are drawn from "
        "controller.quorum.election.timeout.ms.",
        unit="ms",
        low=0,
    )
    controller_quorum_append_linger_ms = Whole(
        25, "Accepted, with no effect: the leader writes records at once.", unit="ms", low=0
    )
    controller_quorum_retry_backoff_ms = Whole(
        20, "Wait after a request to the quorum that failed.", unit="ms", low=0
    )
    controller_quorum_auto_join_enable = Flag(
        False, "As a controller that is no voter, ask the leader to become one (KIP-853)."
    )
    broker_heartbeat_interval_ms = Whole(
        2000, "How often a broker of a KRaft cluster sends a heartbeat.", unit="ms", low=1
    )
    broker_session_timeout_ms = Whole(
        9000,
        "As the active controller, how long a broker may be silent before it is fenced.",
        unit="ms",
        low=1,
    )
    initial_broker_registration_timeout_ms = Whole(
        60_000,
        "How long a start waits for the controllers, until this broker is registered.",
        unit="ms",
    )
    metadata_log_dir = Word(
        "", "Where a controller keeps the metadata log: the data directory; empty: the same."
    )
    metadata_log_segment_bytes = Whole(
        1 << 30, "segment.bytes of the metadata log.", unit="bytes", low=8 << 20
    )
    metadata_log_segment_ms = Long(
        7 * 86_400_000, "segment.ms of the metadata log.", unit="ms", low=1
    )
    metadata_max_retention_ms = Long(
        7 * 86_400_000,
        "As a controller: age of the oldest record above which a snapshot truncates the metadata "
        "log that it replaces, as for metadata.max.retention.bytes; -1: none.",
        unit="ms",
        low=-1,
    )
    metadata_max_idle_interval_ms = Whole(
        500,
        "As the active controller, how often an empty record is written if there are no others; 0: "
        "never.",
        unit="ms",
        low=0,
    )

    @property
    def joins_quorum(self) -> bool:
        """True if it is a node of a KRaft cluster."""
        return bool(self.process_roles)

    @property
    def serves_clients(self) -> bool:
        """True unless it is a controller alone."""
        return not self.process_roles or BROKER in self.process_roles

    @property
    def controls(self) -> bool:
        """True if it is a controller of a KRaft cluster."""
        return CONTROLLER in self.process_roles

    @property
    def controllers_listeners(self) -> tuple[str, ...]:
        """The names of the controllers' listeners, in capitals."""
        return tuple(name.upper() for name in self.controller_listener_names)

    def quorum_problems(self, around: Around) -> Iterator[tuple[str, str, str]]:
        """(setting, found, wanted) of values that contradict each other.

        `around`: other settings of the node.
        """
        if not self.process_roles:
            for name in PLACES:
                if self[name]:
                    yield name, ",".join(self[name]), "none without process.roles"
            return
        if not any(self[name] for name in PLACES):
            yield PLACES[0], "none", "the controllers' host:port, or controller.quorum.voters"
        if around.zookeeper:
            yield "zookeeper.connect", around.zookeeper, "none next to process.roles"
        names = self.controllers_listeners
        if not names:
            yield NAMES, "none", "the name of the controllers' listener"
        yield from self._listener_problems(around)
        yield from self._voter_problems(around.node)

    def _listener_problems(self, around: Around) -> Iterator[tuple[str, str, str]]:
        names = self.controllers_listeners
        if not self.controls:
            for name in sorted(around.listeners.intersection(names)):
                yield "listeners", name, f"none that {NAMES} has: this is a broker alone"
        for name in names if self.controls else ():
            if name not in around.listeners:
                yield NAMES, name, "names that listeners has, too: this is a controller"
        others = around.listeners.difference(names)
        for name in sorted(others) if not self.serves_clients else ():
            yield "listeners", name, f"only those of {NAMES}: this is a controller alone"
        if self.serves_clients and not (around.advertised or others).difference(names):
            found = ", ".join(sorted(around.advertised or around.listeners))
            yield "listeners", found, f"one that {NAMES} does not have: this is a broker, too"
        if around.inner in names:
            yield "inter.broker.listener.name", around.inner, f"none that {NAMES} has"

    def _voter_problems(self, node: int | None) -> Iterator[tuple[str, str, str]]:
        auto, voters = "controller.quorum.auto.join.enable", PLACES[1]
        ids = {int(word.partition("@")[0]) for word in self.controller_quorum_voters}
        if self.controls and ids and node is not None and node not in ids:
            yield voters, ",".join(self[voters]), f"this controller in it, node.id {node}"
        if not self.controls and node in ids:
            yield voters, ",".join(self[voters]), f"others than node.id {node}, a broker alone"
        if not self.controls and self.controller_quorum_auto_join_enable:
            yield auto, "true", "false: this is no controller"


QUORUM = frozenset(QuorumConfig.table)
"""Their names."""
