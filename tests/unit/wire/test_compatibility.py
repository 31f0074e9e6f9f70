"""The served versions suit the versions that clients use."""

from __future__ import annotations

import pytest

from kafkalog.wire import apis
from kafkalog.wire.compatibility import CLIENTS, LATEST, NOTES, render_markdown
from tests.support import apache
from tests.unit.wire import declared

REFUSED = {0: range(3)}  # Produce: announced, but nothing can encode them


@pytest.mark.parametrize("api", [a for a in apis.BY_KEY.values() if a.served], ids=lambda a: a.name)
def test_served_versions_can_be_encoded(api: apis.Api) -> None:
    served = apis.SERVED[api.key]
    assert (api.min_version, api.max_version) == (served.start, served.stop - 1)
    for version in served:
        assert version in api.versions or version in REFUSED.get(api.key, ())


def test_unserved_requests_are_known() -> None:
    assert apis.PRODUCE.served == range(14)
    unserved = apis.STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE
    assert unserved.served is None
    assert (unserved.min_version, unserved.max_version) == (0, 0)
    assert unserved.key not in apis.SERVED


@pytest.mark.parametrize("client", CLIENTS)
def test_every_client_has_a_version_in_common(client: str) -> None:
    """Even one that only looks at the highest announced version, as kafkajs does."""
    for key, highest in CLIENTS[client].items():
        assert min(highest, apis.BY_KEY[key].max_version) in apis.SERVED[key]


def test_the_document_lists_kafkas_announced_versions() -> None:
    """No broker announces a version that is not stable yet."""
    try:
        kafka = declared.messages()
    except apache.Unavailable as reason:
        pytest.skip(f"Apache Kafka cannot be asked: {reason}")
    requests = [one for one in kafka.values() if one["type"] == "request"]
    theirs = {
        one["apiKey"]: declared.versions(one["validVersions"]).stop - 1
        - one.get("latestVersionUnstable", False)
        for one in requests if "broker" in one["listeners"]
    }  # fmt: skip
    assert theirs == LATEST
    named = {one["apiKey"]: one["name"].removesuffix("Request") for one in requests}
    assert named == {api.key: api.name for api in apis.BY_KEY.values()}


def test_the_document_names_every_api() -> None:
    text = render_markdown()
    for api in apis.BY_KEY.values():
        assert text.count(f"| {api.key} | {api.name} |") == 1
    assert set(NOTES) <= set(apis.SERVED)
