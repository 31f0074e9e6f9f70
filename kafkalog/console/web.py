"""The console as an ASGI application: rights, limits, and the headers of its answers."""

from __future__ import annotations

import asyncio
import ipaddress
import json
import secrets
import threading
import time
import unicodedata
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, MutableMapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any, NamedTuple, TypeAlias
from urllib.parse import parse_qsl

from kafkalog import errors
from kafkalog.console.asked import Asked, Refused
from kafkalog.console.changes import subject
from kafkalog.console.person import Person, Place
from kafkalog.console.records import Download
from kafkalog.console.routes import CHANGES, READERS, READS
from kafkalog.console.sessions import Attempts, Passes, Session, Sessions, same
from kafkalog.console.statics import read_statics
from kafkalog.console.turns import THREADS, Turn, Turns
from kafkalog.logs.limit import limited
from kafkalog.metrics.endpoint import Page

__all__ = ["Settings", "Web"]

_logger = limited(__name__)

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]
Gone: TypeAlias = "asyncio.Future[None]"
"""Done when a request's browser has gone."""

LOGINS_MAX, ARRIVING_MAX = 4, 16
"""Logins at the same time, in threads of their own, as a broker may take long to refuse one; and
with those that wait.  Another one is refused."""
PAGES_MAX = 4
"""Pages of metrics that are made at the same time."""
URL_BYTES_MAX = 16_384
BODY_BYTES_MAX = 1 << 20
BODY_S = 10.0
"""How long a request's body may take to arrive."""
PIECE_BYTES = 1 << 16
"""An answer is sent in such pieces, as fast as its client reads; the server ends slow ones."""
ROUND_S = 10.0
"""How often sessions are looked after, and their clusters sampled."""
SAMPLED_MAX, SAMPLED_PARTITIONS_MAX = 16, 400_000
"""Sessions that remember how their cluster was, the last used ones, with so many partitions
together, each about a kilobyte; one is sampled however many it has."""
UNSENT_BYTES_MAX = 64 << 20
"""Answers that wait to be read, together; a small one is always given."""
NAME_MAX, PASSWORD_MAX = 256, 1_024
"""The longest user and password, in characters."""
JSON, BYTES = "application/json", "application/octet-stream"
_CSP = (
    "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; "
    "object-src 'none'"
)
SECURITY: Headers = [
    (b"content-security-policy", _CSP.encode()),
    (b"x-frame-options", b"DENY"),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
]


class Settings(NamedTuple):
    """The cluster of a console, and how it is reached and protected."""

    place: Place
    """The cluster."""
    write: bool = False
    """Changes are allowed, to those who have the right."""
    hosts: frozenset[str] = frozenset()
    """Names in URLs that lead here, besides localhost and addresses."""
    pages: Mapping[str, Callable[[str], Page]] = {}
    """Pages by path that anyone may read, as of `Endpoint`."""
    at_once: frozenset[str] = frozenset()
    """Those that wait for nothing."""


class Answer(NamedTuple):
    """A response."""

    status: int
    content_type: str
    body: bytes
    headers: Sequence[tuple[bytes, bytes]] = ()


class Web:
    """Answers requests in an event loop of its own; questions to brokers are asked in threads."""

    def __init__(self, settings: Settings) -> None:
        """Nothing is sent to brokers yet."""
        self._settings = settings
        self._statics = read_statics()
        self._sessions = Sessions[Person](lambda: secrets.token_urlsafe(24))
        self._arriving: set[Person] = set()
        """Those that log in: they have clients and no session yet."""
        self._passes = Passes(lambda: secrets.token_urlsafe(24))
        self._attempts = Attempts()
        self._turns = Turns()
        self._threads = ThreadPoolExecutor(THREADS, "kafkalog console")
        self._doors = ThreadPoolExecutor(LOGINS_MAX, "kafkalog console logins")
        self._sampling = ThreadPoolExecutor(1, "kafkalog console samples")
        self._pages = self._unsent = 0
        self._ends = False
        # An open cluster knows nobody: all share the clients of one.
        self._everyone = None if settings.place.logs_in else Person(settings.place, "", "")

    # ---- ASGI --------------------------------------------------------------------------------

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, or the server's life."""
        if scope["type"] == "lifespan":
            await self._live(receive, send)
            return
        if scope["type"] != "http":
            return
        secure = scope["scheme"] == "https"
        try:
            answer = await self._answer(scope, receive, secure)
        except Refused as problem:
            answer = _failed(problem.status, str(problem))
        except errors.KafkalogError as problem:
            answer = _failed(_status_of(problem), str(problem))
        except Exception:
            _logger.exception("console: a request failed")
            answer = _failed(500, "the console failed; its log has the reason")
        waits = self._unsent
        if len(answer.body) > PIECE_BYTES and waits and waits + len(answer.body) > UNSENT_BYTES_MAX:
            answer = _failed(503, "other answers wait to be read; try again")
        size = len(answer.body)
        self._unsent += size
        try:
            await _send(send, answer, scope["method"] == "HEAD")
        finally:
            self._unsent -= size

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()
        await send({"type": "lifespan.startup.complete"})
        task = asyncio.create_task(self._look_after())
        await receive()
        task.cancel()
        await send({"type": "lifespan.shutdown.complete"})

    async def _look_after(self) -> None:
        """End sessions in time, and let each remember how its cluster was."""
        loop = asyncio.get_running_loop()
        while True:
            self._part_from(self._sessions.expire(time.monotonic()))
            try:
                await loop.run_in_executor(self._sampling, _sample, self._persons())
            except Exception:  # sessions must end in time, whatever happens
                _logger.exception("console: a sample failed")
            await asyncio.sleep(ROUND_S)

    # ---- requests ----------------------------------------------------------------------------

    async def _answer(self, scope: Scope, receive: Receive, secure: bool) -> Answer:
        method, path = scope["method"], scope["path"]
        if len(scope["raw_path"]) + len(scope["query_string"]) > URL_BYTES_MAX:
            raise Refused(414, f"found a longer path, wanted at most {URL_BYTES_MAX} bytes")
        headers = {name.decode("latin-1"): value.decode("latin-1")
                   for name, value in scope["headers"]}  # fmt: skip
        if (page := self._settings.pages.get(path)) is not None and method in ("GET", "HEAD"):
            return await self._page(path, page, headers.get("accept", ""))
        _check_host(headers.get("host", ""), self._settings.hosts)
        if method in ("GET", "HEAD") and (found := self._statics.get(path)) is not None:
            return Answer(200, *found)
        name = path.removeprefix("/api/")
        if name == path:
            raise Refused(404, f"found {path[:100]!r}, wanted / or a path below /api/")
        token = _cookie(headers.get("cookie", ""), _cookie_name(secure))
        _check_site(headers)
        session = self._session_of(token)
        if method == "POST":
            _check_origin(headers)
            body = _json(await _body(receive))
            if name == "login":
                client = scope.get("client") or ("",)
                async with _watched(receive) as gone:
                    return await self._login(str(client[0]), body, secure, token, gone)
            session = self._changed_by(session, headers)
            if name == "logout":
                self._part_from(self._sessions.end(token))
                return _shown({}, [_cookie_header(secure, "", 0)])
            return await self._change(receive, session, name, body)
        if method not in ("GET", "HEAD"):
            raise Refused(405, f"found {method[:20]}, wanted GET or POST")
        if name == "session":
            return await self._session(session, secure)
        if session is None:
            raise Refused(401, "log in first")
        read = READS.get(name)
        if read is None:
            raise Refused(404, f"found {path[:100]!r}, wanted a known path below /api/")
        person, fields = session.person, _fields(scope["query_string"])
        return await self._ask(
            receive, session, lambda gone: read(person, Asked(fields, gone)), name in READERS
        )

    async def _page(self, path: str, page: Callable[[str], Page], accept: str) -> Answer:
        """A page that needs no session; those that wait for nothing are always made."""
        slow = path not in self._settings.at_once
        if slow and self._pages >= PAGES_MAX:
            raise Refused(503, f"found {PAGES_MAX} requests in progress, wanted fewer")
        self._pages += slow
        try:
            return Answer(*await asyncio.to_thread(page, accept))
        finally:
            self._pages -= slow

    async def _session(self, session: Session[Person] | None, secure: bool) -> Answer:
        """The asking user, and what they may do; on an open cluster a session begins by itself."""
        place, headers = self._settings.place, []
        if session is None and self._everyone is not None:
            token = self._passes.begin()
            session = self._session_of(token)
            headers.append(_cookie_header(secure, token))
        return _shown({
            "login": place.logs_in, "here": session is not None,
            "user": "" if session is None else session.user,
            "csrf": "" if session is None else session.csrf,
            "write": self._settings.write, "brokers": place.brokers(),
            "encrypted": secure,
        }, headers)  # fmt: skip

    def _session_of(self, token: str) -> Session[Person] | None:
        now_s = time.monotonic()
        if self._everyone is None:
            return self._sessions.use(token, now_s)
        csrf = self._passes.csrf(token)
        return None if csrf is None else Session("", csrf, self._everyone, now_s)

    def _changed_by(
        self, session: Session[Person] | None, headers: dict[str, str]
    ) -> Session[Person]:
        if session is None:
            raise Refused(401, "log in first")
        if not same(headers.get("x-csrf-token", ""), session.csrf):
            raise Refused(403, "found no right X-CSRF-Token; load the page again")
        return session

    async def _change(
        self, receive: Receive, session: Session[Person], name: str, body: Any
    ) -> Answer:
        change = CHANGES.get(name)
        if change is None:
            raise Refused(404, f"found {name[:100]!r}, wanted one of {', '.join(CHANGES)}")
        if not self._settings.write:
            raise Refused(403, "this console is read-only: kafkalog.console.write is false")
        who = session.user or "anonymous", name, subject(body)
        try:
            answer = await self._ask(receive, session, lambda _: change(session.person, body))
        except (errors.KafkalogError, Refused) as problem:
            _logger.info("console: %r: %s, %s: failed: %s", *who, problem)
            raise
        except BaseException:
            _logger.info("console: %r: %s, %s: %s", *who, "interrupted: perhaps it was done")
            raise
        _logger.info("console: %r: %s, %s: %s", *who, "done")
        return answer

    async def _login(self, address: str, body: Any, secure: bool, old: str, gone: Gone) -> Answer:
        place = self._settings.place
        if not place.logs_in:
            raise Refused(400, "this cluster asks for no login")
        user, password = body.get("user"), body.get("password")
        for name, value, most in (("user", user, NAME_MAX), ("password", password, PASSWORD_MAX)):
            if not isinstance(value, str) or not 0 < len(value) <= most:
                raise Refused(400, f"{name}: wanted 1 to {most} characters")
            if any(unicodedata.category(one) in ("Cc", "Cs") for one in value):
                raise Refused(400, f"{name}: found a control character, wanted none")
        wait_s = self._attempts.wait_s(address, user, time.monotonic())
        if wait_s:
            raise Refused(429, f"too many failed logins; try again in {wait_s:.0f} s")
        if len(self._arriving) >= ARRIVING_MAX or self._ends:
            raise Refused(503, f"found {ARRIVING_MAX} logins in progress, wanted fewer")
        self._attempts.begin(address, user, time.monotonic())
        person = Person(place, user, password)
        self._arriving.add(person)
        try:
            await self._let_in(person, gone)
        except errors.SaslAuthenticationFailed:
            _logger.warning("console: a login as %r from %s failed", user, address)
            raise Refused(401, "wrong user or password") from None
        except BaseException:  # nobody has said that they are wrong
            self._attempts.succeed(address, user)
            self._part_from([person])
            raise
        finally:
            self._arriving.discard(person)
        self._attempts.succeed(address, user)
        self._part_from(self._sessions.end(old))
        token, over = self._sessions.begin(user, person, time.monotonic())
        self._part_from(over)
        return _shown({}, [_cookie_header(secure, token)])

    # ---- threads -----------------------------------------------------------------------------

    async def _ask(
        self, receive: Receive, session: Session[Person], call: Callable[[threading.Event], Any],
        searches: bool = False,
    ) -> Answer:  # fmt: skip
        """The result of `call`, which gets what is set when its browser has gone."""
        turn = self._turns.enter(session.csrf, searches)
        try:
            async with _watched(receive) as gone:
                return await self._served(turn, gone, lambda: _shown(call(turn.gone)))
        except errors.SaslAuthenticationFailed as problem:
            if session.person is self._everyone:
                raise Refused(502, str(problem)) from None
            self._part_from(self._sessions.end_of(session.csrf))
            raise Refused(401, f"log in again: {problem}") from None
        except errors.KafkalogError:
            if session.person.ended:
                raise Refused(401, "this session has ended") from None
            raise
        finally:
            self._turns.leave(turn)

    async def _served(self, turn: Turn, gone: Gone, call: Callable[[], Answer]) -> Answer:
        """Wait for the turn, and for the thread: also if the browser has gone, as it is in use."""
        waits = asyncio.ensure_future(turn.comes.wait())
        try:
            await _either(waits, gone)
        finally:
            waits.cancel()
        if gone.done():
            raise Refused(503, "its browser had gone before it began")
        if self._ends:
            raise Refused(503, "the console ends")
        job = asyncio.get_running_loop().run_in_executor(self._threads, call)
        try:
            await _either(job, gone)
            if not job.done():
                turn.gone.set()
            return await job
        finally:
            job.cancel()  # the console ends

    async def _let_in(self, person: Person, gone: Gone) -> None:
        """Raises: as Person.log_in; Refused: its browser has gone."""
        job = self._doors.submit(person.log_in)
        waits = asyncio.wrap_future(job)
        try:
            await _either(waits, gone)
            # Once it has begun its outcome counts.
            if waits.done() or not job.cancel():
                await waits
        finally:
            waits.cancel()
        if gone.done():
            raise Refused(503, "its browser had gone")

    def _part_from(self, persons: list[Person]) -> None:
        """Close the clients of sessions that have ended."""
        for one in persons:
            if one is not self._everyone:
                self._sampling.submit(one.close)

    def interrupt(self) -> None:
        """End waits for brokers, now and later."""
        self._ends = True
        for one in [*self._persons(), *tuple(self._arriving)]:
            one.interrupt()

    def close(self) -> None:
        """Close all clients; the server has ended."""
        self._ends = True
        persons = [*self._persons(), *self._arriving]
        for one in persons:
            one.interrupt()
        self._threads.shutdown(cancel_futures=True)
        self._doors.shutdown(cancel_futures=True)
        self._sampling.shutdown()
        for one in persons:
            one.close()

    def _persons(self) -> list[Person]:
        everyone = [] if self._everyone is None else [self._everyone]
        return [*{id(one): one for one in [*self._sessions.persons(), *everyone]}.values()]


def _sample(persons: list[Person]) -> None:
    """Let persons, the last used one last, remember how their cluster is now."""
    sampled = partitions = 0
    for one in reversed(persons):
        one.tidy(time.monotonic())
        if sampled >= SAMPLED_MAX or partitions >= SAMPLED_PARTITIONS_MAX:
            one.forget()
            continue
        sampled += 1
        try:
            partitions += one.remember()
        except errors.KafkalogError as problem:
            _logger.debug("console: no sample: %s", problem)


# ---- checks --------------------------------------------------------------------------------------


def _check_host(host: str, known: frozenset[str]) -> None:
    """Refuse names that are not the console's: a page elsewhere may have led its own name here, to
    read answers (DNS rebinding).  An address is nobody's name."""
    name = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host
    name = name.lower().strip("[]").rstrip(".")
    if name == "localhost" or name in known:
        return
    try:
        ipaddress.ip_address(name)
    except ValueError:
        raise Refused(
            421, f"found the host {host[:100]!r}, wanted localhost, an address or one of "
            "kafkalog.console.hosts",
        ) from None  # fmt: skip


def _check_site(headers: Mapping[str, str]) -> None:
    """Refuse requests that another site's page makes, as browsers tell."""
    if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        raise Refused(403, "found a request of another site, wanted one of this console")


def _check_origin(headers: Mapping[str, str]) -> None:
    """Refuse changes that another site's page makes, as older browsers tell."""
    origin = headers.get("origin")
    if origin is not None and origin.partition("://")[2] != headers.get("host", ""):
        raise Refused(403, "found another Origin, wanted this console's")
    if headers.get("content-type", "").partition(";")[0].strip() != JSON:
        raise Refused(415, f"found another Content-Type, wanted {JSON}")


def _fields(query: bytes) -> dict[str, str]:
    try:
        pairs = parse_qsl(query.decode("ascii"), keep_blank_values=True, max_num_fields=20)
    except ValueError:
        raise Refused(400, "found another query, wanted at most 20 fields") from None
    return dict(pairs)


@asynccontextmanager
async def _watched(receive: Receive) -> AsyncIterator[Gone]:
    """Within: what is done when the browser of a request, whose body is read, has gone."""

    async def leaves() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    gone = asyncio.ensure_future(leaves())
    try:
        yield gone
    finally:
        gone.cancel()


async def _either(one: asyncio.Future[Any], gone: Gone) -> None:
    """Wait for the first of them."""
    await asyncio.wait({one, gone}, return_when=asyncio.FIRST_COMPLETED)


async def _body(receive: Receive) -> bytes:
    """Raises: Refused: too long, or too slow."""

    async def whole() -> bytes:
        data = bytearray()
        while True:
            event = await receive()
            if event["type"] != "http.request":
                raise Refused(400, "found an incomplete request")
            data += event.get("body", b"")
            if len(data) > BODY_BYTES_MAX:
                raise Refused(413, f"found a longer body, wanted at most {BODY_BYTES_MAX} bytes")
            if not event.get("more_body"):
                return bytes(data)

    try:
        return await asyncio.wait_for(whole(), BODY_S)
    except asyncio.TimeoutError:
        raise Refused(408, f"found no whole body in {BODY_S:g} s") from None


def _json(body: bytes) -> dict[str, Any]:
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise Refused(400, "found another body, wanted a JSON object")
    return found


# ---- answers -------------------------------------------------------------------------------------


def _status_of(problem: errors.KafkalogError) -> int:
    kinds: list[tuple[type[errors.KafkalogError], int]] = [
        (errors.AuthorizationFailed, 403),
        (errors.UnknownTopicOrPartition, 404), (errors.ArgumentError, 400),
        (errors.InvalidTopic, 400), (errors.Timeout, 504),
    ]  # fmt: skip
    return next((status for kind, status in kinds if isinstance(problem, kind)), 502)


def _failed(status: int, reason: str) -> Answer:
    return _shown({"error": reason})._replace(status=status)


def _shown(found: Any, headers: Headers | None = None) -> Answer:
    if isinstance(found, Download):
        kept = f'attachment; filename="{found.name}"'.encode()
        return Answer(200, BYTES, found.data, [(b"content-disposition", kept)])
    body = json.dumps(found, separators=(",", ":"), allow_nan=False).encode()
    return Answer(200, JSON, body, headers or ())


def _cookie_name(secure: bool) -> str:
    return "__Host-kafkalog" if secure else "kafkalog_session"


def _cookie(text: str, name: str) -> str:
    for pair in text.split(";"):
        key, _, value = pair.strip().partition("=")
        if key == name:
            return value
    return ""


def _cookie_header(secure: bool, token: str, max_age_s: int | None = None) -> tuple[bytes, bytes]:
    words = [f"{_cookie_name(secure)}={token}", "Path=/", "HttpOnly", "SameSite=Strict"]
    words += ["Secure"] * secure + ([] if max_age_s is None else [f"Max-Age={max_age_s}"])
    return b"set-cookie", "; ".join(words).encode()


async def _send(send: Send, answer: Answer, head: bool) -> None:
    headers = [
        (b"content-type", answer.content_type.encode("latin-1")),
        (b"content-length", str(len(answer.body)).encode()),
        *SECURITY, *answer.headers,
    ]  # fmt: skip
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    body = b"" if head else answer.body
    for at in range(0, len(body), PIECE_BYTES):
        piece = body[at : at + PIECE_BYTES]
        await send({"type": "http.response.body", "body": piece, "more_body": True})
    await send({"type": "http.response.body"})
