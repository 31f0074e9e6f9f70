"""The thread of a controller, over what stands for ZooKeeper: who asks is answered at its end."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from kafkalog.cluster.controller.driver import Driver
from kafkalog.cluster.controller.events import Asked, Options
from kafkalog.metadata.zookeeper.session import USUAL
from kafkalog.testing.standin import StandIn
from kafkalog.wire import apis
from tests.support.waiting import LIMIT_S, wait_for

NODE = 1


@pytest.fixture
def stand_in() -> Iterator[StandIn]:
    with StandIn() as made:
        yield made


class Slow(Driver):
    """Its thread takes a question out of the queue, and goes on when it is let."""

    def __init__(self, stand_in: StandIn) -> None:
        super().__init__(stand_in.hosts, NODE, Options("PLAINTEXT"), USUAL)
        self.taken, self.goes_on = threading.Event(), threading.Event()

    def _next(self) -> Any:
        event = super()._next()
        if isinstance(event, Asked):
            self.taken.set()
            assert self.goes_on.wait(LIMIT_S)
        return event


def test_what_is_asked_while_it_ends_is_answered(stand_in: StandIn) -> None:
    """What the thread had taken out of the queue by then, what is in it, and what comes later."""
    driver = Slow(stand_in)
    driver.start()
    wait_for(lambda: driver.reigns, "it is elected")
    answers: list[Mapping[str, Any] | None] = []
    for _ in range(2):
        driver.ask(apis.ALLOCATE_PRODUCER_IDS, None, 0, answers.append)
    assert driver.taken.wait(LIMIT_S)
    with ThreadPoolExecutor(1) as pool:
        ending = pool.submit(driver.stop)
        wait_for(lambda: not driver.takes, "its end has begun")
        driver.ask(apis.ALLOCATE_PRODUCER_IDS, None, 0, answers.append)
        driver.goes_on.set()
        ending.result(LIMIT_S)
    assert answers == [None, None, None]
