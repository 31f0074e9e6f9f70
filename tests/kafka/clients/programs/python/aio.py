"""The agent of aiokafka: its event loop runs in a separate thread."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Coroutine
from typing import Any

import aiokafka
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from serving import ANSWER_S, Agent, Deadline, PollingMember, Stream, record_in, record_out

LARGE = 4 << 20
LOOP = asyncio.new_event_loop()


def run(work: Coroutine[Any, Any, Any], timeout_s: float = 3 * ANSWER_S) -> Any:
    return asyncio.run_coroutine_threadsafe(work, LOOP).result(timeout_s)


def producer_of(bootstrap: str, request: dict[str, Any]) -> aiokafka.AIOKafkaProducer:
    codec = None if request["codec"] == "none" else request["codec"]
    acks = request["acks"] if request["acks"] == "all" else int(request["acks"])
    return aiokafka.AIOKafkaProducer(
        bootstrap_servers=bootstrap, compression_type=codec, acks=acks,
        enable_idempotence=request["idempotent"], linger_ms=5, max_request_size=LARGE,
        request_timeout_ms=10_000,
    )  # fmt: skip


class Member(PollingMember, aiokafka.ConsumerRebalanceListener):
    def __init__(self, bootstrap: str, request: dict[str, Any]) -> None:
        super().__init__()
        self._settings = {
            "bootstrap_servers": bootstrap, "group_id": request["group"],
            "auto_offset_reset": "earliest", "enable_auto_commit": False,
            "session_timeout_ms": request["session_ms"], "heartbeat_interval_ms": 300,
            "metadata_max_age_ms": 1000, "group_instance_id": request["instance"],
            "partition_assignment_strategy": (
                RangePartitionAssignor,
            ),
        }  # fmt: skip
        self._topics = request["topics"]

    async def _open(self) -> None:
        self._consumer = aiokafka.AIOKafkaConsumer(**self._settings)
        self._consumer.subscribe(self._topics, listener=self)
        await self._consumer.start()

    def open(self) -> None:
        run(self._open())

    def on_partitions_assigned(self, assigned: Any) -> None:
        self.assigned = [(p.topic, p.partition) for p in assigned]
        self.joins += 1

    def on_partitions_revoked(self, revoked: Any) -> None:
        self.assigned = []

    def poll(self) -> None:
        for records in run(self._consumer.getmany(timeout_ms=50)).values():
            self.seen += [(r.topic, r.partition, r.offset) for r in records]

    def commit(self) -> object:
        return run(self._consumer.commit())

    def close(self) -> None:
        run(self._consumer.stop())


class Numbers(Stream):
    def __init__(self, bootstrap: str, request: dict[str, Any]) -> None:
        super().__init__(request)

        async def started() -> Any:
            producer = producer_of(bootstrap, request)
            await producer.start()
            return producer

        self._producer = run(started())

    def send(self, partition: int, number: int) -> None:
        def done(future: Any) -> None:
            if error := future.exception():
                self.note_failed(number, error)
            else:
                self.note(number, future.result().partition, future.result().offset)

        async def enqueue() -> None:
            sent = await self._producer.send(self.topic, self.value(number), b"k", partition)
            sent.add_done_callback(done)

        run(enqueue())

    def flush(self) -> None:
        run(self._producer.flush())


class Aiokafka(Agent):
    member_kind = Member
    stream_kind = Numbers

    def do_produce(self, request: dict[str, Any]) -> dict[str, Any]:
        return run(self._produce(request))

    async def _produce(self, request: dict[str, Any]) -> dict[str, Any]:
        async with producer_of(self.bootstrap, request) as producer:
            futures = [
                await producer.send(
                    request["topic"], partition=request["partition"], **record_in(fields)
                )
                for fields in request["records"]
            ]
            await producer.flush()
            done = [await future for future in futures]
        return {"offsets": [-1 if one is None else one.offset for one in done]}

    def _consumer(self, group: str | None = None) -> aiokafka.AIOKafkaConsumer:
        return aiokafka.AIOKafkaConsumer(
            bootstrap_servers=self.bootstrap, group_id=group, enable_auto_commit=False,
            auto_offset_reset="earliest", max_partition_fetch_bytes=LARGE,
        )  # fmt: skip

    def do_consume(self, request: dict[str, Any]) -> dict[str, Any]:
        return run(self._consume(request))

    async def _consume(self, request: dict[str, Any]) -> dict[str, Any]:
        where, found = aiokafka.TopicPartition(request["topic"], request["partition"]), []
        async with self._consumer() as consumer:
            consumer.assign([where])
            consumer.seek(where, request["offset"])
            deadline = Deadline("consume")
            while len(found) < request["count"]:
                polled = await consumer.getmany(timeout_ms=int(1000 * min(1.0, deadline.left())))
                for r in polled.get(where, ()):
                    found.append(record_out(r.offset, r.timestamp, r.key, r.value, r.headers))
        return {"records": found[: request["count"]]}

    def do_time(self, request: dict[str, Any]) -> dict[str, Any]:
        return run(self._time(request))

    async def _time(self, request: dict[str, Any]) -> dict[str, Any]:
        where = aiokafka.TopicPartition(request["topic"], request["partition"])
        async with self._consumer() as consumer:
            found = (await consumer.offsets_for_times({where: request["timestamp_ms"]}))[where]
            if found:
                return {"offset": found.offset}
            return {"offset": (await consumer.end_offsets([where]))[where]}

    def do_committed(self, request: dict[str, Any]) -> dict[str, Any]:
        return run(self._committed(request))

    async def _committed(self, request: dict[str, Any]) -> dict[str, Any]:
        wanted = [aiokafka.TopicPartition(request["topic"], n) for n in request["partitions"]]
        async with self._consumer(request["group"]) as consumer:
            consumer.assign(wanted)
            found = [await consumer.committed(where) for where in wanted]
        return {"offsets": [-1 if offset is None else offset for offset in found]}

    def do_tour(self, request: dict[str, Any]) -> dict[str, Any]:
        return run(self._tour(request["topic"]))

    async def _tour(self, topic: str) -> dict[str, Any]:
        client, said = AIOKafkaAdminClient(bootstrap_servers=self.bootstrap), {}
        await client.start()

        async def setting() -> str:
            resource = ConfigResource(ConfigResourceType.TOPIC, topic)
            (found,) = await client.describe_configs([resource])
            entries = found.resources[0][4]
            return next(entry[1] for entry in entries if entry[0] == "retention.ms")

        async def partitions() -> int:
            (found,) = await client.describe_topics([topic])
            return len(found["partitions"])

        new = NewTopic(topic, 3, 1, topic_configs={"retention.ms": "3600000"})
        await client.create_topics([new])
        said["partitions"], said["retention"] = await partitions(), await setting()
        said["again"] = (await client.create_topics([new])).topic_errors[0][1]
        await client.create_partitions({topic: NewPartitions(5)})
        said["grown"] = await partitions()
        changed = ConfigResource(ConfigResourceType.TOPIC, topic, {"retention.ms": "7200000"})
        await client.alter_configs([changed])
        said["altered"] = await setting()
        await client.delete_topics([topic])
        await client.close()
        return said


if __name__ == "__main__":
    threading.Thread(target=LOOP.run_forever, daemon=True).start()
    Aiokafka(sys.argv[1]).serve()
