"""Two operations on one topic, in both orders, with another controller in between or in the middle:
afterwards nothing is under way any more.

docs/cluster.md has the table of answers.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import pytest

from kafkalog.controller.events import ClientRequest
from kafkalog.metadata.image import TOPIC
from kafkalog.metadata.requests import ResourceChange, SettingChange, SettingChanges
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode
from kafkalog.wire.tables.controller import CONTROLLED_SHUTDOWN
from kafkalog.zookeeper import tree
from kafkalog.zookeeper.session import Create, Set
from tests.unit.controller.driven import broker_epoch, topic
from tests.unit.controller.simulated import Simulated

pytestmark = pytest.mark.slow

NAME = "t"
OLD, NEW = (1, 2), (3, 4)


def cluster() -> Simulated:
    """Topic t: partition 0 on 1 and 2, led by 2, which is not the preferred leader; partition 1 on
    2 and 3."""
    of = Simulated()
    topic(of, {0: OLD, 1: (2, 3)}, NAME)
    for number, isr in ((0, (2, 1)), (1, (2, 3))):
        state = tree.PartitionState(2, 0, isr, 1)
        of.make(tree.partition_path(NAME, number), tree.write_partition(state))
    of.elect()
    of.settle()
    assert of.state(NAME, 0) == (2, 0, (2, 1)) and of.unquiet(NAME) == []
    return of


# ---- the operations --------------------------------------------------------------------------


def delete(of: Simulated) -> Any:
    answer = of.asks(apis.DELETE_TOPICS, 4, topic_names=[NAME], timeout_ms=0)
    return answer.responses[0].error_code


def move(of: Simulated) -> Any:
    """The new replicas lag until the cluster is healed: the move stays under way."""
    of.lagging |= {*NEW}
    return _move(of, NEW)


def cancel(of: Simulated) -> Any:
    return _move(of, None)


def _move(of: Simulated, replicas: tuple[int, ...] | None) -> Any:
    row = {"partition_index": 0, "replicas": replicas and [*replicas]}
    answer = of.asks(
        apis.ALTER_PARTITION_REASSIGNMENTS, 0, topics=[{"name": NAME, "partitions": [row]}]
    )
    return answer.responses[0].partitions[0].error_code


def add(of: Simulated) -> Any:
    row = {"name": NAME, "count": 3, "assignments": None}
    answer = of.asks(apis.CREATE_PARTITIONS, 2, topics=[row], timeout_ms=0, validate_only=False)
    return answer.results[0].error_code


def elect(of: Simulated) -> Any:
    return _elect(of, 0)


def elect_unclean(of: Simulated) -> Any:
    _lose_isr(of)
    return _elect(of, 1)


def _elect(of: Simulated, kind: int) -> Any:
    answer = of.asks(
        apis.ELECT_LEADERS, 2, election_type=kind, timeout_ms=0,
        topic_partitions=[{"topic": NAME, "partitions": [0]}],
    )  # fmt: skip
    return answer.replica_election_results[0].partition_result[0].error_code


def _lose_isr(of: Simulated) -> None:
    """Every replica in sync dies; all others live, and lag."""
    found = of.state_or_none(NAME, 0)
    if found is not None:
        others = {1, 2, 3, 4} - {found[0]}
        of.lagging |= others
        for one in sorted(others & {*found[2]}):
            of.kill(one)
            of.start(one)
        of.kill(found[0])


def drain(of: Simulated) -> Any:
    """ControlledShutdown of broker 2, which then ends."""
    answer = of.asks(
        CONTROLLED_SHUTDOWN, 3, broker_id=2,
        broker_epoch=broker_epoch(of, 2) if of.nodes[2].lives else -1,
    )  # fmt: skip
    of.kill(2)
    return answer.error_code


def unclean(of: Simulated) -> Any:
    _lose_isr(of)
    return _set(of, "unclean.leader.election.enable", "true")


def throttle(of: Simulated) -> Any:
    of.lagging |= {1, 2, 3, 4}
    return _set(of, "follower.replication.throttled.replicas", "*")


def _set(of: Simulated, name: str, value: str) -> Any:
    change = ResourceChange(TOPIC, NAME, [SettingChange(name, value)])
    while "set" not in of.replies:
        of.events.append(
            ClientRequest("set", apis.INCREMENTAL_ALTER_CONFIGS, SettingChanges([change]), 1)
        )
        of.goes_on()
    return of.replies.pop("set")["responses"][0]["error_code"]


def delete_by_tree(of: Simulated) -> None:
    of.make(f"{tree.DELETE_TOPICS}/{NAME}")
    of.goes_on()


def move_by_tree(of: Simulated) -> None:
    of.lagging |= {*NEW}
    of.make(tree.REASSIGNMENT, tree.write_reassignment({(NAME, 0): NEW}))
    of.goes_on()


def add_by_tree(of: Simulated) -> None:
    """As tools write it: the topic's znode with another partition."""
    path = tree.topic_path(NAME)
    if path in of.znodes:
        node = tree.read_topic(NAME, of.znodes[path].data)
        more = {**node.replicas, len(node.replicas): (4, 1)}
        done = of.commit([Set(path, tree.write_topic(node._replace(replicas=more)))])
        assert done.done
        of.goes_on()


def elect_by_tree(of: Simulated) -> None:
    assert of.commit([Create(tree.ELECTION, tree.write_isr_change(((NAME, 0),)))]).done
    of.goes_on()


Operation = Callable[[Simulated], Any]
Pair = tuple[Operation, Operation]
OPERATIONS: list[Operation] = [
    delete, move, cancel, add, elect, elect_unclean, drain, unclean, throttle, delete_by_tree,
    move_by_tree, add_by_tree, elect_by_tree,
]  # fmt: skip
PAIRS = list(product(OPERATIONS, repeat=2))
AT_ONCE, OBEYED = False, True
"""The second operation comes at once, or after all brokers have obeyed the first."""
SAME, OTHER = False, True
"""Another controller is elected between the two."""
VARIANTS = list(product((AT_ONCE, OBEYED), (SAME, OTHER)))


def names(pair: Any) -> str:
    return " ".join(one.__name__ for one in pair)


def both(pair: Pair, obeyed: bool, other: bool, dies_after: int | None = None) -> int:
    """Do both, and check that nothing is left to do; returns how often the controller wrote.

    `dies_after`: that many writes, the controller dies, and another one is elected.
    """
    of = cluster()
    of.writes, of.dies_after = 0, dies_after
    pair[0](of)
    if obeyed:
        of.settle()
    if other:
        of.fail_over()
    pair[1](of)
    of.settle()
    assert of.due() == []
    writes, of.dies_after = of.writes, None
    of.heal()
    assert of.unquiet(NAME) == []
    deletes = {*pair} & {delete, delete_by_tree}
    assert (tree.topic_path(NAME) in of.znodes) != bool(deletes)
    return writes


@pytest.mark.parametrize("pair", PAIRS, ids=names)
def test_two_operations(pair: Pair) -> None:
    """In one of the variants, or with a controller that dies after the first writes."""
    at = PAIRS.index(pair)
    some = [*((*one, None) for one in VARIANTS), (OBEYED, SAME, at % 3)]
    both(pair, *some[at % len(some)])


@pytest.mark.long
@pytest.mark.parametrize("first", OPERATIONS, ids=lambda one: one.__name__)
def test_two_operations_in_every_variant(first: Operation) -> None:
    """In all, and with a controller that dies after each write."""
    for second in OPERATIONS:
        for variant in VARIANTS:
            writes = both((first, second), *variant)
            for number in range(writes):
                both((first, second), *variant, number)


NONE, GONE = ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
DELETED, MOVING = ErrorCode.INVALID_TOPIC_EXCEPTION, ErrorCode.REASSIGNMENT_IN_PROGRESS
NO_MOVE = ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
NOT_IN_SYNC = ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
ANSWERS = {
    delete: (NONE, NONE),
    move: (GONE, NONE),
    cancel: (NO_MOVE, NONE),
    add: (DELETED, MOVING),
    elect: (DELETED, NOT_IN_SYNC),
    elect_unclean: (DELETED, NONE),
    drain: (NONE, NONE),
    unclean: (NONE, NONE),
    throttle: (NONE, NONE),
}
"""The answers while the topic is being deleted, and while partition 0 is moved."""


@pytest.mark.parametrize("second", ANSWERS, ids=lambda one: one.__name__)
def test_the_answer_while_another_operation_is_under_way(second: Operation) -> None:
    for first, wanted in zip((delete, move), ANSWERS[second], strict=True):
        of = cluster()
        assert first(of) == NONE
        assert second(of) == wanted


@pytest.mark.parametrize("elected", [elect_unclean, unclean], ids=lambda one: one.__name__)
def test_a_move_ends_with_an_unclean_election(elected: Operation) -> None:
    """Only the new replica is left in sync; the old ones may never return."""
    of = cluster()
    of.lagging |= {3}
    assert _move(of, (3,)) == NONE
    of.deliver()
    of.kill(1)
    assert elected(of) == NONE
    of.settle()
    state = of.state(NAME, 0)
    assert state is not None and (state[0], state[2]) == (3, (3,)) and of.due() == []
    of.heal()
    assert of.unquiet(NAME) == []
