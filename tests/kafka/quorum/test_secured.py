"""A broker of ours and one of Apache Kafka under a controller of Apache Kafka, with SASL_SSL
everywhere: users, ACLs, quotas and delegation tokens are those of the metadata log."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import kafkalog
from kafkalog import errors
from kafkalog.client.calls.acls import AclBinding, AclBindingFilter
from kafkalog.client.calls.users import UserScramCredentialUpsertion
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode
from tests.kafka.quorum.nodes import KAFKA, OURS, Quorum, until
from tests.kafka.quorum.secured import MECHANISM, by_scram, dressed
from tests.support import apache
from tests.support.secured import ALICE, PASSWORD, Papers, papers

pytestmark = [pytest.mark.java, pytest.mark.long, pytest.mark.timeout(600)]
THEIRS, MINE = 2, 3


@pytest.fixture(scope="module")
def files(memory: Path) -> Papers:
    folder = memory / "papers"
    folder.mkdir()
    return papers(folder)


@pytest.fixture(scope="module")
def quorum(memory: Path, files: Papers) -> Iterator[Quorum]:
    try:
        with Quorum(memory / "secured", [THEIRS, MINE], dress=dressed(files)) as running:
            running.nodes[THEIRS].begin(KAFKA)
            running.nodes[MINE].begin(OURS)
            running.all_known()
            yield running
    except apache.Unavailable as reason:
        pytest.skip(f"Apache Kafka cannot run here: {reason}")


@pytest.fixture(scope="module")
def alice(files: Papers) -> dict[str, str]:
    return by_scram(files, ALICE, PASSWORD)


def asked(quorum: Quorum, node: int, client: dict[str, str], api: Any, **body: Any) -> Any:
    """The answer of one broker to a client."""
    with quorum.nodes[node].connection(client) as made:
        return made.call(api, body, min(made.version_of(api), api.max_version))


def accepted(quorum: Quorum, node: int, client: dict[str, str]) -> bool:
    """True if a broker lets a client in."""
    try:
        return bool(asked(quorum, node, client, apis.METADATA, topics=[]).cluster_id)
    except errors.SaslAuthenticationFailed:
        return False


def test_each_kind_leads_and_follows(quorum: Quorum) -> None:
    """With acks=all, a group, and a transaction over both: everything between nodes logs in."""
    quorum.create("each", [THEIRS, MINE], [MINE, THEIRS])
    for partition in (0, 1):
        quorum.in_sync("each", THEIRS, MINE, partition=partition)
        quorum.produce("each", range(partition * 50, partition * 50 + 50), partition)
    for number in range(4):  # their coordinators are on both
        name = f"writer-{number}"
        with (
            kafkalog.Producer(
                quorum.bootstrap, transactional_id=name, config=quorum.client
            ) as producer,
            producer.transaction(),
        ):
            for partition in (0, 1):
                producer.send("each", b"%d" % (100 + number), partition=partition)
    wanted = sorted([*range(100), *range(100, 104), *range(100, 104)])
    for group in ("first", "second"):
        assert quorum.consumed("each", 108, group) == [b"%d" % n for n in wanted]
    for partition in (0, 1):
        assert quorum.same("each", THEIRS, MINE, partition=partition)


def test_a_user_made_by_either_broker_logs_in_to_both(quorum: Quorum, files: Papers) -> None:
    """A wrong password, and a user that is deleted, do not."""
    for number, node in enumerate((MINE, THEIRS)):
        user = f"user{number}"
        with kafkalog.Admin(quorum.nodes[node].address, config=quorum.client) as admin:
            upsertion = UserScramCredentialUpsertion(user, MECHANISM, "S3CRET")
            admin.alter_user_scram_credentials([upsertion]).check()
        for one in (MINE, THEIRS):
            until(lambda u=user, n=one: accepted(quorum, n, by_scram(files, u, "S3CRET")), "in")
            assert not accepted(quorum, one, by_scram(files, user, "wrong"))


def created(quorum: Quorum, node: int, client: dict[str, str], topic: str) -> int:
    row = {"name": topic, "num_partitions": 1, "replication_factor": 2, "assignments": [],
           "configs": []}  # fmt: skip
    answer = asked(quorum, node, client, apis.CREATE_TOPICS, topics=[row], timeout_ms=9000)
    return int(answer.topics[0].error_code)


def test_acls_are_obeyed_by_brokers_and_controller(quorum: Quorum, alice: dict[str, str]) -> None:
    """Those that either broker was given; forwarded requests are checked as their client's."""
    denied = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    for node in (MINE, THEIRS):
        assert created(quorum, node, alice, "alices") == denied
        answer = asked(quorum, node, alice, apis.CREATE_ACLS, creations=[])
        rows = asked(quorum, node, alice, apis.DESCRIBE_CLIENT_QUOTAS, components=[], strict=False)
        assert rows.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        assert [*answer.results] == []
    for number, node in enumerate((MINE, THEIRS)):
        topic = f"alices{number}"
        with kafkalog.Admin(quorum.nodes[node].address, config=quorum.client) as admin:
            admin.create_acls([
                AclBinding("topic", topic, f"User:{ALICE}", right)
                for right in ("create", "write", "read")
            ]).check()  # fmt: skip
        # The controller has them already, whichever broker forwards.
        other = THEIRS if node == MINE else MINE
        assert created(quorum, other, alice, topic) == 0
        until(lambda t=topic: quorum.row(MINE, t) and quorum.row(THEIRS, t), "both know the topic")
        with kafkalog.Producer(quorum.bootstrap, config=alice) as producer:

            def written(t: str = topic, to: kafkalog.Producer = producer) -> bool:
                try:
                    return bool(to.send(t, b"1", partition=0).result(30) is not None)
                except errors.AuthorizationFailed:
                    return False

            until(written, "the leader has the ACL")
        with kafkalog.Admin(quorum.nodes[other].address, config=quorum.client) as admin:
            admin.delete_acls([AclBindingFilter("topic", topic)]).check()
        for one in (MINE, THEIRS):
            until(lambda t=topic, n=one: not _seen(quorum, n, alice, t), "it is denied again")


def _seen(quorum: Quorum, node: int, client: dict[str, str], topic: str) -> bool:
    (row,) = asked(quorum, node, client, apis.METADATA, topics=[{"name": topic}]).topics
    return not row.error_code


def test_tokens_work_at_both(quorum: Quorum, files: Papers, alice: dict[str, str]) -> None:
    """Made by one broker, used at both, renewed and ended by the other."""
    for node in (MINE, THEIRS):
        with kafkalog.Admin(quorum.nodes[node].address, config=alice) as admin:
            token = admin.create_delegation_token()
        assert token.owner == f"User:{ALICE}"
        login = by_scram(files, token.token_id, token.password, tokenauth="true")
        for one in (MINE, THEIRS):
            until(lambda n=one, c=login: accepted(quorum, n, c), "the token is accepted")
            refused = asked(quorum, one, login, apis.CREATE_DELEGATION_TOKEN, renewers=[],
                            max_lifetime_ms=-1)  # fmt: skip
            assert refused.error_code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
            seen = asked(quorum, one, alice, apis.DESCRIBE_DELEGATION_TOKEN, owners=None).tokens
            assert {(row.token_id, bytes(row.hmac)) for row in seen} == {
                (token.token_id, token.hmac)
            }
            # The envelope says that the client logged in by a token, and as whom.
            assert created(quorum, one, login, "no right") == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        other = THEIRS if node == MINE else MINE
        renewed = asked(quorum, other, alice, apis.RENEW_DELEGATION_TOKEN, hmac=token.hmac,
                        renew_period_ms=3_600_000)  # fmt: skip
        assert (renewed.error_code, renewed.expiry_timestamp_ms < token.expiry_ms) == (0, True)
        ended = asked(quorum, other, alice, apis.EXPIRE_DELEGATION_TOKEN, hmac=token.hmac,
                      expiry_time_period_ms=-1)  # fmt: skip
        assert ended.error_code == 0
        for one in (MINE, THEIRS):
            until(lambda n=one, c=login: not accepted(quorum, n, c), "it is refused")


def test_quotas_of_either_are_enforced(quorum: Quorum, alice: dict[str, str]) -> None:
    """controller_mutation_rate by the controller, whose throttle time the client gets."""
    entity = (("user", ALICE),)
    for node in (MINE, THEIRS):
        with kafkalog.Admin(quorum.nodes[node].address, config=quorum.client) as admin:
            admin.alter_client_quotas({
                entity: {"controller_mutation_rate": 0.001, "producer_byte_rate": 1000.0 + node}
            }).check()  # fmt: skip
            admin.create_acls([AclBinding("topic", "q", f"User:{ALICE}", "create",
                                          pattern="prefixed")]).check()  # fmt: skip
        for one in (MINE, THEIRS):

            def known(n: int = one, rate: float = 1000.0 + node) -> bool:
                body = {"components": [], "strict": False}
                rows = asked(quorum, n, quorum.client, apis.DESCRIBE_CLIENT_QUOTAS, **body).entries
                return any(v.value == rate for row in rows for v in row.values)

            until(known, "the quota is known")
    for node in (MINE, THEIRS):
        row = {"num_partitions": 40, "replication_factor": 1, "assignments": [], "configs": []}
        codes = []
        for number in range(3):
            rows = [{"name": f"q{node}{number}", **row}]
            answer = asked(quorum, node, alice, apis.CREATE_TOPICS, topics=rows, timeout_ms=9000)
            codes.append(answer.topics[0].error_code)
        assert ErrorCode.THROTTLING_QUOTA_EXCEEDED in codes
        assert answer.throttle_time_ms > 0


def test_a_partition_moves_from_each_kind_to_the_other(quorum: Quorum) -> None:
    """All its records, to a node that had none of it."""
    quorum.create("moved", [THEIRS], [MINE], min_insync_replicas="1")
    for partition in (0, 1):
        quorum.produce("moved", range(100), partition)
    with kafkalog.Admin(quorum.bootstrap, config=quorum.client) as admin:
        places = {("moved", 0): [MINE], ("moved", 1): [THEIRS]}
        admin.alter_partition_reassignments(places).check()
        until(lambda: not admin.list_partition_reassignments(), "both have moved")
    for partition, node in enumerate((MINE, THEIRS)):
        quorum.in_sync("moved", node, partition=partition)
    assert quorum.consumed("moved", 200, "mover") == [b"%d" % (n // 2) for n in range(200)]


def test_the_controller_restarts(quorum: Quorum) -> None:
    """Brokers log in to it again."""
    quorum.controller.kill()
    quorum.controller.begin()
    quorum.all_known()
    quorum.create("later", [MINE, THEIRS])
    quorum.produce("later", range(50))
    assert quorum.same("later", THEIRS, MINE)


def test_the_metadata_logs_are_equal(quorum: Quorum) -> None:
    """Byte for byte; and no password is in any output of ours."""
    assert not any(word in quorum.nodes[MINE].output() for word in (PASSWORD, "S3CRET"))
    for number in (MINE, THEIRS):
        quorum.nodes[number].stop()
    quorum.controller.stop()
    assert quorum.same_metadata(MINE, THEIRS) > 5_000
