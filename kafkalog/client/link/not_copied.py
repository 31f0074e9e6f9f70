"""Objects with sockets and threads cannot be copied."""

from __future__ import annotations

from typing import NoReturn

from kafkalog.errors import ArgumentError

__all__ = ["Handle"]


class Handle:
    """Refuses to be copied or pickled, with a message that names the class."""

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        kind = type(self).__qualname__
        raise ArgumentError(f"{kind}: cannot be copied or pickled; create one where it is needed")
