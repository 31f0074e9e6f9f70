"""An application of Kafka Streams as a user that logs in by SASL_SSL, has just the rights that
docs/security.md names, and is slowed down by quotas."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

import kafkalog
from kafkalog.client.calls.acls import AclBinding
from kafkalog.client.calls.users import UserScramCredentialUpsertion
from kafkalog.client.link.connection import Connection
from kafkalog.client.link.transport import Options, parse_servers
from kafkalog.client.login.security import security_of
from kafkalog.config.authorizer import STANDARD_AUTHORIZER
from kafkalog.config.client import ClientConfig
from kafkalog.wire import apis
from tests.kafka.clients import programs, servers
from tests.kafka.streams.application import STREAMS, WAIT_S, Application
from tests.kafka.streams.conftest import SETTINGS
from tests.kafka.streams.test_word_count import PARTITIONS, counts, feed
from tests.support import apache
from tests.support.secured import SCRAM, Papers, jaas, papers
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.java, pytest.mark.long, pytest.mark.timeout(400)]

USER, PASSWORD, MECHANISM = "counter", "counter-S3CRET", "SCRAM-SHA-256"
KIND = "streams"
NAME = programs.STREAMS[KIND]
"""Its application.id."""
INSIDE = f"{NAME}-"
"""The names of its internal topics begin so, as do its transactional ids."""
QUOTAS = {"request_percentage": 1.0, "producer_byte_rate": 20_000.0, "consumer_byte_rate": 50_000.0}


def allowed(kind: str, name: str, operation: str, pattern: str = "literal") -> AclBinding:
    return AclBinding(kind, name, f"User:{USER}", operation, pattern=pattern)


RIGHTS = [
    allowed("topic", "lines", "read"),
    allowed("topic", "counts", "write"),
    allowed("group", NAME, "read"),
    allowed("transactional_id", INSIDE, "write", "prefixed"),
    *(allowed("topic", INSIDE, one, "prefixed") for one in ("read", "write", "delete")),
]
CREATES = allowed("topic", INSIDE, "create", "prefixed")


class Protected(NamedTuple):
    """A broker, and its listener for the application."""

    bootstrap: str
    """Where everybody may do everything."""
    address: str
    client: dict[str, str]
    """The settings of the application as a client."""


def settings(files: Papers, plain: int, port: int) -> dict[str, str]:
    """Those of a broker."""
    where = f"PLAINTEXT://127.0.0.1:{plain},SECURED://127.0.0.1:{port}"
    return {
        **SETTINGS,
        "listeners": where, "advertised.listeners": where,
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SECURED:SASL_SSL",
        "inter.broker.listener.name": "PLAINTEXT",
        "ssl.keystore.type": "PEM", "ssl.keystore.location": str(files.server),
        "sasl.enabled.mechanisms": MECHANISM,
        f"listener.name.secured.{MECHANISM.lower()}.sasl.jaas.config": jaas(SCRAM),
        "authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:ANONYMOUS",
    }  # fmt: skip


@pytest.fixture(params=["kafkalog", "kafka"])
def protected(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Protected]:
    files, plain, port = papers(tmp_path), apache.free_port(), apache.free_port()
    login = jaas(SCRAM, username=USER, password=PASSWORD)
    client = {
        "security.protocol": "SASL_SSL", "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(files.authority),
        "sasl.mechanism": MECHANISM, "sasl.jaas.config": login,
    }  # fmt: skip
    made = servers.SIDES[request.param](
        tmp_path / "data", settings(files, plain, port), port=plain
    )  # fmt: skip
    try:
        with made:
            wait_for(made.answers, "the broker takes connections", WAIT_S)
            yield Protected(made.bootstrap, f"127.0.0.1:{port}", client)
    except servers.Unavailable as reason:
        pytest.skip(str(reason))


@pytest.fixture
def admin(protected: Protected) -> Iterator[kafkalog.Admin]:
    """With the topics, the user and its rights, but for one."""
    with kafkalog.Admin(protected.bootstrap) as made:
        for topic in ("lines", "counts"):
            made.create_topic(topic, PARTITIONS, 1)
        user = UserScramCredentialUpsertion(USER, MECHANISM, PASSWORD)
        made.alter_user_scram_credentials([user]).check()
        made.create_acls(RIGHTS).check()
        yield made


@pytest.fixture
def application(
    protected: Protected, admin: kafkalog.Admin, tmp_path: Path
) -> Iterator[Application]:
    own = {**STREAMS, **protected.client}
    made = Application(KIND, protected.address, tmp_path / "instance", own)
    try:
        made.start()
    except programs.Unavailable as reason:
        pytest.skip(str(reason))
    yield made
    made.kill()


def is_slowed(protected: Protected) -> bool:
    """True if an answer to this user tells it to wait."""
    (address,) = parse_servers(protected.address)
    security = security_of(ClientConfig(protected.client))
    made = Connection(address, Options(security=security))
    try:
        return bool(made.call(apis.METADATA, {"topics": []}, 9).throttle_time_ms)
    finally:
        made.close()


def test_words_are_counted_with_these_rights_and_under_quotas(
    protected: Protected, admin: kafkalog.Admin, application: Application, rng: random.Random
) -> None:
    """Once it may create its internal topics, too."""
    wanted: Counter[str] = Counter()
    feed(protected.bootstrap, rng, wanted)

    def waits() -> bool:
        """Its group is there, and lacks topics."""
        return any(one.group == NAME and str(one.state) == "NotReady"
                   for one in admin.list_groups())  # fmt: skip

    wait_for(waits, "the application comes", WAIT_S)
    assert sorted(admin.list_topics()) == ["counts", "lines"]
    admin.create_acls([CREATES]).check()

    def counted() -> bool:
        return sum(counts(protected.bootstrap).values()) >= wanted.total()

    try:
        wait_for(counted, "words are counted", WAIT_S)
        admin.alter_client_quotas({(("user", USER),): QUOTAS}).check()
        feed(protected.bootstrap, rng, wanted)
        wait_for(lambda: is_slowed(protected), "it is slowed down", WAIT_S)
        wait_for(counted, "words are counted under quotas", WAIT_S)
    except AssertionError as problem:
        raise AssertionError(f"{problem}\n{application.said()}") from None
    assert counts(protected.bootstrap) == dict(wanted)
