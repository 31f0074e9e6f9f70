"""Controllers of a KRaft quorum in this process, over directories that are formatted."""

from __future__ import annotations

from pathlib import Path

from kafkalog.clock import SystemClock
from kafkalog.kraft.format import Format, format_directory
from tests.support.apache import free_port

__all__ = ["CLUSTER", "combined", "controller", "formatted"]

CLUSTER = "quorum-of-a-test-00000"
MAP = "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT"


def formatted(path: Path, node: int = 1, *, controller: bool = True) -> Path:
    """Format a directory; the settings name the voters."""
    format_directory(str(path), Format(CLUSTER, node, controller), SystemClock())
    return path


def controller(node: int = 1, voters: str = "", port: int = 0) -> dict[str, object]:
    """The settings of a controller alone; by default the only one."""
    port = port or free_port()
    voters = voters or f"{node}@127.0.0.1:{port}"
    return {
        "process.roles": "controller", "node.id": node, "controller.listener.names": "CONTROLLER",
        "listeners": f"CONTROLLER://127.0.0.1:{port}", "controller.quorum.voters": voters,
        "listener.security.protocol.map": MAP, "num.io.threads": 2, "num.network.threads": 1,
        "broker.session.timeout.ms": 500,
    }  # fmt: skip


def combined(node: int = 1, voters: str = "", port: int = 0) -> dict[str, object]:
    """The settings of a broker and controller in one process."""
    port = port or free_port()
    return {
        **controller(node, voters, port), "process.roles": "broker,controller",
        "listeners": f"PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:{port}",
        "broker.heartbeat.interval.ms": 100, "offsets.topic.replication.factor": 1,
        "offsets.topic.num.partitions": 1, "transaction.state.log.replication.factor": 1,
        "transaction.state.log.min.isr": 1, "transaction.state.log.num.partitions": 1,
        "group.initial.rebalance.delay.ms": 0,
    }  # fmt: skip
