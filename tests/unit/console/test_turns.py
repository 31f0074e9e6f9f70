"""Requests wait for their turn, are bounded, and leave when their browser has gone."""

from __future__ import annotations

import contextlib
import json
import logging
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from kafkalog.console import routes, web
from kafkalog.console.asked import Asked, Refused
from kafkalog.console.person import Person, Place, checked
from kafkalog.console.server import ConsoleServer
from kafkalog.console.turns import (
    AT_ONCE_MAX,
    OF_SESSION_MAX,
    SEARCHES_MAX,
    THREADS,
    WAITING_MAX,
    Turns,
)
from tests.support.console import Browser, console
from tests.support.waiting import LIMIT_S, wait_for

PLACE = Place(lambda: "127.0.0.1:1")
"""No broker is needed."""
LOGINS = Place(PLACE.brokers, checked({"security.protocol": "SASL_PLAINTEXT"}, "here"))


class Held:
    """Requests that last until they may end."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun: list[str] = []
        self.ends = threading.Event()
        for name in ("records", "topics"):
            monkeypatch.setitem(routes.READS, name, self._read)  # type: ignore[arg-type]
        monkeypatch.setitem(routes.CHANGES, "produce", self._change)  # type: ignore[arg-type]

    def _read(self, _: Person, fields: Asked) -> None:
        self._hold(fields.text("topic"))

    def _change(self, _: Person, body: dict[str, str]) -> None:
        self._hold(body["topic"])

    def _hold(self, topic: str) -> None:
        self.begun.append(topic)
        if topic != "short":
            assert self.ends.wait(LIMIT_S)


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Iterator[Held]:
    made = Held(monkeypatch)
    yield made
    made.ends.set()


def sent(server: ConsoleServer, browser: Browser, path: str, **body: object) -> socket.socket:
    """A request whose browser may go; with a body a change."""
    data = json.dumps(body).encode() if body else b""
    one = socket.create_connection((server.host, server.port), LIMIT_S)
    lines = [f"{'POST' if body else 'GET'} /api/{path} HTTP/1.1", "Host: localhost",
             f"Cookie: {browser.cookie}", f"X-CSRF-Token: {browser.csrf}",
             "Content-Type: application/json", f"Content-Length: {len(data)}", "", ""]  # fmt: skip
    one.sendall("\r\n".join(lines).encode() + data)
    return one


def crowd(server: ConsoleServer, browser: Browser, count: int, path: str) -> list[socket.socket]:
    """So many requests, each in progress."""
    tasks = server._server.server_state.tasks
    before = len(tasks)
    made = [sent(server, browser, path) for _ in range(count)]
    wait_for(lambda: len(tasks) == before + count, "all of them ask")
    return made


def browsers(server: ConsoleServer, count: int) -> list[Browser]:
    made = [Browser(server.url) for _ in range(count)]
    for one in made:
        one.begin()
    wait_for(lambda: not server._server.server_state.tasks, "they have their answers")
    return made


# ---- the order -----------------------------------------------------------------------------------


def begun(some: Turns) -> list[str]:
    return [one.session for one in some._inside if one.comes.is_set()]


def test_requests_of_a_session_wait_for_its_others() -> None:
    some = Turns()
    mine = [some.enter("a", searches=False) for _ in range(AT_ONCE_MAX + 2)]
    some.enter("b", searches=False)
    assert begun(some) == ["a"] * AT_ONCE_MAX + ["b"]
    some.leave(mine[0])
    assert [one.comes.is_set() for one in mine[1:]] == [True] * AT_ONCE_MAX + [False]


def test_searches_that_wait_hold_up_nothing_else_of_their_session() -> None:
    some = Turns()
    first = [some.enter(f"s{number}", searches=True) for number in range(SEARCHES_MAX)]
    waiting = [some.enter("a", searches=True) for _ in range(AT_ONCE_MAX)]
    other = some.enter("a", searches=False)
    assert other.comes.is_set() and not any(one.comes.is_set() for one in waiting)
    some.leave(waiting[0])
    some.leave(first[0])
    assert [one.comes.is_set() for one in waiting[1:]] == [True] + [False] * (AT_ONCE_MAX - 2)


def test_no_more_begin_than_there_are_threads() -> None:
    some = Turns()
    made = [some.enter(f"s{number}", searches=False) for number in range(THREADS + 2)]
    assert len(begun(some)) == THREADS
    some.leave(made[0])
    assert begun(some) == [f"s{number}" for number in range(1, THREADS + 1)]


def test_requests_that_wait_are_bounded() -> None:
    """Those of one session, and all together."""
    some = Turns()
    mine = [some.enter("a", searches=True) for _ in range(OF_SESSION_MAX)]
    with pytest.raises(Refused, match=f"^found {OF_SESSION_MAX} requests of this ") as problem:
        some.enter("a", searches=False)
    assert problem.value.status == 429
    for number in range(WAITING_MAX - OF_SESSION_MAX):
        some.enter(f"s{number}", searches=False)
    with pytest.raises(Refused, match=f"^found {WAITING_MAX} requests in ") as problem:
        some.enter("b", searches=False)
    assert problem.value.status == 503
    some.leave(mine[0])
    some.enter("b", searches=False)
    assert len(some) == WAITING_MAX


def test_a_session_with_too_many_requests_is_told_so(held: Held) -> None:
    with console(PLACE) as server, contextlib.ExitStack() as ends:
        one, other = browsers(server, 2)
        for sockets in crowd(server, one, OF_SESSION_MAX, "records?topic=a"):
            ends.enter_context(sockets)
        assert one.ask("/api/topics?topic=short").status == 429
        assert other.get("topics", topic="short") is None
        held.ends.set()


# ---- browsers that go ----------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["records", "topics"])
def test_requests_whose_browser_has_gone_are_not_carried_out(held: Held, path: str) -> None:
    with console(PLACE) as server:
        tasks = server._server.server_state.tasks
        (one,) = browsers(server, 1)
        first = crowd(server, one, AT_ONCE_MAX, f"{path}?topic=first")
        wait_for(lambda: len(held.begun) == AT_ONCE_MAX, "some have begun")
        for left in crowd(server, one, 10, f"{path}?topic=left"):
            left.close()
        wait_for(lambda: len(tasks) == AT_ONCE_MAX, "the others leave")
        held.ends.set()
        assert one.get("topics", topic="short") is None
        assert held.begun == ["first"] * AT_ONCE_MAX + ["short"]
        for each in first:
            each.close()


def test_a_search_ends_when_its_browser_has_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    asking, over = threading.Event(), threading.Event()

    def search(_: Person, asked: Asked) -> None:
        asking.set()
        wait_for(lambda: asked.abandoned, "its browser has gone")
        over.set()

    monkeypatch.setitem(routes.READS, "records", search)  # type: ignore[arg-type]
    with console(PLACE) as server:
        (one,) = browsers(server, 1)
        with sent(server, one, "records?topic=a"):
            assert asking.wait(LIMIT_S)
            assert not over.is_set()
        assert over.wait(LIMIT_S)
        wait_for(lambda: not server._web._turns, "its thread is free")


def test_changes_of_browsers_that_have_gone(held: Held, caplog: pytest.LogCaptureFixture) -> None:
    """One that has begun is logged with its outcome; one that has not is not made."""
    caplog.set_level(logging.INFO, "kafkalog.console.web")
    with console(PLACE, write=True) as server:
        tasks = server._server.server_state.tasks
        (one,) = browsers(server, 1)
        some = [sent(server, one, "produce", topic="first") for _ in range(AT_ONCE_MAX)]
        wait_for(lambda: len(held.begun) == AT_ONCE_MAX, "some have begun")
        late = sent(server, one, "produce", topic="late")
        wait_for(lambda: len(tasks) == AT_ONCE_MAX + 1, "all of them ask")
        for each in (late, *some):
            each.close()
        wait_for(lambda: len(tasks) == AT_ONCE_MAX, "the late one leaves")
        held.ends.set()
        wait_for(lambda: not tasks, "the others end")
    assert held.begun == ["first"] * AT_ONCE_MAX
    assert caplog.messages == [
        "console: 'anonymous': produce, topic 'late': failed: its browser had gone before it began",
        *["console: 'anonymous': produce, topic 'first': done"] * AT_ONCE_MAX,
    ]


# ---- logins --------------------------------------------------------------------------------------


class Doors:
    """Logins that succeed; those of slow last until they may end."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.ends = threading.Event()

    def log_in(self, person: Person) -> None:
        self.begun.append(person.user)
        if person.user == "slow":
            assert self.ends.wait(LIMIT_S)


@pytest.fixture
def doors(monkeypatch: pytest.MonkeyPatch) -> Iterator[Doors]:
    made = Doors()
    monkeypatch.setattr(Person, "log_in", lambda person: made.log_in(person))
    yield made
    made.ends.set()


def test_logins_whose_browser_has_gone_begin_no_session(doors: Doors) -> None:
    """One that waits is not carried out."""
    with console(LOGINS) as server:
        tasks = server._server.server_state.tasks
        nobody = Browser(server.url)
        some = [sent(server, nobody, "login", user="slow", password="x")
                for _ in range(web.LOGINS_MAX)]  # fmt: skip
        wait_for(lambda: len(doors.begun) == web.LOGINS_MAX, "some have begun")
        some.append(sent(server, nobody, "login", user="late", password="x"))
        wait_for(lambda: len(tasks) == len(some), "all of them ask")
        for one in some:
            one.close()
        wait_for(lambda: len(tasks) == web.LOGINS_MAX, "the late one leaves")
        doors.ends.set()
        wait_for(lambda: not tasks, "the others end")
        assert Browser(server.url).log_in("bob", "x").status == 200
        assert doors.begun == ["slow"] * web.LOGINS_MAX + ["bob"]
        assert len(server._web._sessions) == 1


def test_logins_that_wait_are_bounded(doors: Doors) -> None:
    with console(LOGINS) as server, contextlib.ExitStack() as ends:
        nobody = Browser(server.url)
        tasks = server._server.server_state.tasks
        for number in range(web.ARRIVING_MAX):
            user = "slow" if number < web.LOGINS_MAX else f"u{number}"
            ends.enter_context(sent(server, nobody, "login", user=user, password="x"))
        wait_for(lambda: len(tasks) == web.ARRIVING_MAX, "all of them ask")
        wait_for(lambda: len(server._web._arriving) == web.ARRIVING_MAX, "they wait")
        assert Browser(server.url).log_in("bob", "x").status == 503
        doors.ends.set()


def test_searches_and_logins_leave_threads_to_others(doors: Doors, held: Held) -> None:
    with console(LOGINS) as server, ThreadPoolExecutor(20) as many:
        some = [Browser(server.url) for _ in range(3)]
        for one in some:
            assert one.log_in("bob", "x").status == 200
        searches = [many.submit(one.get, "records", topic="a") for one in some[:2]
                    for _ in range(AT_ONCE_MAX)]  # fmt: skip
        logins = [many.submit(Browser(server.url).log_in, "slow", "x")
                  for _ in range(web.LOGINS_MAX)]  # fmt: skip
        wait_for(lambda: len(held.begun) == SEARCHES_MAX, "the searches have begun")
        wait_for(lambda: doors.begun.count("slow") == web.LOGINS_MAX, "the logins, too")
        asking = many.submit(some[2].get, "topics", topic="short")
        try:
            assert asking.result(LIMIT_S / 2) is None
        finally:
            doors.ends.set()
            held.ends.set()
        assert {one.result().status for one in logins} == {200}
        assert [one.result() for one in searches] == [None] * len(searches)
