"""Shared by the recipes of all cases: a broker of Kafka's, producers, its answers in files."""

from __future__ import annotations

import base64
import json
import random
import shutil
import subprocess
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support import apache
from tests.support.raw import Raw
from tests.support.waiting import wait_for

START_MS = 1_767_225_600_000
KINDS = ("NoTimestampType", "CreateTime", "LogAppendTime")
SETTINGS = (
    "log.retention.ms=-1\nlog.index.interval.bytes=512\nlog.initial.task.delay.ms=200\n"
    "log.message.timestamp.after.max.ms=9223372036854775807\n"
)
METADATA = "__cluster_metadata-0"
LEFT_OUT = (".lock", "bootstrap.checkpoint")
EARLIEST, LATEST, MAX_TIMESTAMP = -2, -1, -3
PATIENCE_S = 60
DUMPED = (".index", ".log", ".snapshot", ".timeindex", ".txnindex")


def until(condition: Callable[[], Any], what: str) -> Any:
    """The first true value of `condition`, which may take Kafka a while."""
    return wait_for(condition, what, PATIENCE_S, pause_s=0.1)


def text_of(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def row(message: Message) -> dict[str, Any]:
    """A line of records.jsonl."""
    kind, timestamp = message.timestamp()
    return {
        "topic": message.topic(), "partition": message.partition(), "offset": message.offset(),
        "timestamp": timestamp, "timestamp_type": KINDS[kind], "key": text_of(message.key()),
        "value": text_of(message.value()), "leader_epoch": message.leader_epoch(),
        "headers": [[name, text_of(value)] for name, value in message.headers() or []],
    }  # fmt: skip


def id_of(topic: Any) -> str:
    """A described topic's id as Kafka writes it; librdkafka uses the other base64 alphabet."""
    return str(topic.topic_id).replace("+", "-").replace("/", "_")


class Making:
    """A case that is being made; everything random in it comes from `draw`."""

    def __init__(self, case: Path, seed: int) -> None:
        self.case = case
        self.draw = random.Random(seed)
        self.topics: dict[str, int] = {}
        """The topics of the case, with their numbers of partitions."""
        self.servers = ""
        self.kept: list[object] = []
        """Clients whose transactions and memberships are open when the case ends."""
        (case / "expected").mkdir(parents=True)

    @property
    def log(self) -> Path:
        """Kafka's log.dirs."""
        return self.case / "log"

    @contextmanager
    def broker(self, settings: str = "") -> Iterator[AdminClient]:
        """Kafka runs inside the block, and answers."""
        with apache.Broker(self.log, SETTINGS + settings) as broker:
            self.servers = broker.bootstrap_servers
            yield AdminClient({"bootstrap.servers": self.servers})

    def make(self, admin: AdminClient, topic: str, partitions: int = 1, **config: object) -> str:
        """Create a topic; settings with underscores for dots.  It is writable on return."""
        given = {name.replace("_", "."): str(value) for name, value in config.items()}
        admin.create_topics([NewTopic(topic, partitions, 1, config=given)])[topic].result(30)
        self.topics[topic] = partitions
        for partition in range(partitions):
            until(lambda p=partition: self.offset(topic, p, LATEST) is not None, f"{topic} leads")
        return topic

    def configure(self, kind: int, name: str, **config: str) -> None:
        """Change settings of a topic or broker; underscores for dots."""
        with Raw(self.servers) as raw:
            found = raw.alter(kind, name, **config)
        if found.error_code:
            raise RuntimeError(f"{name}: {found.error_message}")

    def producer(self, **settings: object) -> Producer:
        """A producer of librdkafka's; settings by their names with underscores."""
        given = {name.replace("_", "."): value for name, value in settings.items()}
        return Producer({"bootstrap.servers": self.servers, "linger.ms": 50, **given})

    def send(
        self, producer: Producer, topic: str, count: int, *, partition: int = 0,
        time_ms: int | None = None, step_ms: int = 1000, keys: int = 7, tombstones: float = 0.1,
    ) -> None:  # fmt: skip
        """Send one batch of records of all kinds."""
        for number in range(count):
            key = b"key-%d" % self.draw.randrange(keys)
            value = None if self.draw.random() < tombstones else self.draw.choice(
                (b"", self.draw.randbytes(self.draw.randrange(300)), b"same " * 40)
            )  # fmt: skip
            headers = [(self.draw.choice(("a", "a", "", "é")), self.draw.choice((None, b"", b"x")))
                       for _ in range(self.draw.randrange(3))]  # fmt: skip
            stamp = {} if time_ms is None else {"timestamp": time_ms + number * step_ms}
            producer.produce(topic, value, key, partition, headers=headers, **stamp)
        producer.flush()

    # ---- Kafka's answers ---------------------------------------------------------------------

    def messages(self, topic: str, partition: int, committed: bool) -> Iterator[Message]:
        """Every record of a partition, as librdkafka reads it."""
        level = "read_committed" if committed else "read_uncommitted"
        consumer = Consumer({"bootstrap.servers": self.servers, "group.id": "maker",
                             "enable.auto.commit": False, "enable.partition.eof": True,
                             "auto.offset.reset": "error", "isolation.level": level})  # fmt: skip
        start = self.offset(topic, partition, EARLIEST)
        consumer.assign([TopicPartition(topic, partition, start["offset"])])
        while True:
            message = consumer.poll(PATIENCE_S)
            if message is None:
                raise RuntimeError(f"{topic}-{partition}: nothing in {PATIENCE_S} s")
            if (problem := message.error()) is not None:
                if problem.code() == KafkaError._PARTITION_EOF:
                    break
                raise RuntimeError(f"{topic}-{partition}: {problem}")
            yield message
        consumer.close()

    def offset(
        self, topic: str, partition: int, query: int, committed: bool = False
    ) -> dict[str, Any] | None:
        """ListOffsets: offset, timestamp and leader epoch, null if there is none; None while the
        partition has no leader yet."""
        with Raw(self.servers) as raw:
            found = raw.offsets(topic, query, partition, isolation_level=int(committed))
        if found.error_code:
            return None
        fields = {"offset": found.offset, "timestamp": found.timestamp,
                  "leader_epoch": found.leader_epoch}  # fmt: skip
        return {name: None if value < 0 else value for name, value in fields.items()}

    def answers(self, lookups: Sequence[int] = ()) -> None:
        """Write records.jsonl and its kin for the case's topics; `lookups`: times to look up."""
        places = [(topic, n) for topic, count in self.topics.items() for n in range(count)]
        every = [row(m) for place in places for m in self.messages(*place, committed=False)]
        self.lines("records.jsonl", every)
        committed = [row(m) for place in places for m in self.messages(*place, committed=True)]
        if committed != every:
            self.lines("records.committed.jsonl", committed)
        ends, found = [], []
        for topic, partition in places:
            names = {"topic": topic, "partition": partition}
            at = {query: self.offset(topic, partition, query) or {} for query in (EARLIEST, LATEST)}
            stable = self.offset(topic, partition, LATEST, committed=True) or {}
            ends.append({**names, "log_start_offset": at[EARLIEST]["offset"],
                         "high_watermark": at[LATEST]["offset"],
                         "last_stable_offset": stable["offset"]})  # fmt: skip
            asked: dict[Any, int] = {"earliest": EARLIEST, "latest": LATEST,
                                     "max_timestamp": MAX_TIMESTAMP}  # fmt: skip
            for query, number in {**{ms: ms for ms in lookups}, **asked}.items():
                found.append({**names, "query": query,
                              **(self.offset(topic, partition, number) or {})})  # fmt: skip
        self.lines("ends.jsonl", ends)
        if lookups:
            self.lines("lookups.jsonl", found)

    def lines(self, name: str, rows: Iterable[dict[str, Any]]) -> None:
        """Write a file of expected/."""
        text = "".join(json.dumps(one) + "\n" for one in rows)
        (self.case / "expected" / name).write_text(text, encoding="utf-8")

    def json(self, name: str, what: object) -> None:
        """Write a file of expected/."""
        text = json.dumps(what, indent=1, ensure_ascii=False, sort_keys=True)
        (self.case / "expected" / name).write_text(text + "\n", encoding="utf-8")

    # ---- the end -----------------------------------------------------------------------------

    def tidy(self, *internal: str) -> None:
        """Remove everything that is not part of the case, and have Kafka dump the rest.

        `internal`: Kafka's own topics that stay, such as `__cluster_metadata`.
        """
        for path in self.log.iterdir():
            topic = path.name.rpartition("-")[0]
            foreign = path.is_dir() and topic not in (*self.topics, *internal)
            if foreign or path.name in LEFT_OUT:
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        for path in self.case.glob("*.*"):
            path.unlink()  # the broker's settings and its output
        decoders = {
            "__consumer_offsets": "--offsets-decoder",
            "__transaction_state": "--transaction-log-decoder",
            "__cluster_metadata": "--cluster-metadata-decoder",
            "__share_group_state": "--share-group-state-decoder",
        }
        files: dict[str | None, list[str]] = {}
        for path in sorted(self.case.glob("log/*/*.*")):
            if path.suffix not in DUMPED:
                continue
            topic = path.parent.name.rpartition("-")[0]
            whose = topic if topic in decoders and path.suffix == ".log" else None
            files.setdefault(whose, []).append(str(path.relative_to(self.case)))
        for topic, logs in files.items():
            deep = [decoders[topic]] if topic else ["--deep-iteration"]
            command = apache.java(apache.DUMP, *deep, "--files", ",".join(logs))
            said = subprocess.run(
                command, cwd=self.case, capture_output=True, text=True, check=True
            ).stdout
            name = f"dump.{topic.removeprefix('__')}.txt" if topic else "dump.txt"
            (self.case / "expected" / name).write_text(said)
