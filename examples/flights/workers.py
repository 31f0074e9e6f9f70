"""The step with a work queue: a share group, whose workers share one partition."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from source import Flight
from tour import check, code, say

import kafkalog

TOPIC, GROUP = "announcements", "speakers"
WORKERS, AT_ONCE, TRIES, PATIENCE_S = 4, 10, 3, 60
ASKED_MS = 50
"""Workers hear of each other soon; by default after some seconds."""
CONFIG = {
    f"group.share.{name}.interval.ms": ASKED_MS
    for name in ("min.heartbeat", "heartbeat", "assignment")
}
FEW = {
    "share.acknowledgement.mode": "explicit", "share.acquire.mode": "record_limit",
    "max.poll.records": AT_ONCE,
}  # fmt: skip
"""So that the jobs of one batch go to several workers."""
DAMAGED = b"\x00"


class Queue:
    """The jobs, and what became of them."""

    def __init__(self, servers: str, count: int) -> None:
        self.servers, self.count = servers, count
        self.done: Counter[bytes] = Counter()
        self.by_worker: Counter[int] = Counter()
        self.again = self.given_up = 0
        self._lock = threading.Lock()

    @property
    def finished(self) -> bool:
        return len(self.done) == self.count and self.given_up > 0

    def work(self, number: int, most: int | None = None) -> None:
        """One worker; `most`: it goes away with the jobs that it holds once it has had so many."""
        with kafkalog.ShareConsumer(self.servers, TOPIC, group=GROUP, config=FEW) as jobs:
            had, ends_s = 0, time.monotonic() + PATIENCE_S
            while not self.finished and time.monotonic() < ends_s:
                held = jobs.poll(ASKED_MS)
                had += len(held)
                if most is not None and had >= most:
                    return
                for job in held:
                    jobs.acknowledge(job, self._try(number, job.value or b"", job.delivery_count))

    def _try(self, number: int, job: bytes, delivery: int) -> str:
        """Do a job; returns what becomes of it."""
        with self._lock:
            try:
                json.loads(job)
            except ValueError:
                self.given_up += delivery == TRIES
                return "reject" if delivery == TRIES else "release"
            self.done[job] += 1
            self.by_worker[number] += 1
            self.again += delivery > 1
            return "accept"


def share_the_work(directory: Path, flights: Sequence[Flight]) -> None:
    """Four workers, of which one goes away with its jobs; one job cannot be done."""
    code('with kafkalog.ShareConsumer(servers, "announcements", group="speakers", ...) as jobs:')
    code("    for job in jobs:")
    code("        jobs.acknowledge(job)")
    wanted = dict.fromkeys(flight.value for flight in flights)
    with kafkalog.Broker(directory, config=CONFIG) as broker:
        servers = broker.bootstrap_servers
        with kafkalog.Admin(servers) as admin, kafkalog.Producer(servers) as producer:
            admin.create_topics([(TOPIC, 1, 1)]).check()
            admin.alter_configs({("group", GROUP): {"share.auto.offset.reset": "earliest"}}).check()
            producer.send_many(TOPIC, [*wanted, DAMAGED]).result(PATIENCE_S)
        queue = Queue(servers, len(wanted))
        queue.work(0, AT_ONCE)
        threads = [threading.Thread(target=queue.work, args=(n,)) for n in range(1, WORKERS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    shares = ", ".join(f"{queue.by_worker[n]:,}" for n in range(1, WORKERS))
    say(f"one partition; the workers that stayed did {shares} jobs")
    check(queue.done.keys() == wanted.keys(), f"all {len(wanted):,} jobs are done")
    check(max(queue.done.values()) == 1, "each by one worker, which acknowledged it")
    check(queue.again == AT_ONCE, f"{AT_ONCE} of them again, as their worker had gone away")
    check(queue.given_up == 1, f"the one that nobody can do is put aside after {TRIES} tries")
