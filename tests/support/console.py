"""A console over a broker, and a client that behaves as a browser does."""

from __future__ import annotations

import contextlib
import http.client
import json
import ssl
from collections.abc import Iterator
from typing import Any, NamedTuple
from urllib.parse import urlencode, urlsplit

from kafkalog.console.person import Place
from kafkalog.console.server import ConsoleServer
from kafkalog.console.web import Settings, Web
from tests.support.waiting import LIMIT_S

__all__ = ["Answer", "Browser", "console"]


class Answer(NamedTuple):
    """An answer to a request."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Browser:
    """Requests with the cookies of earlier answers, one connection each."""

    def __init__(
        self, url: str, tls: ssl.SSLContext | None = None, source: str | None = None
    ) -> None:
        """`source`: the address of its end of a connection."""
        self._at = urlsplit(url)
        self._tls = tls
        self._source = None if source is None else (source, 0)
        self.cookie = ""
        self.csrf = ""

    def ask(
        self, path: str, method: str = "GET", body: bytes | None = None, **headers: str
    ) -> Answer:
        host, port = self._at.hostname or "", self._at.port
        made = (
            http.client.HTTPConnection(host, port, LIMIT_S, self._source) if self._tls is None
            else http.client.HTTPSConnection(host, port, timeout=LIMIT_S, context=self._tls)
        )  # fmt: skip
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        if self.cookie:
            given.setdefault("Cookie", self.cookie)
        with contextlib.closing(made):
            made.request(method, path, body, given)
            found = made.getresponse()
            answer = Answer(
                found.status, {name.lower(): value for name, value in found.getheaders()},
                found.read(),
            )  # fmt: skip
        if "set-cookie" in answer.headers:
            self.cookie = answer.headers["set-cookie"].partition(";")[0]
        return answer

    def get(self, name: str, /, **fields: object) -> Any:
        """The answer of a path below /api/."""
        answer = self.ask(f"/api/{name}?{urlencode(fields)}")
        assert answer.status == 200, answer
        return answer.json

    def post(self, name: str, /, **fields: object) -> Answer:
        """The answer to a change."""
        return self.ask(
            f"/api/{name}", "POST", json.dumps(fields).encode(), Content_Type="application/json",
            X_CSRF_Token=self.csrf,
        )  # fmt: skip

    def begin(self) -> dict[str, Any]:
        """Load the session, as the page does first."""
        found: dict[str, Any] = self.get("session")
        self.csrf = found["csrf"]
        return found

    def log_in(self, user: str, password: str) -> Answer:
        answer = self.post("login", user=user, password=password)
        if answer.status == 200:
            self.begin()
        return answer


@contextlib.contextmanager
def console(
    place: Place, tls: ssl.SSLContext | None = None, **settings: Any
) -> Iterator[ConsoleServer]:
    """A console of this place at a free port."""
    server = ConsoleServer("127.0.0.1", 0, "test", Web(Settings(place, **settings)), tls)
    try:
        yield server
    finally:
        server.close()
