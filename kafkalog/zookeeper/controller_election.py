"""Elects the controller: the node whose session owns /controller.

As with Kafka's brokers, the znode and the next epoch are one write, so that a controller can
check with each write that its epoch is still the latest.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from kafkalog.controller.context import Claim
from kafkalog.errors import ZooKeeperAway
from kafkalog.zookeeper import tree
from kafkalog.zookeeper.session import Check, Create, Delete, Operation, Session, Set

__all__ = ["Election"]


class Election:
    """One node's part in the election, over one session."""

    def __init__(self, session: Session, node: int, unclean: bool) -> None:
        """`unclean`: as in Claim."""
        self._session = session
        self._node = node
        self._unclean = unclean
        self._tried: int | None = None  # the epoch that this node asked for last

    def stand(self) -> Claim | None:
        """Become the controller if there is none; None: another node is, and its end is watched.

        A lost answer does no harm.  The owner of /controller, which is a session and not a node's
        number, shows whether it is ours, and the epoch shows of which attempt.  If it is ours from
        another epoch, it is given up.

        Raises: ZooKeeperAway: this node may have become the controller, or ZooKeeper refuses what
        another look does not change; stand again later.
        """
        session = self._session
        while True:
            znode = session.read(tree.CONTROLLER_EPOCH)
            if znode is None:
                self._commit([Create(tree.CONTROLLER_EPOCH, tree.write_epoch(0))])
                continue
            # Read after the epoch: if that has not changed by then, neither has this owner.
            found = session.read(tree.CONTROLLER, watch=True)
            epoch = tree.read_epoch(znode.data)
            if found is None:
                self._tried = epoch + 1
                now = tree.ControllerNode(self._node, int(time.time() * 1000))
                self._commit([
                    Create(tree.CONTROLLER, tree.write_controller(now), ephemeral=True),
                    Set(tree.CONTROLLER_EPOCH, tree.write_epoch(self._tried), znode.version),
                ])  # fmt: skip
            elif found.owner != session.id:
                return None
            elif epoch == self._tried:
                return Claim(self._node, epoch, znode.version, self._unclean)
            else:
                self._commit([
                    Check(tree.CONTROLLER_EPOCH, znode.version), Delete(tree.CONTROLLER),
                ])  # fmt: skip

    def _commit(self, operations: Sequence[Operation]) -> None:
        """Write; if another node was quicker, the next look finds it."""
        outcome = self._session.commit(operations)
        if not outcome.done and outcome.why not in ("BadVersion", "NodeExists"):
            refused = operations[outcome.refused]
            raise ZooKeeperAway(
                f"{refused.path}: ZooKeeper refused a controller's election: {outcome.why}"
            )

    def resign(self) -> None:
        """Resign: a won election is given up when this node stands again."""
        self._tried = None

    def leave(self) -> None:
        """Resign, and give up /controller now, if it is this node's: others stand at once.

        Raises: ZooKeeperAway.
        """
        self.resign()
        session = self._session
        found = session.read(tree.CONTROLLER)
        if found is not None and found.owner == session.id:
            session.commit([Delete(tree.CONTROLLER, found.version)])
