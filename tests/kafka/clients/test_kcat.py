"""kcat, the command line client of librdkafka 2.0."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable

import pytest

from tests.kafka.clients.agent import Agent, Record
from tests.kafka.clients.servers import Server

T0 = 1_700_000_000_000

pytestmark = pytest.mark.skipif(shutil.which("kcat") is None, reason="no kcat on this machine")


@pytest.fixture
def kcat(server: Server) -> Callable[..., str]:
    """`kcat(*arguments, text="")`: its output."""

    def run(*arguments: str, text: str = "") -> str:
        done = subprocess.run(
            ["kcat", "-b", server.bootstrap, *arguments], input=text, capture_output=True,
            text=True, timeout=60,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_there_and_back(
    kcat: Callable[..., str], codec: str, agent: Callable[[str], Agent],
    new_topic: Callable[..., str],
) -> None:  # fmt: skip
    topic = new_topic()
    lines = "".join(f"key{i}:{'value ' * (i % 7)}{i}\n" for i in range(100))
    kcat("-P", "-t", topic, "-K:", "-z", codec, "-H", "a=1", "-H", "b=", text=lines)
    rows = [json.loads(line) for line in kcat("-C", "-t", topic, "-e", "-q", "-J").splitlines()]
    assert [f"{row['key']}:{row['payload']}\n" for row in rows] == lines.splitlines(True)
    assert all(row["headers"] == ["a", "1", "b", ""] for row in rows)
    assert [row["offset"] for row in rows] == list(range(100))
    assert [r.key for r in agent("java").consume(topic, 3, 97)] == [b"key97", b"key98", b"key99"]


def test_offsets_and_times(
    kcat: Callable[..., str], agent: Callable[[str], Agent], new_topic: Callable[..., str]
) -> None:
    topic = new_topic()
    sent = [Record(None, b"%d" % i, (), T0 + i * 1000) for i in range(30)]
    agent("confluent").produce(topic, sent)
    read = ("-C", "-t", topic, "-p", "0", "-e", "-q", "-f", "%o %s %T\n")
    assert kcat(*read, "-o", "-3").split("\n")[0] == f"27 27 {T0 + 27_000}"
    assert len(kcat(*read, "-o", "12", "-c", "5").splitlines()) == 5
    assert kcat(*read, "-o", f"s@{T0 + 9_500}", "-o", f"e@{T0 + 12_000}").split("\n")[:-1] == [
        f"{i} {i} {T0 + i * 1000}" for i in (10, 11)
    ]
    assert f"{topic} [0] offset 10" in kcat("-Q", "-t", f"{topic}:0:{T0 + 9_500}")


def test_metadata(kcat: Callable[..., str], server: Server, new_topic: Callable[..., str]) -> None:
    topic = new_topic(3)
    said = json.loads(kcat("-L", "-J", "-t", topic))
    (broker,) = said["brokers"]
    assert broker["name"] == server.bootstrap
    (found,) = said["topics"]
    assert sorted(part["partition"] for part in found["partitions"]) == [0, 1, 2]
    assert {part["leader"] for part in found["partitions"]} == {broker["id"]}


def test_a_group(
    kcat: Callable[..., str], agent: Callable[[str], Agent], new_topic: Callable[..., str],
    new_group: str,
) -> None:  # fmt: skip
    topic = new_topic(2)
    for number in (0, 1):
        agent("confluent").produce(topic, [Record(None, b"x")] * 5, partition=number)
    given = ("-G", new_group, "-X", "auto.offset.reset=earliest", "-e", "-q", topic)
    assert len(kcat(*given).splitlines()) == 10
    assert agent("confluent").committed(new_group, topic, [0, 1]) == [5, 5]
    assert kcat(*given) == ""
