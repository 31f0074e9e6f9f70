"""What holds sockets and threads is not copied."""

from __future__ import annotations

from typing import NoReturn

from kafkalog.errors import ArgumentError

__all__ = ["Handle"]


class Handle:
    """Refuses to be copied or pickled, by name."""

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        kind = type(self).__qualname__
        raise ArgumentError(
            f"found {kind} to be copied or pickled, wanted where its brokers are: make another "
            "one there"
        )
