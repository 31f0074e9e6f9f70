"""The fields of a PartitionChangeRecord: what a partition's next leader, ISR and replicas are.

Pure.  On KRaft one record has all that follows from a decision: another leader, the end of a move,
eligible leader replicas (KIP-966).  With these the ISR may be empty: its last members are then
eligible, and lead again once they are back.  The rules are those of Apache Kafka 4.4's
PartitionChangeBuilder; those on ZooKeeper (kafkalog.controller.partitions) differ in all of it.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Mapping
from enum import Enum
from typing import Any, NamedTuple

from kafkalog.metadata.image import NO_LEADER, Partition

__all__ = ["Election", "Rules", "Wanted", "change", "in_move", "wanted"]

EPOCHS_SINCE = 12
"""The first metadata.version at which a smaller ISR needs no other leader epoch: 3.6-IV0."""
DIRECTORIES_SINCE = 17
"""The first metadata.version that has the directories of replicas: 3.7-IV2."""
MIGRATING = uuid.UUID(int=0)
"""The directory of a replica from before that version."""
UNCHANGED = -2
"""PartitionChangeRecord.leader."""
RECOVERING = 1


class Election(Enum):
    """The replicas among which a leader is elected."""

    ONLINE = "any in sync"
    PREFERRED = "the first replica, if it is in sync"
    UNCLEAN = "any, if none in sync is left"


class Rules(NamedTuple):
    """The inputs besides the partition."""

    acceptable: Callable[[int], bool]
    """True for a broker that may lead: it is active, and so is the partition's directory."""
    directory: Callable[[int], uuid.UUID]
    """The directory of a broker's new replicas."""
    least: int
    """The topic's min.insync.replicas, not more than it has replicas."""
    eligible: bool
    """Eligible leader replicas are kept."""
    level: int
    """metadata.version."""


class Wanted(NamedTuple):
    """The next state of a partition, as far as it is decided."""

    isr: tuple[int, ...]
    replicas: tuple[int, ...]
    removing: tuple[int, ...]
    adding: tuple[int, ...]
    recovering: int
    election: Election = Election.ONLINE
    lost: Collection[int] = ()
    """Replicas that came back without all of their records."""
    directories: Mapping[int, uuid.UUID] = {}
    """The directories of replicas that are in another one now."""


def wanted(one: Partition, election: Election = Election.ONLINE) -> Wanted:
    """The partition as it is."""
    return Wanted(
        one.isr, one.replicas, one.removing_replicas, one.adding_replicas,
        one.leader_recovery_state, election,
    )  # fmt: skip


def in_move(one: Partition) -> bool:
    """True if replicas are being added or removed."""
    return bool(one.adding_replicas or one.removing_replicas)


def change(before: Partition, asked: Wanted, rules: Rules) -> dict[str, Any]:
    """The fields that change; empty: none does."""
    asked = _with_end_of_move(asked)
    eligible = _eligible(before, asked, rules)
    leader, unclean = _elected(before, asked, eligible, rules)
    unclean = unclean and leader != before.leader
    isr = asked.isr
    fields: dict[str, Any] = {}
    if leader != before.leader:
        fields["leader"] = leader
        if leader in eligible:
            isr, eligible = (leader,), tuple(one for one in eligible if one != leader)
    elif not {*before.replicas} <= {*asked.replicas}:
        fields["leader"] = leader  # in another epoch: a replica is gone
    if unclean:
        isr, eligible = (leader,), ()
        if before.leader_recovery_state != RECOVERING:
            fields["leader_recovery_state"] = RECOVERING
    if not rules.eligible:
        eligible = ()
        isr = isr or before.isr
    if eligible != before.eligible_leader_replicas:
        fields["eligible_leader_replicas"] = list(eligible)
    if isr != before.isr or unclean:
        fields["isr"] = list(isr)
        if rules.level < EPOCHS_SINCE and not {*before.isr} <= {*isr}:
            fields.setdefault("leader", before.leader)
    if rules.eligible:
        fields.update(_last_leader(before, fields))
    fields.update(_placed(before, asked, rules))
    if asked.recovering != before.leader_recovery_state:
        fields["leader_recovery_state"] = asked.recovering
    return {"leader": UNCHANGED, "leader_recovery_state": -1, **fields} if fields else {}


def _with_end_of_move(asked: Wanted) -> Wanted:
    """Without the removed replicas, once all others are in sync."""
    if not (asked.removing or asked.adding):
        return asked
    replicas = tuple(one for one in asked.replicas if one not in asked.removing)
    isr = tuple(one for one in asked.isr if one not in asked.removing)
    if not replicas or not {*replicas} <= {*isr}:
        return asked
    return asked._replace(isr=isr, replicas=replicas, removing=(), adding=())


def _eligible(before: Partition, asked: Wanted, rules: Rules) -> tuple[int, ...]:
    """The replicas that leave the ISR while it is too small to acknowledge anything: they have all
    that was acknowledged."""
    if not rules.eligible:
        return before.eligible_leader_replicas
    if len(asked.isr) >= rules.least:
        return ()
    candidates = {*before.eligible_leader_replicas, *before.isr}
    found = tuple(sorted(candidates - {*asked.isr} - {*asked.lost}))
    if {*found} == {*before.eligible_leader_replicas}:
        return before.eligible_leader_replicas
    return found


def _elected(
    before: Partition, asked: Wanted, eligible: Collection[int], rules: Rules
) -> tuple[int, bool]:
    """The leader, and True if it may lack records that were acknowledged."""

    def valid(broker: int) -> bool:
        trusted = asked.isr or eligible
        return broker in trusted and rules.acceptable(broker)

    order = [before.leader, *asked.replicas]
    if asked.election is Election.PREFERRED:
        order.insert(0, asked.replicas[0])
    found = next((one for one in order if valid(one)), None)
    if found is not None:
        return found, False
    if rules.eligible and not eligible and not asked.isr and len(before.last_known_elr) == 1:
        last = before.last_known_elr[0]  # it led last: no other lacks fewer records
        if rules.acceptable(last):
            return last, True
    if asked.election is Election.UNCLEAN:
        found = next((one for one in asked.replicas if rules.acceptable(one)), None)
        if found is not None:
            return found, True
    return NO_LEADER, False


def _last_leader(before: Partition, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Remember the last leader of a partition that has none, until it has one again."""
    leader = fields.get("leader", UNCHANGED)
    if fields.get("isr") == [] and before.last_known_elr != (before.leader,):
        return {"last_known_elr": [before.leader]}
    leads = leader >= 0 or (before.leader != NO_LEADER and leader != NO_LEADER)
    return {"last_known_elr": []} if leads and before.last_known_elr else {}


def _placed(before: Partition, asked: Wanted, rules: Rules) -> dict[str, Any]:
    """The replicas, and their directories."""
    fields: dict[str, Any] = {}
    if rules.level >= DIRECTORIES_SINCE:
        old = before.directories or (MIGRATING,) * len(before.replicas)
        known = {**dict(zip(before.replicas, old, strict=True)), **asked.directories}
        new = tuple(known.get(one) or rules.directory(one) for one in asked.replicas)
        if new != old:
            fields["directories"] = list(new)
    for name, value in (
        ("replicas", asked.replicas), ("removing_replicas", asked.removing),
        ("adding_replicas", asked.adding),
    ):  # fmt: skip
        if value != getattr(before, name):
            fields[name] = list(value)
    return fields
