"""The console of an open broker, over HTTP."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import kafkalog
from kafkalog.client.calls.groups import MemberInfo
from kafkalog.console import groups, records, routes, web
from kafkalog.console import server as server_module
from kafkalog.console.person import Place, SegmentFacts
from kafkalog.console.server import tls_of
from kafkalog.errors import InvalidSetting
from kafkalog.types import TopicPartition
from tests.support.certificates import Certificates, client_context
from tests.support.console import Browser, console
from tests.support.waiting import LIMIT_S, wait_for

MANY = 60
"""Topics, besides the one with records."""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[kafkalog.Broker]:
    """One with records, a group and a transaction."""
    with kafkalog.Broker(tmp_path_factory.mktemp("console") / "data", "127.0.0.1:0") as broker:
        with kafkalog.Admin(broker) as admin:
            topics = [kafkalog.NewTopic("orders", 3), kafkalog.NewTopic("odd", 1)]
            topics += [kafkalog.NewTopic(f"t{number:03}", 1) for number in range(MANY)]
            admin.create_topics(topics).check()
        with kafkalog.Producer(broker) as producer:
            for number in range(90):
                producer.send(
                    "orders", json.dumps({"n": number}).encode(), key=f"k{number % 10}".encode(),
                    partition=number % 3, timestamp_ms=1_000 + number,
                )  # fmt: skip
            producer.send("odd", b"\xff\xfe", key=None, headers=[("h", b"\x00\xff"), ("g", b"x")])
            producer.send("odd", None, key=b"gone")
            producer.send("odd", "é".encode() * 3_000)
        with kafkalog.Producer(broker, transactional_id="tx") as producer, producer.transaction():
            producer.send("odd", b"in a transaction")
        with kafkalog.Consumer(
            broker, "orders", group="billing", auto_offset_reset="earliest"
        ) as consumer:
            next(iter(consumer))
            consumer.commit()
        yield broker


@pytest.fixture(scope="module")
def url(broker: kafkalog.Broker) -> Iterator[str]:
    def segments(tp: TopicPartition) -> list[SegmentFacts]:
        return [SegmentFacts(0, 30, 100, 1, True)] if tp.topic == "orders" else []

    with console(Place(lambda: broker.bootstrap_servers, segments=segments)) as server:
        yield server.url


@pytest.fixture
def browser(url: str) -> Browser:
    made = Browser(url)
    assert made.begin()["here"]
    return made


# ---- topics, groups, the cluster -----------------------------------------------------------------


def test_topics_come_by_page_filter_and_order(browser: Browser) -> None:
    found = browser.get("topics")
    assert (found["total"], len(found["topics"])) == (MANY + 2, 50)
    assert [one["name"] for one in found["topics"][:3]] == ["odd", "orders", "t000"]
    last = browser.get("topics", first=55, size=200)
    assert [one["name"] for one in last["topics"]] == [f"t{n:03}" for n in range(53, MANY)]
    some = browser.get("topics", q="T01")
    assert [one["name"] for one in some["topics"]] == [f"t{n:03}" for n in range(10, 20)]
    by_size = browser.get("topics", sort="partitions", size=1)
    assert by_size["topics"] == [{
        "name": "orders", "internal": False, "partitions": 3, "replication": 1, "under": 0,
        "offline": 0, "id": by_size["topics"][0]["id"],
    }]  # fmt: skip
    assert browser.get("topics", q="__", internal=1)["total"] == 2
    assert browser.get("topics", q="__")["total"] == 0


def test_pages_of_topics_share_one_request(browser: Browser, broker: kafkalog.Broker) -> None:
    """Typing in the filter must not fetch a large cluster's metadata for every letter."""
    name = 'kafka_network_requestmetrics_requests_total{request="Metadata"}'

    def asked() -> float:
        return sum(v for k, v in broker.metrics().items() if "Metadata" in k and "requests" in k)

    browser.get("topics")
    before = asked()
    for number in range(5):
        browser.get("topics", first=number)
    assert asked() - before <= 1, name


def test_measures_and_partitions(browser: Browser) -> None:
    found = browser.get("measures", names="orders,odd,missing")
    assert found["orders"]["records"] == 90 and found["odd"]["records"] == 5
    assert found["orders"]["bytes"] > 1_000 and "missing" not in found
    parts = browser.get("partitions", name="orders", first=1)
    assert (parts["total"], [row["partition"] for row in parts["rows"]]) == (3, [1, 2])
    row = parts["rows"][0]
    assert (row["start"], row["end"], row["leader"], row["isr"]) == (0, 30, 1, [1])
    assert list(row["bytes"]) == ["1"]
    assert browser.get("partitions", name="orders", only="unhealthy")["rows"] == []


def test_segments_of_this_process(browser: Browser) -> None:
    found = browser.get("layout", name="orders", partition=1)
    assert found["count"] == 1 and found["segments"][0]["next_offset"] == 30
    assert browser.ask("/api/layout?name=orders&partition=7").status == 404


def test_settings_of_a_topic(browser: Browser) -> None:
    found = {row["name"]: row for row in browser.get("configs", name="orders")}
    assert found["cleanup.policy"]["value"] == "delete"
    assert found["retention.ms"]["source"] == "default"


def test_groups_and_their_lag(browser: Browser) -> None:
    found = browser.get("groups", q="BILL")
    assert [(one["name"], one["kind"]) for one in found["groups"]] == [("billing", "classic")]
    assert browser.get("groups", kind="share")["total"] == 0
    group = browser.get("group", name="billing")
    assert group["lag"] == sum(row["end"] - row["offset"] for row in group["partitions"])
    assert {row["partition"] for row in group["partitions"]} <= {0, 1, 2}
    assert browser.ask("/api/group?name=missing").status == 404


def test_transactions(browser: Browser) -> None:
    (found,) = browser.get("transactions", q="tx")["transactions"]
    assert (found["name"], found["state"], found["partitions"]) == ("tx", "CompleteCommit", [])
    assert found["start_ms"] is None
    assert browser.get("transactions", open=1)["total"] == 0


def test_the_cluster(browser: Browser) -> None:
    found = browser.get("cluster")
    (node,) = found["nodes"]
    assert node["leads"] == node["replicas"] == found["partitions"]
    assert found["quorum"]["leader"] == found["controller"] == 1
    assert (found["moves"], found["unhealthy"], found["hidden"]) == ([], [], {})
    assert node["dirs"][0]["total"] > 0


# ---- records -------------------------------------------------------------------------------------


def numbers(found: dict[str, Any]) -> list[int]:
    return [json.loads(one["value"]["text"])["n"] for one in found["records"]]


def test_the_last_records_come_first_hand(browser: Browser) -> None:
    found = browser.get("records", topic="orders", count=5)
    assert numbers(found) == [85, 86, 87, 88, 89]
    assert found["end"] and found["next"] == {"0": 30, "1": 30, "2": 30}


def test_records_by_offset_time_and_from_the_beginning(browser: Browser) -> None:
    by_offset = {"topic": "orders", "from": "offset", "partition": 2, "at": 10, "count": 2}
    assert numbers(browser.get("records", **by_offset)) == [32, 35]
    late = browser.get("records", topic="orders", **{"from": "time", "at": 1_088})
    assert sorted(numbers(late)) == [88, 89]
    first = browser.get("records", topic="orders", **{"from": "first", "count": 4, "partition": 0})
    assert numbers(first) == [0, 3, 6, 9]
    assert not first["end"]
    at = ",".join(f"{p}:{o}" for p, o in first["next"].items())
    then = {"topic": "orders", "from": "next", "at": at, "count": 2, "partition": 0}
    assert numbers(browser.get("records", **then)) == [12, 15]
    beyond = {"topic": "orders", "from": "offset", "partition": 2, "at": 1 << 40}
    assert browser.get("records", **beyond)["records"] == []


def test_records_with_a_key_or_a_text(browser: Browser) -> None:
    assert sorted(numbers(browser.get("records", topic="orders", key="k7"))) == [
        7 + 10 * ten for ten in range(9)
    ]
    assert numbers(browser.get("records", topic="orders", text='"n": 42}')) == [42]
    assert browser.get("records", topic="orders", key="k")["records"] == []


def test_records_that_follow(browser: Browser, broker: kafkalog.Broker) -> None:
    with kafkalog.Admin(broker) as admin:
        admin.create_topic("live", 2)
    found = browser.get("records", topic="live")
    assert found["records"] == []
    with kafkalog.Producer(broker) as producer:
        producer.send("live", b'{"n": 1}', partition=1)
    at = ",".join(f"{p}:{o}" for p, o in found["next"].items())
    then = browser.get("records", topic="live", **{"from": "next", "at": at})
    assert numbers(then) == [1] and then["next"] == {"0": 0, "1": 1}


def test_an_open_transaction_is_the_end_of_committed_reads(
    browser: Browser, broker: kafkalog.Broker
) -> None:
    with kafkalog.Admin(broker) as admin:
        admin.create_topic("pending", 1)
    with kafkalog.Producer(broker, transactional_id="pending") as producer:
        producer.begin_transaction()
        producer.send("pending", b"not yet")
        producer.flush()
        found = browser.get("records", topic="pending", committed=1)
        assert (found["records"], found["end"], found["ends"]) == ([], True, {"0": 0})
        assert len(browser.get("records", topic="pending")["records"]) == 1
        producer.abort_transaction()


def test_an_answer_with_records_is_bounded(browser: Browser, broker: kafkalog.Broker) -> None:
    """JSON needs six bytes for some; the next request goes on where the list ended."""
    with kafkalog.Admin(broker) as admin:
        admin.create_topic("big", 1)
    with kafkalog.Producer(broker) as producer:
        for _ in range(80):
            producer.send("big", b"\x01" * 4_096, key=b"\x01" * 4_096)
    most = records.LIST_BYTES_MAX + (100 << 10)
    fields: dict[str, object] = {"topic": "big", "count": 200}
    last = browser.ask("/api/records?topic=big&count=200")
    assert len(last.body) < most and last.json["records"][-1]["offset"] == 79
    offsets: list[int] = []
    where: dict[str, object] = {"from": "first"}
    for _ in range(3):
        found = browser.get("records", **fields, **where)
        assert len(json.dumps(found)) < most
        offsets += [one["offset"] for one in found["records"]]
        where = {"from": "next", "at": f"0:{found['next']['0']}"}
    assert offsets == [*range(80)] and found["end"]


def test_a_group_with_many_partitions_is_bounded() -> None:
    assigned = tuple(TopicPartition("t" * 249, number) for number in range(400))
    member = MemberInfo("m" * 9_000, None, "c", "h", assigned)
    shown = groups._members([member] * 500)
    assert sum(len(one["partitions"]) for one in shown) == groups.ASSIGNED_MAX
    assert all(one["partition_count"] == 400 for one in shown)
    assert len(json.dumps(shown)) < 3 << 20


def test_transactions_with_many_partitions_are_bounded(
    browser: Browser, broker: kafkalog.Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(groups, "OPEN_MAX", 2)
    with kafkalog.Admin(broker) as admin:
        admin.create_topic("wide", 3)
    with kafkalog.Producer(broker, transactional_id="wide") as producer:
        producer.begin_transaction()
        for partition in range(3):
            producer.send("wide", b"x", partition=partition)
        producer.flush()
        (found,) = browser.get("transactions", q="wide")["transactions"]
        assert (found["partition_count"], len(found["partitions"])) == (3, 2)
        producer.abort_transaction()


def test_answers_that_wait_to_be_read_are_bounded(
    broker: kafkalog.Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(web, "UNSENT_BYTES_MAX", 100_000)
    monkeypatch.setattr(web, "PIECE_BYTES", 1_000)
    with console(Place(lambda: broker.bootstrap_servers)) as server:
        assert Browser(server.url).ask("/static/app.css").status == 200
        wait_for(lambda: server._web._unsent == 0, "the answer is sent")
        server._web._unsent = 99_000  # those of others
        assert Browser(server.url).ask("/static/app.css").status == 503
        server._web._unsent = 0


def test_any_bytes_are_shown(browser: Browser) -> None:
    """Also a transaction's marker at the end, which is no record, ends the search."""
    found = browser.get("records", topic="odd", committed=1)
    odd, gone, long, last = found["records"]
    assert found["end"] and found["next"] == {"0": 5}
    assert odd["value"] == {"base64": "//4=", "bytes": 2} and odd["key"] is None
    assert odd["headers"] == [
        ["h", {"base64": "AP8=", "bytes": 2}], ["g", {"text": "x", "bytes": 1}],
    ]  # fmt: skip
    assert gone["value"] is None and gone["key"]["text"] == "gone"
    assert long["value"]["bytes"] == 6_000 and long["value"]["text"] == "é" * 2_048
    assert last["value"]["text"] == "in a transaction"
    whole = browser.get("record", topic="odd", partition=0, offset=2)
    assert whole["value"]["text"] == "é" * 3_000
    for offset in (4, 99):
        missing = browser.ask(f"/api/record?topic=odd&partition=0&offset={offset}")
        assert missing.status == 404


@pytest.mark.parametrize("path", [
    "topics?size=0", "topics?size=x", "topics?sort=x", "topics?first=-1", "topics?internal=yes",
    "topics?q=" + "x" * 1_001, "topics?first=" + "9" * 30, "partitions",
    "records?topic=orders&from=offset", "records?topic=orders&from=next&at=x",
    "records?topic=orders&partition=-2",
    "configs?kind=x&name=1", "topics?" + "&".join("a" * 21),
])  # fmt: skip
def test_wrong_requests_are_explained(browser: Browser, path: str) -> None:
    answer = browser.ask(f"/api/{path}")
    assert answer.status == 400
    assert "wanted" in answer.json["error"] or "choose" in answer.json["error"]


def test_unknown_things_are_not_found(browser: Browser) -> None:
    for path in ("/api/x", "/x", "/static/../web.py", "/api/partitions?name=x",
                 "/api/records?topic=x", "/api/records?topic=orders&partition=3"):  # fmt: skip
        assert browser.ask(path).status == 404, path


# ---- what protects it ----------------------------------------------------------------------------


def test_every_answer_has_the_headers_that_protect_a_page(browser: Browser) -> None:
    for path in ("/", "/api/session", "/api/topics", "/x", "/static/app.css"):
        headers = browser.ask(path).headers
        assert headers["content-security-policy"].startswith("default-src 'self'; ")
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["x-frame-options"] == "DENY"
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cache-control"] == "no-store"
        assert "server" not in headers and "access-control-allow-origin" not in headers


def test_the_cookie_is_for_this_console_only(url: str) -> None:
    cookie = Browser(url).ask("/api/session").headers["set-cookie"]
    assert set(cookie.split("; ")[1:]) == {"Path=/", "HttpOnly", "SameSite=Strict"}


def test_names_that_lead_here_from_elsewhere_are_refused(broker: kafkalog.Broker) -> None:
    place = Place(lambda: broker.bootstrap_servers)
    with console(place, hosts=frozenset({"console.example"})) as server:
        browser = Browser(server.url)
        for host in ("evil.example", "evil.example:80", "127.0.0.1.evil.example", "", "[::1].x",
                     "localhost.evil.example"):  # fmt: skip
            assert browser.ask("/", Host=host).status == 421, host
        for host in ("localhost", "LOCALHOST:1", "127.0.0.1:9", "[::1]:9", "console.example:443"):
            assert browser.ask("/", Host=host).status == 200, host


def test_nothing_is_shown_without_a_session(url: str) -> None:
    browser = Browser(url)
    for name in routes.READS:
        assert browser.ask(f"/api/{name}").status == 401, name


def test_read_only_by_default(browser: Browser) -> None:
    for name in routes.CHANGES:
        answer = browser.post(name, topic="orders", value="x", name="t000", again="t000")
        assert (answer.status, "read-only" in answer.json["error"]) == (403, True)
    assert browser.get("topics", q="t000")["total"] == 1


@pytest.fixture(scope="module")
def writing(broker: kafkalog.Broker) -> Iterator[str]:
    with console(Place(lambda: broker.bootstrap_servers), write=True) as server:
        yield server.url


@pytest.fixture
def writer(writing: str) -> Browser:
    made = Browser(writing)
    made.begin()
    return made


def test_changes(writer: Browser) -> None:
    assert writer.post("create-topic", name="new", partitions=2, replication=-1,
                       config={"retention.ms": "60000"}).json == {"name": "new"}  # fmt: skip
    sent = writer.post("produce", topic="new", value="v", key="k", partition=1, headers={"h": "x"})
    assert sent.json == {"partition": 1, "offset": 0}
    assert writer.post("produce", topic="new", value=None, key="k", partition=1).status == 200
    found = writer.get("records", topic="new")["records"]
    assert [one["value"] and one["value"]["text"] for one in found] == ["v", None]
    assert writer.post("delete-topic", name="new", again="other").status == 400
    assert writer.post("delete-topic", name="new", again="new").status == 200
    assert writer.get("topics", q="new")["total"] == 0
    assert writer.post("create-topic", name="a/b", partitions=1, replication=1).status == 400
    assert writer.post("produce", topic="new", value="v").status == 404


def test_a_group_is_moved(writer: Browser) -> None:
    def total() -> int:
        return sum(r["offset"] for r in writer.get("group", name="billing")["partitions"])

    for to, at, wanted in (
        ("last", 0, 90),
        ("offset", 4, 12),
        ("time", 1_060, 60),
        ("first", 0, 0),
    ):
        answer = writer.post("reset-offsets", group="billing", topic="orders", to=to, at=at)
        assert answer.json == {"partitions": 3}
        assert total() == wanted
    assert writer.post("reset-offsets", group="billing", topic="orders", to="x").status == 400


@pytest.mark.parametrize(("headers", "status"), [
    ({"X_CSRF_Token": ""}, 403), ({"X_CSRF_Token": "x"}, 403),
    ({"Origin": "http://evil.example"}, 403), ({"Origin": "null"}, 403),
    ({"Sec_Fetch_Site": "cross-site"}, 403), ({"Sec_Fetch_Site": "same-site"}, 403),
    ({"Content_Type": "text/plain"}, 415), ({"Cookie": ""}, 401), ({"Cookie": "x=y"}, 401),
])  # fmt: skip
def test_pages_elsewhere_change_nothing(
    writer: Browser, headers: dict[str, str], status: int
) -> None:
    given = {"Content_Type": "application/json", "X_CSRF_Token": writer.csrf, **headers}
    body = json.dumps({"name": "t000", "again": "t000"}).encode()
    assert writer.ask("/api/delete-topic", "POST", body, **given).status == status
    assert writer.get("topics", q="t000")["total"] == 1


def test_many_browsers_of_an_open_cluster_end_nobodys_session(writer: Browser, url: str) -> None:
    """Also a page elsewhere can begin them, without their cookies."""
    begun = {Browser("http://" + writer._at.netloc).begin()["csrf"] for _ in range(70)}
    assert len(begun) == 70
    assert writer.begin()["csrf"] == writer.csrf and writer.csrf not in begun
    assert writer.post("delete-topic", name="t000", again="other").status == 400
    for site in ("cross-site", "same-site"):
        assert Browser(url).ask("/api/session", Sec_Fetch_Site=site).status == 403


def test_another_sessions_token_is_refused(writer: Browser) -> None:
    other = Browser("http://" + writer._at.netloc)
    other.begin()
    writer.csrf = other.csrf
    assert writer.post("delete-topic", name="t000", again="t000").status == 403


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b"[" * 100_000, b'{"a": NaN'])
def test_bodies_that_are_no_object_are_refused(writer: Browser, body: bytes) -> None:
    answer = writer.ask(
        "/api/produce", "POST", body, Content_Type="application/json", X_CSRF_Token=writer.csrf
    )
    assert answer.status == 400


def test_halves_of_characters_are_refused(writer: Browser) -> None:
    for fields in ({"value": "\ud800"}, {"key": "\udfff", "value": ""}):
        assert writer.post("produce", topic="orders", **fields).status == 400


def test_requests_are_bounded(url: str) -> None:
    browser = Browser(url)
    body = b" " * (web.BODY_BYTES_MAX + 1)
    assert browser.ask("/api/login", "POST", body, Content_Type="application/json").status == 413
    assert browser.ask("/" + "x" * 50_000).status == 414
    for method in ("PUT", "DELETE", "OPTIONS", "TRACE"):
        assert browser.ask("/api/topics", method).status == 405


def test_crowds_leave_room_for_others(url: str, browser: Browser) -> None:
    """Connections that ask nothing are closed when new ones come."""
    at = browser._at
    silent = [socket.create_connection((at.hostname, at.port)) for _ in range(100)]
    try:
        assert browser.get("session")["here"]
    finally:
        for one in silent:
            one.close()


def test_connections_that_ask_nothing_are_closed(
    broker: kafkalog.Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also one that begins a request and never ends it, the first or the second one."""
    monkeypatch.setattr(server_module, "QUIET_S", 0.05)
    whole = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with console(Place(lambda: broker.bootstrap_servers)) as server:
        for sent in (b"", whole[:20], whole + whole[:20]):
            with socket.create_connection((server.host, server.port), LIMIT_S) as one:
                one.sendall(sent)
                data = b""
                with contextlib.suppress(ConnectionResetError):
                    while more := one.recv(1 << 16):
                        data += more
                assert data.count(b"HTTP/1.1 200") == sent.count(whole)


def test_clients_cause_no_lines_of_the_http_server(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "uvicorn.error")
    at = Browser(url)._at
    with socket.create_connection((at.hostname, at.port), LIMIT_S) as one:
        one.sendall(b"no request\r\n\r\n")
        assert one.recv(100).startswith(b"HTTP/1.1 400")
    assert not caplog.records


def test_head_has_no_body(url: str) -> None:
    answer = Browser(url).ask("/", "HEAD")
    assert answer.status == 200 and answer.body == b""
    assert int(answer.headers["content-length"]) > 0


# ---- TLS, ends -----------------------------------------------------------------------------------


def test_under_tls_the_cookie_is_never_sent_without(
    broker: kafkalog.Broker, tmp_path: Path
) -> None:
    made = Certificates(tmp_path)
    place = Place(lambda: broker.bootstrap_servers)
    with console(place, tls=tls_of(str(made.keystore), "tls")) as server:
        assert server.url.startswith("https://")
        browser = Browser(server.url, client_context(made.trust))
        cookie = browser.ask("/api/session").headers["set-cookie"]
        assert cookie.startswith("__Host-kafkalog=")
        assert {"Secure", "HttpOnly", "SameSite=Strict"} <= set(cookie.split("; "))
        assert browser.get("topics")["total"] > 0
        old = client_context(made.trust)
        old.maximum_version = ssl.TLSVersion.TLSv1_2
        assert Browser(server.url, old).ask("/").status == 200


def test_a_file_without_a_key_is_refused(tmp_path: Path) -> None:
    made = Certificates(tmp_path)
    for path in (made.trust, tmp_path / "missing.pem"):
        with pytest.raises(InvalidSetting, match=r"^tls: .*wanted a PEM file"):
            tls_of(str(path), "tls")


def test_a_broker_that_is_away_is_reported(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    with console(Place(lambda: f"127.0.0.1:{port}")) as server:
        browser = Browser(server.url)
        browser.begin()
        answer = browser.ask("/api/topics")
        assert answer.status in (502, 504)
        assert str(port) in answer.json["error"]


def test_closing_ends_waits(broker: kafkalog.Broker) -> None:
    """A silent broker does not keep the console open."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        with console(Place(lambda: f"127.0.0.1:{port}")) as server:
            browser = Browser(server.url)
            browser.begin()
            at = browser._at
            with socket.create_connection((at.hostname, at.port)) as asked:
                asked.sendall(
                    b"GET /api/topics HTTP/1.1\r\nHost: localhost\r\nCookie: "
                    + browser.cookie.encode() + b"\r\n\r\n"
                )  # fmt: skip
                silent.accept()
                server.close()
                server.close()


def test_a_forked_child_keeps_no_port(broker: kafkalog.Broker) -> None:
    with console(Place(lambda: broker.bootstrap_servers)) as server:
        listening = server._listening
        child = os.fork()
        if child == 0:
            os._exit(int(listening.fileno() != -1))
        assert os.waitpid(child, 0)[1] == 0
        assert Browser(server.url).begin()["here"]
