"""The agent of confluent-kafka, which is librdkafka."""

from __future__ import annotations

import sys
from typing import Any

import confluent_kafka as ck
from confluent_kafka import admin as cka
from serving import ANSWER_S, Agent, Deadline, PollingMember, Stream, record_in, record_out

LARGE = 4 << 20


def producer_of(bootstrap: str, request: dict[str, Any]) -> ck.Producer:
    return ck.Producer(
        {
            "bootstrap.servers": bootstrap, "compression.codec": request["codec"],
            "acks": request["acks"], "enable.idempotence": request["idempotent"],
            "linger.ms": 5, "message.max.bytes": LARGE, "message.timeout.ms": 60_000,
            "socket.timeout.ms": 10_000, "reconnect.backoff.max.ms": 500,
        }
    )  # fmt: skip


class Member(PollingMember):
    def __init__(self, bootstrap: str, request: dict[str, Any]) -> None:
        super().__init__()
        self._settings = {
            "bootstrap.servers": bootstrap, "group.id": request["group"],
            "auto.offset.reset": "earliest", "enable.auto.commit": False,
            "session.timeout.ms": request["session_ms"], "heartbeat.interval.ms": 300,
            "topic.metadata.refresh.interval.ms": 1000, "check.crcs": True,
            "partition.assignment.strategy": "range",
        }  # fmt: skip
        if request["instance"]:
            self._settings["group.instance.id"] = request["instance"]
        self._topics = request["topics"]

    def open(self) -> None:
        self._consumer = ck.Consumer(self._settings)
        self._consumer.subscribe(
            self._topics, on_assign=self._assigned, on_revoke=self._gone, on_lost=self._gone
        )

    def _assigned(self, _: Any, partitions: list[ck.TopicPartition]) -> None:
        self.assigned = [(p.topic, p.partition) for p in partitions]
        self.joins += 1

    def _gone(self, _: Any, __: Any) -> None:
        self.assigned = []

    def poll(self) -> None:
        message = self._consumer.poll(0.05)
        if message is None:
            return
        if (error := message.error()) is not None:
            if error.fatal() or error.code() == ck.KafkaError._FATAL:
                raise ck.KafkaException(error)
            return
        self.seen.append((message.topic(), message.partition(), message.offset()))

    def commit(self) -> object:
        return self._consumer.commit(asynchronous=False)

    def close(self) -> None:
        self._consumer.close()


class Numbers(Stream):
    def __init__(self, bootstrap: str, request: dict[str, Any]) -> None:
        super().__init__(request)
        self._producer = producer_of(bootstrap, request)

    def send(self, partition: int, number: int) -> None:
        def done(error: Any, message: Any) -> None:
            if error is None:
                self.note(number, message.partition(), message.offset())
            else:
                self.note_failed(number, error)

        value = self.value(number)
        self._producer.produce(self.topic, value, b"k", partition, on_delivery=done)
        self._producer.poll(0)

    def _run(self) -> None:
        # Callbacks run in poll, so waiting for space must poll.
        while not self._stopped.is_set():
            self.rest()
            if self._room.acquire(blocking=False):
                number, self._next = self._next, self._next + 1
                self.send(number % self._partitions, number)
            else:
                self._producer.poll(0.02)

    def flush(self) -> None:
        self._producer.flush(ANSWER_S)


class Confluent(Agent):
    member_kind = Member
    stream_kind = Numbers

    def do_produce(self, request: dict[str, Any]) -> dict[str, Any]:
        producer = producer_of(self.bootstrap, request)
        offsets: dict[int, int] = {}
        problems: list[str] = []

        def done(number: int, error: Any, message: Any) -> None:
            if error is not None:
                problems.append(str(error))
            else:
                offsets[number] = -1 if message.offset() is None else message.offset()

        for number, fields in enumerate(map(record_in, request["records"])):
            fields.pop("timestamp_ms")
            producer.produce(
                request["topic"], partition=request["partition"],
                timestamp=request["records"][number]["timestamp_ms"] or 0,
                on_delivery=lambda error, message, n=number: done(n, error, message), **fields,
            )  # fmt: skip
        producer.flush(ANSWER_S)
        if problems or len(offsets) != len(request["records"]):
            raise RuntimeError(f"{len(offsets)} acknowledged; {problems[:1]}")
        return {"offsets": [offsets[number] for number in range(len(offsets))]}

    def _consumer(self, group: str = "nobody") -> ck.Consumer:
        return ck.Consumer(
            {
                "bootstrap.servers": self.bootstrap, "group.id": group, "check.crcs": True,
                "enable.auto.commit": False, "fetch.message.max.bytes": LARGE,
            }
        )  # fmt: skip

    def do_consume(self, request: dict[str, Any]) -> dict[str, Any]:
        consumer, found = self._consumer(), []
        consumer.assign(
            [ck.TopicPartition(request["topic"], request["partition"], request["offset"])]
        )
        deadline = Deadline("consume")
        while len(found) < request["count"]:
            message = consumer.poll(min(1.0, deadline.left()))
            if message is None:
                continue
            if message.error():
                raise ck.KafkaException(message.error())
            found.append(
                record_out(
                    message.offset(), message.timestamp()[1], message.key(), message.value(),
                    message.headers(),
                )
            )  # fmt: skip
        consumer.close()
        return {"records": found}

    def do_time(self, request: dict[str, Any]) -> dict[str, Any]:
        where = ck.TopicPartition(request["topic"], request["partition"], request["timestamp_ms"])
        consumer = self._consumer()
        (found,) = consumer.offsets_for_times([where], timeout=ANSWER_S)
        offset = found.offset
        if offset < 0:
            _, offset = consumer.get_watermark_offsets(where, timeout=ANSWER_S)
        consumer.close()
        return {"offset": offset}

    def do_committed(self, request: dict[str, Any]) -> dict[str, Any]:
        wanted = [ck.TopicPartition(request["topic"], number) for number in request["partitions"]]
        consumer = self._consumer(request["group"])
        found = {p.partition: p.offset for p in consumer.committed(wanted, timeout=ANSWER_S)}
        consumer.close()
        return {"offsets": [max(-1, found[number]) for number in request["partitions"]]}

    def do_tour(self, request: dict[str, Any]) -> dict[str, Any]:
        client = cka.AdminClient({"bootstrap.servers": self.bootstrap})
        topic, said = request["topic"], {}

        def of(futures: dict[Any, Any]) -> Any:
            (future,) = futures.values()
            return future.result(ANSWER_S)

        def settings() -> dict[str, str]:
            resource = cka.ConfigResource(cka.ConfigResource.Type.TOPIC, topic)
            return {name: e.value for name, e in of(client.describe_configs([resource])).items()}

        new = cka.NewTopic(topic, 3, 1, config={"retention.ms": "3600000"})
        of(client.create_topics([new]))
        said["partitions"] = len(client.list_topics(topic, ANSWER_S).topics[topic].partitions)
        said["retention"] = settings()["retention.ms"]
        try:
            of(client.create_topics([new]))
        except ck.KafkaException as error:
            said["again"] = error.args[0].code()
        of(client.create_partitions([cka.NewPartitions(topic, 5)]))
        said["grown"] = len(client.list_topics(topic, ANSWER_S).topics[topic].partitions)
        change = cka.ConfigEntry(
            "retention.ms", "7200000", incremental_operation=cka.AlterConfigOpType.SET
        )
        resource = cka.ConfigResource(
            cka.ConfigResource.Type.TOPIC, topic, incremental_configs=[change]
        )
        of(client.incremental_alter_configs([resource]))
        said["altered"] = settings()["retention.ms"]
        of(client.delete_topics([topic]))
        return said


if __name__ == "__main__":
    Confluent(sys.argv[1]).serve()
