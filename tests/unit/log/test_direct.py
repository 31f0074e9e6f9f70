"""The call that is made per record bypasses cffi: what it must still do."""

import gc
import inspect
import weakref
from pathlib import Path
from typing import Any

import pytest

import kafkalog
from kafkalog import _native
from kafkalog._native import append_batches_direct, direct_handle, ffi, lib
from tests.support import batches

ONE = batches.batch([batches.Row(b"v")])


def test_the_handle_keeps_its_log(tmp_path: Path) -> None:
    """A log that is closed while another thread appends to it is freed after that append."""
    with kafkalog.Log(tmp_path / "t-0") as log:
        owner = log._handle.husk().c
        handle, gone = direct_handle(owner), weakref.ref(owner)
        del owner
        gc.collect()
        assert gone() is not None
        assert append_batches_direct(handle, ONE, 0) == lib.KL_E_CLOSED
        del handle
        gc.collect()
        assert gone() is None


def test_other_arguments_use_the_general_path(tmp_path: Path) -> None:
    """Other kinds of bytes and numbers, refused values, and other keywords use the general path."""

    class Text(bytes):
        pass

    class Number(int):
        pass

    taken: list[tuple[Any, Any, Any]] = [
        (b"v", None, None), (None, b"k", None), (bytearray(b"v"), None, None), (b"", b"", 0),
        (Text(b"v"), None, None), (b"v", bytearray(b"k"), None), (b"v", None, -1),
        (b"v", None, Number(5)), (b"v", b"k", (1 << 63) - 1), (b"v", None, True),
    ]  # fmt: skip
    refused: list[tuple[Any, Any, Any]] = [
        ("v", None, None), (b"v", "k", None), (b"v", None, 1.5),
        (b"v", None, -2), (b"v", None, 1 << 63), (b"v", None, "5"), (b"v", None, -(1 << 70)),
    ]  # fmt: skip
    with kafkalog.Log(tmp_path / "t-0") as log:
        for value, key, timestamp_ms in refused:
            with pytest.raises(kafkalog.KafkalogError):
                log.append(value, key=key, timestamp_ms=timestamp_ms)
        assert log.end_offset == 0
        for i, (value, key, timestamp_ms) in enumerate(taken):
            assert log.append(value, key=key, timestamp_ms=timestamp_ms) == i
        assert [(r.value, r.key) for r in log] == [(v, k) for v, k, _ in taken]
        assert log[7].timestamp_ms == 5
        end = log.end_offset
        assert log.append(value=b"v", headers=[("h", b"x")], expected_offset=end) == end
        assert log[end].headers == (("h", b"x"),)
        with pytest.raises(kafkalog.errors.UnexpectedAppendOffset):
            log.append(b"v", expected_offset=0)
        wrong: Any = log.append
        for args, named in (((), {}), ((b"v", b"k"), {}), ((b"v",), {"kee": b"k"})):
            with pytest.raises(TypeError):
                wrong(*args, **named)


def test_the_method_in_c_is_the_one_that_the_class_defines(tmp_path: Path) -> None:
    """In name, signature and docstring, also in a subclass; and only for a Log."""
    method = kafkalog.Log.append
    assert method.__name__ == "append"
    assert str(inspect.signature(method)).startswith("(self, /, value, *, key=None, headers=()")
    assert str(inspect.getdoc(method)).startswith("Append one record; returns its offset.")

    class Twice(kafkalog.Log):
        def append(self, value: bytes | None, **named: Any) -> int:
            super().append(value, **named)
            return super().append(value, **named)

    with Twice(tmp_path / "t-0") as log:
        assert log.append(b"v", key=b"k") == 1
        assert [r.key for r in log] == [b"k", b"k"]
    wrong: Any = method
    with pytest.raises(TypeError):
        wrong(7, b"v")


def test_one_that_is_bound_before_a_close_sees_it(tmp_path: Path) -> None:
    log = kafkalog.Log(tmp_path / "t-0")
    append = log.append
    append(b"v")
    log.close()
    with pytest.raises(kafkalog.errors.Closed):
        append(b"v")


@pytest.mark.parametrize("wrong", [None, 7, ffi.NULL])
def test_only_a_handle_is_taken(wrong: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        append_batches_direct(wrong, ONE, 0)


@pytest.mark.parametrize("size", [900, 950, 1_000, 1_024, 1_100, 5_000])
def test_records_around_the_small_batchs_size_come_back(tmp_path: Path, size: int) -> None:
    """Small ones are built on the stack, others in the log's own memory."""
    with kafkalog.Log(tmp_path / "t-0") as log:
        values = [bytes([i]) * (size + i) for i in range(70)]
        for value in values:
            log.append(value)
        assert [r.value for r in log] == values
        assert log.verify().clean


def test_a_codec_that_a_log_gets_is_obeyed_from_then_on(tmp_path: Path) -> None:
    """The call that is made per record uses the log's settings, not those of the bound method."""
    with kafkalog.Log(tmp_path / "t-0", config={"compression.type": "lz4"}) as packed:
        assert packed.append(b"v" * 1_000) == 0
        due = ffi.new("int32_t *")
        assert lib.kl_log_append(packed._c, ffi.NULL, -1, b"v", 1, -1, due) == (
            -lib.KL_E_UNSUPPORTED_COMPRESSION_TYPE
        )
        assert packed._handle.single_compressed == 1
        config = packed.config
    with kafkalog.Log(tmp_path / "u-0") as log:
        append = log.append
        assert append(b"v") == 0
        log._handle.configure(config)
        assert append(b"v" * 1_000) == 1
        assert log._handle.single_compressed == 1
        assert [len(record.value or b"") for record in log] == [1, 1_000]


COUNTED = [
    "handle_direct", "append_method", "append_batches_direct", "plain_bytes_direct",
    "intake_new", "intake_load", "intake_open", "intake_place", "intake_send", "intake_many",
    "intake_batch", "intake_touched", "growing_new", "growing_let_go", "growing_part",
    "growing_told", "growing_records", "growing_seal",
]  # fmt: skip


@pytest.mark.parametrize("name", COUNTED)
def test_a_function_in_c_counts_its_arguments(name: str) -> None:
    """It must not read memory after the last one."""
    function = getattr(_native, name)
    for given in ((), (1,) * 9):
        with pytest.raises(TypeError, match=r"arguments|wanted"):
            function(*given)
