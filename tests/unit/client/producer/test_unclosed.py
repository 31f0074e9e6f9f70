"""A producer that nobody closed, or that an exception left: no loss goes unreported."""

from __future__ import annotations

import asyncio
import gc
import logging
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import kafkalog
from kafkalog import Producer, aio, errors
from kafkalog.testing.broker import TestBroker
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode
from tests.support.scripted import STALL, Peer, produced
from tests.support.waiting import LIMIT_S
from tests.unit.client.producer.producing import make

LOST = "not delivered"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestBroker]:
    with TestBroker(tmp_path_factory.mktemp("ends") / "data") as made:
        yield made


def values(broker: TestBroker, topic: str) -> list[bytes | None]:
    return [record.value for record in broker.records(topic)]


def run(code: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "import kafkalog\n" + code]
    return subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S)


def ended(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [line for line in caplog.messages if LOST in line]


def impatient(producer: Producer) -> Producer:
    """From now on it waits only briefly for answers."""
    producer.partitions("t")
    sender = producer._sender
    sender.core.options = sender.core.options._replace(delivery_s=0.1)
    sender.cluster.options = sender.cluster.options._replace(request_timeout_ms=200)
    return producer


# ---- a program's last line -----------------------------------------------------------------


@pytest.mark.parametrize(
    "code",
    [
        "p = kafkalog.Producer({0}); p.send({1}, b'x')",
        "kafkalog.Producer({0}).send({1}, b'x')",
        "def f():\n    p = kafkalog.Producer({0}); p.send({1}, b'x')\nf()",
        "p = kafkalog.Producer({0}, linger_ms=1_000_000); p.send({1}, b'x')",
        "kafkalog.Producer({0}, linger_ms=1_000_000).send({1}, b'x')",
        "kafkalog.Producer({0}).send_many({1}, [b'x'])",
        "kafkalog.Producer({0}).send({1}, b'x'); raise SystemExit(0)",
    ],
    ids=["held", "dropped", "function", "held lingers", "lingers", "many", "exit"],
)
def test_an_exiting_program_delivers_sent_records(
    served: TestBroker, unique: str, code: str
) -> None:
    served.create_topic(unique)
    found = run(code.format(repr(served.bootstrap_servers), repr(unique)))
    assert (found.returncode, found.stdout, found.stderr) == (0, "", "")
    assert values(served, unique) == [b"x"]


@pytest.mark.parametrize("held", ["p = ", ""], ids=["held", "dropped"])
def test_an_exiting_program_reports_lost_records(broker: Peer, held: str) -> None:
    """In the log, which goes to stderr if nobody has configured it, and as a warning."""
    broker.on(apis.PRODUCE, produced([ErrorCode.TOPIC_AUTHORIZATION_FAILED] * 9))
    found = run(f"""import warnings; warnings.simplefilter("always")
{held}kafkalog.Producer({broker.servers!r}).send_many("t", [b"x"] * 7)""")
    assert found.returncode == 0
    assert "7 records were not delivered: " in found.stderr
    assert "ResourceWarning: " in found.stderr


def test_closing_a_store_delivers_records_of_dropped_producers(tmp_path: Path) -> None:
    with kafkalog.Store(tmp_path / "data") as store:
        store.create_topic("t")
        kafkalog.Producer(store, linger_ms=1_000_000).send("t", b"x")
        gc.collect()
    with kafkalog.Store(tmp_path / "data") as store:
        assert [record.value for record in store["t"][0]] == [b"x"]


# ---- a producer that is dropped ------------------------------------------------------------


def test_a_dropped_producer_does_not_linger(served: TestBroker, unique: str) -> None:
    served.create_topic(unique)
    Producer(served.bootstrap_servers, linger_ms=1_000_000).send(unique, b"x")
    gc.collect()
    served.wait_for_records(unique, 1)


def test_a_dropped_producer_reports_lost_records(
    broker: Peer, caplog: pytest.LogCaptureFixture, recwarn: pytest.WarningsRecorder
) -> None:
    broker.on(apis.PRODUCE, STALL)
    producer = impatient(make(broker))
    producer.send_many("t", [b"x"] * 7)
    thread = producer._sender._thread
    del producer
    gc.collect()
    thread.join(LIMIT_S)
    (line,) = ended(caplog)
    assert "7 records were not delivered: " in line
    (warned,) = [one for one in recwarn if one.category is ResourceWarning]
    assert str(warned.message) == line


# ---- a block that an exception leaves ------------------------------------------------------


@pytest.mark.parametrize("problem", [ValueError, KeyboardInterrupt, SystemExit, GeneratorExit])
def test_a_block_left_by_an_exception_delivers_accepted_records(
    served: TestBroker, unique: str, problem: type[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    served.create_topic(unique)
    with pytest.raises(problem), Producer(served.bootstrap_servers) as producer:
        for number in range(2000):
            producer.send(unique, b"%d" % number)
        raise problem
    assert values(served, unique) == [b"%d" % number for number in range(2000)]
    assert not ended(caplog)


def test_a_block_left_by_an_exception_reports_lost_records(
    broker: Peer, caplog: pytest.LogCaptureFixture
) -> None:
    broker.on(apis.PRODUCE, STALL)
    with (
        pytest.raises(ValueError, match="of the program"),
        impatient(make(broker)) as producer,
    ):
        future = producer.send_many("t", [b"x"] * 7)
        raise ValueError("of the program")
    assert future.done()
    (line,) = ended(caplog)
    assert "7 records were not delivered: " in line


def test_ctrl_c_ends_the_wait_at_the_end_of_a_block(
    broker: Peer, caplog: pytest.LogCaptureFixture
) -> None:
    """A second one means that the user will not wait."""

    def pressed(timeout: float | None) -> None:
        raise KeyboardInterrupt

    broker.on(apis.PRODUCE, STALL)
    with pytest.raises(KeyboardInterrupt), make(broker) as producer:
        producer.send_many("t", [b"x"] * 7)
        producer._waiting.drain = pressed  # type: ignore[method-assign]
        raise ValueError
    assert not producer._sender._thread.is_alive()
    (line,) = ended(caplog)
    assert "7 records were not delivered: " in line


def test_an_open_transaction_is_aborted_without_a_warning(
    served: TestBroker, unique: str, caplog: pytest.LogCaptureFixture
) -> None:
    served.create_topic(unique)
    with (
        pytest.raises(ValueError),
        Producer(served.bootstrap_servers, transactional_id=unique) as producer,
    ):
        producer.begin_transaction()
        producer.send(unique, b"x").result(LIMIT_S)
        producer.send(unique, b"y")
        raise ValueError
    assert values(served, unique) == []
    assert not ended(caplog)


def test_an_asyncio_block_left_by_an_exception_delivers_accepted_records(
    served: TestBroker, unique: str
) -> None:
    async def program() -> None:
        async with aio.Producer(served.bootstrap_servers, linger_ms=1_000_000) as producer:
            sends = [asyncio.ensure_future(producer.send(unique, b"%d" % i)) for i in range(100)]
            await asyncio.sleep(0)
            raise ValueError
        del sends

    served.create_topic(unique)
    with pytest.raises(ValueError):
        asyncio.run(program())
    assert values(served, unique) == [b"%d" % i for i in range(100)]


def test_a_closing_store_reports_records_lost_by_its_clients(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It closes them, and nobody catches what that raises."""
    caplog.set_level(logging.WARNING)
    store = kafkalog.Store(tmp_path / "data")
    store.create_topic("t", config={"max.message.bytes": "1000"})
    producer = store.producer()
    future = producer.send("t", b"x" * 2000)
    assert isinstance(future.exception(LIMIT_S), errors.MessageTooLarge)
    store.close()
    assert any("MESSAGE_TOO_LARGE" in line for line in caplog.messages)
