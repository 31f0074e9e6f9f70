"""C and Python each have a table of Kafka's error codes: they agree."""

from __future__ import annotations

import pytest

from kafkalog import errors
from kafkalog._native import ffi, lib
from kafkalog.wire.error_codes import ErrorCode

STATUSES = ffi.typeof("kl_status").elements
CLASSES = {
    cls.status: cls
    for cls in (getattr(errors, name) for name in errors.__all__)
    if isinstance(cls, type) and cls.status is not None
}


@pytest.mark.parametrize("status", STATUSES, ids=STATUSES.get)
def test_each_status_has_its_code(status):
    name = STATUSES[status]
    code = lib.kl_code_of(status)
    assert code in ErrorCode.__members__.values()
    if name == "KL_OK":
        assert code == ErrorCode.NONE
        return
    assert code != ErrorCode.NONE
    wanted = CLASSES[name].code
    assert wanted is None or code == wanted


def test_a_number_that_is_no_status_is_unknown():
    assert lib.kl_code_of(max(STATUSES) + 1) == ErrorCode.UNKNOWN_SERVER_ERROR


def test_temporary_failures_have_retriable_codes():
    """Clients retry after these, as our own callers may."""
    for status, name in STATUSES.items():
        if name != "KL_OK" and CLASSES[name].retriable:
            assert ErrorCode(lib.kl_code_of(status)).retriable, name
