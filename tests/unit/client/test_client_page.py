"""The Python examples in docs/clients.md run unchanged."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import kafkalog
from kafkalog import Admin, Consumer, Producer, TopicPartition, errors
from kafkalog.testing.broker import TestBroker
from tests.support.waiting import LIMIT_S

PAGE = Path(__file__).resolve().parents[3] / "docs" / "clients.md"


def block(words: str) -> Any:
    """The only Python block that contains these words, compiled."""
    found = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    (one,) = [text for text in found if words in text]
    return compile(one, "clients.md", "exec")


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[TestBroker]:
    with TestBroker(tmp_path / "data") as made:
        made.create_topic("t", 1)
        yield made


def values(broker: TestBroker, topic: str = "t") -> list[bytes | None]:
    return [record.value for record in broker.records(topic)]


class Healed(Producer):
    """A producer that heals its broker once a commit has timed out."""

    broker: TestBroker
    doubts = 0

    def commit_transaction(self) -> None:
        try:
            super().commit_transaction()
        except errors.Timeout:
            assert self.in_doubt
            self.doubts += 1
            self.broker.heal()
            raise


@pytest.mark.parametrize("fault", ["disconnect", "drop_response"])
def test_the_loop_ends_a_commit_in_doubt(broker: TestBroker, fault: str) -> None:
    """Every record is written once, whether the commit was lost or only its answer."""
    names: dict[str, Any] = {"kafkalog": kafkalog, "topic": "t", "todo": [[b"1", b"2"], [b"3"]]}
    with Healed(broker.bootstrap_servers, transactional_id="x", max_block_ms=1_000) as producer:
        producer.broker = broker
        names["producer"] = producer
        with producer.transaction():
            producer.send("t", b"0").result(LIMIT_S)
        assert not producer.in_doubt
        getattr(broker, fault)("EndTxn", times=None)
        exec(block("while todo:"), names)
        assert producer.doubts and not producer.in_doubt
    assert names["todo"] == []
    broker.wait_for_records("t", 4)  # a commit is answered before its records become visible
    assert values(broker) == [b"0", b"1", b"2", b"3"]


def test_the_loop_repeats_an_aborted_transaction(broker: TestBroker) -> None:
    """The repeated commit is refused: that transaction is aborted and written again."""
    names: dict[str, Any] = {"kafkalog": kafkalog, "topic": "t", "todo": [[b"1", b"2"], [b"3"]]}

    class Refused(Healed):
        def commit_transaction(self) -> None:
            if self.in_doubt and self.doubts == 1:
                self.broker.fail("EndTxn", "INVALID_TXN_STATE")
                self.doubts += 1
            super().commit_transaction()

    with Refused(broker.bootstrap_servers, transactional_id="x", max_block_ms=1_000) as producer:
        producer.broker = broker
        names["producer"] = producer
        producer.init_transactions()
        broker.disconnect("EndTxn", times=None)
        exec(block("while todo:"), names)
        assert producer.doubts >= 2
    assert names["todo"] == []
    broker.wait_for_records("t", 3)
    assert values(broker) == [b"1", b"2", b"3"]


def test_the_loop_raises_lasting_errors(broker: TestBroker) -> None:
    names: dict[str, Any] = {"kafkalog": kafkalog, "topic": "t", "todo": [[b"1"]]}
    producer = names["producer"] = Producer(broker.bootstrap_servers, transactional_id="x")
    producer.init_transactions()
    with Producer(broker.bootstrap_servers, transactional_id="x") as other:
        other.init_transactions()
    with pytest.raises(errors.KafkalogError) as raised:
        exec(block("while todo:"), names)
    assert raised.value.fatal
    with pytest.raises(errors.InvalidProducerEpoch):
        producer.close()
    assert names["todo"] == [[b"1"]] and values(broker) == []


def test_a_transaction_that_consumes_and_produces(broker: TestBroker) -> None:
    broker.create_topic("results", 1)
    with (
        Producer(broker.bootstrap_servers, transactional_id="x") as producer,
        Consumer(
            broker.bootstrap_servers, "t", group="g", auto_offset_reset="earliest",
            auto_commit=False,
        ) as consumer,
    ):  # fmt: skip
        with producer.transaction():
            producer.send("t", b"1")
        records = consumer.poll(LIMIT_S * 1000)
        exec(block("consumer.group_metadata()"), {
            "producer": producer, "consumer": consumer, "records": records, "target": "results",
        })  # fmt: skip
        at = consumer.committed(TopicPartition("t", 0))
        assert at is not None and at.offset == consumer.position(TopicPartition("t", 0)) > 0
    broker.wait_for_records("results", 1)
    assert values(broker, "results") == [b"1"]


def test_the_three_names_and_results(broker: TestBroker) -> None:
    text = block('kafkalog.Admin("localhost:9092")').co_consts  # it names its own broker
    assert "localhost:9092" in text
    source = PAGE.read_text(encoding="utf-8").partition("```python\n")[2].partition("```")[0]
    source = source.replace("localhost:9092", broker.bootstrap_servers)
    with Admin(broker.bootstrap_servers) as admin:
        admin.create_topic("orders")
        exec(compile(source, "clients.md", "exec"), {})
        assert values(broker, "orders") == [b"3 apples"]
        assert "audit" in admin.list_topics()
        admin.delete_topic("orders")
    with Admin(broker.bootstrap_servers) as admin:
        names: dict[str, Any] = {"admin": admin}
        with pytest.raises(errors.InvalidTopic):
            exec(block("made.done"), names)
        assert list(names["made"].errors) == ["a/b"] and list(names["made"].done) == ["orders"]
