"""Mistakes, planted one at a time: a simulation that finds none of them proves nothing.

Each leaves out a rule of replication or of control, most of which Apache Kafka once had to learn
(KIP-101, 279, 320, 497, 903; KAFKA-14704).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from kafkalog.cluster.node.state import leader_and_isr
from kafkalog.replication import isr
from kafkalog.replication.follower_log import FollowerLog
from kafkalog.replication.followers import Follower
from kafkalog.replication.following import Append, Cut, EpochEnd, fetched
from kafkalog.simulate.rules import Rules
from kafkalog.wire.error_codes import ErrorCode
from kafkalog.zookeeper.session import Check, Set

__all__ = ["MUTANTS", "Mutant"]


class Mutant(NamedTuple):
    """A planted mistake."""

    what: str
    rules: Rules
    durable: bool | None = True
    """Power is cut and records are synced; None: as the seed draws it."""


def _followers(
    change: Callable[[isr.Isr], frozenset[int]],
) -> Callable[[isr.Isr, Mapping[int, int]], list[Follower]]:
    """Give the data plane another maximal ISR."""

    def told(now: isr.Isr, epochs: Mapping[int, int]) -> list[Follower]:
        counted = change(now)
        return [
            Follower(
                one, one in now.in_sync and one in counted, one in counted, epochs.get(one, -1)
            )
            for one in now.replicas
            if one != now.leader
        ]

    return told


def _proposed(now: isr.Isr) -> frozenset[int]:
    return frozenset(now.proposal.isr if now.proposal else now.in_sync)


def _shown_first(copy: FollowerLog, action: Any, asked: int) -> Any:
    """Take the high watermark of a diverging answer before truncating the log (KAFKA-14704)."""
    if isinstance(action, tuple) and len(action) == 2 and isinstance(action[0], EpochEnd):
        end, high_watermark = action
        copy.do(Append(None, high_watermark, -1))
        return copy.do(end, asked)
    return FollowerLog.do(copy, action, asked)


def _with_watermark(row: Any) -> Any:
    found = fetched(row)
    return (found, row.high_watermark) if isinstance(found, EpochEnd) else found


def _cut_to_watermark(copy: FollowerLog, action: Any, asked: int) -> Any:
    if isinstance(action, EpochEnd):
        action = Cut(copy.now().high_watermark)
    return FollowerLog.do(copy, action, asked)


def _cut_to_theirs(copy: FollowerLog, action: Any, asked: int) -> Any:
    if isinstance(action, EpochEnd):
        action = Cut(min(action.end_offset, copy.now().log_end))
    return FollowerLog.do(copy, action, asked)


def _released(now: isr.Isr, _states: Any, _high_watermark: int) -> isr.Isr:
    return now._replace(proposal=now.proposal._replace(held=False)) if now.proposal else now


def _reverted(now: isr.Isr, asked: isr.Isr, row: Any) -> isr.Isr:
    """Any error drops the proposal, although it may have been written."""
    after = isr.answered(now, asked, row)
    return after._replace(proposal=None) if row.error_code and now == asked else after


def _believed(now: isr.Isr, asked: isr.Isr, row: Any) -> isr.Isr:
    """An answer counts, whatever has happened since."""
    if row.error_code or now.leader_epoch != row.leader_epoch:
        return isr.answered(now, asked, row)
    return now._replace(in_sync=tuple(row.isr), partition_epoch=row.partition_epoch, proposal=None)


def _unchecked(operations: Sequence[Any]) -> Sequence[Any]:
    """A controller's writes do not prove that its controller epoch is the latest."""
    return [one for one in operations if not isinstance(one, Check)]


def _overwritten(operations: Sequence[Any]) -> Sequence[Any]:
    """Nor do they prove that the state is as it knew it."""
    return [
        one._replace(version=-1) if isinstance(one, Set) else one for one in _unchecked(operations)
    ]


def _obeys_all(standing: Any, request: Any) -> Any:
    """A leadership is accepted, whatever was known before."""
    after, effects, answer = leader_and_isr(standing._replace(held={}), request)
    return after._replace(held={**standing.held, **after.held}), effects, answer


def _expanded(now: isr.Isr, found: Any, epochs: Mapping[int, int]) -> isr.Isr:
    """A follower in any epoch of the leadership, and in any life, may join."""
    if now.proposal is not None or found.id in now.in_sync or found.id not in now.replicas:
        return now
    wanted = (*now.in_sync, found.id)
    return now._replace(proposal=isr.Proposal(wanted, (isr.UNKNOWN_EPOCH,) * len(wanted)))


def _refused_is_done(now: isr.Isr, asked: isr.Isr, row: Any) -> isr.Isr:
    """A proposal counts as accepted as soon as anything is answered."""
    if now != asked or asked.proposal is None or row.error_code == ErrorCode.NONE:
        return isr.answered(now, asked, row)
    return now._replace(in_sync=asked.proposal.isr, proposal=None)


MUTANTS: Mapping[str, Mutant] = {
    "ack-at-append": Mutant("acks=all is answered once the leader has it", Rules(waits=False)),
    "no-divergence": Mutant(
        "a leader does not compare where the follower's last epoch ended", Rules(diverges=False)
    ),
    "cut-to-watermark": Mutant(
        "a follower cuts to its high watermark when it begins to follow (before KIP-101)",
        Rules(cuts_first=True),
    ),
    "cut-where-parted": Mutant(
        "where logs part a follower cuts to its high watermark", Rules(do=_cut_to_watermark)
    ),
    "shrunk-at-once": Mutant(
        "a smaller ISR is used before the controller agreed", Rules(followers=_followers(_proposed))
    ),
    "grown-too-late": Mutant(
        "the leader does not wait for a follower that is about to join the ISR (KIP-497)",
        Rules(followers=_followers(lambda now: frozenset(now.in_sync))),
    ),
    "joins-at-once": Mutant(
        "a follower that is about to join the ISR may lack what was shown since",
        Rules(released=_released),
    ),
    "joins-early": Mutant(
        "a follower that joins the ISR has what is shown, not all from before the leadership",
        Rules(begins=False),
    ),
    "their-end": Mutant(
        "a follower cuts where the leader's epoch ended, whatever it has itself (before KIP-279)",
        Rules(do=_cut_to_theirs),
    ),
    "reverted": Mutant(
        "a proposal that was refused is taken to be void", Rules(answered=_reverted)
    ),
    "late-answers": Mutant("an answer to an earlier proposal counts", Rules(answered=_believed)),
    "refused-holds": Mutant(
        "a proposal that was refused is taken to hold", Rules(answered=_refused_is_done)
    ),
    "no-fence": Mutant(
        "a fetch of another leader epoch is answered (before KIP-320)", Rules(fences=False)
    ),
    "watermark-first": Mutant(
        "the high watermark is taken before the log is cut (KAFKA-14704)",
        Rules(fetched=_with_watermark, do=_shown_first),
    ),
    "no-epoch-check": Mutant(
        "a controller's writes do not prove that its controller epoch is the latest",
        Rules(operations=_unchecked),
    ),
    "no-compare": Mutant("nor do they compare the known state", Rules(operations=_overwritten)),
    "obeys-all": Mutant("an older leadership is taken up", Rules(leader_and_isr=_obeys_all)),
    "any-life-joins": Mutant(
        "a replica that was in sync in an earlier life joins the ISR (before KIP-903)",
        Rules(expand=_expanded, epoch_said=False),
    ),
    "unsynced-follower": Mutant(
        "a follower promises what is not on its disk", Rules(follower_syncs=False)
    ),
    "unsynced-found": Mutant("the same for records found at its start", Rules(found_syncs=False)),
    "unsynced-leader": Mutant(
        "a leader shows what it took as a follower before that is on its disk",
        Rules(leader_syncs=False),
    ),
    "takes-records": Mutant("a follower takes a producer's records", Rules(leaves=False)),
    "takes-to-the-end": Mutant(
        "a leader takes acks=1 until another node leads", Rules(refuses=False), durable=False
    ),
    "lets-go-at-once": Mutant(
        "a leader that shuts down does not wait for its followers",
        Rules(catches_up=False),
        durable=False,
    ),
    "answers-of-before": Mutant(
        "an answer counts that belongs to an earlier command", Rules(asks_again=False)
    ),
}
"""By the name that `kafkalog simulate --mutant` takes."""
