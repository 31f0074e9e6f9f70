"""Protection: TLS 1.3, logins by SCRAM, ACLs, compared with Apache Kafka and with none.

librdkafka's C program (benchmarks/broker/load.c) produces with acks=1 and consumes over loopback.
Both brokers have the same `server.properties`, keys (ECDSA P-256) and users; neither kernel TLS nor
sendfile is used.  Logins: eight threads of one Python process, each with one connection after
another (TCP, a full TLS 1.3 handshake, SCRAM-SHA-256 with 4,096 iterations, whose key the client
derives only once, close).  10,000 ACLs: one allows everything that the client does, the others are
literal, for other topics and other users; both sides are kafkalog, with and without them.  An idle
connection: resident memory with 1,000 connections, each after one request, beyond that before.
"""

from __future__ import annotations

import os
import ssl
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from benchmarks.broker import programs
from benchmarks.broker.brokers import KAFKA, OURS
from benchmarks.broker.secured import SecuredKafka, SecuredOurs, client_settings, log_in
from benchmarks.broker.wire import Connection
from benchmarks.measure import Part, Side, Want, scaled
from benchmarks.memory import made_ready
from benchmarks.rivals import kafka_broker
from kafkalog.client.admin import Admin
from kafkalog.client.calls.acls import AclBinding
from tests.support.secured import ALICE, Papers, papers

SIZE = 1000
BYTES = 400_000_000
THREADS = 8
LOGINS = 1_600
IDLE = 1_000
ACLS = 10_000
ACLS_A_CALL = 1_000
SPEED, CPU = 2.5, 1 / 0.4
OPEN, GUARDED = "kafkalog, no authorizer", "kafkalog, 10,000 ACLs"
AS_GOOD = 0.97
Secured = SecuredOurs | SecuredKafka


class Made(NamedTuple):
    files: Papers
    brokers: dict[str, Secured]


@pytest.fixture(scope="module")
def made(module_folder: Path) -> Iterator[Made]:
    """Both brokers, for all rows."""
    try:
        programs.program("load")
    except programs.Missing as reason:
        pytest.skip(str(reason))
    files = papers(module_folder)
    with ExitStack() as running:
        brokers: dict[str, Secured] = {OURS: _ours(running, module_folder / "ours", files)}
        if not kafka_broker.unavailable():
            brokers[KAFKA] = SecuredKafka(module_folder / "kafka" / "data", files)
            running.enter_context(brokers[KAFKA])
        yield Made(files, brokers)


def _ours(running: ExitStack, home: Path, files: Papers, authorizer: bool = False) -> SecuredOurs:
    home.mkdir()
    broker = SecuredOurs(home / "data", files, authorizer)
    running.enter_context(broker)
    return broker


def both(key: str, work: str, wants: list[Want], cpu: list[Want]) -> list[Part]:
    return [
        Part(key, f"{work}, bytes of values", "B/s", wants),
        Part(f"{key}-cpu", f"{work}, the broker's CPU time", "s/GB", cpu),
    ]


def produced(
    broker: Secured, at: str, key: str, settings: dict[str, str]
) -> Callable[[], dict[str, float]]:
    """A fresh topic, filled; bytes a second and CPU seconds per GB."""
    count = scaled(BYTES // SIZE, 1000)

    def once() -> dict[str, float]:
        topic = broker.new_topic()
        before_s = broker.cpu_s()
        taken_s = programs.load("produce", at, topic, count, SIZE, 1, 1, acks=1, **settings)[
            "seconds"
        ]
        cpu_s = broker.cpu_s() - before_s
        broker.drop_topic(topic)
        return {key: count * SIZE / taken_s, f"{key}-cpu": cpu_s / (count * SIZE / 1e9)}

    return once


def test_tls_produce(measure_together: Any, made: Made) -> None:
    key, settings = "security-tls-produce", client_settings(made.files, "SSL")
    sides = {
        name: produced(broker, f"127.0.0.1:{broker.ports.ssl}", key, settings)
        for name, broker in made.brokers.items()
    }
    parts = both(
        key, f"TLS 1.3: produce {SIZE} B", [Want(OURS, than=KAFKA, factor=SPEED)],
        [Want(OURS, than=KAFKA, factor=CPU)],
    )  # fmt: skip
    measure_together(parts, sides, jvm=True, writes=BYTES)


def test_tls_consume(measure_together: Any, made: Made) -> None:
    key, settings = "security-tls-consume", client_settings(made.files, "SSL")
    count = scaled(BYTES // SIZE, 1000)

    def side(broker: Secured) -> Callable[[], dict[str, float]]:
        topic = broker.new_topic()
        made_ready(count * SIZE)
        programs.load("produce", broker.bootstrap, topic, count, SIZE, 1, 1, acks=1)

        def once() -> dict[str, float]:
            before_s = broker.cpu_s()
            at = f"127.0.0.1:{broker.ports.ssl}"
            taken_s = programs.load("consume", at, topic, count, 1, 1, **settings)["seconds"]
            cpu_s = broker.cpu_s() - before_s
            return {key: count * SIZE / taken_s, f"{key}-cpu": cpu_s / (count * SIZE / 1e9)}

        return once

    sides = {name: side(broker) for name, broker in made.brokers.items()}
    os.sync()
    parts = both(
        key, f"TLS 1.3: consume {SIZE} B", [Want(OURS, than=KAFKA, factor=SPEED)],
        [Want(OURS, than=KAFKA, factor=CPU)],
    )  # fmt: skip
    measure_together(parts, sides, jvm=True)


def test_logins(measure_together: Any, made: Made) -> None:
    key, count = "security-logins", scaled(LOGINS, THREADS)

    def side(broker: Secured) -> Callable[[], dict[str, float]]:
        context = ssl.create_default_context(cafile=made.files.authority)

        def one(_: int) -> None:
            log_in(context, broker.ports.sasl_ssl)

        def once() -> dict[str, float]:
            before_s, start_s = broker.cpu_s(), time.perf_counter()
            with ThreadPoolExecutor(THREADS) as threads:
                list(threads.map(one, range(count)))
            taken_s = time.perf_counter() - start_s
            return {key: count / taken_s, f"{key}-cpu": (broker.cpu_s() - before_s) / count}

        return once

    parts = [
        Part(key, "TLS 1.3 and SCRAM-SHA-256: logins", "/s", [Want(OURS, than=KAFKA, factor=2)]),
        Part(f"{key}-cpu", "TLS 1.3 and SCRAM-SHA-256: the broker's CPU time of a login", "s"),
    ]
    measure_together(parts, {name: side(broker) for name, broker in made.brokers.items()}, jvm=True)


def test_idle(measure: Any, made: Made) -> None:
    broker, count = made.brokers[OURS], scaled(IDLE, 50)
    context = ssl.create_default_context(cafile=made.files.authority)

    def idle() -> float:
        before = broker.memory_bytes()
        with ExitStack() as kept:
            for _ in range(count):
                connection = Connection(f"127.0.0.1:{broker.ports.ssl}", context)
                kept.enter_context(connection).ask("API_VERSIONS", 0, {})
            return (broker.memory_bytes() - before) / count

    measure(
        "security-idle", "TLS 1.3: memory of an idle connection", [Side(OURS, count, idle)],
        [Want(OURS, 40_000)], unit="B", rounds=1, cold="later connections reuse memory",
    )  # fmt: skip


def test_acls(measure_together: Any, made: Made, module_folder: Path) -> None:
    key, settings = "security-acls", client_settings(made.files, "SASL_PLAINTEXT")
    with ExitStack() as running:
        guarded = _ours(running, module_folder / "guarded", made.files, authorizer=True)
        _fill(guarded)
        brokers = {GUARDED: guarded, OPEN: made.brokers[OURS]}
        sides = {
            name: produced(broker, f"127.0.0.1:{broker.ports.sasl_plaintext}", key, settings)
            for name, broker in brokers.items()
        }
        work = f"SASL_PLAINTEXT: produce {SIZE} B"
        measure_together(
            both(key, work, [Want(GUARDED, than=OPEN, factor=AS_GOOD)], []),
            sides,
            rounds=15,
            jvm=False,
            writes=BYTES,
        )


def _fill(broker: SecuredOurs) -> None:
    """The ACLs: of the client one that allows all its topics, 9,999 of others."""
    rules = [AclBinding("topic", "topic-", f"User:{ALICE}", "all", pattern="prefixed")]
    rules += [
        AclBinding("topic", f"other-{number}", f"User:user-{number % 100}", "read")
        for number in range(ACLS - 1)
    ]
    with Admin(broker.bootstrap) as admin:
        for first in range(0, ACLS, ACLS_A_CALL):
            done = admin.create_acls(rules[first : first + ACLS_A_CALL])
            assert not done.errors, done
