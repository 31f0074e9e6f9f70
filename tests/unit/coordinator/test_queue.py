"""The queue in front of a coordinator's core is bounded by what its requests keep."""

from __future__ import annotations

import queue
import threading
from functools import partial

from kafkalog.clock import SystemClock
from kafkalog.coordinator.groups.core import GroupCoordinatorState
from kafkalog.coordinator.step import Step
from kafkalog.coordinator.thread import QUEUED_BYTES_MAX
from tests.support.waiting import LIMIT_S
from tests.unit.coordinator.group_calls import config
from tests.unit.coordinator.test_parts import KINDS, Groups, SlowJournal, Wait, new_id


@KINDS
def test_requests_of_many_bytes_wait_to_be_queued(kind: type[Groups], wait_until: Wait) -> None:
    """Those of the round in progress count too, until it is over."""
    coordinator = kind(
        GroupCoordinatorState(config(), new_id), SlowJournal(), SystemClock(), name="group"
    )
    size, brought, ran = QUEUED_BYTES_MAX // 4, list[int](), list[int]()
    at_work, go_on = queue.Queue[int](), threading.Semaphore(0)

    def held(number: int, _step: Step) -> None:
        at_work.put(number)
        assert go_on.acquire(timeout=LIMIT_S)
        ran.append(number)

    def bring() -> None:
        for number in range(12):
            assert coordinator.ask(partial(held, number), size)
            brought.append(number)

    bringing = threading.Thread(target=bring)
    bringing.start()
    wait_until(lambda: len(brought) == 4, "four are queued")
    coordinator.start()  # the first round has these
    for number in range(4):
        assert at_work.get(timeout=LIMIT_S) == number
        assert len(brought) == 4 and bringing.is_alive()
        go_on.release()
    wait_until(lambda: len(brought) > 4, "others have room")
    for _ in range(8):
        go_on.release()
    bringing.join(LIMIT_S)
    wait_until(lambda: ran == list(range(12)), "all have run, in their order")
    coordinator.close(0)


@KINDS
def test_a_request_larger_than_the_queue_has_its_turn(kind: type[Groups]) -> None:
    coordinator = kind(
        GroupCoordinatorState(config(), new_id), SlowJournal(), SystemClock(), name="group"
    )
    coordinator.start()
    ran = threading.Event()
    assert coordinator.ask(lambda _step: ran.set(), 2 * QUEUED_BYTES_MAX)
    assert ran.wait(LIMIT_S)
    assert coordinator.ask(lambda _step: None, 1)
    coordinator.close(0)
