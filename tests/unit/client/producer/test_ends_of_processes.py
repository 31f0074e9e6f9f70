"""A process of multiprocessing that ends without closing its producers delivers what they took."""

from __future__ import annotations

import multiprocessing
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import pytest

import kafkalog
from kafkalog import aio
from kafkalog.testing.broker import TestBroker
from tests.support.waiting import LIMIT_S

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
LINGERS: dict[str, Any] = {"linger_ms": 1_000_000}
held: list[Any] = []
begun = threading.Event()


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestBroker]:
    with TestBroker(tmp_path_factory.mktemp("ends") / "data") as made:
        yield made


def hold(where: str, topic: str) -> None:
    held.append(kafkalog.Producer(where, **LINGERS))
    held[-1].send(topic, b"x")


def drop(where: str, topic: str) -> None:
    kafkalog.Producer(where, **LINGERS).send(topic, b"x")


def two(where: str, topic: str) -> None:
    hold(where, topic + "-other")
    drop(where, topic)


def leave(where: str, topic: str) -> None:
    hold(where, topic)
    sys.exit(3)


def fail(where: str, topic: str) -> None:
    hold(where, topic)
    raise ValueError("of the program")


def asyncio_face(where: str, topic: str) -> None:
    held.append(aio.Producer(where, **LINGERS))
    held[-1]._below.send(topic, b"x")


def thread(where: str, topic: str) -> None:
    """It sends when the main thread has long ended."""

    def late() -> None:
        threading.main_thread().join()
        producer.send(topic, b"x")

    producer = kafkalog.Producer(where, **LINGERS)
    producer.partitions(topic)
    threading.Thread(target=late).start()


WORK = [hold, drop, two, leave, fail, asyncio_face, thread]


@pytest.mark.parametrize("work", WORK, ids=lambda work: work.__name__)
def test_end(served: TestBroker, unique: str, work: Callable[[str, str], None],
             capfd: pytest.CaptureFixture[str]) -> None:  # fmt: skip
    served.create_topic(unique)
    served.create_topic(unique + "-other")
    child = multiprocessing.get_context("fork").Process(
        target=work, args=(served.bootstrap_servers, unique)
    )
    child.start()
    child.join(LIMIT_S)
    assert child.exitcode == {leave: 3, fail: 1}.get(work, 0)
    assert [record.value for record in served.records(unique)] == [b"x"]
    assert ("ValueError: of the program" in capfd.readouterr().err) == (work is fail)


def test_pool(served: TestBroker, unique: str) -> None:
    served.create_topic(unique)
    with ProcessPoolExecutor(1, multiprocessing.get_context("fork")) as pool:
        for _ in range(3):
            pool.submit(drop, served.bootstrap_servers, unique)
        pool.submit(hold, served.bootstrap_servers, unique).result(LIMIT_S)
    assert [record.value for record in served.records(unique)] == [b"x"] * 4


def test_child_of_a_parent_with_a_producer(served: TestBroker, unique: str) -> None:
    """The parent's records are the parent's."""
    served.create_topic(unique)
    with kafkalog.Producer(served.bootstrap_servers, **LINGERS) as mine:
        mine.send(unique, b"mine")
        child = multiprocessing.get_context("fork").Process(
            target=drop, args=(served.bootstrap_servers, unique)
        )
        child.start()
        child.join(LIMIT_S)
        assert child.exitcode == 0
        assert [record.value for record in served.records(unique)] == [b"x"]
    assert [record.value for record in served.records(unique)] == [b"x", b"mine"]


def test_fork_that_ends_as_a_program(served: TestBroker, unique: str) -> None:
    """As the workers of a pre-forking server do: by Python's own end, not by os._exit."""
    served.create_topic(unique)
    where = repr(served.bootstrap_servers)
    code = f"""import kafkalog, os, sys
mine = kafkalog.Producer({where}); mine.send({unique!r}, b"parent").result()
child = os.fork()
if not child:
    kept = kafkalog.Producer({where}, linger_ms=1_000_000); kept.send({unique!r}, b"child")
    sys.exit(5)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
mine.send({unique!r}, b"last")"""
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S)
    assert (done.stdout, done.stderr, done.returncode) == ("5\n", "", 0)
    values = [record.value for record in served.records(unique)]
    assert values == [b"parent", b"child", b"last"]
