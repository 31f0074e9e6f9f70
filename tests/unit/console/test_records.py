"""Large records in the console, and searches that take long."""

from __future__ import annotations

import base64
import contextlib
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

import kafkalog
from kafkalog.console import records, routes, turns
from kafkalog.console.asked import Asked, Refused
from kafkalog.console.person import Person, Place
from kafkalog.console.readers import READERS_MAX
from kafkalog.errors import Closed, Timeout
from tests.support.console import Browser, console
from tests.support.waiting import LIMIT_S, wait_for

LARGE = {"max.message.bytes": str(8 << 20)}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[kafkalog.Broker]:
    with kafkalog.Broker(tmp_path_factory.mktemp("records") / "data", "127.0.0.1:0") as broker:
        with kafkalog.Admin(broker) as admin:
            admin.create_topics([("odd", 1)]).check()
            admin.create_topic("large", 1, config=LARGE)
        with kafkalog.Producer(broker) as producer:
            producer.send("odd", b"x", key=b"here")
            producer.send("odd", None, key=b"gone")
        yield broker


@pytest.fixture
def browser(broker: kafkalog.Broker) -> Iterator[Browser]:
    with console(Place(lambda: broker.bootstrap_servers)) as server:
        made = Browser(server.url)
        made.begin()
        yield made


@pytest.mark.parametrize(("data", "kind"), [
    (b"\x01" * (2 << 20), "text"), (b"\x01" * (300 << 10) + b"x" * (1 << 20), "text"),
    ("é".encode() * (1 << 20), "text"), (b"\xff" * (2 << 20), "base64"),
    (b"x" * (2 << 20), "text"),
])  # fmt: skip
def test_an_answer_with_one_record_is_bounded(
    browser: Browser, broker: kafkalog.Broker, data: bytes, kind: str
) -> None:
    """It says what is left out, and that can be downloaded."""
    with kafkalog.Producer(broker, config={"max.request.size": 8 << 20}) as producer:
        sent = producer.send("large", data, key=data)
        producer.flush()
    where = f"topic=large&partition=0&offset={sent.result().offset}"
    answer = browser.ask(f"/api/record?{where}")
    most = records.VALUE_BYTES_MAX + records.KEY_BYTES_MAX
    assert most / 2 < len(answer.body) < most + 20_000
    for part in ("key", "value"):
        shown = answer.json[part]
        assert shown["shortened"] and shown["bytes"] == len(data)
        first = base64.b64decode(shown[kind]) if kind == "base64" else shown[kind].encode()
        assert len(first) > 1_000 and data.startswith(first)
        raw = browser.ask(f"/api/raw?{where}&part={part}")
        assert raw.body == data and raw.headers["content-type"] == "application/octet-stream"
        name = f'attachment; filename="large-0-{sent.result().offset}.{part}"'
        assert raw.headers["content-disposition"] == name


def test_missing_parts_cannot_be_downloaded(browser: Browser) -> None:
    where = "topic=odd&partition=0&offset=1"
    assert browser.ask(f"/api/raw?{where}&part=value").status == 404  # null
    assert browser.ask(f"/api/raw?{where}&part=key").body == b"gone"
    assert browser.ask(f"/api/raw?{where}&part=headers").status == 400
    assert browser.ask("/api/raw?topic=odd&partition=0&offset=99").status == 404


def test_a_search_of_an_open_cluster_holds_up_no_other(broker: kafkalog.Broker) -> None:
    """All its browsers share one login."""
    with console(Place(lambda: broker.bootstrap_servers)) as server:
        everyone = server._web._everyone
        assert everyone is not None
        browser = Browser(server.url)
        browser.begin()
        with everyone.reader(committed=False) as one, everyone.reader(committed=True) as other:
            assert one is not other
            assert len(browser.get("records", topic="odd")["records"]) == 2
            assert browser.get("record", topic="odd", partition=0, offset=0)["offset"] == 0


def test_searches_leave_threads_to_others(
    broker: kafkalog.Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    goes_on = threading.Event()
    asked: list[int] = []

    def slow(*_: object) -> None:
        asked.append(1)
        goes_on.wait(LIMIT_S)

    monkeypatch.setitem(routes.READS, "records", slow)  # type: ignore[arg-type]
    place = Place(lambda: broker.bootstrap_servers)
    with console(place) as server, ThreadPoolExecutor(turns.THREADS) as many:
        browsers = [Browser(server.url) for _ in range(turns.THREADS)]
        try:
            for one in browsers:
                one.begin()
            done = [many.submit(one.get, "records") for one in browsers]
            wait_for(lambda: len(asked) >= turns.SEARCHES_MAX, "some search")
            assert browsers[0].get("topics")["total"] > 0
        finally:
            goes_on.set()
        assert [one.result() for one in done] == [None] * turns.THREADS
        assert len(asked) == turns.THREADS


def test_an_abandoned_search_reads_nothing_more(broker: kafkalog.Broker) -> None:
    gone = threading.Event()
    gone.set()
    person = Person(Place(lambda: broker.bootstrap_servers), "", "")
    with contextlib.closing(person):
        found = records.read_records(person, Asked({"topic": "odd", "from": "first"}, gone))
        assert (found["records"], found["scanned"], found["end"]) == ([], 0, False)
        with pytest.raises(Refused, match="odd-0 has no record at offset 0"):
            records.read_record(person, Asked({"topic": "odd", "offset": "0"}, gone))


def is_closed(consumer: kafkalog.Consumer) -> bool:
    try:
        consumer.assign([])
    except Closed:
        return True
    return False


def test_searches_of_one_session_leave_room_to_those_of_others(
    broker: kafkalog.Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    goes_on = threading.Event()
    asked: list[str] = []

    def slow(_: Person, fields: Asked) -> None:
        asked.append(fields.text("topic"))
        if asked[-1] == "crowd":
            goes_on.wait(LIMIT_S)

    monkeypatch.setitem(routes.READS, "records", slow)  # type: ignore[arg-type]
    crowd = 4 * turns.AT_ONCE_MAX
    place = Place(lambda: broker.bootstrap_servers)
    with console(place) as server, ThreadPoolExecutor(crowd) as many:
        one, other = Browser(server.url), Browser(server.url)
        one.begin()
        other.begin()
        try:
            done = [many.submit(one.get, "records", topic="crowd") for _ in range(crowd)]
            tasks = server._server.server_state.tasks
            wait_for(lambda: len(tasks) == crowd, "all of them ask")
            wait_for(lambda: asked.count("crowd") == turns.AT_ONCE_MAX, "some search")
            other.get("records", topic="other")
            assert asked.count("crowd") == turns.AT_ONCE_MAX
        finally:
            goes_on.set()
        assert [each.result() for each in done] == [None] * crowd


def test_readers_of_a_login_are_bounded(broker: kafkalog.Broker) -> None:
    """They are kept for the next request, and the one that was used longest ago makes room."""
    person = Person(Place(lambda: broker.bootstrap_servers), "", "")
    with contextlib.closing(person), contextlib.ExitStack() as lent:
        for _ in range(READERS_MAX):
            lent.enter_context(person.reader(committed=False))
        with pytest.raises(Timeout, match="still read records"), person._readers.lend(True, 0):
            raise AssertionError("it is lent to nobody else")
        lent.close()
        assert len(person._readers._idle) == READERS_MAX
        first = person._readers._idle[0].consumer
        with person.reader(committed=True) as other:
            assert is_closed(first) and not is_closed(other)
        assert len(person._readers._idle) == READERS_MAX


def test_a_request_that_waits_for_a_reader_ends_with_its_session(broker: kafkalog.Broker) -> None:
    person = Person(Place(lambda: broker.bootstrap_servers), "", "")
    readers = person._readers

    def waits() -> None:
        with readers.lend(True, LIMIT_S):
            raise AssertionError("the session has ended")

    with contextlib.closing(person), ThreadPoolExecutor(1) as other, contextlib.ExitStack() as lent:
        some = [lent.enter_context(person.reader(committed=False)) for _ in range(READERS_MAX)]
        waiting = other.submit(waits)
        person.interrupt()
        with pytest.raises(Closed):
            waiting.result(LIMIT_S)
        lent.close()
        assert all(map(is_closed, some))
