"""Requests that may wait in a group: a large one frees its bytes once it is decoded, and what was
decoded once a coordinator has it; a small one costs no call for that."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kafkalog.server import request
from kafkalog.server.decoded_bytes import DecodedBytes
from kafkalog.server.request import SMALL_BYTES, Request
from kafkalog.wire import apis


class Answers:
    """A reactor that notes which requests' memory was freed."""

    def __init__(self) -> None:
        self.freed: list[int] = []

    def read(self, request_id: int) -> None:
        self.freed.append(request_id)


def decoded(api: Any, version: int, fields: dict[str, Any]) -> tuple[Request, Answers]:
    """A request that was decoded."""
    body = memoryview(api.encode_request(version, fields))
    answers = Answers()
    raw = SimpleNamespace(
        id=7, api_key=api.key, api_version=version, connection=1, correlation_id=1, subject=None,
        client_id="c", peer="127.0.0.1:1", listener=0, principal=0, body=body,
        body_bytes=len(body),
    )  # fmt: skip
    found = Request(answers, raw)  # type: ignore[arg-type]
    found.decode()
    assert found.body.group_id == "g"
    return found, answers


def freed(api: Any, version: int, fields: dict[str, Any]) -> list[int]:
    """The requests whose memory was freed when one of these was decoded."""
    return decoded(api, version, fields)[1].freed


@pytest.mark.parametrize(("size", "wanted"), [(100, []), (SMALL_BYTES, [7]), (100_000, [7])])
def test_a_join_that_waits_for_others(size: int, wanted: list[int]) -> None:
    protocols = [{"name": "range", "metadata": bytes(size)}]
    join = {"group_id": "g", "member_id": "m", "protocol_type": "consumer", "protocols": protocols}
    assert freed(apis.JOIN_GROUP, 5, join) == wanted


def test_a_sync_of_a_leader_and_of_a_follower() -> None:
    sync = {"group_id": "g", "generation_id": 1, "member_id": "m"}
    large = [{"member_id": f"m{number}", "assignment": bytes(100)} for number in range(50)]
    assert freed(apis.SYNC_GROUP, 3, {**sync, "assignments": []}) == []
    assert freed(apis.SYNC_GROUP, 3, {**sync, "assignments": large}) == [7]


@pytest.mark.parametrize(
    "api",
    [apis.CONSUMER_GROUP_HEARTBEAT, apis.SHARE_GROUP_HEARTBEAT, apis.STREAMS_GROUP_HEARTBEAT],
)
def test_a_heartbeat_that_waits_for_its_turn(api: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its group counts what it keeps, so nothing else keeps it, nor counts it."""
    monkeypatch.setattr(request, "COUNTED_BYTES", SMALL_BYTES)
    counts = DecodedBytes()
    fields = {"group_id": "g", "member_id": "m", "member_epoch": 1, "rack_id": "r" * 30_000}
    heartbeat, answers = decoded(api, 1, fields)
    assert answers.freed == [7]
    assert heartbeat.keep(counts)
    assert counts._bytes > 30_000
    assert heartbeat.hand_over().rack_id == fields["rack_id"]
    assert heartbeat.body.rack_id is None
    assert counts._bytes == 0
    assert freed(api, 1, {"group_id": "g", "member_id": "m", "member_epoch": 1}) == []


def test_a_request_that_is_answered_soon_keeps_its_memory() -> None:
    topics = [{"name": "t" * 249, "partitions": []}] * 50
    commit = {"group_id": "g", "member_id": "m", "topics": topics}
    assert freed(apis.OFFSET_COMMIT, 5, commit) == []
