"""Controllers of ours and a broker under them, all of whose listeners are SASL_SSL."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

import kafkalog
from kafkalog import errors
from kafkalog.client.calls.acls import AclBinding
from kafkalog.client.calls.users import UserScramCredentialUpsertion
from kafkalog.client.link.connection import Connection
from kafkalog.client.link.transport import Options, parse_servers
from kafkalog.client.login.security import security_of
from kafkalog.config.authorizer import STANDARD_AUTHORIZER
from kafkalog.config.client import ClientConfig
from kafkalog.server.broker import node_of
from kafkalog.server.controller import Controller
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode
from tests.support import secured
from tests.support.apache import free_port
from tests.support.certificates import Certificates
from tests.support.controller_nodes import controller, formatted
from tests.support.raw import Raw
from tests.support.secured import ALICE, PASSWORD, PLAIN, jaas
from tests.support.waiting import wait_for

LOGIN, SECRET = "node", "what; nodes=say"
FAST = {"controller.quorum.election.timeout.ms": 300, "controller.quorum.fetch.timeout.ms": 900}
SCRAM, SCRAM_MODULE = "SCRAM-SHA-256", secured.SCRAM
VOTERS = (1, 2, 3)
BROKER = 4


def security(papers: Certificates, password: str, *listeners: str) -> dict[str, object]:
    users = {f"user_{LOGIN}": SECRET, f"user_{ALICE}": PASSWORD}
    login = jaas(PLAIN, username=LOGIN, password=password, **users)
    return {
        "listener.security.protocol.map": "CONTROLLER:SASL_SSL,INSIDE:SASL_SSL",
        **papers.settings(), "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.controller.protocol": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        **{f"listener.name.{one}.plain.sasl.jaas.config": login for one in listeners},
        "authorizer.class.name": STANDARD_AUTHORIZER, "super.users": f"User:{LOGIN}",
        "delegation.token.secret.key": "k3y",
        **({"listener.name.inside.sasl.enabled.mechanisms": f"PLAIN,{SCRAM}"}
           if "inside" in listeners else {}),
    }  # fmt: skip


class Quorum:
    """Three voters; brokers begin on command.  A context manager."""

    def __init__(self, home: Path, voters: Iterable[int] = VOTERS) -> None:
        self.papers = Certificates(home)
        self._home, self._ports = home, {one: free_port() for one in voters}
        self.voters = ",".join(f"{n}@127.0.0.1:{port}" for n, port in self._ports.items())
        self.running: dict[int, Controller] = {}

    def begin(self, number: int, password: str = SECRET) -> Controller:
        config = controller(number, self.voters, self._ports[number])
        path = self._home / str(number)
        if not path.exists():
            formatted(path, number)
        config |= FAST | security(self.papers, password, "controller")
        self.running[number] = Controller(str(path), config)
        return self.running[number]

    def broker(self) -> kafkalog.Broker:
        config: dict[str, object] = {
            "process.roles": "broker", "node.id": BROKER, "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": self.voters, "listeners": "INSIDE://127.0.0.1:0",
            "broker.heartbeat.interval.ms": 50, "inter.broker.listener.name": "INSIDE", **FAST,
            **security(self.papers, SECRET, "controller", "inside"),
        }  # fmt: skip
        return kafkalog.Broker(self._home / str(BROKER), config=config)

    def client(self, user: str, password: str, **scram: str) -> dict[str, str]:
        """By PLAIN; `scram`: options of a login by SCRAM instead."""
        module = SCRAM_MODULE if scram else PLAIN
        return {
            "security.protocol": "SASL_SSL", "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.papers.trust),
            "sasl.mechanism": SCRAM if scram else "PLAIN",
            "sasl.jaas.config": jaas(module, username=user, password=password, **scram),
        }  # fmt: skip

    def leader(self) -> int:
        return wait_for(
            lambda: next((n for n, one in self.running.items() if one.server.replica.is_active), 0),
            "one is active",
        )

    @contextlib.contextmanager
    def connection(self, user: str, password: str) -> Iterator[Connection]:
        """A connection to the active controller."""
        (address,) = parse_servers(self.running[self.leader()].bootstrap_controllers)
        made_of = security_of(ClientConfig(self.client(user, password)))
        with contextlib.closing(Connection(address, Options(security=made_of))) as made:
            yield made

    def __enter__(self) -> Quorum:
        return self

    def __exit__(self, *_: object) -> None:
        for one in self.running.values():
            one.close()


@pytest.fixture
def quorum(tmp_path: Path) -> Iterator[Quorum]:
    with Quorum(tmp_path) as made:
        yield made


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[Quorum]:
    with Quorum(tmp_path, [1]) as made:
        yield made


@pytest.mark.long
def test_voters_log_in_to_each_other_and_brokers_to_them(quorum: Quorum) -> None:
    """The leader ends, another one leads, and the broker follows it."""
    for number in VOTERS:
        quorum.begin(number)
    quorum.leader()
    with quorum.broker() as broker:
        wait_for(lambda: BROKER in node_of(broker).image.living, "the broker is unfenced")
        first = quorum.leader()
        quorum.running.pop(first).close()
        assert quorum.leader() != first
        member = broker._quorum
        assert member is not None
        wait_for(lambda: member._where()[0] not in (-1, first), "the broker knows the next leader")


def test_a_client_of_a_controller_needs_a_login_and_rights(alone: Quorum) -> None:
    """Before its login, nothing is answered; then by its ACLs."""
    quorum = alone
    quorum.begin(1)
    with quorum.connection(LOGIN, SECRET) as made:
        answer = made.call(apis.DESCRIBE_CLUSTER, {"endpoint_type": 2}, 1)
        assert not answer.error_code
    with quorum.connection(ALICE, PASSWORD) as made:
        denied = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        assert made.call(apis.BROKER_HEARTBEAT, {"broker_id": 1}).error_code == denied
        assert made.call(apis.ENVELOPE, {"client_host_address": b""}).error_code == denied
    with pytest.raises(errors.SaslAuthenticationFailed), quorum.connection(ALICE, "wrong"):
        pass
    with Raw(quorum.running[1].bootstrap_controllers) as plain, pytest.raises(OSError):
        plain.call(apis.API_VERSIONS, 0)


@pytest.mark.long
def test_a_voter_with_a_wrong_password_leads_nothing(
    quorum: Quorum, caplog: pytest.LogCaptureFixture
) -> None:
    """It takes no part; the others do, and it is logged without the password."""
    quorum.begin(1, password="wr0ng")
    for number in VOTERS[1:]:
        quorum.begin(number)
    leader = quorum.leader()
    assert leader in VOTERS[1:]
    wait_for(lambda: "do not accept each other" in caplog.text, "it is logged")
    assert "wr0ng" not in caplog.text and SECRET not in caplog.text


@pytest.mark.long
def test_users_acls_tokens_and_quotas_of_a_cluster_of_ours(tmp_path: Path) -> None:
    """Given to the broker, decided by the controller, obeyed by both."""
    with Quorum(tmp_path, [1]) as quorum:
        quorum.begin(1)
        quorum.leader()
        with quorum.broker() as broker:
            place, admins = broker.bootstrap_servers, quorum.client(LOGIN, SECRET)
            image = lambda: node_of(broker).image  # noqa: E731
            with kafkalog.Admin(place, config=admins) as admin:
                admin.alter_user_scram_credentials(
                    [UserScramCredentialUpsertion("carol", SCRAM, "S3CRET")]
                ).check()
                wait_for(lambda: image().scram, "the credential is known")
                carol = quorum.client("carol", "S3CRET", scram="true")
                with kafkalog.Admin(place, config=carol) as her:
                    with pytest.raises(errors.AuthorizationFailed):
                        her.create_topic("t", 1, 1)
                    admin.create_acls([
                        AclBinding("topic", "t", "User:carol", one)
                        for one in ("create", "read", "write")
                    ]).check()  # fmt: skip
                    her.create_topic("t", 1, 1)
                    token = her.create_delegation_token()
                wait_for(lambda: image().tokens and image().acls, "both are known")
                by_token = quorum.client(token.token_id, token.password, tokenauth="true")
                with kafkalog.Producer(place, config=by_token) as producer:
                    assert producer.send("t", b"1", partition=0).result(30)
                rate = {(("user", "carol"),): {"controller_mutation_rate": 0.001}}
                admin.alter_client_quotas(rate).check()
                wait_for(lambda: image().quotas, "the quota is known")
                admin.create_acls([AclBinding("cluster", "kafka-cluster", "User:carol",
                                              "create")]).check()  # fmt: skip
                rows = [{"name": name, "num_partitions": 20, "replication_factor": 1}
                        for name in ("q1", "q2")]  # fmt: skip
                (address,) = parse_servers(place)
                options = Options(security=security_of(ClientConfig(carol)))
                with contextlib.closing(Connection(address, options)) as made:
                    answer = made.call(apis.CREATE_TOPICS, {"topics": rows, "timeout_ms": 9_000}, 7)
                codes = [row.error_code for row in answer.topics]
                assert codes == [0, ErrorCode.THROTTLING_QUOTA_EXCEEDED]
                assert answer.throttle_time_ms > 0
