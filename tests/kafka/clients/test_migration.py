"""Real clients of both protocols in one group: it is rolled to the newer one, and back, while its
members read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from kafkalog.server.broker import Broker
from tests.kafka.clients import test_consumer_groups as newer
from tests.kafka.clients.agent import Agent, ClientError, Member
from tests.kafka.clients.programs import some

pytestmark = pytest.mark.slow

PARTITIONS, GROUP = 4, "g"
SETTINGS = {**newer.QUICK, "group.initial.rebalance.delay.ms": 100}
CLASSIC = some(
    "confluent", long=["kafkalog", "kafka-python", "aiokafka", "java", "franz-go", "sarama"]
)
JOIN_S = newer.JOIN_S
Wait = Callable[..., None]
Start = Callable[..., Agent]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    """A broker whose members heartbeat often, with a topic."""
    with Broker(tmp_path / "data", config=SETTINGS) as made:
        admin = AdminClient({"bootstrap.servers": made.bootstrap_servers})
        for future in admin.create_topics([NewTopic("t", PARTITIONS)]).values():
            future.result()
        yield made


def parts(member: Any) -> set[int]:
    """The partitions of a member of either kind."""
    if isinstance(member, Member):
        return member.partitions()
    return {number for _, number in member.parts()}


def seen(member: Any) -> set[tuple[int, int]]:
    """The partitions and offsets that a member of either kind has read."""
    found = member.state().seen if isinstance(member, Member) else list(member.seen)
    return {(number, offset) for _, number, offset in found}


def shared(members: Sequence[Any]) -> bool:
    """True if each partition has exactly one owner and each member has a partition."""
    owned = [parts(member) for member in members]
    return all(owned) and sorted(p for one in owned for p in one) == list(range(PARTITIONS))


@pytest.mark.parametrize("name", CLASSIC)
def test_a_group_is_rolled_there_and_back(
    name: str, broker: Broker, new_agent: Start, wait_until: Wait
) -> None:
    """One member after the other; each record is read, and commits are taken in every state."""
    address = broker.bootstrap_servers
    admin = AdminClient({"bootstrap.servers": address})
    agent = new_agent(name, address)
    every: list[Any] = []
    filled = 0

    def classic() -> Member:
        every.append(agent.join(GROUP, ["t"], session_ms=10_000))
        return every[-1]

    def modern() -> newer.Member:
        every.append(newer.Member(address, ["t"]))
        return every[-1]

    def settled(kind: str, *members: Any) -> None:
        nonlocal filled
        wait_until(lambda: shared(members), f"{len(members)} members share out", JOIN_S)
        newer.fill(address, "t", PARTITIONS, 3)
        filled += 3
        wanted = {(p, n) for p in range(PARTITIONS) for n in range(filled)}
        wait_until(lambda: wanted <= set().union(*map(seen, every)), "all is read", JOIN_S)
        described = admin.list_consumer_groups().result().valid
        assert {one.type.name for one in described if one.group_id == GROUP} == {kind}
        for member in members:
            try:
                member.commit()
            except ClientError as problem:  # others had read all when its partitions came
                assert "_NO_OFFSET" in str(problem)

    first, second = classic(), classic()
    settled("CLASSIC", first, second)
    third = modern()
    settled("CONSUMER", first, second, third)
    second.leave()
    fourth = modern()
    settled("CONSUMER", first, third, fourth)
    first.leave()
    settled("CONSUMER", third, fourth)
    back = classic()
    settled("CONSUMER", third, fourth, back)
    third.leave()
    settled("CONSUMER", fourth, back)
    fourth.leave()
    settled("CLASSIC", back)
    back.leave()
