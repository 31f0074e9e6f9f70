"""The same work on many things, by several threads."""

from collections.abc import Callable, Iterable
from typing import TypeVar

__all__ = ["in_parallel"]

T = TypeVar("T")
R = TypeVar("R")


def in_parallel(threads: int, what: Iterable[T], work: Callable[[T], R]) -> "list[R | Exception]":
    """The result of `work` for each, or what it raised, by this many threads."""

    def attempt(one: T) -> "R | Exception":
        try:
            return work(one)
        except Exception as error:
            return error

    if threads == 1:  # also if no thread can be started any more: as the interpreter ends
        return [attempt(one) for one in what]
    from concurrent.futures import ThreadPoolExecutor  # slow to import, rarely needed

    with ThreadPoolExecutor(threads, "kafkalog storage") as pool:
        return list(pool.map(attempt, what))
