"""Kafka's own command line tools, from its jars."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.kafka.clients.agent import Agent, Record
from tests.kafka.clients.servers import Server
from tests.support import apache

pytestmark = [pytest.mark.java, pytest.mark.slow]

T0 = 1_700_000_000_000
TOOLS = "org.apache.kafka.tools"


@pytest.fixture
def tool(server: Server) -> Callable[..., str]:
    """`tool(main class, *arguments, text="", bootstrap="--bootstrap-server")`: its output.

    `bootstrap` is the option for the address; "" leaves the address out.
    """

    def run(
        main: str, *arguments: str, text: str = "", bootstrap: str = "--bootstrap-server"
    ) -> str:
        address = (bootstrap, server.bootstrap) if bootstrap else ()
        try:
            return apache.ask(main, *address, *arguments, text=text)
        except apache.Unavailable as reason:
            pytest.skip(str(reason))

    return run


def test_topics(tool: Callable[..., str], admin: Any, wait_until: Callable[..., None]) -> None:
    topics = f"{TOOLS}.TopicCommand"
    settings = ("--config", "retention.ms=86400000", "--config", "cleanup.policy=compact")
    named = ("--topic", "made-by-the-tool")
    tool(topics, "--create", *named, "--partitions", "3", *settings)
    said = tool(topics, "--describe", *named)
    assert "PartitionCount: 3" in said and "ReplicationFactor: 1" in said
    assert "cleanup.policy=compact" in said and "retention.ms=86400000" in said
    assert said.count("Isr: 1") == 3
    tool(topics, "--alter", *named, "--partitions", "4")
    assert "made-by-the-tool" in tool(topics, "--list").splitlines()
    assert len(admin.partitions("made-by-the-tool")) == 4
    tool(topics, "--delete", *named)
    wait_until(
        lambda: "made-by-the-tool" not in admin.client.list_topics(timeout=10).topics, "it is gone"
    )


def test_settings(tool: Callable[..., str], new_topic: Callable[..., str]) -> None:
    configs, topic = f"{TOOLS}.ConfigCommand", new_topic()
    entity = ("--entity-type", "topics", "--entity-name", topic)
    tool(configs, "--alter", *entity, "--add-config", "retention.bytes=12345,segment.ms=60000")
    assert "retention.bytes=12345" in tool(configs, "--describe", *entity)
    tool(configs, "--alter", *entity, "--delete-config", "segment.ms")
    said = tool(configs, "--describe", *entity)
    assert "retention.bytes=12345" in said and "segment.ms" not in said


def test_levels_of_loggers(tool: Callable[..., str]) -> None:
    configs, entity = f"{TOOLS}.ConfigCommand", ("--entity-type", "broker-loggers")
    one = (*entity, "--entity-name", "1")
    assert "root=" in tool(configs, "--describe", *one)
    logger = "kafkalog.server.share_effects"
    tool(configs, "--alter", *one, "--add-config", f"{logger}=TRACE")
    assert f"{logger}=TRACE" in tool(configs, "--describe", *one)
    tool(configs, "--alter", *one, "--delete-config", logger)
    assert f"{logger}=TRACE" not in tool(configs, "--describe", *one)


def test_groups_and_offsets(
    tool: Callable[..., str], agent: Callable[[str], Agent], new_topic: Callable[..., str],
    new_group: str, wait_until: Callable[..., None],
) -> None:  # fmt: skip
    groups, topic = f"{TOOLS}.consumer.group.ConsumerGroupCommand", new_topic(2)
    one = agent("confluent")
    for number in (0, 1):
        records = [Record(None, b"x", (), T0 + i * 1000) for i in range(10)]
        one.produce(topic, records, partition=number)
    member = one.join(new_group, [topic])
    wait_until(lambda: len(member.state().seen) == 20, "all is read")
    member.commit()
    named = ("--group", new_group)
    rows = [line.split() for line in tool(groups, "--describe", *named).splitlines()]
    assert {(row[1], row[2], row[3], row[5]) for row in rows if row and row[0] == new_group} == {
        (topic, "0", "10", "0"), (topic, "1", "10", "0"),
    }  # fmt: skip
    assert "Stable" in tool(groups, "--describe", "--state", *named)
    assert new_group in tool(groups, "--list").split()
    member.leave()

    reset = ("--reset-offsets", *named, "--topic", topic, "--execute")
    tool(groups, *reset, "--to-datetime", "2023-11-14T22:13:25.000")
    assert one.committed(new_group, topic, [0, 1]) == [5, 5]
    tool(groups, *reset, "--shift-by", "-2")
    assert one.committed(new_group, topic, [0, 1]) == [3, 3]
    said = tool(f"{TOOLS}.GetOffsetShell", "--topic", topic)
    assert said.splitlines() == [f"{topic}:0:10", f"{topic}:1:10"]
    tool(groups, "--delete", *named)
    assert new_group not in tool(groups, "--list").split()


def test_the_console(tool: Callable[..., str], new_topic: Callable[..., str]) -> None:
    topic = new_topic()
    given = ("--reader-property", "parse.key=true", "--reader-property", "key.separator=:")
    lines = "".join(f"k{i}:line {i}\n" for i in range(20))
    tool(f"{TOOLS}.ConsoleProducer", "--topic", topic, *given, text=lines)
    shown = ("--formatter-property", "print.key=true", "--formatter-property", "key.separator=:")
    said = tool(
        f"{TOOLS}.consumer.ConsoleConsumer", "--topic", topic, "--from-beginning",
        "--max-messages", "20", *shown,
    )  # fmt: skip
    assert said == lines


def test_records_are_deleted_and_directories_described(
    tool: Callable[..., str], agent: Callable[[str], Agent], new_topic: Callable[..., str],
    tmp_path: Any,
) -> None:  # fmt: skip
    topic = new_topic()
    agent("confluent").produce(topic, [Record(None, b"%d" % i) for i in range(10)])
    wanted = tmp_path / "offsets.json"
    wanted.write_text(f'{{"partitions": [{{"topic": "{topic}", "partition": 0, "offset": 4}}]}}')
    tool(f"{TOOLS}.DeleteRecordsCommand", "--offset-json-file", str(wanted))
    assert tool(f"{TOOLS}.GetOffsetShell", "--topic", topic, "--time", "-2") == f"{topic}:0:4\n"
    assert agent("confluent").offset_at(topic, 0) == 4
    said = tool(f"{TOOLS}.LogDirsCommand", "--describe", "--topic-list", topic)
    assert f'"partition":"{topic}-0"' in said


def test_the_performance_tools(
    tool: Callable[..., str], server: Server, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(2)
    said = tool(
        f"{TOOLS}.ProducerPerformance", "--topic", topic, "--num-records", "20000",
        "--record-size", "200", "--throughput", "-1", "--producer-props",
        f"bootstrap.servers={server.bootstrap}", "compression.type=lz4",
        bootstrap="",
    )  # fmt: skip
    assert "20000 records sent" in said
    said = tool(f"{TOOLS}.ConsumerPerformance", "--topic", topic, "--messages", "20000")
    assert said.splitlines()[-1].split(", ")[4] == "20000"
