"""librdkafka's tests against a broker, in their quick mode, one process each.

The source is part of the package of Confluent's client for JavaScript.  Four test files (0053,
0098, 0101, 0110) are empty if they were built without RapidJSON.  A test that fails aborts its
whole process, so each has its own; tests that need no broker are left out (-L), among them 0133,
which reads key files.  Some run a second time by TLS and SCRAM: those that send by every kind of
request, and those that skip themselves without a login; 0097 by TLS with the certificate of a
client, in every format.  There answers come a little late: 0097 refuses the broker's certificate
and wants the error `_SSL`, but librdkafka calls it a broken transport if the certificate has come
before it looks whether it may write (rd_kafka_transport_ssl_io_event).  A fast broker loses that
race: without a delay the test fails now and then with Apache Kafka 4.4.0, too.  Those with members
of groups run again with `group.protocol=consumer`.  0126 skips itself: it wants a build with curl
and an identity provider.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import re
import shlex
import shutil
from collections.abc import Collection, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.hazmat.primitives.serialization.pkcs12 import serialize_key_and_certificates
from cryptography.x509 import load_pem_x509_certificate

from tests.kafka.clients.proxy import Proxy
from tests.kafka.suites.suite import Outcome, Place, Suite, call, fetched
from tests.support import apache

PACKAGE = "@confluentinc/kafka-javascript@1.10.1"
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
SECURED = {
    "SASL_SSL": ("0001", "0012", "0081", "0084", "0103", "0135", "0142"),
    "SSL": ("0001", "0097"),
}
"""The tests that run again, by security protocol."""
KEY_PASSWORD = "kept"
LATE_S = 0.1
"""How late answers come by TLS; see above."""
_LINE = re.compile(r"^\| (\d{4}_\S+)\s+\| .*?(PASSED|FAILED|SKIPPED) ", re.MULTILINE)
_MEMBER = re.compile(r"group\.id|test_create_consumer|rd_kafka_subscribe|->subscribe")
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


def _one(tests: Path, bootstrap: str, run: Pass, number: str) -> Outcome:
    env = {
        **run.env,
        "TESTS": number, "TEST_LEVEL": "1", "TEST_KAFKA_VERSION": apache.VERSION,
        # Not the one that the system may have.
        "LD_LIBRARY_PATH": f"{tests.parent / 'src'}:{tests.parent / 'src-cpp'}",
        "KAFKA_PATH": str(tests / "kafka"), "BROKERS": bootstrap,
        "RDKAFKA_TEST_CONF": str(run.conf),
    }  # fmt: skip
    command = ["timeout", str(TEST_S), "./test-runner", "-Q", "-L", "-p1"]
    text = call(command, tests, TEST_S + 10, env, log=f"{number}{run.end}.log".replace(" ", "-"))
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


class Pass(NamedTuple):
    """A run of some tests with one protocol."""

    end: str
    """The end of their names here."""
    protocol: str
    """The listener's security protocol."""
    conf: Path
    """The tests' settings."""
    env: Mapping[str, str]
    """More of the environment."""
    tests: Collection[str] | None
    """Their numbers; None: all."""


def _key_files(folder: Path, place: Place) -> dict[str, str]:
    """The client's key and certificate, and the authority's, in the formats of 0097."""
    pem, trusted = place.client.read_bytes(), place.authority.read_bytes()
    key = load_pem_private_key(pem, None)
    own, authority = load_pem_x509_certificate(pem), load_pem_x509_certificate(trusted)
    assert isinstance(key, EllipticCurvePrivateKey)
    wall = BestAvailableEncryption(KEY_PASSWORD.encode())
    found = {
        "SSL_pkcs": serialize_key_and_certificates(b"client", key, own, [authority], wall),
        "SSL_pub_der": own.public_bytes(Encoding.DER),
        "SSL_pub_pem": own.public_bytes(Encoding.PEM),
        "SSL_priv_der": key.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption()),
        "SSL_priv_pem": key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
        "SSL_ca_der": authority.public_bytes(Encoding.DER),
        "SSL_all_cas_pem": trusted,
    }
    folder.mkdir(exist_ok=True)
    for name, data in found.items():
        (folder / name).write_bytes(data)
    return {name: str(folder / name) for name in found}


def _of_groups(tests: Path) -> set[str]:
    """The numbers of the tests with members of consumer groups."""
    found = [path for path in tests.glob("0[01]*-*.c*") if _MEMBER.search(path.read_text())]
    return {path.name[:4] for path in found if "share_consumer" not in path.name}


def _passes(tests: Path, place: Place) -> Iterator[Pass]:
    files = _key_files(tests / "keys", place)
    trust = {"ssl.ca.location": place.authority}
    login = {
        "sasl.mechanisms": "SCRAM-SHA-512", "sasl.username": USER, "sasl.password": PASSWORD,
    }  # fmt: skip
    own = {"ssl.certificate.location": files["SSL_pub_pem"],
           "ssl.key.location": files["SSL_priv_pem"], "ssl.key.password": KEY_PASSWORD}  # fmt: skip
    env = {**files, "SSL_password": KEY_PASSWORD, "SSL_client_auth": "requested"}
    ways: dict[str, tuple[dict[str, Any], dict[str, str]]] = {
        "PLAINTEXT": ({}, {}), "SASL_SSL": ({**trust, **login}, {}), "SSL": ({**trust, **own}, env),
    }  # fmt: skip
    for name, (more, given) in ways.items():
        conf = tests / f"{name}.conf"
        found = {"bootstrap.servers": place.at[name], "security.protocol": name,
                 "test.timeout.multiplier": PATIENCE, **more}  # fmt: skip
        conf.write_text("".join(f"{key}={value}\n" for key, value in found.items()))
        end = f" by {name}" if name in SECURED else ""
        yield Pass(end, name, conf, given, SECURED.get(name))
        if name == "PLAINTEXT":
            newer = {"TEST_CONSUMER_GROUP_PROTOCOL": "consumer"}
            yield Pass(" in the consumer protocol", name, conf, newer, _of_groups(tests))


def run(folder: Path, place: Place, only: str | None) -> dict[str, Outcome]:
    host, port = place.at["SSL"].rsplit(":", 1)
    with contextlib.closing(Proxy((host, int(port)), LATE_S)) as late:
        late.start()
        at = {**place.at, "SSL": f"{host}:{late.port}"}
        return _all(folder, place._replace(at=at), only)


def _all(folder: Path, place: Place, only: str | None) -> dict[str, Outcome]:
    tests = folder / "librdkafka" / "tests"
    _commands(tests / "kafka")
    every = sorted({path.name[:4] for path in tests.glob(f"{only or '0[01]*'}-*.c*")})
    found: dict[str, Outcome] = {}
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        for one in _passes(tests, place):
            numbers = [n for n in every if one.tests is None or n in one.tests]
            do = partial(_one, tests, place.at[one.protocol], one)
            names = (f"{number}{one.end}" for number in numbers)
            found.update(zip(names, pool.map(do, numbers), strict=True))
    return found


SUITE = Suite(
    "librdkafka", "2.15.1", prepare, run,
    excused={
        "0101": "three brokers, one of them a follower that is read from",
        "0101 in the consumer protocol": "the same",
        "0118 in the consumer protocol": "fails now and then: the member that subscribes first is "
        "to be the first to join",
    },
    settings={
        "auto.create.topics.enable": "true", "num.partitions": "4",
        "connections.max.reauth.ms": str(REAUTH_MS),
        "listener.name.ssl.ssl.client.auth": "requested",
    },
    listeners={"SASL_SSL": None, "SSL": None},
    scram=[(USER, "SCRAM-SHA-512", PASSWORD)],
)  # fmt: skip
