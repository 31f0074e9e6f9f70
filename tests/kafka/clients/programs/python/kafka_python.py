"""The agent of kafka-python."""

from __future__ import annotations

import sys
from typing import Any

import kafka
from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient, NewTopic
from kafka.errors import TopicAlreadyExistsError
from serving import ANSWER_S, Agent, Deadline, PollingMember, Stream, record_in, record_out

LARGE = 4 << 20


def producer_of(bootstrap: str, request: dict[str, Any]) -> kafka.KafkaProducer:
    codec = None if request["codec"] == "none" else request["codec"]
    acks = request["acks"] if request["acks"] == "all" else int(request["acks"])
    return kafka.KafkaProducer(
        bootstrap_servers=bootstrap, compression_type=codec, acks=acks,
        enable_idempotence=request["idempotent"], linger_ms=5, max_request_size=LARGE,
        delivery_timeout_ms=60_000, request_timeout_ms=10_000, max_block_ms=20_000,
    )  # fmt: skip


class Member(PollingMember, kafka.ConsumerRebalanceListener):
    def __init__(self, bootstrap: str, request: dict[str, Any]) -> None:
        super().__init__()
        self._settings = {
            "bootstrap_servers": bootstrap, "group_id": request["group"],
            "auto_offset_reset": "earliest", "enable_auto_commit": False,
            "session_timeout_ms": request["session_ms"], "heartbeat_interval_ms": 300,
            "metadata_max_age_ms": 1000, "group_instance_id": request["instance"],
        }  # fmt: skip
        self._topics = request["topics"]

    def open(self) -> None:
        self._consumer = kafka.KafkaConsumer(**self._settings)
        self._consumer.subscribe(self._topics, listener=self)

    def on_partitions_assigned(self, assigned: Any) -> None:
        self.assigned = [(p.topic, p.partition) for p in self._consumer.assignment()]
        self.joins += 1

    def on_partitions_revoked(self, revoked: Any) -> None:
        self.assigned = []

    def poll(self) -> None:
        # A poll that times out just when the answer to its join arrives loses the assignment, as
        # seen with 3.0.12.  Polls are long, so that joins rarely meet the end of one.
        for records in self._consumer.poll(timeout_ms=1000).values():
            self.seen += [(r.topic, r.partition, r.offset) for r in records]

    def commit(self) -> object:
        return self._consumer.commit()

    def close(self) -> None:
        self._consumer.close()


class Numbers(Stream):
    def __init__(self, bootstrap: str, request: dict[str, Any]) -> None:
        super().__init__(request)
        self._producer = producer_of(bootstrap, request)

    def send(self, partition: int, number: int) -> None:
        future = self._producer.send(self.topic, self.value(number), key=b"k", partition=partition)
        future.add_callback(lambda done: self.note(number, done.partition, done.offset))
        future.add_errback(lambda error: self.note_failed(number, error))

    def flush(self) -> None:
        self._producer.flush(ANSWER_S)


class KafkaPython(Agent):
    member_kind = Member
    stream_kind = Numbers

    def do_produce(self, request: dict[str, Any]) -> dict[str, Any]:
        producer = producer_of(self.bootstrap, request)
        futures = [
            producer.send(request["topic"], partition=request["partition"], **record_in(fields))
            for fields in request["records"]
        ]
        producer.flush(ANSWER_S)
        offsets = [future.get(ANSWER_S).offset for future in futures]
        producer.close()
        return {"offsets": offsets}

    def _consumer(self, group: str | None = None) -> kafka.KafkaConsumer:
        return kafka.KafkaConsumer(
            bootstrap_servers=self.bootstrap, group_id=group, enable_auto_commit=False,
            auto_offset_reset="earliest", max_partition_fetch_bytes=LARGE,
        )  # fmt: skip

    def do_consume(self, request: dict[str, Any]) -> dict[str, Any]:
        where = kafka.TopicPartition(request["topic"], request["partition"])
        consumer, found = self._consumer(), []
        consumer.assign([where])
        consumer.seek(where, request["offset"])
        deadline = Deadline("consume")
        while len(found) < request["count"]:
            polled = consumer.poll(timeout_ms=int(1000 * min(1.0, deadline.left())))
            for r in polled.get(where, ()):
                found.append(record_out(r.offset, r.timestamp, r.key, r.value, r.headers))
        consumer.close()
        return {"records": found[: request["count"]]}

    def do_time(self, request: dict[str, Any]) -> dict[str, Any]:
        where = kafka.TopicPartition(request["topic"], request["partition"])
        consumer = self._consumer()
        found = consumer.offsets_for_times({where: request["timestamp_ms"]})[where]
        offset = found.offset if found else consumer.end_offsets([where])[where]
        consumer.close()
        return {"offset": offset}

    def do_committed(self, request: dict[str, Any]) -> dict[str, Any]:
        consumer = self._consumer(request["group"])
        wanted = [kafka.TopicPartition(request["topic"], n) for n in request["partitions"]]
        found = [consumer.committed(where) for where in wanted]
        consumer.close()
        return {"offsets": [-1 if offset is None else offset for offset in found]}

    def do_tour(self, request: dict[str, Any]) -> dict[str, Any]:
        client, topic = KafkaAdminClient(bootstrap_servers=self.bootstrap), request["topic"]
        said: dict[str, Any] = {}

        def setting() -> str:
            found = client.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)])
            return str(found["topic"][topic]["retention.ms"]["value"])

        def partitions() -> int:
            (found,) = client.describe_topics([topic])
            return len(found["partitions"])

        new = NewTopic(topic, 3, 1, topic_configs={"retention.ms": "3600000"})
        client.create_topics([new], wait_for_metadata=True)
        said["partitions"], said["retention"] = partitions(), setting()
        try:
            client.create_topics([new])
        except TopicAlreadyExistsError as error:
            said["again"] = error.errno
        client.create_partitions({topic: 5})
        said["grown"] = partitions()
        changed = ConfigResource(ConfigResourceType.TOPIC, topic, {"retention.ms": "7200000"})
        client.alter_configs([changed])
        said["altered"] = setting()
        client.delete_topics([topic])
        client.close()
        return said


if __name__ == "__main__":
    KafkaPython(sys.argv[1]).serve()
