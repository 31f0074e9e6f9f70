"""Apache Kafka's own tools, unmodified, against our broker by SASL_SSL; and what
`kafka-storage format --add-scram` takes, we take."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kafkalog import UserScramCredentialUpsertion
from kafkalog.cli.common import UsageError
from kafkalog.cli.users import parse_add_scram
from kafkalog.testing.broker import TestBroker
from kafkalog.testing.security import ADMIN, Security
from tests.support import apache, jvm

pytestmark = [pytest.mark.java, pytest.mark.long, pytest.mark.timeout(300)]

TOOLS = "org.apache.kafka.tools"
USERS = {ADMIN: "admin-S3CRET", "alice": 'al"ice', "bob": "bob-S3CRET"}
Tool = Callable[..., str]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestBroker]:
    """Nobody but the administrator may do anything."""
    security = Security("sasl_ssl", USERS, acls=[], mechanism="SCRAM-SHA-512")
    path = tmp_path_factory.mktemp("tools") / "data"
    config = {"delegation.token.secret.key": "k3y"}
    with TestBroker(path, config=config, security=security) as running:
        yield running


def file_of(broker: TestBroker, settings: dict[str, str], name: str) -> Path:
    path = Path(broker.path).with_name(f"{name}.properties")
    escaped = {key: value.replace("\\", "\\\\") for key, value in settings.items()}
    path.write_text("".join(f"{key}={value}\n" for key, value in escaped.items()))
    return path


@pytest.fixture
def tool(broker: TestBroker) -> Tool:
    """`tool(class, *arguments, user="admin", option="--command-config", text="")`: what it says."""
    assert broker.security is not None
    security = broker.security

    def run(
        main: str, *arguments: str, user: str = ADMIN, option: str = "--command-config",
        text: str = "", fails: bool = False,
    ) -> str:  # fmt: skip
        file = file_of(broker, security.client_config("java", user), user)
        words = [f"{TOOLS}.{main}", "--bootstrap-server", broker.bootstrap_servers, option,
                 str(file), *arguments]  # fmt: skip
        try:
            found = jvm.run(apache.jars(), words, text)
        except apache.Unavailable as reason:
            pytest.skip(str(reason))
        said = found.out + found.err
        assert fails or found.status == 0, said
        assert not any(password in said for password in USERS.values())
        return said

    return run


PRODUCER, CONSUMER = "ConsoleProducer", "consumer.ConsoleConsumer"


def test_acls_let_a_user_write_and_another_read(tool: Tool, broker: TestBroker) -> None:
    tool("TopicCommand", "--create", "--topic", "orders", "--partitions", "1")
    tool(
        PRODUCER, "--topic", "orders", "--command-property", "max.block.ms=5000", user="alice",
        text="x\n", fails=True,
    )  # fmt: skip
    assert broker.records("orders") == []
    for user, words in (("alice", ["--producer"]), ("bob", ["--consumer", "--group", "g"])):
        tool("AclCommand", "--add", "--allow-principal", f"User:{user}", *words, "--topic",
             "orders")  # fmt: skip
    listed = tool("AclCommand", "--list", "--topic", "orders")
    assert "User:alice" in listed and "operation=WRITE" in listed and "User:bob" in listed
    tool(PRODUCER, "--topic", "orders", user="alice", text="one\ntwo\n")
    said = tool(CONSUMER, "--topic", "orders", "--group", "g", "--from-beginning",
                "--max-messages", "2", user="bob")  # fmt: skip
    assert "one\ntwo\n" in said
    tool("AclCommand", "--remove", "--force", "--allow-principal", "User:alice", "--producer",
         "--topic", "orders")  # fmt: skip
    assert "User:alice" not in tool("AclCommand", "--list", "--topic", "orders")


def test_older_names_of_the_options_for_settings(tool: Tool) -> None:
    tool("TopicCommand", "--create", "--topic", "older", "--partitions", "1")
    tool(PRODUCER, "--topic", "older", option="--producer.config", text="one\n")
    said = tool(CONSUMER, "--topic", "older", "--from-beginning", "--max-messages", "1",
                option="--consumer.config")  # fmt: skip
    assert "one" in said


def test_credentials(tool: Tool, broker: TestBroker) -> None:
    """A user that the tool adds logs in; one whose credential it deletes does not."""
    entity = ("--entity-type", "users", "--entity-name", "carol")
    given = "SCRAM-SHA-512=[iterations=8192,password=carol-S3CRET]"
    tool("ConfigCommand", "--alter", *entity, "--add-config", given)
    said = tool("ConfigCommand", "--describe", *entity)
    assert "SCRAM-SHA-512=iterations=8192" in said
    security = broker.security
    assert security is not None
    security.users["carol"] = "carol-S3CRET"
    assert "orders" not in tool("TopicCommand", "--list", user="carol")  # no ACL, but a login
    tool("ConfigCommand", "--alter", *entity, "--delete-config", "SCRAM-SHA-512")
    refused = tool("TopicCommand", "--list", user="carol", fails=True)
    assert "Authentication failed" in refused and "carol-S3CRET" not in refused


def test_quotas(tool: Tool) -> None:
    alice = ("--entity-type", "users", "--entity-name", "alice")
    for entity, config in (
        (alice, "producer_byte_rate=1000,consumer_byte_rate=2000"),
        (("--entity-type", "users", "--entity-default"), "request_percentage=50"),
        ((*alice, "--entity-type", "clients", "--entity-name", "app"), "producer_byte_rate=7"),
        (("--entity-type", "ips", "--entity-name", "127.0.0.9"), "connection_creation_rate=9"),
    ):
        tool("ConfigCommand", "--alter", *entity, "--add-config", config)
        said = tool("ConfigCommand", "--describe", *entity)
        for name, value in (one.split("=") for one in config.split(",")):
            assert f"{name}={float(value)}" in said
    tool("ConfigCommand", "--alter", *alice, "--delete-config", "producer_byte_rate")
    assert "consumer_byte_rate" in (said := tool("ConfigCommand", "--describe", *alice))
    assert f"{'producer_byte_rate'}=1000" not in said


def test_delegation_tokens(tool: Tool) -> None:
    """A token is created, described, renewed and expired, by the user who made it."""
    made = tool("DelegationTokenCommand", "--create", "--max-life-time-period", "-1",
                "--renewer-principal", "User:bob", user="alice")  # fmt: skip
    row = next(line for line in made.splitlines() if "User:alice" in line).split()
    token_id, hmac = row[0], row[1]
    known = tool("DelegationTokenCommand", "--describe", "--owner-principal", "User:alice",
                 user="alice")  # fmt: skip
    assert token_id in known and "User:bob" in known
    renewed = tool("DelegationTokenCommand", "--renew", "--renew-time-period", "-1", "--hmac", hmac,
                   user="bob")  # fmt: skip
    assert "expiry" in renewed.lower()
    tool("DelegationTokenCommand", "--expire", "--expiry-time-period", "-1", "--hmac", hmac,
         user="alice")  # fmt: skip
    assert token_id not in tool("DelegationTokenCommand", "--describe", user="alice")


ADDED = {
    "SCRAM-SHA-256=[name=alice,password=secret]": True,
    "SCRAM-SHA-512=[name=alice,password=secret,iterations=8192]": True,
    "SCRAM-SHA-256=[iterations=8192,salt=c2FsdA==,password=secret,name=alice]": True,
    'SCRAM-SHA-256=[name="alice",password="secret"]': True,
    'SCRAM-SHA-256=[name=alice,password="a=b"]': True,
    "SCRAM-SHA-256=[name=alice,password=a=b]": True,
    "SCRAM-SHA-256=[name=alice]": False,
    "SCRAM-SHA-256=[password=secret]": False,
    "SCRAM-SHA-256=[name=alice,password=secret,iterations=4095]": False,
    "SCRAM-SHA-256=[name=alice,password=secret,iterations=16385]": False,
    "SCRAM-SHA-256=[name=alice,password=secret,iterations=x]": False,
    "SCRAM-SHA-256=[name=alice,password=secret,other=x]": False,
    "SCRAM-SHA-256=[name=alice,secret]": False,
    "SCRAM-SHA-256=name=alice,password=secret": False,
    "SCRAM-SHA-1=[name=alice,password=secret]": False,
    "PLAIN=[name=alice,password=secret]": False,
    "": False,
}
"""Arguments of `--add-scram`, and whether they are taken."""


def taken_here(text: str) -> bool:
    try:
        return isinstance(parse_add_scram(text), UserScramCredentialUpsertion)
    except UsageError:
        return False


def test_add_scram_takes_the_same_arguments(kafka_jars: Path, tmp_path: Path) -> None:
    properties = tmp_path / "server.properties"
    theirs = {}
    for number, text in enumerate(ADDED):
        directory = tmp_path / str(number)
        properties.write_text(apache.SERVER.format(port=1, controller=2, directory=directory))
        words = ["kafka.tools.StorageTool", "format", "-t", "Mk3E0YYqQwGvBYpqZ5qM4A", "--add-scram",
                 text, "-c", str(properties)]  # fmt: skip
        theirs[text] = jvm.run(kafka_jars, words).status == 0
    assert theirs == ADDED
    assert {text: taken_here(text) for text in ADDED} == theirs
