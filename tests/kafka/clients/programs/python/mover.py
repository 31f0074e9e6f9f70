"""A bank's transfers, exactly once, with librdkafka: each value of a topic, number:from:to:amount,
becomes two of another, a debit and a credit, in a transaction with the group's offsets.

Requests, as of the other agents: move (source target group name) -> at once; moved -> the number of
committed transfers and the errors; stop -> the same, when its last transaction has ended.
"""

from __future__ import annotations

import sys
import threading
import time
from typing import Any

import confluent_kafka as ck
from serving import Agent

BATCH = 5
WAIT_S = 20
STUCK_S = 3
"""After its broker comes back, librdkafka may wait forever in send_offsets_to_transaction, whatever
its timeout, without a request in flight: a call that takes this long is given up and restarted."""


class Mover:
    """Starts over after any failure, as a killed process does."""

    def __init__(self, bootstrap: str, request: dict[str, Any]) -> None:
        self._servers = {"bootstrap.servers": bootstrap, "reconnect.backoff.max.ms": 200}
        self._source, self._target = request["source"], request["target"]
        self._group, self._name = request["group"], request["name"]
        self._partitions = request["partitions"]
        self.count = 0
        self.met: list[str] = []
        self._life = 0
        self._since_s: float | None = None
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join(WAIT_S)

    def state(self) -> dict[str, Any]:
        return {"count": self.count, "met": list(self.met)}

    def _run(self) -> None:
        while not self._stopped.is_set():
            self._life, self._since_s = self._life + 1, None
            work = threading.Thread(target=self._attempt, args=(self._life,), daemon=True)
            work.start()
            while work.is_alive():
                work.join(0.1)
                since_s = self._since_s
                if since_s is not None and time.monotonic() - since_s > STUCK_S:
                    self.met.append("stuck")
                    break

    def _attempt(self, life: int) -> None:
        try:
            self._work(life)
        except ck.KafkaException as problem:
            self.met.append(str(problem))
            self._stopped.wait(0.05)

    def _work(self, life: int) -> None:
        producer = ck.Producer({
            **self._servers, "transactional.id": f"{self._group}-{self._name}",
            "transaction.timeout.ms": 20_000, "linger.ms": 1,
        })  # fmt: skip
        producer.init_transactions(WAIT_S)
        consumer = ck.Consumer({
            **self._servers, "group.id": self._group, "group.instance.id": self._name,
            "enable.auto.commit": False, "auto.offset.reset": "earliest",
            "isolation.level": "read_committed", "session.timeout.ms": 2_000,
            "heartbeat.interval.ms": 300, "fetch.wait.max.ms": 50,
        })  # fmt: skip
        try:
            consumer.subscribe([self._source])
            while not self._stopped.is_set() and life == self._life:
                self._move(producer, consumer)
        finally:
            consumer.close()

    def _move(self, producer: ck.Producer, consumer: ck.Consumer) -> None:
        messages = [one for one in consumer.consume(BATCH, 0.2) if one.error() is None]
        if not messages:
            return
        producer.begin_transaction()
        for message in messages:
            number, one, other, amount = map(int, message.value().split(b":"))
            for account, change in ((one, -amount), (other, amount)):
                producer.produce(
                    self._target, b"%d:%d" % (number, change), b"%d" % account,
                    account % self._partitions,
                )  # fmt: skip
        self._since_s = time.monotonic()
        positions = consumer.position(consumer.assignment())
        producer.send_offsets_to_transaction(
            [one for one in positions if one.offset >= 0], consumer.consumer_group_metadata(),
            WAIT_S,
        )  # fmt: skip
        self._since_s = None
        producer.commit_transaction(WAIT_S)
        self.count += len(messages)


class Movers(Agent):
    def do_move(self, request: dict[str, Any]) -> dict[str, Any]:
        self.mover = Mover(self.bootstrap, request)
        self.mover.start()
        return {}

    def do_moved(self, _: dict[str, Any]) -> dict[str, Any]:
        return self.mover.state()

    def do_stop(self, _: dict[str, Any]) -> dict[str, Any]:
        self.mover.stop()
        return self.mover.state()


Movers(sys.argv[1]).serve()
