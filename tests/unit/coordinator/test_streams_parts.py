"""The parts of the core of streams groups: sizes of topics, the assignor, one member's steps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from itertools import chain, product
from typing import Any
from uuid import UUID

import pytest

from kafkalog.coordinator.consumer_groups.reconcile import MustRejoin
from kafkalog.coordinator.consumer_groups.refusal import Refusal
from kafkalog.coordinator.consumer_groups.topics import NO_TOPICS, Topic
from kafkalog.coordinator.streams_groups import assignor
from kafkalog.coordinator.streams_groups.assignor import Assignee, TaskSpec, sticky
from kafkalog.coordinator.streams_groups.configured import Configured, Status, configured
from kafkalog.coordinator.streams_groups.member import (
    Given,
    Role,
    StreamsMember,
    StreamsState,
    TasksOf,
)
from kafkalog.coordinator.streams_groups.reconcile import Goal, next_step
from kafkalog.coordinator.streams_groups.topology import (
    Copartition,
    InternalTopic,
    Subtopology,
    Topology,
    check_topology,
    topology_in,
)
from kafkalog.wire import apis
from tests.unit.coordinator.streams_group_calls import internal, subtopology, topology

ACTIVE, STANDBY, WARMUP = Role
A0, S0, W0 = (ACTIVE, "0"), (STANDBY, "0"), (WARMUP, "0")
A1 = (ACTIVE, "1")


# ---- sizes of topics -----------------------------------------------------------------------


def sized(found: dict[str, Any], **counts: int) -> Configured:
    """A topology, compared with topics of these sizes."""
    api = apis.STREAMS_GROUP_HEARTBEAT
    body = {"group_id": "s", "member_id": "a", "member_epoch": 0, "topology": found}
    decoded = api.decode_request(1, api.encode_request(1, body)).topology
    topics = {name: Topic(UUID(int=1), count, 1) for name, count in counts.items()}
    return configured(topology_in(decoded), NO_TOPICS._replace(topic=topics.get))


def together(*sources: int, again: tuple[int, ...] = ()) -> dict[str, Any]:
    """A copartition group."""
    return {
        "source_topics": list(sources), "source_topic_regex": [],
        "repartition_source_topics": list(again),
    }  # fmt: skip


def test_a_repartition_topic_is_as_large_as_its_largest_source() -> None:
    found = sized(
        topology(
            subtopology("0", "t", "u", repartition_sink_topics=["r"]),
            subtopology("1", repartition_source_topics=[internal("r")],
                        repartition_sink_topics=["q"]),
            subtopology("2", repartition_source_topics=[internal("q")],
                        state_changelog_topics=[internal("c")]),
        ),
        t=3, u=5,
    )  # fmt: skip
    assert {name: one.partitions for name, one in found.missing.items()} == {"r": 5, "q": 5, "c": 5}
    assert found.parts is not None
    assert [part.tasks for part in found.parts.values()] == [5, 5, 5]


def test_a_repartition_topic_may_have_a_size_of_its_own() -> None:
    found = sized(
        topology(
            subtopology("0", "t", repartition_sink_topics=["r"]),
            subtopology("1", repartition_source_topics=[internal("r", 7)]),
        ),
        t=3,
    )
    assert found.missing["r"].partitions == 7


def test_joined_topics_are_equally_large() -> None:
    join = subtopology(
        "1", "u", repartition_source_topics=[internal("r")],
        copartition_groups=[together(0, again=(0,))],
    )  # fmt: skip
    flows = subtopology("0", "t", repartition_sink_topics=["r"])
    assert sized(topology(flows, join), t=3, u=8).missing["r"].partitions == 8
    pair = topology(subtopology("0", "t", "u", copartition_groups=[together(0, 1)]))
    problem = sized(pair, t=3, u=8).problem
    assert problem is not None
    detail = "Following topics do not have the same number of partitions: [{t=3, u=8}]"
    assert problem == (Status.INCORRECTLY_PARTITIONED_TOPICS, detail)
    fixed = {**join, "repartition_source_topics": [internal("r", 2)]}
    problem = sized(topology(flows, fixed), t=3, u=8).problem
    assert problem is not None
    assert problem.detail == (
        "Number of partitions [2] of repartition topic [r] doesn't match number of partitions [8] "
        "of the source topic."
    )


def test_joined_repartition_topics_take_the_larger_size() -> None:
    found = topology(
        subtopology("0", "t", repartition_sink_topics=["r"]),
        subtopology("1", "u", repartition_sink_topics=["q"]),
        subtopology("2", repartition_source_topics=[internal("r"), internal("q")],
                    copartition_groups=[together(again=(0, 1))]),
    )  # fmt: skip
    sizes = {name: one.partitions for name, one in sized(found, t=3, u=8).missing.items()}
    assert sizes == {"r": 8, "q": 8}


def test_too_many_tasks_are_refused() -> None:
    problem = sized(topology(subtopology("0", "t")), t=50_001).problem
    assert problem is not None
    assert problem.detail == "The topology has 50001 tasks, wanted at most 50000."
    stateful = subtopology("0", "t", state_changelog_topics=[internal("c")])
    found = sized(topology(stateful), t=50_001)
    assert (found.problem, found.missing) == (problem, {}), "before any topic is created"


def test_no_topics_are_created_if_they_have_too_many_partitions() -> None:
    kept = [internal(f"c{at}") for at in range(11)]
    whole = topology(subtopology("0", "t", state_changelog_topics=kept))
    assert len(sized(whole, t=909).missing) == 11
    found = sized(whole, t=910)
    assert (found.parts, found.missing) == (None, {})
    assert found.problem == (
        Status.MISSING_INTERNAL_TOPICS,
        "Internal topics are missing: c0, c1, c10 and 8 additional topics. They are not created: "
        "they have 10010 partitions, wanted at most 10000.",
    )
    by_hand = {f"c{at}": 910 for at in range(11)}
    assert sized(whole, t=910, **by_hand).problem is None
    again = topology(
        subtopology("0", "t", repartition_sink_topics=["r"]),
        subtopology("1", repartition_source_topics=[internal("r", 10_001)]),
    )
    assert sized(again, t=1).missing == {}


def part(
    name: str, sources: tuple[str, ...], sinks: tuple[str, ...], reads: tuple[InternalTopic, ...],
    groups: tuple[Copartition, ...] = (),
) -> Subtopology:  # fmt: skip
    """A subtopology without changelogs."""
    return Subtopology(name, sources, (), (), sinks, reads, groups)


def in_rounds(found: Topology, sizes: Mapping[str, int]) -> dict[str, int]:
    """The sizes of repartition topics as Kafka finds them: it goes through all subtopologies, until
    that brings nothing new."""
    sizes, more = dict(sizes), True
    while more:
        more = False
        for one in found.subtopologies:
            inputs = (*one.sources, *(each.name for each in one.repartitions))
            known = [sizes[name] for name in inputs if name in sizes]
            for name in one.sinks:
                if known and name not in sizes:
                    sizes[name], more = max(known), True
    return sizes


def test_sizes_are_found_in_the_order_in_which_kafka_finds_them() -> None:
    """A size rests on those that are known by then: all flows between three subtopologies."""
    names, sizes = ("r0", "r1", "r2"), {"t0": 3, "t1": 2, "t2": 5}
    again = [InternalTopic(name, 0, 0, ()) for name in names]
    reads = [tuple(one for at, one in enumerate(again) if bits >> at & 1) for bits in range(8)]
    topics = {name: Topic(UUID(int=1), count, 1) for name, count in sizes.items()}
    loops = 0
    for some in product(product(reads, (True, False)), repeat=3):
        parts = [
            part(str(at), (f"t{at}",) if source else (), (names[at], names[at - 1]), given)
            for at, (given, source) in enumerate(some)
        ]
        if not all(one.sources or one.repartitions for one in parts):
            continue
        found = Topology(0, tuple(parts))
        wanted = in_rounds(found, sizes)
        if not wanted.keys() >= set(names):
            with pytest.raises(Refusal, match="There may be loops"):
                configured(found, NO_TOPICS._replace(topic=topics.get))
            loops += 1
            continue
        made = configured(found, NO_TOPICS._replace(topic=topics.get)).missing
        assert {name: one.partitions for name, one in made.items()} == {
            name: wanted[name] for name in made
        }
        assert made.keys() == {one.name for one in chain(*(given for given, _ in some))}
    assert loops, "some read only what flows in a circle"


def test_the_work_for_repartition_topics_grows_with_their_number() -> None:
    reads = 0

    class Counted(InternalTopic):
        @property
        def name(self) -> str:
            nonlocal reads
            reads += 1
            return self[0]

    def work(count: int) -> int:
        """A chain against the order of the ids, then one that reads and writes many topics."""
        nonlocal reads
        last = f"x{count - 1}"
        parts = [part(f"{900 - at}", () if at else ("t",), (f"x{at}",),
                      (Counted(f"x{at - 1}", 0, 0, ()),) if at else ())
                 for at in range(count)]  # fmt: skip
        wide = [f"w{at}" for at in range(10 * count)]
        topics = tuple(Counted(name, 0, 0, ()) for name in (*wide, last))
        parts.append(part("0000", (), tuple(wide), topics))
        found = Topology(0, tuple(sorted(parts, key=lambda one: (len(one.id), one.id))))
        check_topology(found)
        reads = 0
        topic = {"t": Topic(UUID(int=1), 4, 1)}.get
        made = configured(found, NO_TOPICS._replace(topic=topic))
        assert len(made.missing) == 11 * count
        return reads

    assert work(40) < 2.1 * work(20)


def test_the_work_for_joined_topics_grows_with_their_number() -> None:
    lookups = 0

    def topic(name: str) -> Topic | None:
        nonlocal lookups
        lookups += 1
        return Topic(UUID(int=1), 4, 1) if name == "t" else None

    def work(count: int) -> int:
        nonlocal lookups
        topics = tuple(InternalTopic(f"r{at}", 4, 0, ()) for at in range(count))
        groups = (Copartition((), (), (0,)),) * count
        found = Topology(0, (part("0", ("t",), (), topics, groups),))
        # Each has its size; another subtopology writes to them.
        found = found._replace(subtopologies=(
            *found.subtopologies, part("1", ("t",), tuple(one.name for one in topics), ()),
        ))  # fmt: skip
        check_topology(found)
        lookups = 0
        assert len(configured(found, NO_TOPICS._replace(topic=topic)).missing) == count
        return lookups

    assert work(200) < 2.1 * work(100)


def test_copartition_groups_are_part_of_a_topologys_memory() -> None:
    bare = Topology(0, (part("0", ("t",), (), ()),))
    group = Copartition((0,) * 100, (), ())
    joined = Topology(0, (part("0", ("t",), (), (), (group, group)),))
    assert joined.bytes - bare.bytes >= 2 * 100 * 8


# ---- the assignor --------------------------------------------------------------------------


def spec(
    members: Mapping[str, Any], standbys: int = 0, stateful: str = "1", **tasks: int
) -> TaskSpec:
    """`members`: process, tasks and offsets of each."""
    made = {
        name: Assignee(one.get("process", name), one.get("has", {}), one.get("offsets", {}))
        for name, one in members.items()
    }
    sizes = {name.removeprefix("_"): count for name, count in tasks.items()}
    return TaskSpec(made, sizes, frozenset(stateful) & sizes.keys(), standbys)


def has(**parts: list[int]) -> Given:
    """`a0=[1]`: active for partition 1 of subtopology 0; s: standby."""
    roles = {"a": ACTIVE, "s": STANDBY, "w": WARMUP}
    return {(roles[name[0]], name[1:]): dict.fromkeys(some, 1) for name, some in parts.items()}


def check(made: TaskSpec) -> dict[str, dict[TasksOf, set[int]]]:
    """The assignment, which gives each task once, and copies to other processes."""
    found = sticky(made)
    holders: dict[tuple[str, int], list[tuple[Role, str]]] = {}
    for name, parts in found.items():
        for (role, subtopology_id), numbers in parts.items():
            for number in numbers:
                place = role, made.members[name].process_id
                holders.setdefault((subtopology_id, number), []).append(place)
    every = {(name, n) for name, count in made.tasks.items() for n in range(count)}
    assert holders.keys() == (every if made.members else set())
    processes = len({one.process_id for one in made.members.values()})
    for (name, _), places in holders.items():
        copies = min(made.standbys, processes - 1) if name in made.stateful else 0
        assert Counter(role for role, _ in places) == Counter(
            {ACTIVE: 1, **({STANDBY: copies} if copies else {})}
        )
        assert len({process for _, process in places}) == len(places), "one process has it twice"
    return found


@pytest.mark.parametrize("members", range(6))
@pytest.mark.parametrize("standbys", range(3))
def test_every_task_has_a_member(members: int, standbys: int) -> None:
    found = check(spec({f"m{n}": {} for n in range(members)}, standbys, _0=3, _1=5))
    counts = [
        sum(len(numbers) for (role, _), numbers in parts.items() if role is ACTIVE)
        for parts in found.values()
    ]
    assert max(counts, default=0) - min(counts, default=0) <= 1


def test_tasks_stay_where_they_are() -> None:
    members = {"a": {"has": has(a0=[2, 1])}, "b": {"has": has(a0=[0])}}
    found = check(spec(members, _0=4))
    assert found == {"a": {A0: {1, 2}}, "b": {A0: {0, 3}}}


def test_a_task_moves_to_a_copy_of_its_state() -> None:
    members = {"b": {}, "c": {"has": has(s1=[0])}}
    assert 0 in check(spec(members, _1=2))["c"][ACTIVE, "1"]
    late = {"b": {"offsets": {("1", 0): 5}}, "c": {"offsets": {("1", 0): 9}}}
    assert check(spec(late, _1=2))["c"] == {(ACTIVE, "1"): {0}}, "the one that is further on"


def test_members_of_a_process_share_no_task() -> None:
    members = {"a1": {"process": "a"}, "a2": {"process": "a"}, "b": {"process": "b"}}
    check(spec(members, 1, _0=2, _1=6))
    check(spec(members, 2, _1=1))


def test_an_active_task_may_become_a_copy() -> None:
    members = {"a": {"has": has(a1=[0, 1, 2, 3])}, "b": {}}
    found = check(spec(members, 1, _1=4))
    assert found["a"][STANDBY, "1"] == found["b"][ACTIVE, "1"]


def test_the_best_of_many_copies_gets_a_task() -> None:
    """Some members keep a copy, which goes before all that are left from earlier."""
    many = {f"m{n:02}": {"offsets": {("1", 0): 50 + n, ("1", 1): 50 - n}} for n in range(40)}
    found = check(spec(many, 1, _1=2))
    assert [name for name, parts in found.items() if A1 in parts] == ["m00", "m39"]
    many["m20"] |= {"has": has(s1=[0])}
    found = check(spec(many, 1, _1=2))
    assert found["m20"][A1] == {0}
    assert found["m39"][STANDBY, "1"] == {0}


def test_the_work_for_a_task_does_not_grow_with_the_reports_about_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nor are reports of tasks kept that do not exist."""
    looks: list[str] = []
    real = assignor._Assignment._process_of

    def noted(self: Any, name: str) -> Any:
        looks.append(name)
        return real(self, name)

    monkeypatch.setattr(assignor._Assignment, "_process_of", noted)
    counts = []
    for members in 50, 200:
        said = {("1", n): n for n in range(20)} | {("1", 20): 5, ("1", -1): 5, ("9", 0): 5}
        made = spec({f"m{n}": {"offsets": said} for n in range(members)}, 2, _1=20)
        assert assignor._Assignment(made)._copies.keys() == {("1", n) for n in range(20)}
        looks.clear()
        check(made)
        counts.append(len(looks))
    assert counts[1] < 1.5 * counts[0]


# ---- one member's steps --------------------------------------------------------------------


def goal(epoch: int, tasks: Mapping[TasksOf, set[int]] | None = None, **holders: list[str]) -> Goal:
    """`holders`: the processes that have a task: `a0_1` is partition 1 of the active tasks of 0."""
    names = {"a": ACTIVE, "s": STANDBY, "w": WARMUP}
    held = {
        (names[where[0]], where[1:].split("_")[0], int(where.split("_")[1])): Counter(some)
        for where, some in holders.items()
    }

    def processes(role: Role, subtopology_id: str, number: int) -> Counter[str]:
        return held.get((role, subtopology_id, number), Counter())

    made = {key: frozenset(some) for key, some in (tasks or {}).items()}
    return Goal(epoch, made, processes)


def member(state: StreamsState = StreamsState.STABLE, epoch: int = 3, **fields: Any) -> Any:
    return StreamsMember("m", epoch, epoch - 1, state, process_id="p", **fields)


def test_a_member_gets_free_tasks_at_once() -> None:
    moved = next_step(member(), goal(5, {A0: {1, 2}, S0: {3}}), None)
    assert (moved.epoch, moved.previous_epoch, moved.state) == (5, 3, StreamsState.STABLE)
    assert moved.assigned == {A0: {1: 5, 2: 5}, S0: {3: 0}}


def test_a_member_waits_for_tasks_of_others() -> None:
    first = next_step(member(), goal(5, {A0: {1, 2}}, a0_1=["q"]), None)
    assert (first.state, first.assigned) == (StreamsState.UNRELEASED, {A0: {2: 5}})
    again = next_step(first, goal(5, {A0: {1, 2}}, a0_1=["q"], a0_2=["p"]), {})
    assert again.state is StreamsState.UNRELEASED
    last = next_step(again, goal(5, {A0: {1, 2}}, a0_2=["p"]), {})
    assert (last.state, last.assigned) == (StreamsState.STABLE, {A0: {1: 5, 2: 5}})


def test_a_member_first_gives_tasks_up() -> None:
    before = member(assigned={A0: {1: 2, 2: 2}})
    to = goal(5, {A0: {2, 3}}, a0_1=["p"], a0_2=["p"])
    first = next_step(before, to, None)
    assert (first.epoch, first.state) == (3, StreamsState.UNREVOKED)
    assert (first.assigned, first.revoking) == ({A0: {2: 2}}, {A0: {1: 2}})
    assert next_step(first, to, {A0: {1}}) == first
    assert next_step(first, to, None) == first
    last = next_step(first, to, {A0: {2}})
    assert (last.epoch, last.state) == (5, StreamsState.STABLE)
    assert (last.assigned, last.revoking) == ({A0: {2: 2, 3: 5}}, {})


def test_a_task_that_is_given_up_is_not_said_to_be_had() -> None:
    before = member(assigned={A0: {1: 2}})
    moved = next_step(before, goal(5, {}, a0_1=["p"]), {})
    assert (moved.epoch, moved.state, moved.assigned) == (5, StreamsState.STABLE, {})


def test_a_standby_becomes_active_once_the_task_is_free() -> None:
    before = member(assigned={S0: {1: 0}})
    waits = next_step(before, goal(5, {A0: {1}}, a0_1=["q"], s0_1=["p"]), None)
    assert (waits.state, waits.assigned) == (StreamsState.UNRELEASED, {S0: {1: 0}})
    done = next_step(waits, goal(5, {A0: {1}}, s0_1=["p"]), None)
    assert (done.state, done.assigned) == (StreamsState.STABLE, {A0: {1: 5}})


def test_an_active_task_becomes_a_standby_of_the_same_member() -> None:
    before = member(assigned={A0: {1: 2}})
    first = next_step(before, goal(5, {S0: {1}}, a0_1=["p"]), None)
    assert (first.state, first.assigned, first.revoking) == (
        StreamsState.UNREVOKED, {S0: {1: 0}}, {A0: {1: 2}},
    )  # fmt: skip
    last = next_step(first, goal(5, {S0: {1}}, a0_1=["p"], s0_1=["p"]), {S0: {1}})
    assert (last.state, last.assigned) == (StreamsState.STABLE, {S0: {1: 0}})


def test_copies_change_their_role_without_being_given_up() -> None:
    before = member(assigned={S0: {1: 0}, W0: {2: 0}})
    to = goal(5, {W0: {1}, S0: {2}}, s0_1=["p"], w0_2=["p"])
    moved = next_step(before, to, None)
    assert (moved.state, moved.assigned, moved.revoking) == (
        StreamsState.STABLE, {W0: {1: 0}, S0: {2: 0}}, {},
    )  # fmt: skip


def test_one_process_has_a_task_once() -> None:
    for holders in ({"a0_1": ["p"]}, {"s0_1": ["p"]}, {"w0_1": ["p"]}):
        waits = next_step(member(), goal(5, {S0: {1}}, **holders), None)
        assert (waits.state, waits.assigned) == (StreamsState.UNRELEASED, {})
    for holders in ({"a0_1": ["q"]}, {"s0_1": ["q"]}):
        moved = next_step(member(), goal(5, {S0: {1}}, **holders), None)
        assert moved.assigned == {S0: {1: 0}}
    waits = next_step(member(), goal(5, {A0: {1}}, s0_1=["p"]), None)
    assert waits.state is StreamsState.UNRELEASED
    moved = next_step(member(), goal(5, {A0: {1}}, s0_1=["q"]), None)
    assert moved.state is StreamsState.STABLE


def test_a_member_in_an_unknown_state_begins_again() -> None:
    before = member(StreamsState.UNKNOWN)
    with pytest.raises(MustRejoin):
        next_step(before, goal(5, {A0: {1}}), None)
    with pytest.raises(MustRejoin):
        next_step(before, goal(5, {A0: {1}}), {A0: {1}})
    assert next_step(before, goal(5, {A0: {1}}), {}).assigned == {A0: {1: 5}}
