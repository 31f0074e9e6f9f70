"""PyCapsules of the Arrow C data and stream interfaces, without pyarrow.

Arrays and schemas are C from end to end.  A stream's get_next calls back into Python, once for
each Arrow batch, because the codecs are Python packages: nowhere else does C call Python.

Source: https://arrow.apache.org/docs/format/CDataInterface/PyCapsuleInterface.html
"""

from __future__ import annotations

import ctypes
import errno
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from kafkalog import errors
from kafkalog._native import check, ffi, lib

__all__ = ["array_capsule", "schema_capsule", "schema_metadata", "stream_capsule"]

_SCHEMA = (b"arrow_schema", "struct ArrowSchema", "kl_capsule_free_schema")
_ARRAY = (b"arrow_array", "struct ArrowArray", "kl_capsule_free_array")
_STREAM = (b"arrow_array_stream", "struct ArrowArrayStream", "kl_capsule_free_stream")

_new_capsule = ctypes.pythonapi.PyCapsule_New
_new_capsule.restype = ctypes.py_object
_new_capsule.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
_capsule_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_capsule_pointer.restype = ctypes.c_void_p
_capsule_pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]


def schema_metadata(capsule: Any) -> list[tuple[bytes, bytes]]:
    """The metadata of an Arrow schema, in order; a name may occur several times."""
    schema = ffi.cast("struct ArrowSchema *", _capsule_pointer(capsule, _SCHEMA[0]))
    pos, count = schema.metadata, 0
    texts: list[bytes] = []
    if pos != ffi.NULL:
        count, pos = ffi.cast("int32_t *", pos)[0], pos + 4
    for _ in range(2 * count):
        size = ffi.cast("int32_t *", pos)[0]
        texts.append(ffi.buffer(pos + 4, size)[:])
        pos += 4 + size
    return list(zip(texts[::2], texts[1::2], strict=True))


def schema_capsule(columns: int) -> Any:
    """The schema of the KL_COL_ bits `columns`."""
    capsule, schema = _capsule(_SCHEMA)
    check(lib.kl_columns_schema(columns, schema))
    return capsule


def array_capsule(block: Any) -> Any:
    """The rows of a `kl_block`; shares its memory and keeps it alive."""
    capsule, array = _capsule(_ARRAY)
    check(lib.kl_block_export(block, array))
    return capsule


def stream_capsule(columns: int, blocks: Any) -> Any:
    """A stream of the `kl_block`s that `blocks` yields (a pass of a scan, closed at the end)."""
    capsule, c_stream = _capsule(_STREAM)
    stream = _Stream(columns, blocks)
    handle = ffi.new_handle(stream)
    _live[handle] = stream
    c_stream.private_data = handle
    c_stream.get_schema = lib.kl_stream_schema
    c_stream.get_next = lib.kl_stream_next
    c_stream.get_last_error = lib.kl_stream_error
    c_stream.release = ffi.addressof(lib, "kl_stream_free")
    return capsule


def _capsule(kind: tuple[bytes, str, str]) -> tuple[Any, Any]:
    """A capsule, and the zeroed struct that it owns."""
    name, struct, destructor = kind
    memory = lib.kl_capsule_memory(ffi.sizeof(struct))
    if memory == ffi.NULL:
        raise errors.NoMemory(f"a {struct}: {ffi.sizeof(struct)} bytes")
    free = ffi.cast("uintptr_t", ffi.addressof(lib, destructor))
    # The capsule keeps the pointer to `name`: a constant of this module.
    capsule = _new_capsule(int(ffi.cast("uintptr_t", memory)), name, int(free))
    return capsule, ffi.cast(f"{struct} *", memory)


_Function = TypeVar("_Function", bound=Callable[..., Any])


def _callback(name: str, **how: Any) -> Callable[[_Function], _Function]:
    """Make a function the implementation of an `extern "Python"` function of build.py."""

    def define(function: _Function) -> _Function:
        ffi.def_extern(name=name, **how)(function)
        return function

    return define


class _Stream:
    """The object behind a stream's private_data."""

    def __init__(self, columns: int, blocks: Any) -> None:
        self.columns = columns
        self.blocks = blocks
        self.items: Iterator[Any] = iter(blocks)
        self.message: Any = ffi.NULL


_live: dict[Any, _Stream] = {}
"""Streams by handle, until their consumer releases them; only the consumer knows when."""


def _failed(_kind: object, problem: BaseException, trace: Any) -> int:
    """Keep the message for get_last_error, and return an errno, as the interface requires."""
    stream = ffi.from_handle(trace.tb_frame.f_locals["c_stream"].private_data)
    text = f"{type(problem).__name__}: {problem}"
    stream.message = ffi.new("char[]", text.encode("utf-8", "backslashreplace"))
    if isinstance(problem, MemoryError):
        return errno.ENOMEM
    return errno.EINTR if isinstance(problem, KeyboardInterrupt) else errno.EIO


@_callback("kl_stream_schema", error=errno.EIO, onerror=_failed)
def _get_schema(c_stream: Any, out: Any) -> int:
    stream = ffi.from_handle(c_stream.private_data)
    check(lib.kl_columns_schema(stream.columns, out))
    return 0


@_callback("kl_stream_next", error=errno.EIO, onerror=_failed)
def _get_next(c_stream: Any, out: Any) -> int:
    stream = ffi.from_handle(c_stream.private_data)
    block = next(stream.items, None)
    if block is None:
        out.release = ffi.NULL  # the end of the stream
        stream.blocks.close()
        return 0
    check(lib.kl_block_export(block, out))
    return 0


@_callback("kl_stream_error")
def _get_error(c_stream: Any) -> Any:
    return ffi.from_handle(c_stream.private_data).message


@_callback("kl_stream_release")
def _release(c_stream: Any) -> None:
    stream = _live.pop(c_stream.private_data)
    c_stream.private_data = ffi.NULL
    c_stream.release = ffi.NULL
    stream.blocks.close()
