"""`kafkalog offsets` prints the same for a directory as for the broker that serves it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kafkalog import Broker, Producer
from tests.unit.cli.conftest import Command

DAY_MS = 86_400_000


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """Three topics: `times` with records of several times, `open` with an open transaction, and
    `never` without records."""
    path = tmp_path_factory.mktemp("offsets") / "data"
    with Broker(path, listeners="127.0.0.1:0") as broker:
        for name in ("times", "open", "never"):
            broker.store.create_topic(name, 2)
        with Producer(broker) as producer:
            for at_ms in (DAY_MS, 3 * DAY_MS, 2 * DAY_MS):
                producer.send("times", b"v", partition=1, timestamp_ms=at_ms)
        with Producer(broker, transactional_id="t") as producer:
            producer.begin_transaction()
            for at_ms in (DAY_MS, 2 * DAY_MS):
                producer.send("open", b"v", partition=0, timestamp_ms=at_ms).result()
            yield broker
            producer.abort_transaction()


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["--json"],
        ["--isolation", "read_committed"],
        ["times:1", "open"],
        ["times:0-1,never:1", "--json"],
        ["--partitions", "1"],
        *(["--time", when] for when in ("earliest", "latest", "max-timestamp", "0", "1970-01-03")),
        *(["--time", when] for when in ("earliest-local", "latest-tiered", "86400001")),
        ["--time", "max-timestamp", "--json"],
        ["--time", "1970-01-03", "--isolation", "read_committed", "--json"],
        ["--time", "latest", "--isolation", "read_committed"],
        ["--time", "2026-07-04"],
    ],
    ids=" ".join,
)
def test_a_directory_and_its_broker_say_the_same(
    kafkalog: Command, served: Broker, words: list[str]
) -> None:
    asked = kafkalog("offsets", *words, "--bootstrap-server", served.bootstrap_servers)
    found = kafkalog("offsets", *words, "--dir", served.path)
    assert (found.status, found.out, found.err) == (0, asked.out, "")
    assert asked.out


def test_offsets_are_printed(kafkalog: Command, served: Broker) -> None:
    def ends(*words: str) -> dict[tuple[str, int], tuple[int, int]]:
        rows = kafkalog("offsets", "--dir", served.path, "--json", *words).rows()
        return {(r["topic"], r["partition"]): (r["earliest"], r["latest"]) for r in rows}

    some = {("times", 1): (0, 3), ("never", 0): (0, 0), ("open", 0): (0, 2)}
    assert some.items() <= ends().items()
    assert ends("--isolation", "read_committed")["open", 0] == (0, 0)
    found = kafkalog("offsets", "--dir", served.path, "times:1", "--time", "1970-01-03", "--json")
    assert [(r["offset"], r["timestamp"]) for r in found.rows()] == [(1, 3 * DAY_MS)]


@pytest.mark.parametrize("local", [True, False], ids=["directory", "broker"])
@pytest.mark.parametrize(
    ("when", "offset"),
    [
        ("latest", 3), ("-1", 3),
        ("earliest", 0), ("-2", 0),
        ("max-timestamp", 1), ("-3", 1),
        ("earliest-local", 0), ("-4", 0),
        ("latest-tiered", -1), ("-5", -1),
        (str(DAY_MS), 0), (str(DAY_MS + 1), 1), (str(3 * DAY_MS + 1), -1),
    ],
)  # fmt: skip
def test_times_are_interpreted_as_by_kafka(
    kafkalog: Command, served: Broker, local: bool, when: str, offset: int
) -> None:
    place = ["--dir", served.path] if local else ["--bootstrap-server", served.bootstrap_servers]
    found = kafkalog("offsets", "times:1", f"--time={when}", "--json", *place)
    assert [row["offset"] for row in found.rows()] == [offset], found.err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["tims"], "did you mean times?"),
        (["times:2"], "topic 'times' has no partition 2: it has 2"),
        (["times:x"], "wanted a topic, topic:0 or topic:0,2-5"),
        (["--time", "noon"], "--time: found 'noon'"),
        (["--time=-6"], "--time: found '-6'"),
    ],
)
def test_mistakes_are_one_line(
    kafkalog: Command, served: Broker, words: list[str], told: str
) -> None:
    ran = kafkalog("offsets", "--dir", served.path, *words)
    assert ran.status == 2
    assert told in ran.err and ran.err.count("\n") == 1
