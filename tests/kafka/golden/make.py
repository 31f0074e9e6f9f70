"""Make a case as those in cases/ were made: `python -m tests.kafka.golden.make NAME FOLDER [SEED]`.

Starts the Apache Kafka of the tests on FOLDER/NAME/log, writes a topic for each codec through
librdkafka, and writes down what Kafka's consumer and its log dump say: records.jsonl, ends.jsonl,
dump.txt.  KAFKALOG_SHARED=TOP with FOLDER=TOP/data/kafka has the tests read it in place of the
packed cases; `cases.pack` makes an archive of it.

It makes what the readers of a log need.  Groups, transactions, damage and other versions of Kafka,
which some of the packed cases hold, are not made here.
"""

from __future__ import annotations

import base64
import json
import random
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support import apache
from tests.support.batches import CODECS

RECORDS = 400
START_MS = 1_767_225_600_000
KINDS = ("NoTimestampType", "CreateTime", "LogAppendTime")
SETTINGS = "log.segment.bytes=1048576\nlog.index.interval.bytes=512\n"
LEFT_OUT = ("__cluster_metadata-0", "__consumer_offsets-0", ".lock", "bootstrap.checkpoint")


def text_of(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def write(servers: str, topic: str, codec: str, draw: random.Random) -> None:
    """Records of all kinds, in batches of a few."""
    settings = {"bootstrap.servers": servers, "compression.type": codec, "batch.num.messages": 40}
    producer = Producer({**settings, "linger.ms": 20, "enable.idempotence": draw.random() < 0.5})
    for number in range(RECORDS):
        value = draw.choice((None, b"", draw.randbytes(draw.randrange(300)), b"same " * 40))
        headers = [(draw.choice(("a", "a", "", "é")), draw.choice((None, b"", b"x")))
                   for _ in range(draw.randrange(4))]  # fmt: skip
        producer.produce(
            topic, value, draw.choice((None, b"", b"key-%d" % (number % 7))), 0,
            timestamp=START_MS + draw.randrange(1_000_000), headers=headers,
        )  # fmt: skip
        if number % 100 == 99:
            producer.flush()


def messages(servers: str, topic: str) -> Iterator[Message]:
    """Every record of partition 0, as librdkafka reads them."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "reader",
                         "enable.auto.commit": False})  # fmt: skip
    place = TopicPartition(topic, 0, 0)
    _, end = consumer.get_watermark_offsets(place, timeout=30)
    consumer.assign([place])
    offset = 0
    while offset < end:
        message = consumer.poll(30)
        if message is None or message.error():
            raise RuntimeError(f"{topic}: {message and message.error()} at offset {offset}")
        offset = message.offset() + 1
        yield message
    consumer.close()


def row(message: Message) -> dict[str, Any]:
    kind, timestamp = message.timestamp()
    return {
        "topic": message.topic(), "partition": message.partition(), "offset": message.offset(),
        "timestamp": timestamp, "timestamp_type": KINDS[kind], "key": text_of(message.key()),
        "value": text_of(message.value()), "leader_epoch": message.leader_epoch(),
        "headers": [[name, text_of(value)] for name, value in message.headers() or []],
    }  # fmt: skip


def lines(path: Path, rows: Iterable[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(one) + "\n" for one in rows), encoding="utf-8")


def make(case: Path, seed: int) -> None:
    """The case in a folder that is not there yet."""
    draw = random.Random(seed)
    (case / "expected").mkdir(parents=True)
    topics = [f"{codec}-librdkafka" for codec in CODECS]
    with apache.Broker(case / "log", SETTINGS) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        admin.list_topics(timeout=60)
        for done in admin.create_topics([NewTopic(name, 1, 1) for name in topics]).values():
            done.result(30)
        for topic, codec in zip(topics, CODECS, strict=True):
            write(broker.bootstrap_servers, topic, codec, draw)
        rows = [row(m) for topic in topics for m in messages(broker.bootstrap_servers, topic)]
    lines(case / "expected" / "records.jsonl", rows)
    ends = [{"topic": topic, "partition": 0, "log_start_offset": 0, "high_watermark": RECORDS,
             "last_stable_offset": RECORDS} for topic in topics]  # fmt: skip
    lines(case / "expected" / "ends.jsonl", ends)
    tidy(case)


def tidy(case: Path) -> None:
    """Leave out what a case does not hold, and have Kafka dump what it does."""

    for name in LEFT_OUT:
        path = case / "log" / name
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    for path in case.glob("*.*"):
        path.unlink()  # the broker's settings and what it said
    logs = sorted(str(path.relative_to(case)) for path in case.glob("log/*/*.log"))
    command = apache.java("kafka.tools.DumpLogSegments", "--deep-iteration", "--files",
                          ",".join(logs))  # fmt: skip
    said = subprocess.run(command, cwd=case, capture_output=True, text=True, check=True).stdout
    (case / "expected" / "dump.txt").write_text(said)


if __name__ == "__main__":
    words = sys.argv[1:]
    if len(words) not in (2, 3):
        sys.exit(__doc__)
    make(Path(words[1]) / words[0], int(words[2]) if len(words) == 3 else 1)
