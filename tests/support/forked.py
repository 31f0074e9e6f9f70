"""Calls in a forked child, at the worst moment: another thread held every lock at the fork."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from inspect import Parameter, isclass, iscoroutine, isgenerator, signature
from traceback import extract_tb
from types import FunctionType, MethodType
from typing import Any, NoReturn

from kafkalog.errors import ForkedHandle

__all__ = ["HUNG", "REFUSED", "WORKS", "arguments_of", "outcomes", "public_members"]

WORKS, REFUSED, HUNG = "works", "ForkedHandle", "hung"
HANG_S = 5.0
"""How long a call may take in the child: none has anything to wait for."""
_LOCKS = type(threading.Lock()), type(threading.RLock())
_WALKED = "kafkalog", "concurrent.futures"


class _Hung(BaseException):
    """A call did not return."""


def public_members(kind: type) -> set[str]:
    """The names of a class's public methods and properties."""
    return {name for name in dir(kind) if name[0] != "_" and not isclass(getattr(kind, name))}


def arguments_of(call: Callable[..., Any], values: Mapping[str, Any]) -> list[Any]:
    """A value for each required parameter, by its name."""
    return [
        values[name]
        for name, one in signature(call).parameters.items()
        if one.default is Parameter.empty
        and one.kind not in (Parameter.VAR_KEYWORD, Parameter.KEYWORD_ONLY)
    ]


def _locks(root: Any) -> list[Any]:
    """Every lock that the object, or a module of the package, leads to."""
    modules = [one for name, one in sys.modules.items() if name.startswith("kafkalog")]
    found, seen = [], set[int]()
    left = [root, *(value for one in modules for value in vars(one).values())]
    while left:
        one = left.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        if isinstance(one, _LOCKS):
            found.append(one)
        elif isinstance(one, threading.Condition):
            left.append(one._lock)  # type: ignore[attr-defined]
        elif isinstance(one, (threading.Event, threading.Semaphore)):
            left.append(one._cond)  # type: ignore[union-attr]
        elif isinstance(one, dict):
            left += list(one.values())
        elif isinstance(one, (list, tuple, set, frozenset, deque)):
            left += list(one)
        elif isinstance(one, (FunctionType, MethodType)):
            left += [each for each in gc.get_referents(one) if not isinstance(each, dict)]
        elif (
            not isinstance(one, (type, threading.Thread))
            and type(one).__module__.startswith(_WALKED)
        ) or type(one).__name__ == "cell":
            left += gc.get_referents(one)
    return found


@contextmanager
def _all_held(root: Any) -> Iterator[None]:
    """Within, another thread holds every lock that is free."""
    held, over = threading.Event(), threading.Event()

    def hold() -> None:
        mine = [one for one in _locks(root) if one.acquire(blocking=False)]
        held.set()
        over.wait()
        for one in mine:
            one.release()

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _outcome(call: Callable[[], Any]) -> str:
    def hangs(*_: object) -> NoReturn:
        raise _Hung

    signal.signal(signal.SIGALRM, hangs)
    signal.setitimer(signal.ITIMER_REAL, HANG_S)
    try:
        found = call()
        if iscoroutine(found):
            asyncio.run(found)
        elif isgenerator(found):
            next(found, None)
        return WORKS
    except ForkedHandle:
        return REFUSED
    except _Hung as problem:
        places = [one for one in extract_tb(problem.__traceback__) if "kafkalog" in one.filename]
        return f"{HUNG}: {places[-1].filename}:{places[-1].lineno}" if places else HUNG
    except BaseException as problem:
        return repr(problem)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def outcomes(root: Any, calls: Mapping[str, Callable[[], Any]]) -> dict[str, str]:
    """The outcome of each call in one forked child, in their order."""
    end, begin = os.pipe()
    with _all_held(root):
        child = os.fork()
        if child == 0:
            try:
                found = {name: _outcome(call) for name, call in calls.items()}
                os.write(begin, json.dumps(found).encode())
            finally:
                os._exit(0)
    os.close(begin)
    with os.fdopen(end) as told:
        text = told.read()
    assert os.waitpid(child, 0)[1] == 0
    answers: dict[str, str] = json.loads(text)
    return answers
