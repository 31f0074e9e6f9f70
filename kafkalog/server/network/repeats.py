"""An answer that C repeats: the next request of its connection, if it is the same, does not come
here."""

from typing import TYPE_CHECKING, Any

from kafkalog._native import ffi, lib

if TYPE_CHECKING:
    from kafkalog.server.network.raw_request import Answers

__all__ = ["Repeat"]


class Repeat:
    """One of them.  From when it is made until its answer is given, for one thread at a time."""

    __slots__ = ("_c", "_ended", "_mark", "_reactor")

    def __init__(self, reactor: "Answers", mark: int) -> None:
        """`reactor`: that of the request; `mark`: Reactor.repeat_mark, read before anything on
        which the answer rests."""
        self._reactor = reactor
        self._mark = mark
        self._ended = False
        self._c: Any = None

    def answer(self, request_id: int, body: bytes, header_version: int) -> None:
        """As Reactor.answer, and from then on to the same request, unless it has ended.

        Raises: NotFound, when the request has ended.
        """
        if self._ended:
            self._reactor.answer(request_id, body, header_version)
            return
        found = self._reactor.answer_repeatedly(request_id, body, header_version, self._mark)
        if found is not None:
            self._c = ffi.gc(found, lib.kl_repeat_free)

    def end(self) -> None:
        """The next request comes to Python again."""
        self._ended = True
        if self._c is not None:
            lib.kl_repeat_end(self._c)

    @property
    def silence_ms(self) -> int | None:
        """How long ago C last answered so, in ms of the reactor's clock; None: it has not."""
        found = -1 if self._c is None else int(lib.kl_repeat_silence_ms(self._c))
        return None if found < 0 else found
