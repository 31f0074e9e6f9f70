"""Records through every client, every codec, and back: nothing is lost, added or changed."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.kafka.clients.agent import Agent, ClientError, Record
from tests.kafka.clients.programs import CLIENTS

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
T0 = 1_700_000_000_000
READER = "confluent"
LARGE_BYTES = 2_500_000
BUILT_IN = {"kafkajs": {"none", "gzip"}}


def has(name: str, codec: str) -> bool:
    return codec in BUILT_IN.get(name, CODECS)


def rows(name: str, count: int = 60) -> list[Record]:
    """Keys, values and headers in every shape that a client can send; times out of order."""
    # Not every client supports null in headers; kafkajs groups headers by name.
    headers: tuple[tuple[tuple[str, bytes | None], ...], ...] = (
        (),
        (("h", b"1"),),
        (("a", b""), ("a", b"x"), ("ü", b"\xff\x00")),
    )
    if name not in ("kafkajs", "kafka-python"):
        headers += ((("n", None), ("m", b"1"), ("n", b"2")),)
    return [
        Record(
            (None, b"", b"key-%d" % i, b"\x00\xff")[i % 4],
            (b"value %d " % i * (1 + i % 5), None, b"")[0 if i % 11 else i % 3],
            headers[i % len(headers)],
            T0 + i * 10 - (i % 7) * 35,
        )
        for i in range(count)
    ]


def same(found: list[Record], sent: list[Record], offsets: list[int]) -> None:
    assert [record.offset for record in found] == offsets
    assert [record._replace(offset=None) for record in found] == sent


@pytest.mark.parametrize("codec", CODECS)
def test_produced_by_each_client(
    client: Agent, codec: str, agent: Callable[[str], Agent], new_topic: Callable[..., str]
) -> None:
    if not has(client.name, codec):
        pytest.skip(f"{client.name} has no {codec}")
    topic, sent = new_topic(), rows(client.name)
    offsets = client.produce(topic, sent, codec)
    assert offsets == list(range(len(sent)))
    same(agent(READER).consume(topic, len(sent)), sent, offsets)


@pytest.fixture(scope="module")
def everybodys(
    agent: Callable[[str], Agent], new_topic: Callable[..., str]
) -> Callable[[set[str]], tuple[str, list[Record]]]:
    """A topic with records of every client in a set of codecs, and these records."""
    made: dict[frozenset[str], tuple[str, list[Record]]] = {}

    def get(codecs: set[str]) -> tuple[str, list[Record]]:
        key = frozenset(codecs)
        if key not in made:
            made[key] = (new_topic(), [])
            topic, sent = made[key]
            for name in ("confluent", "kafka-python", "aiokafka"):
                for codec in sorted(codecs):
                    more = rows("kafkajs", 20)
                    agent(name).produce(topic, more, codec)
                    sent += more
        return made[key]

    return get


def test_consumed_by_each_client(
    client: Agent, everybodys: Callable[[set[str]], tuple[str, list[Record]]]
) -> None:
    topic, sent = everybodys({codec for codec in CODECS if has(client.name, codec)})
    same(client.consume(topic, len(sent)), sent, list(range(len(sent))))


def test_consumed_from_the_middle_of_a_batch(
    client: Agent, everybodys: Callable[[set[str]], tuple[str, list[Record]]]
) -> None:
    topic, sent = everybodys({codec for codec in CODECS if has(client.name, codec)})
    same(client.consume(topic, 10, 7), sent[7:17], list(range(7, 17)))


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_acks(client: Agent, acks: str, new_topic: Callable[..., str]) -> None:
    topic, sent = new_topic(), rows("kafkajs", 30)
    offsets = client.produce(topic, sent, acks=acks)
    if acks != "0":
        assert offsets == list(range(30))
    same(client.consume(topic, 30), sent, list(range(30)))


def test_idempotent_producers(client: Agent, new_topic: Callable[..., str]) -> None:
    topic, sent = new_topic(), rows("kafkajs", 30)
    assert client.produce(topic, sent, "gzip", idempotent=True) == list(range(30))
    assert client.produce(topic, sent, "none", idempotent=True) == list(range(30, 60))
    same(client.consume(topic, 60), sent + sent, list(range(60)))


def test_large_records(client: Agent, new_topic: Callable[..., str]) -> None:
    topic = new_topic(max_message_bytes=str(4 << 20))
    sent = [
        Record(b"k", bytes([65 + i]) * size, (), T0 + i)
        for i, size in enumerate([LARGE_BYTES, 10, LARGE_BYTES // 2])
    ]
    assert client.produce(topic, sent[:1]) + client.produce(topic, sent[1:]) == [0, 1, 2]
    same(client.consume(topic, 3), sent, [0, 1, 2])


def test_a_record_that_is_too_large_is_refused(
    client: Agent, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(max_message_bytes="5000")
    with pytest.raises(ClientError, match=r"(?i)large|MESSAGE_TOO|size|larger"):
        client.produce(topic, [Record(b"k", bytes(20_000), (), T0)])
    sent = [Record(b"k", b"small", (), T0)]
    assert client.produce(topic, sent) == [0]


def test_times_of_the_log(client: Agent, new_topic: Callable[..., str]) -> None:
    """With LogAppendTime every reader sees the broker's time, whatever was sent."""
    topic = new_topic(message_timestamp_type="LogAppendTime")
    client.produce(topic, [Record(b"k", b"v%d" % i, (), T0) for i in range(5)])
    times = [record.timestamp_ms or 0 for record in client.consume(topic, 5)]
    assert times == sorted(times) and times[0] > T0 + 1_000_000


def test_offsets_by_time(client: Agent, new_topic: Callable[..., str]) -> None:
    topic = new_topic()
    for start in (0, 10, 20):
        batch = [Record(None, b"%d" % i, (), T0 + i * 1000) for i in range(start, start + 10)]
        client.produce(topic, batch)
    asked = {T0 - 5: 0, T0: 0, T0 + 1: 1, T0 + 12_500: 13, T0 + 29_000: 29, T0 + 29_001: 30}
    assert {time: client.offset_at(topic, time) for time in asked} == asked


def test_every_codec_is_tried() -> None:
    assert sum(has(name, codec) for name in CLIENTS for codec in CODECS) == 7 * 5 - 3
