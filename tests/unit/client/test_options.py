"""The tables of docs/clients.md: every name in them is one, here and in the others' packages."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

import kafkalog
from kafkalog.config.admin import AdminConfig
from kafkalog.config.consumer import ConsumerConfig
from kafkalog.config.producer import ProducerConfig

PAGE = Path(__file__).resolve().parents[3] / "docs" / "clients.md"
KINDS = ("Producer", "Consumer", "Admin")
CONFIGS = {"Producer": ProducerConfig, "Consumer": ConsumerConfig, "Admin": AdminConfig}


def names(kind: str, column: int) -> list[str]:
    """The names of a column: ours, Kafka's, confluent-kafka's, kafka-python's."""
    text = PAGE.read_text(encoding="utf-8").partition(f"### {kind}\n")[2]
    table = re.split(r"\n#", text)[0]
    rows = [line.strip("|").split("|") for line in table.splitlines() if line.startswith("|")][2:]
    cells = [row[column].strip() for row in rows]
    assert cells
    assert all(cell == "-" or re.fullmatch(r"`[\w.]+`", cell) for cell in cells), cells
    return [cell.strip("`") for cell in cells if cell != "-"]


@pytest.mark.parametrize("kind", KINDS)
def test_our_names_are_arguments_and_all_that_have_a_word_there_are_told(kind: str) -> None:
    parameters = set(inspect.signature(getattr(kafkalog, kind)).parameters)
    ours = names(kind, 0)
    assert set(ours) <= parameters
    own = {"where", "topics", "pattern", "interceptors", "on_delivery", "config", "clock"}
    assert parameters - set(ours) <= own


@pytest.mark.parametrize("kind", KINDS)
def test_kafkas_names_are_settings(kind: str) -> None:
    assert set(names(kind, 1)) <= set(CONFIGS[kind].table)


@pytest.mark.parametrize("kind", KINDS)
def test_the_names_of_confluent_kafka(kind: str) -> None:
    confluent = pytest.importorskip("confluent_kafka")
    for name in names(kind, 2):
        try:
            # A value that few take: an unknown name is told before a wrong value.
            confluent.Producer({name: "nonsense"}) if kind == "Producer" else confluent.Consumer(
                {"group.id": "g", name: "nonsense"}
            )
        except confluent.KafkaException as problem:
            assert "No such configuration property" not in str(problem), name
        except (TypeError, ValueError):
            continue
    with pytest.raises(confluent.KafkaException, match="No such configuration property"):
        confluent.Producer({"linger.mss": "1"})


@pytest.mark.parametrize("kind", KINDS)
def test_the_names_of_kafka_python(kind: str) -> None:
    kafka = pytest.importorskip("kafka")
    cls = {"Producer": "KafkaProducer", "Consumer": "KafkaConsumer", "Admin": "KafkaAdminClient"}
    assert set(names(kind, 3)) <= set(getattr(kafka, cls[kind]).DEFAULT_CONFIG)
