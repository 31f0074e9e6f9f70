"""A directory with SCRAM credentials and delegation tokens goes from Apache Kafka to us and back:
users log in with the same passwords, and both give the same answers to the same changes."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kafkalog.config.declare import Password
from kafkalog.controller.tokens import Rules, create_token
from kafkalog.directory.manager import Manager
from kafkalog.disk.secret import SECRET
from kafkalog.kraft.records import decode, encode
from kafkalog.metadata.image import empty_image
from kafkalog.security.principal import Principal
from kafkalog.security.scram import Mechanism, credential_of, salted_password
from kafkalog.security.tokens import Token, hmac_of
from kafkalog.server.broker import Broker, node_of
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode
from tests.support import apache
from tests.support.raw import Raw
from tests.support.sasl import SCRAM_MODULE, scram, settings

pytestmark = [pytest.mark.java, pytest.mark.long, pytest.mark.timeout(300)]

SHA_256, SHA_512 = Mechanism.SCRAM_SHA_256, Mechanism.SCRAM_SHA_512
FORMATTED = (
    *("--add-scram", "SCRAM-SHA-256=[name=alice,password=secret,salt=c2FsdA==,iterations=8192]"),
    *("--add-scram", "SCRAM-SHA-512=[name=alice,password=secret]"),
)
KEY = "s3cret"
DAY_MS = 86_400_000
ALICE, BOB = Principal("User", "alice"), Principal("User", "bob")
KINDS = ("UserScramCredentialRecord", "RemoveUserScramCredentialRecord")
PROTOCOLS = "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT"


class Secured(apache.Broker):
    """Apache Kafka with a plain listener and one for SCRAM."""

    def __init__(self, directory: Path) -> None:
        plain, controller, self.sasl = (apache.free_port() for _ in range(3))
        listeners = f"PLAINTEXT://127.0.0.1:{plain},SASL_PLAINTEXT://127.0.0.1:{self.sasl}"
        super().__init__(
            directory,
            f"""
listeners={listeners},CONTROLLER://127.0.0.1:{controller}
advertised.listeners={listeners}
controller.quorum.voters=1@127.0.0.1:{controller}
listener.security.protocol.map={PROTOCOLS}
delegation.token.secret.key={KEY}
sasl.enabled.mechanisms=SCRAM-SHA-256,SCRAM-SHA-512
listener.name.sasl_plaintext.scram-sha-256.sasl.jaas.config={SCRAM_MODULE} required;
listener.name.sasl_plaintext.scram-sha-512.sasl.jaas.config={SCRAM_MODULE} required;
""",
            port=plain,
            formatted=FORMATTED,
        )

    def login(
        self, mechanism: Mechanism, user: str, password: str, by_token: bool = False
    ) -> Raw | None:
        """A connection that authenticated with our side of the exchange; None: it was refused."""
        raw = Raw(f"127.0.0.1:{self.sasl}")
        if scram(raw, user, password, mechanism.sasl_name, by_token=by_token).error_code:
            raw.socket.close()
            return None
        return raw


def upsertion(user: str, mechanism: int = 1, iterations: int = 4096, **more: Any) -> Any:
    salted = salted_password(SHA_256, "pencil", b"salt", 4096)
    return {"name": user, "mechanism": mechanism, "iterations": iterations, "salt": b"salt",
            "salted_password": salted, **more}  # fmt: skip


def deletion(user: str, mechanism: int = 1) -> dict[str, Any]:
    return {"name": user, "mechanism": mechanism}


CHANGES = [
    [upsertion("carol"), upsertion("b,=x", 2, 16384)],
    [upsertion("carol"), upsertion("carol", 2)],
    [upsertion("dave"), upsertion("dave"), deletion("dave")],
    [deletion("carol"), upsertion("carol")],
    [deletion("nobody"), deletion("carol", 2), upsertion("", 1), deletion("", 1)],
    [upsertion("x", 0), deletion("y", 3), upsertion("z", 1, 4095), upsertion("w", 1, 16385)],
    [upsertion("x", 0, 1), upsertion("z", -1), upsertion("w", 1, -5)],
    [deletion("b,=x", 2), upsertion("erin", 2, 4096, salt=b""), upsertion("carol", 1, 5000)],
    [upsertion("frank", 1, 4096, salted_password=b"short")],
    [],
]
ASKED = [None, [], ["alice"], ["alice", "alice"], ["nobody", "carol"], ["erin", ""]]


def answers(raw: Raw) -> Iterator[Any]:
    """The answers to the same changes and questions."""
    for changes in CHANGES:
        found = raw.call(
            apis.ALTER_USER_SCRAM_CREDENTIALS,
            deletions=[one for one in changes if "salt" not in one],
            upsertions=[one for one in changes if "salt" in one],
        )
        yield sorted((one.user, one.error_code, one.error_message) for one in found.results)
    for users in ASKED:
        names = None if users is None else [{"name": user} for user in users]
        found = raw.call(apis.DESCRIBE_USER_SCRAM_CREDENTIALS, users=names)
        rows = [
            (one.user, one.error_code, one.error_message,
             sorted((info.mechanism, info.iterations) for info in one.credential_infos))
            for one in found.results
        ]  # fmt: skip
        yield found.error_code, found.error_message, sorted(rows)


def token_of(kafka: Secured) -> Any:
    """A token that alice creates in Kafka, which bob may renew."""
    alice = kafka.login(SHA_256, "alice", "secret")
    assert alice is not None
    renewers = [{"principal_type": "User", "principal_name": "bob"}]
    made = alice.call(
        apis.CREATE_DELEGATION_TOKEN, owner_principal_type=None, owner_principal_name=None,
        renewers=renewers, max_lifetime_ms=-1,
    )  # fmt: skip
    assert made.error_code == 0
    at_ms = made.issue_timestamp_ms
    assert (made.expiry_timestamp_ms, made.max_timestamp_ms) == (
        at_ms + DAY_MS, at_ms + 7 * DAY_MS
    )  # fmt: skip
    return made


def records(directory: Path) -> list[bytes]:
    """The bytes of the records about credentials in the metadata log, in order."""
    found = []
    with Manager(directory, mode="r") as manager:
        for record in manager.get("__cluster_metadata", 0):
            if record.value and not isinstance(entry := decode(bytes(record.value)), str):
                found += [bytes(record.value)] if entry.name in KINDS else []
    return found


def changed_here(directory: Path, token: Any) -> Any:
    """Change credentials in our broker and create a token, which is returned; `token`: Kafka's."""
    both = "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0"
    with Broker(directory, both, settings("PLAIN")) as broker:
        assert (directory / SECRET).exists()  # Kafka ignores it
        known = node_of(broker).image.scram
        assert known["alice", 1] == credential_of(SHA_256, "secret", 8192, b"salt")
        image = node_of(broker).image
        assert hmac_of(Password(KEY), token.token_id) == token.hmac
        assert image.tokens == {token.token_id: Token(
            token.token_id, ALICE, ALICE, (BOB,), token.issue_timestamp_ms,
            token.max_timestamp_ms, token.expiry_timestamp_ms,
        )}  # fmt: skip
        rules = Rules(Password(KEY), 7 * DAY_MS, DAY_MS, token.issue_timestamp_ms)
        ours_made = partial(
            create_token, rules=rules, token_id="ours", owner=BOB, requester=ALICE, renewers=[],
            lifetime_ms=-1,
        )  # fmt: skip
        (made,) = node_of(broker).controller_apis.alter(ours_made)
        with Raw(broker.bootstrap_servers.partition(",")[0]) as raw:
            for user, mechanism in (("bob", SHA_256), ("f,=o", SHA_512)):
                salted = salted_password(mechanism, "pencil", b"pepper", 4096)
                new = upsertion(user, mechanism, salt=b"pepper", salted_password=salted)
                raw.call(apis.ALTER_USER_SCRAM_CREDENTIALS, deletions=[], upsertions=[new])
            gone = [deletion("alice"), deletion("odd")]
            raw.call(apis.ALTER_USER_SCRAM_CREDENTIALS, deletions=gone, upsertions=[])
    return made


def test_a_directory_with_credentials_changes_hands(kafka_jars: Path, tmp_path: Path) -> None:
    theirs, ours = tmp_path / "kafka" / "data", tmp_path / "ours"
    theirs.parent.mkdir()
    with Secured(theirs) as kafka:
        with Raw(kafka.bootstrap_servers) as raw:
            said = list(answers(raw))
            odd = [[upsertion("odd", 1, 4096, salted_password=b"")],
                   [upsertion("odd", salt=b"s" * 2000)]]  # fmt: skip
            empty, long = (
                raw.call(apis.ALTER_USER_SCRAM_CREDENTIALS, deletions=[], upsertions=one)
                .results[0] for one in odd
            )  # fmt: skip
        assert kafka.login(SHA_256, "alice", "secret") and kafka.login(SHA_512, "alice", "secret")
        assert kafka.login(SHA_256, "carol", "wrong") is None
        token = token_of(kafka)
        assert kafka.stop() in (0, 143)
    # Two differences: we say what is wrong with an empty password, and have a longest salt.
    assert empty.error_code == ErrorCode.UNKNOWN_SERVER_ERROR and long.error_code == 0
    made = changed_here(theirs, token)
    with Secured(theirs) as kafka:
        for name, password, caller in (("ours", made["hmac"], "bob"),
                                       (token.token_id, token.hmac, "alice")):  # fmt: skip
            by_token = kafka.login(SHA_512, name, b64encode(password).decode(), by_token=True)
            assert by_token is not None, caller
            refused = by_token.call(apis.DESCRIBE_DELEGATION_TOKEN, owners=None)
            assert refused.error_code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
        assert kafka.login(SHA_256, "bob", "pencil") and kafka.login(SHA_512, "f,=o", "pencil")
        assert kafka.login(SHA_512, "alice", "secret") and not kafka.login(SHA_256, "alice", "x")
        assert kafka.stop() in (0, 143)
    # The same changes here, from the same start.
    with Broker(ours) as broker, Raw(broker.bootstrap_servers) as raw:
        first = [upsertion("alice", 1, 8192), upsertion("alice", 2)]
        for one in first:
            raw.call(apis.ALTER_USER_SCRAM_CREDENTIALS, deletions=[], upsertions=[one])
        assert list(answers(raw)) == said
    image = empty_image("", 1)
    written = [decode(one) for one in records(theirs)]
    assert [encode(one.name, one.fields, image) for one in written] == records(theirs)
    mine = {one for one in records(ours) if b"alice" not in one}
    assert mine <= set(records(theirs)) and len(mine) > 5
