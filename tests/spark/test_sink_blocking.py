"""Transactions that a sink finds open: it aborts a directory's, and names a broker's."""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark_kafkalog.sink import delivery

import kafkalog
from kafkalog import TopicPartition
from kafkalog.testing.broker import TestBroker
from tests.spark.writing import Job, values


def committed(target: Path, topic: str = "t") -> list[bytes | None]:
    with kafkalog.Store(target) as store:
        return [one.value for one in store[topic][0].read(isolation="read_committed")]


def killed(work: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> None:
    """Run `work` in a process that is killed once a part has reached the target."""
    child = os.fork()
    if not child:
        real = delivery._send

        def cut(producer: Any, *more: Any) -> None:
            real(producer, *more)
            producer.flush()
            os._exit(9)

        monkeypatch.setattr(delivery, "_send", cut)
        try:
            work()
        finally:
            os._exit(1)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 9


def uncommitted(store: kafkalog.Store, topic: str) -> int:
    """The number of records that readers of committed records do not see."""
    log = store[topic][0]
    seen = len(list(log.read(isolation="read_committed")))
    return len(list(log.read(isolation="read_uncommitted"))) - seen


def forget_transactions(directory: Path) -> None:
    """As in a directory into which only the topics were copied."""
    for folder in directory.glob("__transaction_state-*"):
        shutil.rmtree(folder)


@pytest.fixture
def dead(job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch write into `t` that was killed during its delivery."""
    killed(lambda: job(values("dead")), monkeypatch)
    with kafkalog.Store(tmp_path / "data") as store:
        assert uncommitted(store, "t") == 1


def test_a_batch_write_that_was_killed_hides_nothing(
    dead: None, job: Job, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The job that runs again is alone in the directory."""
    job(values("again"))
    assert committed(tmp_path / "data") == [b"again"]
    job(values("more"))
    assert committed(tmp_path / "data") == [b"again", b"more"]


def test_a_stream_aborts_open_transactions_of_other_writes(
    dead: None, micro: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    writer, messages = micro(0, values("a"))
    writer.commit(messages, 0)
    assert committed(tmp_path / "data") == [b"a"]
    assert f"{tmp_path / 'data'}: aborted transactions that dead writers" in caplog.text
    assert caplog.text.rstrip().endswith(f"left open: {delivery.BATCH_WRITES}")


def test_a_topic_that_is_not_written_shows_its_records_again(
    dead: None, job: Job, tmp_path: Path
) -> None:
    with kafkalog.Store(tmp_path / "data") as store, store.producer() as producer:
        producer.send("t", b"behind").result()
    job(values("a"), topic="u")
    assert committed(tmp_path / "data") == [b"behind"]


def test_a_transaction_that_no_coordinator_knows(
    dead: None, job: Job, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    forget_transactions(tmp_path / "data")
    job(values("a"))
    assert committed(tmp_path / "data") == [b"a"]
    assert "t-0: aborted the transaction at offset 0, of producer" in caplog.text


def test_batch_writes_into_a_directory_leave_one_name(job: Job, tmp_path: Path) -> None:
    """The directory is never open for long enough to expire ids, so they must not pile up."""
    for text in "abc":
        job(values(text))
    with kafkalog.Store(tmp_path / "data") as store:
        found = [one.name for one in store.admin.list_transactions()]
        producers = store.admin.describe_producers([TopicPartition("t", 0)]).check()
    assert found == [delivery.BATCH_WRITES]
    assert [len(each) for each in producers.values()] == [1]


# ---- brokers -------------------------------------------------------------------------------


def served(broker: TestBroker, tmp_path: Path) -> dict[str, str]:
    servers = broker.bootstrap_servers
    return {"path": "", "kafka.bootstrap.servers": servers, "stagingDir": str(tmp_path / "s")}


def test_a_broker_transaction_that_hides_a_batch_is_named(
    job: Job, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its writer may be alive, so it is not aborted; the batch becomes visible once it ends."""
    caplog.set_level(logging.INFO, "pyspark_kafkalog")
    with TestBroker(tmp_path / "data") as broker:
        broker.create_topic("t")
        to = served(broker, tmp_path)
        with kafkalog.Producer(broker.bootstrap_servers, transactional_id="till-3") as other:
            other.begin_transaction()
            other.send("t", b"first")
            other.flush()
            job(values("a"), **to)
            assert broker.records("t") == []
            other.commit_transaction()
        broker.wait_for_records("t", 2)
        (told,) = [one.getMessage() for one in caplog.records if "hidden" in one.getMessage()]
        assert "transaction of 'till-3' in t-0, open since 20" in told
        end = "kafkalog transactions force-terminate till-3 --bootstrap-server "
        assert end + broker.bootstrap_servers in told
        caplog.clear()
        job(values("b"), **to)
        assert not [one for one in caplog.records if "hidden" in one.getMessage()]


def test_a_transaction_that_begins_behind_a_batch_does_not_hide_it(
    job: Job, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO, "pyspark_kafkalog")
    real = delivery._send
    with TestBroker(tmp_path / "data") as broker:
        broker.create_topic("t")
        with kafkalog.Producer(broker.bootstrap_servers, transactional_id="later") as other:

            def slow(producer: Any, *more: Any) -> Any:
                sent = real(producer, *more)
                producer.flush()
                other.begin_transaction()
                other.send("t", b"x")
                other.flush()
                return sent

            monkeypatch.setattr(delivery, "_send", slow)
            job(values("a"), **served(broker, tmp_path))
            assert not [one for one in caplog.records if "hidden" in one.getMessage()]
            other.abort_transaction()


def test_a_broker_transaction_that_no_coordinator_knows_is_named(
    dead: None, job: Job, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    forget_transactions(tmp_path / "data")
    with TestBroker(tmp_path / "data") as broker:
        job(values("a"), **served(broker, tmp_path))
        assert broker.records("t") == []
    command = "kafkalog transactions abort --topic t --partition 0 --start-offset 0"
    assert f"in t-0, which no coordinator knows; end it in each partition: {command}" in caplog.text


def test_a_broker_that_cannot_tell_does_not_fail_the_batch(
    job: Job, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "pyspark_kafkalog")
    with TestBroker(tmp_path / "data") as broker:
        broker.create_topic("t")
        broker.fail("DescribeProducers", "CLUSTER_AUTHORIZATION_FAILED", times=None)
        job(values("a"), **served(broker, tmp_path))
        broker.wait_for_records("t", 1)
