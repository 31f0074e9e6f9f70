"""Registers a broker in the tree: that it is alive, and where it is reached."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from kafkalog import errors
from kafkalog.zookeeper import tree
from kafkalog.zookeeper.session import Create, Session, Timeouts

__all__ = ["await_free", "cluster_id", "earlier_s", "patiently", "register"]

T = TypeVar("T")
RETRY_S = 0.2


def patiently(step: Callable[[], T], patience_s: float) -> T:
    """Call `step`, which may be done twice; again if ZooKeeper is lost in the process, so that a
    broker also starts while ZooKeeper elects its leader.

    Raises: ZooKeeperAway if it still is after `patience_s`; errors of `step`.
    """
    deadline_s, pause = time.monotonic() + patience_s, threading.Event()
    while True:
        try:
            return step()
        except errors.ZooKeeperAway:
            if time.monotonic() > deadline_s:
                raise
        pause.wait(RETRY_S)


def cluster_id(session: Session, wanted: str) -> str:
    """The cluster's id; `wanted` if it has none yet.

    Raises: ZooKeeperAway, BadZnode.
    """
    session.ensure((*tree.PERSISTENT, tree.CLUSTER_ID.rpartition("/")[0]))
    found = session.read(tree.CLUSTER_ID)
    if found is None:
        session.commit([Create(tree.CLUSTER_ID, tree.write_cluster_id(wanted))])
        found = session.read(tree.CLUSTER_ID)  # ours, or that of a faster node
    return tree.read_cluster_id(None if found is None else found.data)


def await_free(session: Session, broker: int, timeouts: Timeouts) -> None:
    """Wait until no broker has registered with this id: an earlier session may not have ended yet.
    Nothing is written.

    Raises: DuplicateBrokerRegistration if it still lives after two sessions' time; ZooKeeperAway.
    """
    path = tree.broker_path(broker)
    deadline_s, pause = time.monotonic() + earlier_s(timeouts), threading.Event()
    while session.read(path) is not None:
        if time.monotonic() > deadline_s:
            raise _duplicate(session, broker)
        pause.wait(RETRY_S)


def earlier_s(timeouts: Timeouts) -> float:
    """How long to wait for the end of a broker's earlier session."""
    return 2 * timeouts.session_ms / 1000


def _duplicate(session: Session, broker: int) -> errors.DuplicateBrokerRegistration:
    return errors.DuplicateBrokerRegistration(
        f"broker {broker} is registered at {session.hosts}, and alive; wanted a node id "
        "that no other has"
    )


def register(
    session: Session, broker: int, endpoints: Sequence[tree.Endpoint], rack: str | None,
    patience_s: float,
) -> int:  # fmt: skip
    """Register this broker for as long as the session lives; returns its epoch.

    If an earlier session that ZooKeeper has not ended yet has registered it, this waits for
    that session's end.

    Raises: DuplicateBrokerRegistration if another still lives after `patience_s`; ZooKeeperAway.
    """
    path = tree.broker_path(broker)
    node = tree.BrokerNode(tuple(endpoints), rack, int(time.time() * 1000), {})
    deadline_s, pause = time.monotonic() + patience_s, threading.Event()
    while True:
        outcome = session.commit([Create(path, tree.write_broker(node), ephemeral=True)])
        # Its owner tells whose it is, whatever happened to the answer, or to the session.
        found = session.read(path)
        if found is not None and found.owner == session.id:
            return found.created
        if time.monotonic() > deadline_s:
            break
        pause.wait(RETRY_S)
    if found is None:
        why = outcome.why or "the session ended"
        raise errors.ZooKeeperAway(f"ZooKeeper at {session.hosts}: {path} is not made: {why}")
    raise _duplicate(session, broker)
