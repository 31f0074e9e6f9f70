"""A leader's ISR: as its controller knows it, and as the leader wants it.

Pure.  The leader proposes (AlterPartition), the controller decides, and an answer may be lost:
until the leader knows better, any proposal may be in effect.  So a record is visible once the whole
maximal ISR has it, which is the committed ISR and the proposed one together (KIP-497), while
min.insync.replicas counts the committed ISR.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from kafkalog.replication.followers import CaughtUp, Follower, FollowerState
from kafkalog.wire.error_codes import ErrorCode

__all__ = [
    "UNKNOWN_EPOCH", "Isr", "Proposal", "answered", "expand", "followers", "released", "shrink",
    "told",
]  # fmt: skip

UNKNOWN_EPOCH = -1
REFUSED = frozenset(
    {
        ErrorCode.INELIGIBLE_REPLICA,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.OPERATION_NOT_ATTEMPTED,
    }
)
"""It was not written and will not be."""
OUTDATED = frozenset(
    {
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.NEW_LEADER_ELECTED,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)
"""The controller has a newer state, which is on its way to us."""


class Proposal(NamedTuple):
    """A proposed ISR, which may be in effect."""

    isr: tuple[int, ...]
    """Includes the leader."""
    epochs: tuple[int, ...]
    """The broker epochs of the registrations that the leader knew; -1: unknown."""
    outdated: bool = False
    """The controller said so: its next state counts, and it is not asked again."""
    held: bool = False
    """Not sent yet: it is unknown whether the joining follower has all visible records; see
    `released`."""


class Isr(NamedTuple):
    """The ISR of one partition that is led here."""

    leader: int
    leader_epoch: int
    partition_epoch: int
    """The partition epoch of the committed state; the next proposal is based on it."""
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]
    """The committed ISR."""
    recovering: bool = False
    """The leader was elected out of sync; its next proposal ends that."""
    proposal: Proposal | None = None

    @property
    def maximal(self) -> frozenset[int]:
        """All replicas that may be in sync."""
        proposed = () if self.proposal is None else self.proposal.isr
        return frozenset(self.in_sync) | frozenset(proposed)

    @property
    def due(self) -> bool:
        """True if a proposal must be sent, or sent again."""
        one = self.proposal
        return one is not None and not one.outdated and not one.held


def followers(isr: Isr, epochs: Mapping[int, int]) -> list[Follower]:
    """The replicas for the data plane; `epochs`: broker epochs by node."""
    maximal = isr.maximal
    return [
        Follower(one, one in isr.in_sync, one in maximal, epochs.get(one, UNKNOWN_EPOCH))
        for one in isr.replicas
        if one != isr.leader
    ]


def shrink(
    isr: Isr, states: Iterable[FollowerState], lag_ms: int, epochs: Mapping[int, int]
) -> Isr:
    """Propose the in-sync replicas that had everything within `lag_ms`; returns `isr` unchanged if
    all had, or a proposal is in flight.  A held proposal is dropped if the joining follower
    lags."""
    if isr.proposal is not None and not isr.proposal.held:
        return isr
    late = {
        state.follower.id
        for state in states
        if state.follower.id in isr.maximal and not 0 <= state.behind_ms <= lag_ms
    }
    if isr.proposal is not None:
        return isr._replace(proposal=None) if late else isr
    if not late:
        return isr
    return _propose(isr, [one for one in isr.in_sync if one not in late], epochs)


def expand(isr: Isr, caught_up: CaughtUp, epochs: Mapping[int, int]) -> Isr:
    """Propose to add a replica with all committed records; returns `isr` unchanged if it may not
    join.

    The proposal is held until `released` finds that this was still so when records began to wait
    for the replica.  If one side has no broker epoch, as before KIP-903, the other's is
    used.
    """
    one = caught_up.id
    if isr.proposal is not None or caught_up.leader_epoch != isr.leader_epoch:
        return isr
    if one in isr.in_sync or one not in isr.replicas or one not in epochs:
        return isr
    known, said = epochs[one], caught_up.broker_epoch
    if UNKNOWN_EPOCH not in (known, said) and known != said:
        return isr
    wanted = _propose(isr, [*isr.in_sync, one], {**epochs, one: max(known, said)})
    assert wanted.proposal is not None
    return wanted._replace(proposal=wanted.proposal._replace(held=True))


def released(isr: Isr, states: Iterable[FollowerState], needed: int) -> Isr:
    """Release a proposal once the joining follower has everything below `needed`, the high
    watermark or more.

    `states` and `needed` are read after the data plane began to wait for the follower: it may lack
    records that became visible between its last fetch and then, and as a member of the ISR it might
    become the next leader.
    """
    if isr.proposal is None or not isr.proposal.held:
        return isr
    ends = {state.follower.id: state.log_end for state in states}
    joining = isr.maximal - {*isr.in_sync}
    if any(ends.get(one, -1) < needed for one in joining):
        return isr
    return isr._replace(proposal=isr.proposal._replace(held=False))


def _propose(isr: Isr, wanted: Sequence[int], epochs: Mapping[int, int]) -> Isr:
    known = tuple(epochs.get(one, UNKNOWN_EPOCH) for one in wanted)
    return isr._replace(proposal=Proposal(tuple(wanted), known))


def answered(isr: Isr, asked: Isr, row: Any) -> Isr:
    """After the controller's answer to the proposal of `asked`.

    A late answer, or one about another state than the current one, is ignored.
    """
    if asked.proposal is None or isr != asked:
        return isr
    code = row.error_code
    if code in REFUSED:
        return isr._replace(proposal=None)
    if code in OUTDATED:
        return isr._replace(proposal=asked.proposal._replace(outdated=True))
    if code:
        return isr  # unknown whether it was written: send the same again
    if row.leader_epoch != isr.leader_epoch or row.partition_epoch < isr.partition_epoch:
        return isr._replace(proposal=asked.proposal._replace(outdated=True))
    return isr._replace(
        in_sync=tuple(row.isr), partition_epoch=row.partition_epoch, proposal=None,
        recovering=bool(getattr(row, "leader_recovery_state", 0)),
    )  # fmt: skip


def told(isr: Isr | None, now: Isr) -> Isr | None:
    """After the controller named this node the leader: None if nothing changed.

    A proposal about an earlier state is void: it was written, or never will be.
    """
    if isr is None or (now.leader_epoch, now.partition_epoch) > (
        isr.leader_epoch,
        isr.partition_epoch,
    ):
        return now
    return None
