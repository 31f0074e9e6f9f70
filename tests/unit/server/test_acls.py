"""A broker with an authorizer: its ACL APIs, and what they change for open connections at once."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kafkalog.config.authorizer import STANDARD_AUTHORIZER
from kafkalog.logs import limit
from kafkalog.security.acls import ALL, ANY, Pattern, Permission
from kafkalog.security.permissions import Kind, Operation
from kafkalog.security.principal import Principal
from kafkalog.server.admission import java_host
from kafkalog.server.broker import Broker, node_of
from kafkalog.server.denials import log_denial
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode
from tests.support.raw import Raw
from tests.support.waiting import wait_for

ME = "User:ANONYMOUS"
DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED


def settings(**more: object) -> dict[str, object]:
    return {"authorizer.class.name": STANDARD_AUTHORIZER, **more}


def creation(**changes: Any) -> dict[str, Any]:
    return {
        "resource_type": Kind.TOPIC, "resource_name": "t", "resource_pattern_type": Pattern.LITERAL,
        "principal": ME, "host": "*", "operation": Operation.READ,
        "permission_type": Permission.ALLOW, **changes,
    }  # fmt: skip


def wanted(**changes: Any) -> dict[str, Any]:
    return {
        "resource_type_filter": ANY, "resource_name_filter": None, "pattern_type_filter": ANY,
        "principal_filter": None, "host_filter": None, "operation": ANY, "permission_type": ANY,
        **changes,
    }  # fmt: skip


class Client:
    """A connection to a broker whose administrator reaches it inside the process."""

    def __init__(self, broker: Broker, raw: Raw) -> None:
        self.raw = raw
        self.node = node_of(broker)

    def create(self, *rows: dict[str, Any], version: int = 3) -> list[tuple[int, str | None]]:
        results = self.raw.call(apis.CREATE_ACLS, version, creations=list(rows)).results
        return [(one.error_code, one.error_message) for one in results]

    def delete(self, **changes: Any) -> Any:
        (found,) = self.raw.call(apis.DELETE_ACLS, filters=[wanted(**changes)]).filter_results
        return found


@pytest.fixture
def administered(tmp_path: Path) -> Iterator[Client]:
    """A client that may change ACLs, but is no super user: it depends on them otherwise."""
    config = settings(**{"allow.everyone.if.no.acl.found": "true"})
    with Broker(tmp_path / "data", config=config) as broker, Raw(broker.bootstrap_servers) as raw:
        yield Client(broker, raw)


def test_created_acls_are_described_and_deleted(administered: Client) -> None:
    assert administered.create(creation(), creation(), creation(operation=ALL)) == [(0, None)] * 3
    (found,) = administered.raw.call(apis.DESCRIBE_ACLS, **wanted()).resources
    assert (found.resource_type, found.resource_name, found.pattern_type) == (2, "t", 3)
    assert [(one.principal, one.host, one.operation, one.permission_type)
            for one in found.acls] == [(ME, "*", ALL, 3), (ME, "*", 3, 3)]  # fmt: skip
    gone = administered.delete(operation=ALL)
    assert [one.operation for one in gone.matching_acls] == [ALL]
    assert administered.delete(operation=ALL).matching_acls == []
    assert len(administered.node.image.acls) == 1


@pytest.mark.parametrize("version", [1, 2, 3])
def test_one_invalid_acl_does_not_stop_the_others(administered: Client, version: int) -> None:
    bad = [creation(resource_name=""), creation(operation=ANY), creation(principal="alice"),
           creation(resource_type=Kind.CLUSTER), creation(host="10.0.0.0/8")]  # fmt: skip
    found = administered.create(*bad, creation(), version=version)
    invalid = ErrorCode.INVALID_REQUEST
    assert [code for code, _ in found] == [invalid] * 4 + [ErrorCode.UNSUPPORTED_VERSION, 0]
    assert all(message for code, message in found if code)
    assert administered.delete(resource_type_filter=0).error_code == invalid


def test_open_connections_obey_at_once(administered: Client) -> None:
    raw = administered.raw
    assert raw.create("t").error_code == 0
    for _ in range(2):
        assert raw.produce("t", b"v").error_code == 0
        administered.create(creation(operation=Operation.WRITE, permission_type=Permission.DENY))
        assert raw.produce("t", b"v").error_code == DENIED
        administered.create(creation())
        assert raw.fetch("t", 0).error_code == 0
        administered.delete(operation=Operation.READ)
        assert raw.fetch("t", 0).error_code == DENIED
        administered.delete()


def test_decisions_are_for_a_host(administered: Client) -> None:
    raw = administered.raw
    assert raw.create("t").error_code == 0
    administered.create(creation(host="10.0.0.1"))
    assert raw.fetch("t", 0).error_code == DENIED
    administered.create(creation(host="127.0.0.1"))
    assert raw.fetch("t", 0).error_code == 0


def test_acls_outlive_a_restart(tmp_path: Path) -> None:
    path, config = tmp_path / "data", settings(**{"super.users": ME})
    with Broker(path, config=config) as broker, Raw(broker.bootstrap_servers) as raw:
        Client(broker, raw).create(creation(), creation(operation=Operation.WRITE))
    with Broker(path, config=config) as broker, Raw(broker.bootstrap_servers) as raw:
        assert len(raw.call(apis.DESCRIBE_ACLS, **wanted()).resources[0].acls) == 2


def test_without_an_authorizer_there_are_none(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "data"
    with (
        Broker(path, config=settings(**{"super.users": ME})) as broker,
        Raw(broker.bootstrap_servers) as raw,
    ):
        Client(broker, raw).create(creation(permission_type=Permission.DENY))
    with (
        caplog.at_level(logging.WARNING),
        Broker(path) as broker,
        Raw(broker.bootstrap_servers) as raw,
    ):
        disabled = ErrorCode.SECURITY_DISABLED
        assert raw.call(apis.DESCRIBE_ACLS, **wanted()).error_code == disabled
        client = Client(broker, raw)
        assert client.create(creation()) == [(disabled, "No Authorizer is configured.")]
        assert client.delete().error_code == disabled
        assert raw.create("t").error_code == 0
        assert raw.fetch("t", 0).error_code == 0
    assert "EVERY CLIENT MAY DO EVERYTHING" in caplog.text


def test_numbers_are_released_with_their_last_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kafkalog.server.admission.NUMBERS_KEPT", 0)
    with Broker(tmp_path / "data", config=settings(**{"super.users": ME})) as broker:
        admission = node_of(broker).admission
        one = admission.number_of(Principal("User", "a"), "/10.0.0.1")
        other = admission.number_of(Principal("User", "b"), "/10.0.0.1")
        assert one == other  # nobody has the first one
        with Raw(broker.bootstrap_servers) as raw:
            assert raw.create("t").error_code == 0
            assert raw.fetch("t", 0).error_code == 0
            held = admission.number_of(Principal("User", "c"), "/10.0.0.1")
            assert str(admission.principal(held)) == "User:c"
            assert raw.fetch("t", 0).error_code == 0


@pytest.mark.parametrize(
    ("host", "java"),
    [
        ("/10.0.0.1", "10.0.0.1"), ("/::1", "0:0:0:0:0:0:0:1"), ("unix", "unix"),
        ("/::ffff:10.0.0.1", "10.0.0.1"), ("/fe80::a%eth0", "fe80:0:0:0:0:0:0:a%eth0"),
    ],
)  # fmt: skip
def test_hosts_are_written_as_java_writes_them(host: str, java: str) -> None:
    assert java_host(host) == java


def test_a_denial_is_logged_with_its_reason(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        log_denial(Principal("User", "a\nb"), "10.0.0.1", Operation.READ, (Kind.TOPIC, "t\n"), None)
    assert caplog.messages == [
        r"denied: 'User:a\nb' at '10.0.0.1', operation READ on TOPIC 't\n': no ACL allows it"
    ]


def test_denials_of_c_are_logged_with_principal_host_and_resource(
    administered: Client, caplog: pytest.LogCaptureFixture
) -> None:
    """Python checks the first request after a change of ACLs, C those after it: each is logged."""
    raw = administered.raw
    assert raw.create("t").error_code == 0
    administered.create(creation(permission_type=Permission.DENY))
    who = "denied: 'User:ANONYMOUS' at '127.0.0.1', operation "
    read = f"{who}READ on TOPIC 't': an ACL denies it: 'User:ANONYMOUS' at '*'"
    write = f"{who}WRITE on TOPIC 't': no ACL allows it"

    def logged(line: str, count: int) -> None:
        wait_for(lambda: caplog.messages.count(line) >= count, "the denial is logged")

    caplog.clear()
    for count in (1, 2, 3):
        assert raw.fetch("t", 0).error_code == DENIED
        logged(read, count)
    assert raw.produce("t", b"v").error_code == DENIED
    logged(write, 1)
    assert (caplog.messages.count(read), caplog.messages.count(write)) == (3, 1)


def test_more_denials_by_c_are_counted(
    administered: Client, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limit, "WINDOW_S", 0.5)
    raw = administered.raw
    administered.create(
        creation(permission_type=Permission.DENY, resource_pattern_type=Pattern.PREFIXED)
    )

    def counted() -> bool:
        for number in range(3 * limit.LINES_MAX):
            assert raw.fetch(f"t{number}", 0).error_code == DENIED
        return "lines of operation_denied were left out" in caplog.text

    wait_for(counted, "some are only counted")
