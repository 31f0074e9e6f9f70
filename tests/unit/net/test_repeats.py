"""An answer that C repeats while its connection sends the same request."""

from __future__ import annotations

import ctypes
import threading
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest

from kafkalog.coordinator.consumer_groups.base import REPEAT_BYTES
from kafkalog.server.network.raw_request import RawRequest
from kafkalog.server.network.repeats import Repeat
from kafkalog.server.request import SMALL_BYTES
from tests.support.waiting import wait_for
from tests.unit.net.network import METADATA, SANITIZED, Client, Server

BEAT = 68
FLEXIBLE = b"\0"
"""The tagged fields of a header of version 2, in a request and in an answer: none."""


class Beats(Server):
    """A server whose answers are the number of requests that came to Python; each is repeated."""

    def __init__(
        self,
        before: Callable[[Repeat, RawRequest], None] = lambda _repeat, _taken: None,
        *,
        manual_clock: bool = False,
    ) -> None:
        """`before`: called before the answer."""
        self.repeats: list[Repeat] = []
        self._answering = threading.Lock()

        def answer(taken: RawRequest) -> None:
            with self._answering:
                found = Repeat(self.reactor, self.reactor.repeat_mark())
                self.repeats.append(found)
                before(found, taken)
                found.answer(taken.id, str(len(self.repeats)).encode(), 1)

        super().__init__(answer, manual_clock=manual_clock, num_network_threads=1)

    def first(self) -> Repeat:
        """The first one, once its answer is given: a client may have it a moment before."""
        with self._answering:
            return self.repeats[0]

    @property
    def repeated(self) -> int:
        """How many requests did not come to Python."""
        return self.reactor.stats().repeated


def ask(client: Client, correlation: int, body: bytes = b"same", version: int = 1) -> bytes:
    found = client.ask(correlation, FLEXIBLE + body, key=BEAT, version=version)
    assert found[:1] == FLEXIBLE
    return found[1:]


def test_the_same_request_has_the_same_answer_without_python() -> None:
    with Beats() as server, server.client() as client:
        found = [ask(client, correlation) for correlation in (1, 7, 1 << 30)]
        assert (found, len(server.repeats), server.repeated) == ([b"1"] * 3, 1, 2)
        assert server.reactor.stats().fast == 2


@pytest.mark.parametrize(
    "other", [{"body": b"none"}, {"body": b"same+"}, {"body": b""}, {"version": 0}], ids=str
)
def test_another_request_comes_to_python(other: dict[str, Any]) -> None:
    """Its answer is repeated from then on."""
    with Beats() as server, server.client() as client:
        ask(client, 1)
        assert [ask(client, 2, **other), ask(client, 3, **other)] == [b"2"] * 2
        assert ask(client, 4) == b"3"


def test_each_connection_has_its_own() -> None:
    with Beats() as server, server.client() as one, server.client() as other:
        assert [ask(one, 1), ask(other, 2), ask(one, 3), ask(other, 4)] == [b"1", b"2", b"1", b"2"]


def test_other_apis_always_come_to_python() -> None:
    with Beats() as server, server.client() as client:
        found = [client.ask(number, b"", key=METADATA, version=1) for number in range(2)]
        assert found == [FLEXIBLE + b"1", FLEXIBLE + b"2"]


def test_it_ends_when_python_says_so() -> None:
    with Beats() as server, server.client() as client:
        ask(client, 1)
        server.first().end()
        assert [ask(client, 2), ask(client, 3)] == [b"2"] * 2
        server.reactor.end_repeats()
        assert [ask(client, 4), ask(client, 5)] == [b"3"] * 2
        server.reactor.intercept(BEAT, True)
        assert ask(client, 6) == b"4"


def test_one_that_ends_before_its_answer_is_not_repeated() -> None:
    def by_itself(repeat: Repeat, _taken: RawRequest) -> None:
        repeat.end()

    def by_mark(repeat: Repeat, _taken: RawRequest) -> None:
        repeat._reactor.end_repeats()

    for end in (by_itself, by_mark):
        with Beats(end) as server, server.client() as client:
            assert [ask(client, 1), ask(client, 2)] == [b"1", b"2"]


def test_a_large_request_is_not_kept() -> None:
    body = bytes(4_000)
    with Beats() as server, server.client() as client:
        assert [ask(client, 1, body), ask(client, 2, body)] == [b"1", b"2"]


@pytest.mark.skipif(SANITIZED, reason="the sanitizers' allocator counts otherwise")
def test_a_connection_keeps_its_last_request_only() -> None:
    """As one for many members, each of whose heartbeats is repeated until the next one comes."""
    bodies = [number.to_bytes(4, "big") + bytes(1_900) for number in range(1_000)]
    with Beats() as server, server.client() as client:
        for number, body in enumerate(bodies[:100]):
            ask(client, number, body)
        before = allocated_bytes()
        tracemalloc.start()
        try:
            for number, body in enumerate(bodies):
                ask(client, number, body)
            in_python, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert len(server.repeats) == 1_100
        kept = in_python + allocated_bytes() - before
        assert kept <= REPEAT_BYTES * len(bodies), "as much as its group counts for each"
        assert (ask(client, 1, bodies[-1]), server.repeated) == (b"1100", 1)
    with Beats() as server:
        before = allocated_bytes()
        for number, body in enumerate(bodies[:200]):
            with server.client() as client:
                ask(client, number, body)
        server.gone(200)
        assert allocated_bytes() - before < REPEAT_BYTES * 200


def allocated_bytes() -> int:
    """Memory of this process that its C library has given out."""
    library = ctypes.CDLL(None)
    if not hasattr(library, "mallinfo2"):
        pytest.skip("this C library does not count")
    library.mallinfo2.restype = MallInfo
    found = library.mallinfo2()
    return int(found.uordblks + found.hblkhd)


class MallInfo(ctypes.Structure):
    """glibc's struct mallinfo2."""

    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in (
            "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks",
            "fordblks", "keepcost",
        )
    )  # fmt: skip


@pytest.mark.parametrize("size", [4, SMALL_BYTES], ids=["small", "large"])
def test_a_request_that_was_read_is_not_kept(size: int) -> None:
    """Its memory is the network thread's again, which may use it while the answer is given."""

    def read(repeat: Repeat, taken: RawRequest) -> None:
        repeat._reactor.read(taken.id)

    count = 200
    with Beats(read) as server, server.client() as client:
        found = [ask(client, number, bytes(size)) for number in range(count)]
        assert found == [str(number).encode() for number in range(1, count + 1)]
        assert server.repeated == 0


def test_a_request_that_a_handler_reads_early_is_not_kept() -> None:
    """A body above SMALL_BYTES."""
    body = bytes(SMALL_BYTES + 1)
    with Beats() as server, server.client() as client:
        assert [ask(client, 1, body), ask(client, 2, body)] == [b"1", b"2"]


def test_it_tells_when_it_was_last_sent() -> None:
    with Beats(manual_clock=True) as server, server.client() as client:
        server.reactor.set_time(5_000)
        ask(client, 1)
        repeat = server.first()
        assert repeat.silence_ms is None
        for now_ms in (0, 5_000, 6_500):
            server.reactor.set_time(now_ms)
            ask(client, 2)
            assert repeat.silence_ms == 0
            server.reactor.set_time(now_ms + 900)
            assert repeat.silence_ms == 900
        repeat.end()
        assert repeat.silence_ms == 900


def test_a_closed_connection_leaves_it_to_python() -> None:
    """It can still be ended, and asked; the connection after it has no part in it."""
    with Beats() as server:
        with server.client() as client:
            ask(client, 1)
        wait_for(lambda: server.reactor.stats().connections == 0, "it is closed")
        server.first().end()
        assert server.first().silence_ms is None
        with server.client() as client:
            assert ask(client, 1) == b"2"
