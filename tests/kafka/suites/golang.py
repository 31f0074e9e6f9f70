"""franz-go's and kafka-go's tests, out of the module cache."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from kafkalog import Admin
from tests.kafka.suites.suite import RUN_S, Outcome, Place, Suite, call, copied
from tests.support import apache

_WORDS: dict[str, Outcome] = {"pass": "passed", "fail": "failed", "skip": "skipped"}
_GIVEN = "test-writer-0"
"""A topic that kafka-go's tests of SASL expect."""
_FRANZ_USER, _FRANZ_PASSWORD = "franz", "franz-secret"


def _fetch(module: str, folder: Path) -> Path:
    """The module's source, in a folder that its tests may write to."""
    told = json.loads(call(["go", "mod", "download", "-json", module], folder))
    copied(Path(told["Dir"]), folder / "module")
    return folder / "module"


def _run(package: Path, env: Mapping[str, str], only: str | None) -> dict[str, Outcome]:
    """The result of each top-level test of a package."""
    which = [f"-run=^{only}$"] if only else []
    command = ["go", "test", "-json", "-count=1", f"-timeout={RUN_S}s", *which, "."]
    outcomes: dict[str, Outcome] = {}
    for line in call(command, package, RUN_S + 60, env).splitlines():
        event = json.loads(line) if line.startswith("{") else {}
        name = event.get("Test", "")
        if not name or "/" in name:
            continue
        if event["Action"] == "run":
            outcomes[name] = "failed"  # until its result is known
        elif event["Action"] in _WORDS:
            outcomes[name] = _WORDS[event["Action"]]
    return outcomes


def _franz_prepare(folder: Path) -> None:
    call(["go", "vet", "."], _fetch("github.com/twmb/franz-go@v1.22.3", folder) / "pkg" / "kgo")


def _franz_run(folder: Path, place: Place, only: str | None) -> dict[str, Outcome]:
    env = {
        "KGO_SEEDS": place.bootstrap, "KGO_TEST_RF": "1", "KGO_TEST_RECORDS": "50000",
        "KGO_TEST_SCRAM_SEEDS": place.at["SASL_PLAINTEXT"],
        "KGO_TEST_SCRAM": f"{_FRANZ_USER}:{_FRANZ_PASSWORD}:256",
    }  # fmt: skip
    return _run(folder / "module" / "pkg" / "kgo", env, only)


def _kafka_go_prepare(folder: Path) -> None:
    module = _fetch("github.com/segmentio/kafka-go@v0.4.51", folder)
    call(["go", "mod", "tidy"], module)
    call(["go", "vet", "."], module)


def _kafka_go_run(folder: Path, place: Place, only: str | None) -> dict[str, Outcome]:
    env = {"KAFKA_VERSION": apache.VERSION, "KAFKA_SKIP_NETTEST": "1"}
    with Admin(place.bootstrap) as admin:
        admin.create_topics([_GIVEN]).check()
    module = folder / "module"
    return {**_run(module / "sasl", env, only), **_run(module, env, only)}


FRANZ_GO = Suite(
    "franz-go", "1.22.3", _franz_prepare, _franz_run, {},
    listeners={"SASL_PLAINTEXT": None},
    scram=[(_FRANZ_USER, "SCRAM-SHA-256", _FRANZ_PASSWORD)],
)  # fmt: skip
KAFKA_GO = Suite(
    "kafka-go", "0.4.51", _kafka_go_prepare, _kafka_go_run,
    excused={
        "TestReaderConsumerGroup": "a null pointer of its own, with Apache Kafka, too",
        "TestConn": "wants no metadata of topics that it has just deleted; asking creates them "
        "again, here before the answer, in Kafka after it; fails with Kafka, too, whose brokers "
        "hear of a deletion late",
    },
    settings={
        "auto.create.topics.enable": "true",
        "group.min.session.timeout.ms": "6000",
        # The tests compare with these.
        "listeners": "PLAINTEXT://127.0.0.1:9092",
        "advertised.listeners": "PLAINTEXT://localhost:9092",
    },
    port=9092,
    # These are written in its tests.
    listeners={"SASL_PLAINTEXT": 9093},
    plain={"adminplain": "admin-secret"},
    scram=[("adminscram256", "SCRAM-SHA-256", "admin-secret-256"),
           ("adminscram512", "SCRAM-SHA-512", "admin-secret-512")],
)  # fmt: skip
