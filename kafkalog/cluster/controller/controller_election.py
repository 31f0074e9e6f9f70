"""Elects the controller: the node whose session owns /controller.

As Kafka's brokers elect it: the znode and the next epoch are one write, so that a controller can
check with each write that its epoch is still the latest.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from kafkalog.cluster.controller.context import Reign
from kafkalog.errors import ZooKeeperAway
from kafkalog.metadata.zookeeper import tree
from kafkalog.metadata.zookeeper.session import Check, Create, Delete, Operation, Session, Set

__all__ = ["Election"]


class Election:
    """One node's part in it, over one session."""

    def __init__(self, session: Session, node: int, unclean: bool) -> None:
        """`unclean`: as Reign has it."""
        self._session = session
        self._node = node
        self._unclean = unclean
        self._tried: int | None = None  # the epoch that this node asked for last

    def stand(self) -> Reign | None:
        """Be the controller, where there is none; None: another one is, and its end is watched.

        A lost answer does no harm: the owner of /controller says whether it is ours, by the
        session and not by the node's number, and the epoch says of which attempt.  What is ours of
        another epoch is given up.

        Raises: ZooKeeperAway: it may have become so, or ZooKeeper refuses what another look does
        not change; stand again later.
        """
        session = self._session
        while True:
            znode = session.read(tree.CONTROLLER_EPOCH)
            if znode is None:
                self._commit([Create(tree.CONTROLLER_EPOCH, tree.write_epoch(0))])
                continue
            # Behind the epoch: while that stays as it was read, so does this owner.
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
                return Reign(self._node, epoch, znode.version, self._unclean)
            else:
                self._commit([
                    Check(tree.CONTROLLER_EPOCH, znode.version), Delete(tree.CONTROLLER),
                ])  # fmt: skip

    def _commit(self, operations: Sequence[Operation]) -> None:
        """Write, unless another node was quicker, which the next look finds."""
        outcome = self._session.commit(operations)
        if not outcome.done and outcome.why not in ("BadVersion", "NodeExists"):
            refused = operations[outcome.refused]
            raise ZooKeeperAway(
                f"{refused.path}: ZooKeeper refused a controller's election: {outcome.why}"
            )

    def resign(self) -> None:
        """Resign: what was won is given up when this stands again."""
        self._tried = None
