"""Groups of real clients: members come, go, crash, come back; positions are kept.

The stages of a group's life, each with every client that can take part.  The most expensive run
with some clients in `make test`, with the others in `make test-long`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tests.kafka.clients.agent import Agent, ClientError, Member, Record
from tests.kafka.clients.programs import some
from tests.support.stopped import standing_still

PARTITIONS = 4
ALL = set(range(PARTITIONS))
SESSION_MS = 1500
JOIN_S = 90.0
RANGE = ("confluent", "kafka-python", "aiokafka", "java", "franz-go", "sarama")
"""Clients whose members agree on "range"; kafkajs uses its own names."""
OURS = "kafkalog"
"""Our own client, in addition to all of these."""

CRASH = some("confluent", "aiokafka", "franz-go", OURS, long=["kafka-python", "java", "sarama"])
STATIC = some("confluent", "kafka-python", "sarama", OURS, long=["java", "franz-go"])
SAME_INSTANCE = some("java", long=["confluent"])
GROWN = some(
    "confluent", "java", "sarama", "kafkajs", long=["kafka-python", "aiokafka", "franz-go"]
)
"""In `make test` members of each library crash, or have an instance id."""

Wait = Callable[..., None]
Start = Callable[..., Agent]


def fill(agent: Agent, topic: str, partitions: Sequence[int], count: int = 5) -> None:
    for number in partitions:
        records = [Record(b"k", b"%d" % i, (), None) for i in range(count)]
        agent.produce(topic, records, partition=number)


def shared(members: Sequence[Member], partitions: set[int] = ALL) -> bool:
    """True if each partition has exactly one owner and each member has a partition."""
    owned = [member.partitions() for member in members]
    return all(owned) and sorted(p for one in owned for p in one) == sorted(partitions)


@pytest.fixture
def topic(new_topic: Callable[..., str]) -> str:
    return new_topic(PARTITIONS)


def test_members_come_and_leave(
    client: Agent, topic: str, new_group: str, wait_until: Wait
) -> None:
    first = client.join(new_group, [topic])
    wait_until(lambda: first.partitions() == ALL, "the first member has all", JOIN_S)
    second = client.join(new_group, [topic])
    wait_until(lambda: shared([first, second]), "both have their part", JOIN_S)
    third = client.join(new_group, [topic])
    wait_until(lambda: shared([first, second, third]), "all three have their part", JOIN_S)
    second.leave()
    wait_until(lambda: shared([first, third]), "the others took over", JOIN_S)
    first.leave()
    wait_until(lambda: third.partitions() == ALL, "the last has all", JOIN_S)
    third.leave()


def test_positions_are_committed_and_taken_up(
    client: Agent, topic: str, new_group: str, wait_until: Wait
) -> None:
    fill(client, topic, range(PARTITIONS))
    first = client.join(new_group, [topic])
    wait_until(lambda: len(first.state().seen) == 20, "all is read", JOIN_S)
    first.commit()
    first.leave()
    assert client.committed(new_group, topic, range(PARTITIONS)) == [5] * PARTITIONS

    fill(client, topic, [0, 2], 2)
    second = client.join(new_group, [topic])
    wait_until(lambda: len(second.state().seen) >= 4, "what came later is read", JOIN_S)
    assert {(where, offset) for _, where, offset in second.state().seen} == {
        (0, 5), (0, 6), (2, 5), (2, 6),
    }  # fmt: skip
    second.leave()


@pytest.mark.long
def test_everyone_sees_everyones_commits(
    topic: str, agent: Callable[[str], Agent], new_group: str, wait_until: Wait
) -> None:
    """Each client in turn continues the group where the last one left it; the next one reads its
    commit, and all read the last commit."""
    done, readers = 0, (*RANGE, OURS)
    for turn, name in enumerate((*RANGE, OURS, "kafkajs")):
        one = agent(name)
        fill(one, topic, [0], 3)
        member = one.join(new_group, [topic])
        wait_until(lambda m=member: len(m.state().seen) == 3, f"{name} reads on", JOIN_S)
        assert [offset for _, _, offset in member.state().seen] == [done, done + 1, done + 2]
        member.commit()
        member.leave()
        done += 3
        assert agent(readers[(turn + 1) % len(readers)]).committed(new_group, topic, [0]) == [done]
    assert {agent(reader).committed(new_group, topic, [0])[0] for reader in readers} == {done}


def test_a_group_of_all_clients(
    new_topic: Callable[..., str], agent: Callable[[str], Agent], new_group: str, wait_until: Wait
) -> None:
    """Members of seven libraries share a topic, and each record is read once."""
    topic, partitions = new_topic(12), set(range(12))
    members = [agent(name).join(new_group, [topic]) for name in (*RANGE, OURS)]
    wait_until(lambda: shared(members, partitions), "all have their part", 2 * JOIN_S)
    fill(agent("confluent"), topic, range(12))
    wait_until(
        lambda: sum(len(member.state().seen) for member in members) == 60, "all is read", JOIN_S
    )
    seen = {(p, o) for member in members for _, p, o in member.state().seen}
    assert len(seen) == 60
    for member in members:
        member.leave()


@pytest.mark.parametrize("name", CRASH)
def test_a_member_crashes(
    name: str, topic: str, agent: Callable[[str], Agent], new_agent: Start, new_group: str,
    wait_until: Wait,
) -> None:  # fmt: skip
    """After its session the others get its partitions, and continue where it had committed."""
    survivor = agent(name).join(new_group, [topic], session_ms=SESSION_MS)
    wait_until(lambda: survivor.partitions() == ALL, "the first member has all", JOIN_S)
    other = new_agent(name)
    doomed = other.join(new_group, [topic], session_ms=SESSION_MS)
    wait_until(lambda: shared([survivor, doomed]), "both have their part", JOIN_S)
    fill(agent("confluent"), topic, range(PARTITIONS))
    wait_until(lambda: len(doomed.state().seen) == 10, "it has read its part", JOIN_S)
    doomed.commit()
    taken = doomed.partitions()
    other.kill()
    wait_until(lambda: survivor.partitions() == ALL, "the survivor has all", JOIN_S)
    fill(agent("confluent"), topic, sorted(taken), 1)
    wait_until(
        lambda: {(p, 5) for p in taken} <= {(p, o) for _, p, o in survivor.state().seen},
        "the survivor reads on", JOIN_S,
    )  # fmt: skip
    seen = {(p, o) for _, p, o in survivor.state().seen}
    assert not {(p, o) for p in taken for o in range(5)} & seen
    survivor.leave()


@pytest.mark.parametrize("name", STATIC)
def test_a_static_member_restarts(
    name: str, topic: str, agent: Callable[[str], Agent], new_agent: Start, new_group: str,
    wait_until: Wait,
) -> None:  # fmt: skip
    """Killed and back within its session: the same partitions, and the others notice nothing."""
    staying = agent(name).join(new_group, [topic], "one", session_ms=20_000)
    wait_until(lambda: staying.partitions() == ALL, "the first member has all", JOIN_S)
    before = new_agent(name)
    gone = before.join(new_group, [topic], "two", session_ms=20_000)
    wait_until(lambda: shared([staying, gone]), "both have their part", JOIN_S)
    mine, joins = gone.partitions(), staying.state().joins
    before.kill()
    back = new_agent(name).join(new_group, [topic], "two", session_ms=20_000)
    wait_until(lambda: back.partitions() == mine, "it has what it had", JOIN_S)
    assert staying.state().joins == joins
    assert shared([staying, back])
    staying.leave()


@pytest.mark.parametrize("name", SAME_INSTANCE)
def test_two_with_one_instance_id(
    name: str, topic: str, new_agent: Start, new_group: str, wait_until: Wait
) -> None:
    """The one that joined first is fenced, and reports it."""
    old = new_agent(name).join(new_group, [topic], "same", session_ms=6000)
    wait_until(lambda: old.partitions() == ALL, "the first has all", JOIN_S)
    new = new_agent(name).join(new_group, [topic], "same", session_ms=6000)
    wait_until(lambda: new.partitions() == ALL, "the second has all", JOIN_S)
    wait_until(lambda: old.state().failed, "the first is fenced", JOIN_S)
    assert "fenced" in old.state().failed.lower()


@pytest.mark.parametrize("name", GROWN)
def test_partitions_are_added(
    name: str, agent: Callable[[str], Agent], new_topic: Callable[..., str], admin: Any,
    new_group: str, wait_until: Wait,
) -> None:  # fmt: skip
    from confluent_kafka.admin import NewPartitions

    client = agent(name)
    topic = new_topic(2)
    member = client.join(new_group, [topic])
    wait_until(lambda: member.partitions() == {0, 1}, "it has both", JOIN_S)
    for future in admin.client.create_partitions([NewPartitions(topic, 5)]).values():
        future.result(30)
    wait_until(lambda: member.partitions() == set(range(5)), "it has the new ones", JOIN_S)
    fill(client, topic, [4], 1)
    wait_until(lambda: (topic, 4, 0) in member.state().seen, "it reads a new one", JOIN_S)
    member.leave()


def test_a_commit_by_a_removed_member_is_refused(
    topic: str, agent: Callable[[str], Agent], new_agent: Start, new_group: str, wait_until: Wait
) -> None:
    """A process that was stopped for longer than its session cannot move positions."""
    fill(agent("confluent"), topic, [0, 1, 2, 3])
    other = new_agent("confluent")
    stopped = other.join(new_group, [topic], session_ms=SESSION_MS)
    wait_until(lambda: len(stopped.state().seen) == 20, "it has read all", JOIN_S)
    with standing_still(other.pid):
        heir = agent("confluent").join(new_group, [topic], session_ms=SESSION_MS)
        wait_until(lambda: len(heir.state().seen) == 20, "another has read all", JOIN_S)
    with pytest.raises(ClientError, match=r"COMMIT|commit|MEMBER|GENERATION|REBALANCE|assign"):
        stopped.commit()
    heir.leave()
