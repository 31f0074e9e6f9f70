"""The call that is made per record goes around cffi: what it must not forget."""

import gc
import weakref
from pathlib import Path
from typing import Any

import pytest

import kafkalog
from kafkalog._native import append_direct, direct_handle, ffi, lib


def test_the_handle_keeps_its_log(tmp_path: Path) -> None:
    """A log that is closed while another thread appends to it is freed behind that append."""
    with kafkalog.Log(tmp_path / "t-0") as log:
        owner = log._handle.husk().c
        handle, gone = direct_handle(owner), weakref.ref(owner)
        del owner
        gc.collect()
        assert gone() is not None
        assert append_direct(handle, b"v", None, None) == -lib.KL_E_CLOSED
        del handle
        gc.collect()
        assert gone() is None


def test_what_is_not_plain_is_left_to_others(tmp_path: Path) -> None:
    """And nothing of it is written: not another kind of bytes, nor a time that is none."""

    class Text(bytes):
        pass

    class Number(int):
        pass

    others: list[tuple[Any, Any, Any]] = [
        (None, None, None), ("v", None, None), (bytearray(b"v"), None, None),
        (Text(b"v"), None, None), (b"v", "k", None), (b"v", bytearray(b"k"), None),
        (b"v", None, -1), (b"v", None, True), (b"v", None, Number(5)), (b"v", None, 1.5),
        (b"v", None, 1 << 63), (b"v", None, "5"),
    ]  # fmt: skip
    with kafkalog.Log(tmp_path / "t-0") as log:
        for value, key, timestamp_ms in others:
            assert append_direct(log._direct, value, key, timestamp_ms) is None
        assert log.end_offset == 0
        assert append_direct(log._direct, b"", b"", 0) == 0
        assert append_direct(log._direct, b"v", b"k", (1 << 63) - 1) == 1
        assert [(r.key, r.value) for r in log] == [(b"", b""), (b"k", b"v")]


@pytest.mark.parametrize("wrong", [None, 7, ffi.NULL])
def test_only_a_handle_is_taken(wrong: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        append_direct(wrong, b"v", None, None)


@pytest.mark.parametrize("size", [900, 950, 1_000, 1_024, 1_100, 5_000])
def test_records_around_the_small_batchs_size_come_back(tmp_path: Path, size: int) -> None:
    """Small ones are built on the stack, others in the log's own memory."""
    with kafkalog.Log(tmp_path / "t-0") as log:
        values = [bytes([i]) * (size + i) for i in range(70)]
        for value in values:
            log.append(value)
        assert [r.value for r in log] == values
        assert log.verify().clean
