"""The console of a secured broker: users see what their ACLs let them see."""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import kafkalog
from kafkalog.config.authorizer import STANDARD_AUTHORIZER
from kafkalog.console import person as person_module
from kafkalog.console import routes, sessions, turns
from kafkalog.console.person import Person, Place, SegmentFacts, checked
from kafkalog.errors import InvalidSetting, SaslAuthenticationFailed
from kafkalog.logs import limit
from tests.support import sasl
from tests.support.console import Browser, console
from tests.support.waiting import LIMIT_S, wait_for

ALICE, ROOT = "alice", "bob"
"""A user with few rights, and one with all."""
PASSWORDS = sasl.USERS


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    config = sasl.settings(
        "PLAIN", authorizer_class_name=STANDARD_AUTHORIZER, super_users=f"User:{ROOT}",
        allow_everyone_if_no_acl_found="false",
    )  # fmt: skip
    with kafkalog.Broker(tmp_path_factory.mktemp("logins") / "data", config=config) as broker:
        place = Place(
            lambda: broker.bootstrap_servers,
            checked({"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}, "here"),
            lambda tp: [SegmentFacts(0, 1, 2, 3, True)],
        )
        with kafkalog.Admin(broker) as admin:
            admin.create_topics(["hers", "theirs"]).check()
            admin.create_acls([
                ("topic", "hers", f"User:{ALICE}", "read"),
                ("group", "hers", f"User:{ALICE}", "read"),
            ]).check()  # fmt: skip
        yield place


@pytest.fixture(scope="module")
def url(place: Place) -> Iterator[str]:
    with console(place, write=True) as server:
        yield server.url


def test_acls_decide_about_everything_a_user_sees(url: str) -> None:
    alice = Browser(url)
    assert alice.begin() == {
        "login": True, "here": False, "user": "", "csrf": "", "write": True,
        "brokers": alice.begin()["brokers"], "encrypted": False,
    }  # fmt: skip
    assert alice.ask("/api/topics").status == 401
    assert alice.log_in(ALICE, PASSWORDS[ALICE]).status == 200
    assert alice.begin()["user"] == ALICE
    assert [one["name"] for one in alice.get("topics")["topics"]] == ["hers"]
    assert alice.ask("/api/partitions?name=theirs").status == 404
    assert alice.ask("/api/records?topic=theirs").status == 404
    assert alice.get("records", topic="hers")["records"] == []
    assert alice.get("layout", name="hers")["segments"] is None
    hidden = alice.get("cluster")
    assert hidden["quorum"] is None and "quorum" in hidden["hidden"]
    assert alice.post("produce", topic="hers", value="x").status == 403
    assert alice.post("create-topic", name="x", partitions=1, replication=1).status == 403
    assert alice.post("delete-topic", name="hers", again="hers").status == 403


def test_an_administrator_sees_all(url: str) -> None:
    root = Browser(url)
    root.log_in(ROOT, PASSWORDS[ROOT])
    assert [one["name"] for one in root.get("topics")["topics"]] == ["hers", "theirs"]
    assert root.get("layout", name="theirs")["count"] == 1
    assert root.post("produce", topic="theirs", value="x").status == 200
    assert root.get("cluster")["hidden"] == {}


def test_a_logout_ends_a_session(url: str) -> None:
    alice = Browser(url)
    alice.log_in(ALICE, PASSWORDS[ALICE])
    cookie = alice.cookie
    assert alice.post("logout").status == 200
    alice.cookie = cookie
    assert alice.ask("/api/topics").status == 401
    assert alice.begin()["here"] is False


def test_a_request_in_progress_at_the_logout_is_refused(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its clients are closed: that is no failure of the cluster."""

    def slow(person: Person, _: object) -> None:
        person.close()
        person.topics(fresh=True)

    monkeypatch.setitem(routes.READS, "groups", slow)  # type: ignore[arg-type]
    with console(place) as server:
        alice = Browser(server.url)
        alice.log_in(ALICE, PASSWORDS[ALICE])
        answer = alice.ask("/api/groups")
        assert (answer.status, answer.json["error"]) == (401, "this session has ended")


def test_a_login_replaces_the_session(url: str) -> None:
    """So a token that somebody else had put there is worth nothing afterwards."""
    one = Browser(url)
    one.log_in(ALICE, PASSWORDS[ALICE])
    before = one.cookie
    one.log_in(ROOT, PASSWORDS[ROOT])
    assert one.cookie != before
    one.cookie = before
    assert one.ask("/api/topics").status == 401


def test_wrong_passwords_are_refused_and_counted(place: Place) -> None:
    wrong = [("alice", "x"), ("alice", PASSWORDS[ROOT]), ('a" x="', 'b"; \\')]
    wrong += [(f"nobody{number}", "x") for number in range(sessions.OF_ADDRESS_MAX - len(wrong))]
    with console(place) as server:
        for one in wrong:
            answer = Browser(server.url).log_in(*one)
            assert (answer.status, answer.json) == (401, {"error": "wrong user or password"})
        assert Browser(server.url).log_in(ALICE, PASSWORDS[ALICE]).status == 429
        elsewhere = Browser(server.url, source="127.0.0.2")
        assert elsewhere.log_in(ALICE, PASSWORDS[ALICE]).status == 200


def test_logins_leave_threads_to_sessions(monkeypatch: pytest.MonkeyPatch, place: Place) -> None:
    """However long a broker takes to refuse them."""
    with console(place) as server, ThreadPoolExecutor(turns.THREADS) as many:
        alice = Browser(server.url)
        alice.log_in(ALICE, PASSWORDS[ALICE])
        refuses = threading.Event()

        def slow(person: Person) -> None:
            refuses.wait(LIMIT_S)
            raise SaslAuthenticationFailed("wrong")

        monkeypatch.setattr(Person, "log_in", slow)
        try:
            done = [many.submit(Browser(server.url).log_in, f"u{n}", "x") for n in range(8)]
            wait_for(lambda: len(server._web._arriving) == len(done), "all try to log in")
            assert alice.get("topics")["total"] == 1
        finally:
            refuses.set()
        assert {one.result().status for one in done} == {401}


def test_nobody_locks_a_user_out_from_elsewhere(place: Place) -> None:
    with console(place) as server:
        for _ in range(sessions.FAILURES_MAX):
            assert Browser(server.url, source="127.0.0.2").log_in(ALICE, "x").status == 401
        there = Browser(server.url, source="127.0.0.2")
        assert there.log_in(ALICE, PASSWORDS[ALICE]).status == 429
        assert Browser(server.url).log_in(ALICE, PASSWORDS[ALICE]).status == 200
        assert there.log_in(ROOT, PASSWORDS[ROOT]).status == 200


def test_closing_ends_a_login_and_its_client(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its broker is silent, and it has no session yet."""
    monkeypatch.setattr(person_module, "REQUEST_MS", 10_000_000)
    monkeypatch.setattr(person_module, "API_MS", 10_000_000)
    given = checked({"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}, "here")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        with (
            console(Place(lambda: f"127.0.0.1:{port}", given)) as server,
            contextlib.ExitStack() as ends,
        ):
            body = b'{"user": "alice", "password": "x"}'
            asked = ends.enter_context(socket.create_connection((server.host, server.port)))
            asked.sendall(
                b"POST /api/login HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                b"Content-Length: %d\r\n\r\n%s" % (len(body), body)
            )  # fmt: skip
            opened = ends.enter_context(silent.accept()[0])
            opened.settimeout(LIMIT_S)
            server.close()
            with contextlib.suppress(ConnectionResetError):
                while opened.recv(1 << 16):
                    pass


def test_each_change_is_logged_with_its_subject_and_its_outcome(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "kafkalog.console.web")
    root, alice = Browser(url), Browser(url)
    root.log_in(ROOT, PASSWORDS[ROOT])
    alice.log_in(ALICE, PASSWORDS[ALICE])
    root.post("produce", topic="theirs", value="x")
    alice.post("delete-topic", name="hers", again="hers")
    root.post("reset-offsets", group="g\n", topic="theirs", to="first")
    root.post("create-topic", name=["x"], partitions=1, replication=1)
    found = [one.getMessage() for one in caplog.records if one.name == "kafkalog.console.web"]
    assert found[0] == "console: 'bob': produce, topic 'theirs': done"
    assert found[1].startswith("console: 'alice': delete-topic, topic 'hers': failed: ")
    assert found[2] == "console: 'bob': reset-offsets, group 'g\\n', topic 'theirs': done"
    assert found[3] == ("console: 'bob': create-topic, nothing: failed: name: wanted a text")
    assert len(found) == 4


def test_failed_changes_of_a_user_silence_none_that_was_made(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Nor the failed ones of another user."""
    limit.reset()
    caplog.set_level(logging.INFO, "kafkalog.console.web")
    root, alice = Browser(url), Browser(url)
    root.log_in(ROOT, PASSWORDS[ROOT])
    alice.log_in(ALICE, PASSWORDS[ALICE])
    for _ in range(limit.LINES_MAX + 5):
        assert alice.post("create-topic", name=1).status == 400
    assert root.post("delete-topic", name="x", again="y").status == 400
    for _ in range(limit.LINES_MAX + 5):
        assert root.post("produce", topic="theirs", value="x").status == 200
    found = [one.getMessage() for one in caplog.records if one.name == "kafkalog.console.web"]
    assert found.count("console: 'bob': produce, topic 'theirs': done") == limit.LINES_MAX + 5
    assert len([one for one in found if "'bob': delete-topic, topic 'x': failed: " in one]) == 1


@pytest.mark.parametrize("fields", [
    {}, {"user": "alice"}, {"user": "", "password": "x"}, {"user": 1, "password": "x"},
    {"user": "a" * 257, "password": "x"}, {"user": "a", "password": "x" * 1_025},
    {"user": "\ud800", "password": "x"}, {"user": "a", "password": "x\ny"},
])  # fmt: skip
def test_odd_logins_are_refused(url: str, fields: dict[str, object]) -> None:
    assert Browser(url).post("login", **fields).status == 400


def test_credentials_that_are_no_longer_right_end_the_session(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        raise SaslAuthenticationFailed("wrong by now")

    monkeypatch.setitem(routes.READS, "groups", refused)  # type: ignore[arg-type]
    with console(place) as server:
        alice = Browser(server.url)
        alice.log_in(ALICE, PASSWORDS[ALICE])
        answer = alice.ask("/api/groups")
        assert (answer.status, answer.json["error"]) == (401, "log in again: wrong by now")
        assert alice.begin()["here"] is False
    with console(Place(place.brokers)) as server:
        anyone = Browser(server.url)
        anyone.begin()
        assert anyone.ask("/api/groups").status == 502
        assert anyone.begin()["here"]


def test_pages_elsewhere_log_nobody_in(url: str) -> None:
    answer = Browser(url).ask(
        "/api/login", "POST", b'{"user":"alice","password":"alice-S3CRET"}',
        Content_Type="application/json", Origin="http://evil.example",
    )  # fmt: skip
    assert answer.status == 403


def test_the_console_has_no_credentials_of_its_own(tmp_path: Path) -> None:
    login = "org.apache.kafka.common.security.plain.PlainLoginModule required;"
    secured = {"security.protocol": "SASL_SSL"}
    with pytest.raises(InvalidSetting, match="everyone logs in at the console"):
        checked({**secured, "sasl.jaas.config": login}, "here")
    with pytest.raises(InvalidSetting, match="found OAUTHBEARER, wanted one of PLAIN"):
        checked({**secured, "sasl.mechanism": "OAUTHBEARER"}, "here")
    with pytest.raises(InvalidSetting, match="the rights of that certificate"):
        checked({"security.protocol": "SSL", "ssl.keystore.location": "x.pem"}, "here")
    assert checked(secured, "here")["sasl.mechanism"] == "SCRAM-SHA-512"
