"""Headers of requests and responses, and the header version of each API version."""

from __future__ import annotations

import random

import pytest

from kafkalog.errors import ArgumentError, InvalidRequest
from kafkalog.wire import apis, headers


def test_a_request_header_comes_back() -> None:
    for api in apis.BY_KEY.values():
        for version in api.versions:
            for client_id in (None, "", "client-1", "grüße"):
                data = headers.encode_request_header(api, version, -7, client_id)
                header = headers.decode_request_header(data + b"body")
                assert header == (api.key, version, -7, client_id, len(data))


def test_the_versions_of_headers() -> None:
    """A flexible request has header 2, its response header 1; ApiVersions responds with 0."""
    assert [apis.METADATA.request_header_version(v) for v in (8, 9)] == [1, 2]
    assert [apis.METADATA.response_header_version(v) for v in (8, 9)] == [0, 1]
    assert [apis.API_VERSIONS.request_header_version(v) for v in (2, 3, 4)] == [1, 2, 2]
    assert [apis.API_VERSIONS.response_header_version(v) for v in (2, 3, 4)] == [0, 0, 0]
    assert apis.SASL_HANDSHAKE.request_header_version(1) == 1
    assert apis.OFFSET_DELETE.response_header_version(0) == 0


def test_golden_headers() -> None:
    """As kafka-python and librdkafka send them."""
    data = bytes.fromhex("0012000300000001000464656d6f00")
    assert headers.decode_request_header(data) == (18, 3, 1, "demo", len(data))
    assert headers.encode_request_header(apis.API_VERSIONS, 3, 1, "demo") == data
    assert headers.encode_request_header(apis.METADATA, 1, 2, None).hex() == "0003000100000002ffff"
    assert headers.encode_response_header(apis.METADATA, 9, 5).hex() == "0000000500"
    assert headers.encode_response_header(apis.API_VERSIONS, 4, 5).hex() == "00000005"


def test_tagged_fields_of_headers_are_skipped() -> None:
    data = bytes.fromhex("0003000900000001ffff" + "01" + "0503616263")
    assert headers.decode_request_header(data).pos == len(data)
    response = bytes.fromhex("00000009" + "02" + "0000" + "0101ff")
    assert headers.decode_response_header(apis.METADATA, 12, response) == (9, len(response))


def test_a_version_that_nobody_knows_still_has_a_header() -> None:
    """So that ApiVersions can be answered in version 0."""
    header = headers.decode_request_header(bytes.fromhex("0012006300000001ffff00"))
    assert (header.key, header.version, header.pos) == (18, 99, 11)


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ("", "found 0 bytes, wanted 10"),
        ("0003000900000001ff", "found 9 bytes"),
        ("03e7000900000001ffff", "api_key: found 999"),
        ("0003000900000001000501", "client_id: found length 5, wanted at most the 1 bytes"),
        ("00030001000000010001ff", "client_id: found bytes"),
        ("0003000900000001ffff", "tagged fields: found no bytes"),
        ("0003000900000001ffff010109", "tagged fields: found length 9"),
    ],
)
def test_invalid_request_headers_are_refused(data: str, text: str) -> None:
    with pytest.raises(InvalidRequest, match=text):
        headers.decode_request_header(bytes.fromhex(data))


def test_invalid_response_headers_are_refused() -> None:
    for data in (b"", b"\0\0\0", b"\0\0\0\x01", b"\0\0\0\x01\x01"):
        with pytest.raises(InvalidRequest, match="Metadata response v9: header"):
            headers.decode_response_header(apis.METADATA, 9, data)


def test_unencodable_headers_are_refused() -> None:
    with pytest.raises(ArgumentError):
        headers.encode_request_header(apis.METADATA, 9, 1 << 40, "x")
    with pytest.raises(ArgumentError):
        headers.encode_request_header(apis.METADATA, 9, 1, "x" * 40_000)


def test_random_headers_are_survived(rng: random.Random) -> None:
    for _ in range(2000):
        data = bytes(rng.choices([0, 1, 3, 9, 127, 128, 255], k=rng.randrange(20)))
        try:
            assert headers.decode_request_header(data).pos <= len(data)
        except InvalidRequest:
            continue
