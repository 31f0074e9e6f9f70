"""An answer that C repeats: the next request of its connection, if it is the same, does not come
here."""

from typing import TYPE_CHECKING

from kafkalog._native import ffi, lib

if TYPE_CHECKING:
    from kafkalog.server.network.reactor import Reactor

__all__ = ["Repeat"]


class Repeat:
    """One of them.  From when it is made until its answer is given, for one thread at a time."""

    __slots__ = ("_c", "_ended", "_mark", "_reactor")

    def __init__(self, reactor: "Reactor", mark: int) -> None:
        """`mark`: Reactor.repeat_mark, read before anything on which the answer rests."""
        self._reactor = reactor
        self._mark = mark
        self._ended = False
        self._c = ffi.NULL

    def answer(self, request_id: int, body: bytes, header_version: int) -> None:
        """As Reactor.answer, and from then on to the same request, unless it has ended.

        Raises: NotFound, when the request has ended.
        """
        if self._ended:
            self._reactor.answer(request_id, body, header_version)
            return
        found = self._reactor.answer_repeatedly(request_id, body, header_version, self._mark)
        if found != ffi.NULL:
            self._c = ffi.gc(found, lib.kl_repeat_free)

    def end(self) -> None:
        """The next request comes to Python again."""
        self._ended = True
        if self._c != ffi.NULL:
            lib.kl_repeat_end(self._c)

    @property
    def heard_ms(self) -> int:
        """When C last answered so, on the monotonic clock; 0: it has not."""
        return int(lib.kl_repeat_heard_ms(self._c)) if self._c != ffi.NULL else 0
