"""The agent of our own clients: members that share groups with those of all other clients."""

from __future__ import annotations

import sys
from typing import Any

from serving import ANSWER_S, Agent, Deadline, PollingMember, record_in, record_out

import kafkalog
from kafkalog import TopicPartition


class Member(PollingMember):
    def __init__(self, bootstrap: str, request: dict[str, Any]) -> None:
        super().__init__()
        self._bootstrap = bootstrap
        self._settings: dict[str, Any] = {
            "group": request["group"], "auto_offset_reset": "earliest", "auto_commit": False,
            "session_timeout_ms": request["session_ms"], "heartbeat_ms": 300,
            "group_instance_id": request["instance"], "config": {"metadata.max.age.ms": 1000},
        }  # fmt: skip
        self._topics = request["topics"]

    def open(self) -> None:
        self._consumer = kafkalog.Consumer(self._bootstrap, **self._settings)
        self._consumer.subscribe(
            self._topics, on_assigned=self._on_assigned, on_revoked=self._on_revoked
        )

    def _on_assigned(self, _: object) -> None:
        self.assigned = [tuple(tp) for tp in self._consumer.assignment]
        self.joins += 1

    def _on_revoked(self, _: object) -> None:
        self.assigned = []

    def poll(self) -> None:
        for record in self._consumer.poll(50):
            self.seen.append((record.topic, record.partition, record.offset))

    def commit(self) -> object:
        return self._consumer.commit()

    def close(self) -> None:
        self._consumer.close()


class Ours(Agent):
    member_kind = Member

    def do_produce(self, request: dict[str, Any]) -> dict[str, Any]:
        with kafkalog.Producer(
            self.bootstrap, acks=request["acks"], compression=request["codec"],
            idempotent=request["idempotent"],
        ) as producer:  # fmt: skip
            futures = [
                producer.send(request["topic"], partition=request["partition"], **record_in(fields))
                for fields in request["records"]
            ]
            return {"offsets": [future.result(ANSWER_S).offset for future in futures]}

    def do_consume(self, request: dict[str, Any]) -> dict[str, Any]:
        where, deadline = (
            TopicPartition(request["topic"], request["partition"]),
            Deadline("consume"),
        )
        found: list[Any] = []
        with kafkalog.Consumer(self.bootstrap) as consumer:
            consumer.assign([where])
            consumer.seek(where, request["offset"])
            while len(found) < request["count"]:
                for r in consumer.poll(int(1000 * min(1.0, deadline.left()))):
                    found.append(record_out(r.offset, r.timestamp_ms, r.key, r.value, r.headers))
        return {"records": found[: request["count"]]}

    def do_committed(self, request: dict[str, Any]) -> dict[str, Any]:
        with kafkalog.Admin(self.bootstrap) as admin:
            found = admin.list_group_offsets(request["group"])
        wanted = [found.get(TopicPartition(request["topic"], n)) for n in request["partitions"]]
        return {"offsets": [-1 if one is None else one.offset for one in wanted]}


if __name__ == "__main__":
    Ours(sys.argv[1]).serve()
