"""The same work for kafkalog and its rivals: fresh logs, fresh stores, bare files."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

import kafkalog
from benchmarks.measure import Side
from benchmarks.rivals.stores import Store

__all__ = ["VALUE_BYTES", "file_side", "lines", "log_side", "store_side", "values"]

VALUE_BYTES = 100
_WORDS = b"ok error GET PUT /index /search /login 200 404 500 timeout retry user cart".split()
_numbers = count()


def values(number: int, size: int = VALUE_BYTES) -> list[bytes]:
    """That many different values of `size` bytes."""
    return [b"%0*d" % (size, i) for i in range(number)]


def lines(number: int) -> list[bytes]:
    """That many values of about 90 bytes that compress as a service's log does, to a third."""
    drawn = np.random.default_rng(7).integers(0, len(_WORDS), (number, 14)).tolist()
    return [b"%014d " % i + b" ".join([_WORDS[n] for n in row]) for i, row in enumerate(drawn)]


def log_side(
    name: str,
    folder: Path,
    number: int,
    run: Callable[[kafkalog.Log], object],
    config: Mapping[str, object] | None = None,
) -> Side:
    """`run` on a new, empty log in each round."""

    def setup() -> kafkalog.Log:
        return kafkalog.Log(folder / f"log-{next(_numbers)}", config=config)

    def done(log: kafkalog.Log) -> None:
        log.close()
        shutil.rmtree(log.path)

    return Side(name, number, run, setup, done)


def store_side(
    kind: type[Store],
    folder: Path,
    durability: str,
    number: int,
    run: Callable[[Store], object],
    name: str = "",
) -> Side:
    """`run` on a new, empty store in each round."""

    def setup() -> tuple[Store, Path]:
        path = folder / f"store-{next(_numbers)}"
        return kind(path, durability), path

    def done(made: tuple[Store, Path]) -> None:
        made[0].close()
        shutil.rmtree(made[1])

    return Side(name or kind.name, number, lambda made: run(made[0]), setup, done)


def file_side(name: str, folder: Path, number: int, run: Callable[[int], Any]) -> Side:
    """`run` on the descriptor of a new, empty file in each round."""

    def setup() -> tuple[int, Path]:
        path = folder / f"file-{next(_numbers)}"
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), path

    def done(made: tuple[int, Path]) -> None:
        os.close(made[0])
        made[1].unlink()

    return Side(name, number, lambda made: run(made[0]), setup, done)
