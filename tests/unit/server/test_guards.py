"""Permissions: every API asks for what Apache Kafka asks for."""

from kafkalog.server.guards import GUARDS
from kafkalog.server.handlers import CONTROLS, OF_CONTROLLER, ROUTES
from kafkalog.wire import apis
from tests.support.authorization_requests import REQUESTS


def test_every_api_has_a_row() -> None:
    """An API that is served says which permissions it asks for."""
    served = {**ROUTES, **CONTROLS, **OF_CONTROLLER}
    assert sorted(served.keys() - GUARDS.keys()) == []


def test_every_api_is_compared_with_kafka() -> None:
    """The requests that both brokers get leave out no API that clients use."""
    compared = {request.api.key for request in REQUESTS.values()}
    before = {apis.SASL_HANDSHAKE.key, apis.SASL_AUTHENTICATE.key}
    # Requests about tokens: tests/unit/server/test_tokens.py, tests/kafka/referee.
    tokens = {api.key for api in apis.BY_KEY.values() if "DelegationToken" in api.name}
    assert sorted(ROUTES.keys() - compared - before - tokens) == []
