"""The requests to both coordinators, one function per subject.  See both_sides.py."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any

from kafkalog.wire import apis
from tests.unit.coordinator.both_sides import LOOK_S, Side
from tests.unit.coordinator.group_calls import subscription

Script = Callable[[Side], None]

RANGE = [{"name": "range", "metadata": subscription("t")}]
BOTH = [*RANGE, {"name": "roundrobin", "metadata": subscription("t")}]
SESSION_MS = 30_000
SHORT_MS = 2_000
"""Session timeout of members that are removed, in ms: long enough for the steps before that, even
on a machine that stalls for most of it."""
TOGETHER = 8


def join_fields(group: str, version: int, **fields: Any) -> dict[str, Any]:
    found: dict[str, Any] = {
        "group_id": group,
        "session_timeout_ms": SESSION_MS,
        "member_id": "",
        "protocol_type": "consumer",
        "protocols": RANGE,
    }
    if version >= 1:
        found["rebalance_timeout_ms"] = SESSION_MS
    return {**found, **fields}


def join(side: Side, group: str, version: int = 9, **fields: Any) -> Any:
    """Send a JoinGroup; see(...) waits for it."""
    return side.park(apis.JOIN_GROUP, version, join_fields(group, version, **fields))


def given_id(side: Side, group: str, version: int = 9, **fields: Any) -> str:
    reply = side.see("an id is given", join(side, group, version, **fields))
    return str(reply.member_id)


def heartbeat(side: Side, group: str, generation: int, member_id: str, **fields: Any) -> None:
    identity = {"group_id": group, "generation_id": generation, "member_id": member_id}
    side.ask(apis.HEARTBEAT, 4, **identity, **fields)


def describe(side: Side, group: str, version: int = 5) -> Any:
    return side.ask(apis.DESCRIBE_GROUPS, version, groups=[group]).groups[0]


def sync(side: Side, group: str, joined: Any, assignments: Any = (), version: int = 5) -> Any:
    """Send a SyncGroup."""
    fields = {
        "group_id": group,
        "generation_id": joined.generation_id,
        "member_id": joined.member_id,
        "assignments": [{"member_id": m, "assignment": a} for m, a in dict(assignments).items()],
    }
    if version >= 5:
        fields |= {"protocol_type": "consumer", "protocol_name": joined.protocol_name}
    return side.park(apis.SYNC_GROUP, version, fields)


def stable(side: Side, group: str, count: int = 2, version: int = 9, **fields: Any) -> list[Any]:
    """A stable group of `count` members; their JoinGroup answers, the leader's first."""
    ids = [given_id(side, group, version, **fields) for _ in range(count)]
    sent = [join(side, group, version, member_id=each, **fields) for each in ids]
    joined = [side.see("joined", each) for each in sent]
    settle(side, group, joined)
    return sorted(joined, key=lambda each: each.leader != each.member_id)


def settle(side: Side, group: str, joined: list[Any]) -> None:
    follow = [each for each in joined if each.member_id != each.leader]
    lead = [each for each in joined if each.member_id == each.leader]
    sent = [sync(side, group, each) for each in follow]
    given = {each.member_id: b"for it" for each in joined}
    sent += [sync(side, group, each, given) for each in lead]
    for each in sent:
        side.see("synced", each)


def commit(side: Side, group: str, version: int = 8, **fields: Any) -> Any:
    topics = fields.pop("topics", [("t", 0, 5)])
    told = [
        {
            "name": topic,
            "partitions": [
                {
                    "partition_index": partition,
                    "committed_offset": offset,
                    "committed_metadata": fields.get("metadata", "m"),
                    **({"committed_leader_epoch": 3} if version >= 6 else {}),
                }
            ],
        }
        for topic, partition, offset in topics
    ]
    fields.pop("metadata", None)
    base = {"group_id": group, "generation_id_or_member_epoch": -1, "member_id": ""}
    return side.ask(apis.OFFSET_COMMIT, version, **{**base, "topics": told, **fields})


def fetch(side: Side, group: str, version: int = 7, topics: Any = (("t", [0, 1]),)) -> Any:
    wanted = None
    if topics is not None:
        wanted = [{"name": name, "partition_indexes": parts} for name, parts in topics]
    if version >= 8:
        groups = [{"group_id": group, "topics": wanted}]
        return side.ask(apis.OFFSET_FETCH, version, groups=groups)
    return side.ask(apis.OFFSET_FETCH, version, group_id=group, topics=wanted)


# ---- scripts -------------------------------------------------------------------------------


def absent_group(side: Side) -> None:
    """Every API, for a group that does not exist."""
    for version in range(10):
        side.see(f"join v{version}", join(side, "none", version, member_id="nobody"))
    for version in range(6):
        names = {"protocol_type": "consumer", "protocol_name": "range"} if version >= 5 else {}
        side.ask(apis.SYNC_GROUP, version, group_id="none", generation_id=1, member_id="nobody",
                 **names)  # fmt: skip
    for version in range(5):
        side.ask(apis.HEARTBEAT, version, group_id="none", generation_id=1, member_id="nobody")
    for version in range(3):
        side.ask(apis.LEAVE_GROUP, version, group_id="none", member_id="nobody")
    for version in range(3, 6):
        side.ask(apis.LEAVE_GROUP, version, group_id="none", members=[{"member_id": "nobody"}])
    for version in range(2, 10):
        commit(side, "none", version, generation_id_or_member_epoch=1, member_id="nobody")
    for version in range(1, 10):
        fetch(side, "none", version)
        if version >= 2:
            fetch(side, "none", version, None)
    for version in range(6):
        describe(side, "none", version)
        if version >= 3:
            side.ask(apis.DESCRIBE_GROUPS, version, groups=["none"],
                     include_authorized_operations=True)  # fmt: skip
    for version in range(3):
        side.ask(apis.DELETE_GROUPS, version, groups_names=["none", "none", "no other"])
    side.ask(apis.OFFSET_DELETE, 0, group_id="none",
             topics=[{"name": "t", "partitions": [{"partition_index": 0}]}])  # fmt: skip


def empty_name(side: Side) -> None:
    """The group with the empty name."""
    side.see("join", join(side, "", 9))
    side.ask(apis.SYNC_GROUP, 5, group_id="", generation_id=1, member_id="a",
             protocol_type="consumer", protocol_name="range")  # fmt: skip
    side.ask(apis.HEARTBEAT, 4, group_id="", generation_id=1, member_id="a")
    side.ask(apis.LEAVE_GROUP, 5, group_id="", members=[{"member_id": "a"}])
    side.ask(apis.LEAVE_GROUP, 1, group_id="", member_id="a")
    side.ask(apis.OFFSET_DELETE, 0, group_id="",
             topics=[{"name": "t", "partitions": [{"partition_index": 0}]}])  # fmt: skip
    fetch(side, "", 7)
    describe(side, "")
    commit(side, "")
    fetch(side, "", 7)
    describe(side, "")
    side.ask(apis.DELETE_GROUPS, 2, groups_names=[""])


def wrong_joins(side: Side) -> None:
    """Invalid JoinGroups."""
    side.see("short session", join(side, "wrong", session_timeout_ms=99))
    side.see("long session", join(side, "wrong", session_timeout_ms=1_800_001))
    side.see("no protocols", join(side, "wrong", protocols=[]))
    side.see("no type", join(side, "wrong", protocol_type=""))
    leader, _ = stable(side, "right", protocols=BOTH)
    side.see("another type", join(side, "right", protocol_type="connect"))
    other = [{"name": "sticky", "metadata": b""}]
    side.see("another protocol", join(side, "right", protocols=other))
    side.see("another protocol, member", join(side, "right", member_id=leader.member_id,
                                              protocols=other))  # fmt: skip
    side.see("unknown member", join(side, "right", member_id="nobody"))
    side.see("unknown static", join(side, "right", member_id="nobody", group_instance_id="host"))
    third = given_id(side, "right")
    fourth = given_id(side, "right")
    waits = join(side, "right", member_id=third)
    describe(side, "right")
    for each in (leader.member_id,):
        heartbeat(side, "right", 1, each)
    late = join(side, "right", member_id=fourth)
    again = [join(side, "right", member_id=m) for m in [leader.member_id]]
    for each in (waits, late, *again):
        if side.answered(each):
            side.see("someone", each)
    describe(side, "right")


def first_member(side: Side, version: int) -> None:
    """The start of a group, step by step, in one version of JoinGroup."""
    group = f"first-{version}"
    describe(side, group)
    if version >= 4:
        member_id = given_id(side, group, version)
        reach(side, group, "Empty")
        heartbeat(side, group, 0, member_id)
        side.ask(apis.SYNC_GROUP, 3, group_id=group, generation_id=0, member_id=member_id)
        sent = join(side, group, version, member_id=member_id)
    else:
        sent = join(side, group, version)
    reach(side, group, "PreparingRebalance")
    joined = side.see("joined", sent)
    describe(side, group)
    me = joined.member_id
    heartbeat(side, group, 1, me)
    heartbeat(side, group, 0, me)
    heartbeat(side, group, 1, "nobody")
    commit(side, group, generation_id_or_member_epoch=1, member_id=me)
    commit(side, group, generation_id_or_member_epoch=0, member_id=me)
    commit(side, group)
    side.see("again", join(side, group, version, member_id=me))
    fields = {"group_id": group, "generation_id": 1, "member_id": me}
    side.ask(apis.SYNC_GROUP, 4, **{**fields, "generation_id": 2})
    side.ask(apis.SYNC_GROUP, 4, **{**fields, "member_id": "nobody"})
    side.ask(apis.SYNC_GROUP, 5, **fields)
    names = {"protocol_type": "consumer", "protocol_name": "range"}
    side.ask(apis.SYNC_GROUP, 5, **fields, **{**names, "protocol_name": "sticky"})
    side.ask(apis.SYNC_GROUP, 5, **fields, **{**names, "protocol_type": "connect"})
    given = [{"member_id": me, "assignment": b"x"}, {"member_id": "nobody", "assignment": b"y"}]
    side.ask(apis.SYNC_GROUP, 5, **fields, **names, assignments=given)
    side.ask(apis.SYNC_GROUP, min(version, 4), **fields)
    describe(side, group)
    side.ask(apis.LIST_GROUPS, 5, states_filter=["stable", "Dead"], types_filter=["Classic"])
    side.ask(apis.LIST_GROUPS, 5, states_filter=["Empty"], types_filter=["consumer"])
    side.ask(apis.DESCRIBE_GROUPS, 5, groups=[group], include_authorized_operations=True)
    side.ask(apis.DELETE_GROUPS, 2, groups_names=[group])
    commit(side, group, generation_id_or_member_epoch=1, member_id=me)
    commit(side, group)
    commit(side, group, generation_id_or_member_epoch=2, member_id=me)
    commit(side, group, generation_id_or_member_epoch=1, member_id="nobody")
    side.ask(apis.LEAVE_GROUP, 2, group_id=group, member_id="nobody")
    side.ask(apis.LEAVE_GROUP, 2, group_id=group, member_id=me)
    describe(side, group)
    heartbeat(side, group, 1, me)
    side.ask(apis.SYNC_GROUP, 3, **fields)
    side.ask(apis.LEAVE_GROUP, 2, group_id=group, member_id=me)
    side.see("gone", join(side, group, version, member_id=me))
    commit(side, group, generation_id_or_member_epoch=1, member_id=me)
    commit(side, group)
    fetch(side, group)
    side.ask(apis.DELETE_GROUPS, 1, groups_names=[group])
    fetch(side, group)


def two_members(side: Side) -> None:
    """A second member joins; both rebalance; a follower joins for no reason; one leaves."""
    (first,) = stable(side, "two", 1)
    second_id = given_id(side, "two")
    describe(side, "two")
    heartbeat(side, "two", 1, first.member_id)
    heartbeat(side, "two", 1, second_id)
    sent = join(side, "two", member_id=second_id)
    reach(side, "two", "PreparingRebalance")
    heartbeat(side, "two", 1, first.member_id)
    heartbeat(side, "two", 1, second_id)
    commit(side, "two", generation_id_or_member_epoch=1, member_id=first.member_id)
    commit(side, "two")
    side.see("sync in between", sync(side, "two", first))
    again = join(side, "two", member_id=first.member_id, protocols=BOTH)
    joined = [side.see("joined", each) for each in (sent, again)]
    reach(side, "two", "CompletingRebalance")
    parked = sync(side, "two", joined[0])
    reach(side, "two", "CompletingRebalance")
    side.see("follower again", join(side, "two", member_id=second_id))
    side.see("leader again", join(side, "two", member_id=first.member_id, protocols=BOTH))
    given = {each.member_id: b"for it" for each in joined}
    side.see("leader", sync(side, "two", joined[1], given))
    side.see("follower", parked)
    describe(side, "two")
    side.see("follower for no reason", join(side, "two", member_id=second_id))
    describe(side, "two")
    changed = join(side, "two", member_id=second_id, protocols=BOTH)
    reach(side, "two", "PreparingRebalance")
    heartbeat(side, "two", 2, first.member_id)
    leads = join(side, "two", member_id=first.member_id, protocols=BOTH)
    joined = [side.see("joined", each) for each in (changed, leads)]
    settle(side, "two", joined)
    forced = join(side, "two", member_id=first.member_id, protocols=BOTH)
    reach(side, "two", "PreparingRebalance")
    side.ask(apis.LEAVE_GROUP, 3, group_id="two",
             members=[{"member_id": second_id}, {"member_id": "nobody"}])  # fmt: skip
    side.see("alone", forced)
    describe(side, "two")


def leaving_joins(side: Side) -> None:
    """Members leave while the group rebalances: the join ends without them."""
    first, second = stable(side, "leaving")
    sent = join(side, "leaving", member_id=first.member_id)
    pending = given_id(side, "leaving")
    side.ask(apis.LEAVE_GROUP, 5, group_id="leaving", members=[{"member_id": pending}])
    side.ask(apis.LEAVE_GROUP, 5, group_id="leaving", members=[{"member_id": second.member_id}])
    joined = side.see("joined", sent)
    parked = sync(side, "leaving", joined, version=4)
    side.see("parked", parked)
    describe(side, "leaving")
    third = given_id(side, "leaving")
    waits = join(side, "leaving", member_id=third)
    side.ask(apis.LEAVE_GROUP, 1, group_id="leaving", member_id=third)
    side.see("left while waiting", waits)
    describe(side, "leaving")


def sessions(side: Side) -> None:
    """Members without heartbeats, and members that do not sync, are removed."""
    short = {"session_timeout_ms": SHORT_MS, "rebalance_timeout_ms": SHORT_MS}
    (first,) = stable(side, "sessions", 1, **short)
    # Nothing shows when an unused member id expires: long before the member's session does.
    gone_id = given_id(side, "sessions", **{**short, "session_timeout_ms": 100})
    reach(side, "sessions", "Empty")
    heartbeat(side, "sessions", 1, first.member_id)
    side.see("too late", join(side, "sessions", member_id=gone_id, **short))
    ids = [given_id(side, "unsynced", **short) for _ in range(2)]
    sent = [join(side, "unsynced", member_id=each, **short) for each in ids]
    joined = [side.see("joined", each) for each in sent]
    describe(side, "unsynced")
    reach(side, "unsynced", "Empty")
    side.see("removed", sync(side, "unsynced", joined[0]))


def reach(side: Side, group: str, state: str) -> None:
    """Wait for a state without recording the states before it, which may be very short."""
    seen: list[Any] = []

    def reached() -> bool:
        sent = side.send(apis.DESCRIBE_GROUPS, 5, {"groups": [group]})
        side.until(lambda: side.answered(sent), "described")
        seen.append(sent)
        return bool(sent.body.groups[0].group_state == state)

    side.until(reached, f"{group} is {state}", LOOK_S)
    side.see(f"{group} is {state}", seen[-1])


def static_members(side: Side, version: int) -> None:
    """Static members: restart, zombies, removal, versions with and without skip."""
    group = f"static-{version}"
    who = {"group_instance_id": "host-a"}, {"group_instance_id": "host-b"}
    sent = [join(side, group, version, **each) for each in who]
    joined = [side.see("joined", each) for each in sent]
    settle(side, group, joined)
    describe(side, group)
    for old, identity in zip(joined, who, strict=True):
        again = side.see("restarted", join(side, group, version, **identity))
        describe(side, group)
        heartbeat(side, group, 1, old.member_id, **identity)
        heartbeat(side, group, 1, old.member_id)
        heartbeat(side, group, 1, again.member_id, **identity)
        heartbeat(side, group, 1, again.member_id, group_instance_id="host-x")
        commit(side, group, generation_id_or_member_epoch=1, member_id=old.member_id,
               **identity)  # fmt: skip
        side.see("zombie joins", join(side, group, version, member_id=old.member_id,
                                      **identity))  # fmt: skip
        side.see("synced", sync(side, group, again))
        side.ask(apis.SYNC_GROUP, 3, group_id=group, generation_id=1,
                 member_id=old.member_id, **identity)  # fmt: skip
        side.ask(apis.LEAVE_GROUP, 3, group_id=group,
                 members=[{"member_id": old.member_id, **identity}])  # fmt: skip
    side.ask(apis.LEAVE_GROUP, 4, group_id=group,
             members=[{"member_id": "", **who[1]}, {"member_id": "", "group_instance_id": "c"},
                      {"member_id": ""}])  # fmt: skip
    describe(side, group)


def static_rebalances(side: Side) -> None:
    """A static member comes back while its group rebalances, or with another preferred protocol."""
    who = {"group_instance_id": "host-a"}, {"group_instance_id": "host-b"}
    sent = [join(side, "statics", protocols=BOTH, **each) for each in who]
    joined = [side.see("joined", each) for each in sent]
    follower = next(i for i, each in enumerate(joined) if each.leader != each.member_id)
    parked = sync(side, "statics", joined[follower])
    reach(side, "statics", "CompletingRebalance")
    back = join(side, "statics", protocols=BOTH, **who[follower])
    side.see("parked", parked)
    reach(side, "statics", "PreparingRebalance")
    twice = join(side, "statics", protocols=BOTH, **who[follower])
    side.see("fenced while it waits", back)
    other = join(side, "statics", protocols=BOTH, member_id=joined[1 - follower].member_id,
                 **who[1 - follower])  # fmt: skip
    joined = [side.see("joined", each) for each in (twice, other)]
    settle(side, "statics", joined)
    changed = join(side, "statics", protocols=BOTH[1:], **who[follower])
    reach(side, "statics", "PreparingRebalance")
    other = join(side, "statics", protocols=BOTH, member_id=joined[1].member_id,
                 **who[1 - follower])  # fmt: skip
    joined = [side.see("joined", each) for each in (changed, other)]


def votes(side: Side, wishes: str) -> None:
    """The protocol that most members prefer, of those that all support."""
    group = f"votes {wishes}"
    kinds = [
        {"protocols": [{"name": name, "metadata": name.encode()} for name in wish]}
        for wish in wishes.split()
    ]
    ids = [given_id(side, group, **each) for each in kinds]
    sent = [join(side, group, member_id=m, **k) for m, k in zip(ids, kinds, strict=True)]
    for each in sent:
        side.see("joined", each)


def offsets(side: Side) -> None:
    """Commits of a consumer without a group, in every version."""
    for version in range(2, 10):
        commit(side, "simple", version, topics=[("t", 0, version), ("u", 0, 7)])
        fetch(side, "simple", 7, None)
        describe(side, "simple")
    commit(side, "simple", 4, retention_time_ms=1_000_000)
    commit(side, "simple", metadata="x" * 64)
    commit(side, "simple", metadata="\U0001f600" * 33)
    commit(side, "simple", metadata="x" * 65, topics=[("t", 0, 99)])
    commit(side, "simple", metadata=None, topics=[("t", 1, 0)])
    commit(side, "simple", topics=[("nowhere", 0, 1), ("t", 7, 1)])
    commit(side, "simple", topics=[("nowhere", 0, 1)])
    commit(side, "simple", topics=[("t", 0, -5)])
    commit(side, "simple", topics=[])
    commit(side, "simple", member_id="nobody")
    commit(side, "simple", group_instance_id="host")
    commit(side, "simple", generation_id_or_member_epoch=0, member_id="")
    commit(side, "simple", generation_id_or_member_epoch=3, member_id="nobody")
    commit(side, "nothing", topics=[])
    describe(side, "nothing")
    for version in range(1, 10):
        fetch(side, "simple", version, (("t", [0, 1, 9]), ("nowhere", [0]), ("u", [])))
        if version >= 2:
            fetch(side, "simple", version, None)
        if version >= 8:
            asked = [{"group_id": "simple", "topics": None}, {"group_id": "none", "topics": None},
                     {"group_id": "simple", "topics": []}]  # fmt: skip
            side.ask(apis.OFFSET_FETCH, version, groups=asked, require_stable=True)
    side.ask(apis.OFFSET_FETCH, 9, groups=[{"group_id": "simple", "member_id": "nobody",
             "member_epoch": 3, "topics": None}])  # fmt: skip
    side.ask(apis.OFFSET_DELETE, 0, group_id="simple", topics=[
        {"name": "t", "partitions": [{"partition_index": 0}, {"partition_index": 5}]},
        {"name": "nowhere", "partitions": [{"partition_index": 0}]}])  # fmt: skip
    fetch(side, "simple", 7, None)
    side.ask(apis.LIST_GROUPS, 3)
    side.ask(apis.DELETE_GROUPS, 2, groups_names=["simple", "none", "simple"])
    fetch(side, "simple", 7, None)
    describe(side, "simple")


def offset_deletes(side: Side) -> None:
    """OffsetDelete from a group with members."""
    (member,) = stable(side, "alive", 1)
    commit(side, "alive", generation_id_or_member_epoch=1, member_id=member.member_id,
           topics=[("t", 0, 3), ("u", 0, 4)])  # fmt: skip
    both = [{"name": name, "partitions": [{"partition_index": 0}]} for name in "tu"]
    side.ask(apis.OFFSET_DELETE, 0, group_id="alive", topics=both)
    fetch(side, "alive", 7, None)
    kinds = {"protocol_type": "connect"}
    other = given_id(side, "connect", **kinds)
    sent = join(side, "connect", member_id=other, **kinds)
    side.see("joined", sent)
    side.ask(apis.OFFSET_DELETE, 0, group_id="connect", topics=both)
    describe(side, "connect")


@contextmanager
def all_asked(start: Callable[[], Side]) -> Iterator[dict[str, Future[Side]]]:
    """Each script runs on a separate side, several at once, since they mostly wait for clocks."""

    def run(script: Script) -> Side:
        side = start()
        script(side)
        return side

    with ThreadPoolExecutor(TOGETHER) as pool:
        yield {name: pool.submit(run, script) for name, script in SCRIPTS.items()}
        pool.shutdown(cancel_futures=True)


# The slowest scripts come first.
SCRIPTS: dict[str, Script] = {
    script.__name__: script
    for script in (
        sessions,
        wrong_joins,
        two_members,
        leaving_joins,
        static_rebalances,
        offset_deletes,
        absent_group,
        empty_name,
        offsets,
    )
}
for version in (5, 7, 8, 9):
    SCRIPTS[f"static_members_{version}"] = partial(static_members, version=version)
for wishes in ("ab ba ba", "ab cb bc", "abc cba ca"):
    SCRIPTS["votes_" + wishes.replace(" ", "_")] = partial(votes, wishes=wishes)
for version in range(10):
    SCRIPTS[f"first_member_{version}"] = partial(first_member, version=version)
