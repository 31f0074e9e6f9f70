"""Permissions: every API asks for what Apache Kafka asks for."""

from kafkalog.security.permissions import Kind
from kafkalog.server.guards import GUARDS
from kafkalog.server.handlers import CONTROLS, OF_CONTROLLER, OF_VOTERS, ROUTES
from kafkalog.server.handlers.api_versions import OF_TELEMETRY
from kafkalog.wire import apis
from tests.house import tree
from tests.support.authorization_requests import REQUESTS


def test_every_api_has_a_row() -> None:
    """An API that is served says which permissions it asks for, in one place."""
    for key, route in {**ROUTES, **CONTROLS, **OF_CONTROLLER, **OF_VOTERS}.items():
        assert bool(route.needs) != (key in GUARDS), apis.BY_KEY.get(key, key)
        assert {kind for _, kind in route.needs} <= {Kind.CLUSTER}


def test_every_api_is_compared_with_kafka() -> None:
    """The requests that both brokers get leave out no API that clients use."""
    compared = {request.api.key for request in REQUESTS.values()}
    before = {apis.SASL_HANDSHAKE.key, apis.SASL_AUTHENTICATE.key}
    # Requests about tokens: tests/unit/server/test_tokens.py, tests/kafka/referee.
    tokens = {api.key for api in apis.BY_KEY.values() if "DelegationToken" in api.name}
    # Everyone may send metrics, and Kafka serves that with a plug-in only.
    metrics = {api.key for api in OF_TELEMETRY}
    assert sorted(ROUTES.keys() - compared - before - tokens - metrics) == []


def test_the_document_has_every_api() -> None:
    """docs/permissions.md says what each API needs."""
    table = (tree.ROOT / "docs" / "permissions.md").read_text(encoding="utf-8")
    named = {
        name
        for line in table.splitlines()
        if line.startswith("| ")
        for name in line.split("|")[1].strip().split(", ")
    }
    assert {apis.BY_KEY[key].name for key in {**ROUTES, **OF_VOTERS}} - named == set()
