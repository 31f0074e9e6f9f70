"""The data plane in Python: `ffi`, `lib`, and statuses that become exceptions.

KAFKALOG_NATIVE=test in the environment loads the extension with failpoints instead.
"""

import os
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

from kafkalog import errors

__all__ = [
    "append_batches_direct",
    "check",
    "direct",
    "direct_handle",
    "failure",
    "ffi",
    "lib",
]

_build = "_kl_test" if os.environ.get("KAFKALOG_NATIVE") == "test" else "_kl"
if not os.path.isdir(os.path.dirname(__file__)):
    raise ImportError(
        f"kafkalog cannot be imported from {__file__}: its C part is a shared library, which "
        "Python loads from a folder, not from a zip file; install it with pip or unpack it"
    )
_extension = import_module(f"{__name__}.{_build}")
# On free-threaded CPython.  An import may have switched the GIL on or off: ask after it.
if not getattr(sys, "_is_gil_enabled", lambda: True)():
    raise ImportError(
        "kafkalog needs the GIL, which guards the open batches of its producers: start "
        "free-threaded Python with PYTHON_GIL=1 or `python -X gil=1`"
    )

ffi: Any = _extension.ffi
lib: Any = _extension.lib


def _classes_by_status() -> dict[int, type[errors.KafkalogError]]:
    """The exception for each kl_status; a status without one is our own bug."""
    classes: dict[str, type[errors.KafkalogError]] = {}
    for name in errors.__all__:
        cls = getattr(errors, name)
        if "status" in vars(cls) and cls.status is not None:
            classes[cls.status] = cls
    statuses: dict[int, str] = ffi.typeof("kl_status").elements
    unequal = (set(statuses.values()) - {"KL_OK"}) ^ set(classes)
    if unequal:
        raise ImportError(f"kl_status and kafkalog.errors differ in {sorted(unequal)}")
    return {number: classes[name] for number, name in statuses.items() if name != "KL_OK"}


_classes = _classes_by_status()


def failure(status: int) -> errors.KafkalogError:
    """The exception for `status` (not KL_OK), with this thread's last message from C."""
    # A path in the message may be any bytes; the message must print everywhere.
    message = ffi.string(lib.kl_error_message()).decode("utf-8", "backslashreplace")
    error = _classes[status](message)
    if isinstance(error, OSError):
        error.errno = lib.kl_error_errno() or None
    return error


def check(status: int) -> None:
    """Raise the exception for `status`; nothing if it is KL_OK."""
    if status:
        raise failure(status)


# ---- without cffi ----------------------------------------------------------------------------

if lib.kl_direct_install(__name__.encode()):
    raise ImportError(
        f"{__name__}: found no room for the functions of direct.h, growing.h and intake.h"
    )

append_batches_direct: Callable[[Any, bytes, int], tuple[int, int, int] | int | None] = globals()[
    "append_batches_direct"
]
"""kl_log_append_batches for a client: the result of direct_handle, the batches, now in ms.

Returns their first and last offset and 1 if a flush is due, or a status; None if one is
compressed: then nothing was done.
"""
_handle_direct: Callable[[int, Any], Any] = globals()["handle_direct"]


def direct_handle(log: Any) -> Any:
    """The handle that the calls above take for a kl_log; it keeps the log alive."""
    return _handle_direct(int(ffi.cast("uintptr_t", log)), log)


def direct(name: str) -> Any:
    """A function or class of `_native/python/`, where its arguments are described."""
    return globals()[name]
