"""Messages with only defaults, in every version of every API."""

from __future__ import annotations

import pytest

from kafkalog.wire import apis
from kafkalog.wire.message import Message

MESSAGES = [message for api in apis.BY_KEY.values() for message in (api.request, api.response)]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: message.title)
def test_defaults_come_back(message: Message) -> None:
    """A field that is not given has its default, on the wire and after decoding."""
    for version in message.versions:
        data = message.encode(version, {})
        found, end = message.decode(version, data)
        assert end == len(data)
        assert message.encode(version, found) == data
        assert message.encode(version, dict(found)) == data
