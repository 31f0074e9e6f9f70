"""The gate in front of every request: the rights of the principal, in Python and in C."""

from __future__ import annotations

import pytest

from kafkalog.security.permissions import Kind, Operation
from kafkalog.security.principal import Principal
from kafkalog.server.admission import ALL, Admission, Right
from kafkalog.server.broker import Broker, node_of
from kafkalog.server.handlers import ROUTES
from kafkalog.server.network.reactor import ANONYMOUS
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode
from tests.support.raw import Raw

READ_TOPICS: Right = (Operation.READ, Kind.TOPIC)
WRITE_TOPICS: Right = (Operation.WRITE, Kind.TOPIC)
DESCRIBE_GROUPS: Right = (Operation.DESCRIBE, Kind.GROUP)
DENIED = {
    Kind.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    Kind.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    Kind.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    Kind.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}


@pytest.fixture
def admission(broker: Broker) -> Admission:
    return node_of(broker).admission


def test_connections_are_anonymous(admission: Admission) -> None:
    assert admission.principal(ANONYMOUS) == Principal("User", "ANONYMOUS")
    assert str(admission.principal(ANONYMOUS)) == "User:ANONYMOUS"


@pytest.mark.parametrize("key", ROUTES, ids=lambda key: apis.BY_KEY[key].name)
def test_an_api_needs_one_of_its_rights(admission: Admission, key: int) -> None:
    needs = ROUTES[key].needs
    assert admission.denied(ANONYMOUS, needs) is None
    admission.set_rights(ANONYMOUS, ALL.difference(needs))
    expected = DENIED[needs[0][1]] if needs else None
    assert admission.denied(ANONYMOUS, needs) == expected
    for right in needs:
        admission.set_rights(ANONYMOUS, {right})
        assert admission.denied(ANONYMOUS, needs) is None


def test_a_number_without_rights_is_denied(admission: Admission) -> None:
    assert admission.denied(7, [READ_TOPICS]) == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert admission.denied(7, []) is None


def test_python_and_c_obey_the_same_rights(broker: Broker, admission: Admission, raw: Raw) -> None:
    assert raw.create("t").error_code == 0
    assert raw.produce("t", b"v").error_code == 0
    admission.set_rights(ANONYMOUS, {READ_TOPICS})
    assert raw.produce("t", b"v").error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert raw.create("u").error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
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
