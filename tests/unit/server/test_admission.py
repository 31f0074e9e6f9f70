"""The gate in front of every request: the rights of the principal, in Python and in C."""

from __future__ import annotations

import pytest

from kafkalog.security.permissions import Kind, Operation
from kafkalog.security.principal import Principal
from kafkalog.server.admission import ALL, Admission, Right
from kafkalog.server.broker import Broker, node_of
from kafkalog.server.network.reactor import ANONYMOUS
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode
from tests.support.raw import Raw

READ_TOPICS: Right = (Operation.READ, Kind.TOPIC)
WRITE_TOPICS: Right = (Operation.WRITE, Kind.TOPIC)
DESCRIBE_GROUPS: Right = (Operation.DESCRIBE, Kind.GROUP)


@pytest.fixture
def admission(broker: Broker) -> Admission:
    return node_of(broker).admission


def test_connections_are_anonymous(admission: Admission) -> None:
    assert admission.principal(ANONYMOUS) == Principal("User", "ANONYMOUS")
    assert str(admission.principal(ANONYMOUS)) == "User:ANONYMOUS"


def test_python_and_c_obey_the_same_rights(broker: Broker, admission: Admission, raw: Raw) -> None:
    assert raw.create("t").error_code == 0
    assert raw.produce("t", b"v").error_code == 0
    admission.set_rights(ANONYMOUS, {READ_TOPICS})
    assert raw.produce("t", b"v").error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert raw.create("u").error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert raw.fetch("t", 0).error_code == 0
    admission.set_rights(ANONYMOUS, {WRITE_TOPICS, DESCRIBE_GROUPS})
    assert raw.produce("t", b"v").error_code == 0
    assert raw.fetch("t", 0).error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    listed = raw.call(apis.LIST_GROUPS)
    assert (listed.error_code, listed.groups) == (0, [])
    admission.set_rights(ANONYMOUS, ALL)
    assert raw.fetch("t", 0).error_code == 0


def test_versions_are_announced_to_everybody(admission: Admission, raw: Raw) -> None:
    admission.set_rights(ANONYMOUS, ())
    assert raw.call(apis.API_VERSIONS, client_software_name="x", client_software_version="1"
                    ).error_code == 0  # fmt: skip
