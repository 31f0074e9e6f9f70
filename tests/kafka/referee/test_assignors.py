"""Our assignors and Java's on the same groups: range and round robin assign the same; sticky is as
even, keeps as much, and reads the user data of Java's members.  One JVM answers all questions.
"""

from __future__ import annotations

import random

import pytest

from kafkalog.client.consumer.assignors import ASSIGNORS, Assignor, Subscriber, sticky_assignment
from kafkalog.types import TopicPartition
from tests.support import apache
from tests.support.effort import SEED

pytestmark = [pytest.mark.java, pytest.mark.slow, pytest.mark.timeout(300)]

CASES = 150
Shares = dict[str, list[TopicPartition]]


def groups() -> list[tuple[list[Subscriber], dict[str, int]]]:
    """Groups that have changed since their last assignment."""
    rng = random.Random(SEED)
    found = []
    for _ in range(CASES):
        partitions = {t: rng.randrange(8) for t in rng.sample("tuvw", rng.randrange(1, 5))}
        same = rng.random() < 0.5
        every = sorted("tuvw")
        members = [
            Subscriber(
                f"m{i}", f"i{i}" if rng.random() < 0.2 else None,
                tuple(every if same else sorted(rng.sample(every, rng.randrange(1, 5)))),
            )
            for i in range(rng.randrange(1, 7))
        ]  # fmt: skip
        before = sticky_assignment(members, partitions)
        for t in partitions:
            if rng.random() < 0.3:
                partitions[t] += rng.randrange(3)
        left = [m for m in members if rng.random() < 0.8]
        left = [
            m._replace(owned=tuple(before[m.member_id]), generation=5 - (rng.random() < 0.1))
            for m in left
        ]
        new = [
            Subscriber(f"n{i}", None, members[0].topics)
            for i in range(rng.randrange(0 if left else 1, 3))
        ]
        found.append((left + new, partitions))
    return found


def named(partitions: list[TopicPartition] | tuple[TopicPartition, ...]) -> str:
    return ",".join(f"{tp.topic}:{tp.partition}" for tp in partitions)


def line_of(member: Subscriber) -> str:
    topics = ",".join(member.topics)
    told = f"{named(member.owned)};{member.generation}"
    return f"{member.member_id};{member.instance_id or ''};{topics};{told}"


def asked(lines: list[str]) -> list[str]:
    text = "".join(line + "\n" for line in lines)
    try:
        said = apache.ask("Assign", text=text)
    except apache.Unavailable as reason:
        pytest.skip(str(reason))
    found = said.split("\n")[:-1]
    assert len(found) == len(lines)
    return found


def parsed(line: str) -> Shares:
    found = {}
    for word in line.split(" "):
        member, _, some = word.partition("=")
        pieces = [one.split(":") for one in some.split(",") if one]
        found[member] = sorted(TopicPartition(t, int(p)) for t, p in pieces)
    return found


def told(assignor: Assignor, members: list[Subscriber]) -> list[Subscriber]:
    """Members as they join: with user data, and with owned partitions if they keep them."""
    return [
        m._replace(
            user_data=assignor.user_data(m.owned, m.generation),
            owned=m.owned if assignor.cooperative else (),
        )
        for m in members
    ]


def unevenness(found: Shares) -> int:
    return sum(len(some) ** 2 for some in found.values())


def kept(members: list[Subscriber], found: Shares) -> int:
    return sum(len(set(m.owned) & set(found[m.member_id])) for m in members)


def test_assignors_share_as_javas_do() -> None:
    cases = groups()
    lines, keys = [], []
    for members, partitions in cases:
        known = ",".join(f"{t}:{n}" for t, n in partitions.items() if n)
        some = " ".join(map(line_of, members))
        for name in ASSIGNORS:
            lines.append(f"{name} {known} {some}")
            keys.append((ASSIGNORS[name], members, {t: n for t, n in partitions.items() if n}))
    single = [m for members, _ in cases for m in members if len({tp.topic for tp in m.owned}) == 1]
    sticky = [(name, m) for m in single for name in ("sticky", "cooperative-sticky")]
    answers = asked(lines + [f"data {name} {line_of(m)}" for name, m in sticky])
    stuck = 0
    for (assignor, members, partitions), answer in zip(keys, answers, strict=False):
        ours = {
            m: sorted(s) for m, s in assignor.assign(told(assignor, members), partitions).items()
        }
        theirs = parsed(answer)
        if assignor.name in ("range", "roundrobin"):
            assert ours == theirs, (assignor.name, members, partitions)
            continue
        assert sorted(ours) == sorted(theirs)
        if assignor.cooperative:
            for member, share in ours.items():
                others = {tp for m in members if m.member_id != member for tp in m.owned}
                assert not set(share) & others
            continue
        assert unevenness(ours) <= unevenness(theirs), (members, partitions, theirs, ours)
        if len({m.topics for m in members}) == 1 and len({m.generation for m in members}) == 1:
            stuck += 1
            assert kept(members, ours) >= kept(members, theirs), (members, theirs, ours)
    assert stuck > 5, "fewer would compare nothing"
    for (name, m), answer in zip(sticky, answers[len(lines) :], strict=True):
        data = ASSIGNORS[name].user_data(m.owned, m.generation)
        assert (data or b"").hex() == answer, (name, m)
    assert len(sticky) > 20
