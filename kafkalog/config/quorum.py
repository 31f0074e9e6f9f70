"""The settings of a broker of a KRaft cluster: its role, and where the controllers are."""

from __future__ import annotations

from collections.abc import Iterator

from kafkalog.config.declare import Settings, Whole, Words

__all__ = ["QUORUM", "QuorumConfig"]

BROKER, CONTROLLER = "broker", "controller"
ADDRESS = r"(\[[0-9A-Fa-f:.%\w]+\]|[^\s:/\[\],@]+):[0-9]{1,5}"


class QuorumConfig(Settings):
    """The settings of a broker of a KRaft cluster; a broker takes them with its own."""

    scope = "broker"

    process_roles = Words(
        (),
        "broker: this broker joins the KRaft cluster whose controllers are named by the next "
        "settings; empty: a single node, or a node of a cluster on ZooKeeper.",
        choices=(BROKER, CONTROLLER),
    )
    controller_listener_names = Words(
        (),
        "The names of the controllers' listeners; a broker uses the first.",
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
        2000, "How long a connection to a controller may take.", unit="ms", low=1
    )
    controller_quorum_fetch_timeout_ms = Whole(
        2000,
        "How long the leader of the quorum may be silent before another controller is asked.",
        unit="ms",
        low=1,
    )
    controller_quorum_retry_backoff_ms = Whole(
        20, "Wait after a request to the quorum that failed.", unit="ms", low=0
    )
    broker_heartbeat_interval_ms = Whole(
        2000, "How often a broker of a KRaft cluster sends a heartbeat.", unit="ms", low=1
    )
    initial_broker_registration_timeout_ms = Whole(
        60_000,
        "How long a start waits for the controllers, until this broker is registered.",
        unit="ms",
    )

    @property
    def joins_quorum(self) -> bool:
        """True if it is a broker whose controllers are other processes."""
        return bool(self.process_roles)

    def quorum_problems(
        self, listeners: set[str], zookeeper: str
    ) -> Iterator[tuple[str, str, str]]:
        """(setting, found, wanted) of values that contradict each other.

        `listeners`: the names of the broker's own; `zookeeper`: zookeeper.connect.
        """
        places = ("controller.quorum.bootstrap.servers", "controller.quorum.voters")
        roles = ",".join(self.process_roles)
        if not roles:
            for name in places:
                if self[name]:
                    yield name, ",".join(self[name]), "none without process.roles=broker"
            return
        if roles != BROKER:
            wanted = "broker: kafkalog has no controller for other brokers; none: a single node"
            yield "process.roles", roles, wanted
        if not any(self[name] for name in places):
            yield places[0], "none", "the controllers' host:port, or controller.quorum.voters"
        if zookeeper:
            yield "zookeeper.connect", zookeeper, "none next to process.roles"
        names = [name.upper() for name in self.controller_listener_names]
        if not names:
            yield "controller.listener.names", "none", "the name of the controllers' listener"
        for name in listeners.intersection(names):
            yield "listeners", name, "none that controller.listener.names has: this is a broker"


QUORUM = frozenset(QuorumConfig.table)
"""Their names."""
