"""The handlers' table: every announced API, and the permission its caller needs."""

from __future__ import annotations

from kafkalog.security.permissions import SUPPORTED, Kind, Operation, everything
from kafkalog.server.guards import GUARDS
from kafkalog.server.handlers import CONTROLS, OF_VOTERS, ROUTES, routes_of
from kafkalog.server.handlers.api_versions import OF_TELEMETRY
from kafkalog.server.request import KNOWN
from kafkalog.wire import apis


def test_exactly_the_announced_requests_have_handlers() -> None:
    assert set(ROUTES) == set(apis.SERVED)


def test_only_a_member_of_a_cluster_obeys_a_controller() -> None:
    for key in CONTROLS:
        api = KNOWN[key]
        assert key not in ROUTES and key not in apis.SERVED
        for version in api.versions:
            assert routes_of(on_zookeeper=True).served(api, version)
            assert not routes_of().served(api, version)
        assert not routes_of(on_zookeeper=True).served(api, api.max_version + 1)


def test_only_a_broker_under_controllers_changes_voters() -> None:
    for key in OF_VOTERS:
        api = KNOWN[key]
        for version in api.versions:
            assert routes_of(under_controllers=True).served(api, version)
            assert not routes_of().served(api, version)
            assert not routes_of(on_zookeeper=True).served(api, version)


def test_every_request_but_the_first_needs_a_permission_that_there_is() -> None:
    """Either on the cluster, or on the resources that it names.  The client is not known yet when
    it asks for versions and authenticates; handlers check each delegation token; everyone may send
    metrics."""
    free = {
        apis.API_VERSIONS, apis.SASL_HANDSHAKE, apis.SASL_AUTHENTICATE, apis.DESCRIBE_CLUSTER,
        apis.CREATE_DELEGATION_TOKEN, apis.RENEW_DELEGATION_TOKEN,
        apis.EXPIRE_DELEGATION_TOKEN, apis.DESCRIBE_DELEGATION_TOKEN, *OF_TELEMETRY,
    }  # fmt: skip
    assert set(GUARDS) <= set(ROUTES)
    assert {apis.BY_KEY[key] for key, rules in GUARDS.items() if not rules} == free
    for key, route in ROUTES.items():
        api = apis.BY_KEY[key]
        assert bool(route.needs) == (key not in GUARDS), api
        for operation, kind in route.needs:
            assert operation in SUPPORTED[kind], api


def test_operations_are_told_as_bits() -> None:
    """As Kafka answers a client that may do everything."""
    assert everything(Kind.TOPIC) == 0b1101_1111_1000
    assert everything(Kind.CLUSTER) == 0b1_1111_1010_0000
    assert everything(Kind.GROUP) == sum(
        1 << one for one in (Operation.READ, Operation.DELETE, Operation.DESCRIBE,
                             Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS)
    )  # fmt: skip
