"""The console in Chromium: navigation, following, changes, widths, contrast, names for readers."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import kafkalog
from kafkalog.console import routes
from kafkalog.console.asked import Asked, Refused
from kafkalog.console.person import Person, Place, SegmentFacts, checked
from tests.support import sasl
from tests.support.chromium import chromium
from tests.support.console import console
from tests.support.waiting import wait_for

pytestmark = pytest.mark.long

TOPICS = 1_000
EVIL = '<img src=x onerror="document.title=1">'
VIEWS = (
    "", "topics", "topic/orders", "topic/orders/partitions", "topic/orders/settings", "groups",
    "group/billing", "transactions", "broker/1",
)  # fmt: skip
DARK, LIGHT = "dark", "light"
PATIENCE_S = 20.0

UNNAMED = """
const named = (e) => (e.getAttribute("aria-label") || e.textContent || "").trim()
  || [...(e.labels || [])].some((l) => l.textContent.trim());
return [
  ...[...document.querySelectorAll("a,button,summary,input,select,textarea,[role=img],nav,figure")]
    .filter((e) => !named(e)).map((e) => e.outerHTML.slice(0, 120)),
  ...[...document.querySelectorAll("th")].filter((e) => e.scope !== "col").map((e) => e.outerHTML),
  ...[...document.querySelectorAll("table")].filter((e) => !e.caption).map(() => "no caption"),
  ...[...document.querySelectorAll("[tabindex]")].filter((e) => e.tabIndex > 0).map((e) => e.id),
  ...(document.querySelectorAll("h1").length === 1 ? [] : ["found no h1, or several"]),
  ...(document.querySelectorAll("main,header").length === 2 ? [] : ["landmarks"]),
  ...(document.documentElement.lang ? [] : ["no language"]),
];
"""
"""The elements that a screen reader cannot name, and other faults that axe would find."""
PALE = """
const parse = (c) => (c.match(/[\\d.]+/g) || []).map(Number);
const light = (c) => c.slice(0, 3).map((v) => v / 255)
  .map((v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4))
  .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
function under(e) {
  for (let at = e; at; at = at.parentElement) {
    const c = parse(getComputedStyle(at).backgroundColor);
    if (c.length === 3 || c[3] > 0.99) return c;
  }
  return [255, 255, 255];
}
const found = [];
for (const e of document.querySelectorAll("body *")) {
  const own = [...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
  if (!own || !e.checkVisibility() || e.closest(":disabled,noscript")) continue;
  const [a, b] = [light(parse(getComputedStyle(e).color)), light(under(e))].sort((x, y) => y - x);
  if ((a + 0.05) / (b + 0.05) < 4.5) found.push(e.outerHTML.slice(0, 120));
}
return found;
"""
"""Texts with less contrast than 4.5 to 1 (WCAG AA)."""


class Page:
    """The browser at one console."""

    def __init__(self, driver: Any, url: str) -> None:
        self.driver = driver
        self.url = url
        self.width(1_200)

    def width(self, pixels: int, scheme: str = LIGHT) -> None:
        send = self.driver.execute_cdp_cmd
        send("Emulation.setDeviceMetricsOverride", {
            "width": pixels, "height": 900, "deviceScaleFactor": 1, "mobile": pixels < 500,
        })  # fmt: skip
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        send("Emulation.setEmulatedMedia", {"features": features})

    def open(self, view: str) -> None:
        self.driver.get("about:blank")
        self.driver.get(f"{self.url}#/{view}")
        self.ready()

    def ready(self) -> None:
        wait_for(lambda: self.run("return !!document.querySelector('main h1')"
                                  " && !document.querySelector('main[aria-busy]')"),
                 "the view is shown", limit_s=PATIENCE_S, pause_s=0.05)  # fmt: skip

    def run(self, script: str) -> Any:
        return self.driver.execute_script(script)

    def find(self, selector: str) -> Any:
        wait_for(lambda: self.all(selector), selector, limit_s=PATIENCE_S, pause_s=0.05)
        return self.all(selector)[0]

    def all(self, selector: str) -> list[Any]:
        found: list[Any] = self.driver.find_elements("css selector", selector)
        return found

    def button(self, text: str) -> Any:
        """The button, link or summary with this text."""
        script = ("return [...document.querySelectorAll('button,summary,a')]"
                  f".find((e) => e.textContent.trim() === {json.dumps(text)})")  # fmt: skip
        return wait_for(lambda: self.run(script), f"a button {text!r}", PATIENCE_S, 0.05)

    def press(self, text: str) -> None:
        """Press it, although the view may draw it again at any moment."""
        self.driver.execute_script("arguments[0].click()", self.button(text))

    def said(self, selector: str, text: str) -> None:
        script = f"return (document.querySelector({json.dumps(selector)})||{{}}).textContent||''"
        wait_for(
            lambda: text in self.run(script),
            f"{text!r} in {selector}",
            limit_s=PATIENCE_S,
            pause_s=0.05,
        )

    def problems(self) -> list[str]:
        """Messages of the browser: scripts that failed, and what its policy has blocked."""
        messages: list[str] = [one["message"] for one in self.driver.get_log("browser")]
        return [one for one in messages if "responded with a status of 4" not in one]


@pytest.fixture(scope="module")
def driver() -> Iterator[Any]:
    with chromium() as made:
        yield made


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[kafkalog.Broker]:
    with kafkalog.Broker(tmp_path_factory.mktemp("browser") / "data", "127.0.0.1:0") as broker:
        with kafkalog.Admin(broker) as admin:
            names = ["orders", *(f"t{number:04}" for number in range(TOPICS - 1))]
            admin.create_topics([kafkalog.NewTopic(name, 2) for name in names]).check()
        with kafkalog.Producer(broker, transactional_id="tx") as producer, producer.transaction():
            for number in range(120):
                value = {"n": number, "deep": {"er": {"list": [1, {"x": None}]}}, "text": EVIL}
                producer.send("orders", json.dumps(value).encode(), key=EVIL.encode(),
                              headers=[(EVIL, EVIL.encode())])  # fmt: skip
        with kafkalog.Consumer(
            broker, "orders", group="billing", auto_offset_reset="earliest"
        ) as consumer:
            next(iter(consumer))
            consumer.commit()
        yield broker


@pytest.fixture(scope="module")
def place(broker: kafkalog.Broker) -> Place:
    return Place(lambda: broker.bootstrap_servers,
                 segments=lambda tp: [SegmentFacts(0, 9, 99, 1, False),
                                      SegmentFacts(9, 60, 50, 1, True)])  # fmt: skip


@pytest.fixture(scope="module")
def reading(driver: Any, place: Place) -> Iterator[Page]:
    with console(place) as server:
        yield Page(driver, server.url)


@pytest.fixture(scope="module")
def writing(driver: Any, place: Place) -> Iterator[Page]:
    with console(place, write=True) as server:
        yield Page(driver, server.url)


def test_the_views_are_reached_by_links(reading: Page) -> None:
    reading.open("")
    for text, title in (("Topics", "Topics"), ("Groups", "Groups"),
                        ("Transactions", "Transactions"), ("Cluster", "Cluster")):  # fmt: skip
        reading.press(text)
        reading.said("h1", title)
        assert reading.find("nav [aria-current=page]").text == text
        assert reading.driver.title == f"{title} \u2013 kafkalog"
    reading.open("topics?q=orders")
    reading.press("orders")
    reading.said("h1", "orders")
    reading.press("Partitions")
    assert "2 segments" in reading.find("svg.strip").get_attribute("aria-label")
    reading.driver.back()
    reading.find(".records li")
    assert reading.problems() == []


def test_a_thousand_topics_are_one_page_of_fifty(reading: Page) -> None:
    reading.open("topics")
    reading.said(".lead", "1,000 topics, 2,000 partitions")
    assert len(reading.all("tbody tr")) == 50
    asked = reading.run("return performance.getEntriesByType('resource')"
                        ".filter((e) => e.name.includes('/api/')).map((e) => e.name)")  # fmt: skip
    assert len(asked) <= 4, asked
    reading.press("Next")
    reading.said(".pages span", "51\u2013100 of 1,000")
    reading.find("input[name=q]").send_keys("t0998")
    reading.said(".lead", "1 topic, 2 partitions")
    reading.said("td.name", "t0998")


@pytest.mark.parametrize(("view", "word", "found"), [
    ("topics", "order", "1 topic, 2 partitions"), ("groups", "bill", "1 group"),
    ("transactions", "tx", "1 transactional id"),
])  # fmt: skip
def test_lists_are_filtered(reading: Page, view: str, word: str, found: str) -> None:
    reading.open(f"{view}?q=none-of-this")
    reading.said("main", "fits.")
    box = reading.find("input[name=q]")
    box.clear()
    box.send_keys(word)
    reading.said(".lead", found)
    assert len(reading.all("tbody tr")) == 1
    assert f"q={word}" in reading.run("return location.hash")
    assert reading.problems() == []


def test_an_answer_that_was_overtaken_is_not_shown(
    driver: Any, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor is its error."""
    goes_on = threading.Event()
    listed = routes.READS["groups"]

    def slow(person: Person, asked: Asked) -> Any:
        if asked.text("q", "") in ("b", "bi"):
            goes_on.wait(PATIENCE_S)
            if asked.text("q", "") == "b":
                raise Refused(400, "it came late")
        return listed(person, asked)

    monkeypatch.setitem(routes.READS, "groups", slow)  # type: ignore[arg-type]
    with console(place) as server:
        page = Page(driver, server.url)
        page.open("groups")
        page.find("input[name=q]").send_keys("bil")
        page.said(".lead", "1 group")
        page.run("window.answers = 0; new PerformanceObserver((l) => {"
                 "window.answers += l.getEntries().length;"
                 "}).observe({type: 'resource'});")  # fmt: skip
        goes_on.set()
        wait_for(lambda: page.run("return window.answers") >= 2, "the others have come", PATIENCE_S)
        assert [one.text for one in page.all("td.name")] == ["billing"]
        assert page.all("[role=alert]") == []


@pytest.mark.parametrize(("view", "title"), [
    ("topic/%", "%"), ("topic/%E0%A4", "%E0%A4"), ("constructor", "Cluster"),
    ("__proto__/x", "Cluster"), ("topic/orders/constructor", "orders"), ("%", "Cluster"),
    ("topics?q=%", "Topics"),
])  # fmt: skip
def test_odd_addresses_show_a_page(reading: Page, view: str, title: str) -> None:
    reading.open("groups")
    reading.driver.get(f"{reading.url}#/{view}")
    reading.said("h1", title)
    reading.ready()
    assert reading.problems() == []


def test_topics_may_have_any_name(reading: Page, broker: kafkalog.Broker) -> None:
    names = ["constructor", "__proto__"]
    with kafkalog.Admin(broker) as admin:
        admin.create_topics([kafkalog.NewTopic(name, 1) for name in names]).check()
        try:
            for name in names:

                def listed(name: str = name) -> bool:
                    """The server may know the topics of a moment ago."""
                    reading.open(f"topics?q={name}")
                    return bool(reading.all("tbody tr"))

                wait_for(listed, f"{name} is listed", limit_s=60.0)
                reading.said("tbody tr td:nth-child(4)", "0")
                reading.press(name)
                reading.said("h1", name)
        finally:
            admin.delete_topics(names).check()
    assert reading.problems() == []


def test_a_message_unfolds(reading: Page) -> None:
    """Markup in it is text."""
    reading.open("topic/orders")
    reading.find(".records summary").click()
    reading.said(".records .body", EVIL)
    reading.said(".records .tree", "n: 119")
    assert "x: null" not in reading.find(".records .tree").text

    def unfolded() -> bool:
        reading.run("document.querySelectorAll('.tree details:not([open]) > summary')"
                    ".forEach((e) => e.click())")  # fmt: skip
        return "x: null" in reading.find(".records .tree").text

    wait_for(unfolded, "all of it is open", PATIENCE_S, 0.05)
    assert reading.all("main img") == [] and reading.driver.title.startswith("orders")
    assert reading.problems() == []


def test_a_long_message_is_shortened_and_can_be_downloaded(
    reading: Page, broker: kafkalog.Broker, driver: Any, tmp_path: Path
) -> None:
    data = b"\xff" * 500_000 + b"\x01" * 480_000
    with kafkalog.Producer(broker) as producer:
        producer.send("t0002", data, key=b"k" * 10_000, partition=0)
    driver.execute_cdp_cmd(
        "Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(tmp_path)}
    )
    reading.open("topic/t0002")
    reading.find(".records summary").click()
    reading.said(".records .body", "Shortened: the key has 9.8 KiB.")
    reading.said(".records .body", "Shortened: the value has 957 KiB.")
    reading.press("Download the value")
    saved = tmp_path / "t0002-0-0.value"
    wait_for(saved.exists, "it is saved", PATIENCE_S)
    assert saved.read_bytes() == data
    assert reading.problems() == []


def test_messages_are_looked_for(reading: Page) -> None:
    reading.open("topic/orders")
    reading.find("input[name=text]").send_keys('"n": 77,')
    reading.press("Show")
    reading.said("main [role=status]", "1 shown, 120 read")
    assert "text=" in reading.run("return location.hash")


def test_new_messages_are_followed(reading: Page, broker: kafkalog.Broker) -> None:
    reading.open("topic/t0001")
    reading.said("main [role=status]", "0 shown")
    reading.press("Follow")
    reading.said("main [role=status]", "Following")
    with kafkalog.Producer(broker) as producer:
        for number in range(3):
            producer.send("t0001", f"live {number}".encode(), partition=0)
    reading.said("main [role=status]", "3 new")
    assert [one.text for one in reading.all(".records .text")] == ["live 2", "live 1", "live 0"]
    reading.press("Stop following")
    assert reading.button("Follow").get_attribute("aria-pressed") == "false"


ANSWERS = """
window.answers = 0;
new PerformanceObserver((l) => { window.answers += l.getEntries().length; })
  .observe({type: "resource"});
"""


def test_messages_of_an_overtaken_question_are_not_shown(
    driver: Any, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor is its error, and going on twice shows each message once."""
    goes_on, goes_further = threading.Event(), threading.Event()
    found = routes.READS["records"]

    def slow(person: Person, asked: Asked) -> Any:
        if asked.text("text", "") in ("late", "wrong"):
            goes_on.wait(PATIENCE_S)
            if asked.text("text", "") == "wrong":
                raise Refused(400, "it came late")
            return found(person, Asked({"topic": "orders"}))
        if asked.text("from", "") == "next":
            goes_further.wait(PATIENCE_S)
        return found(person, asked)

    monkeypatch.setitem(routes.READS, "records", slow)  # type: ignore[arg-type]
    with console(place) as server:
        page = Page(driver, server.url)

        def come(count: int) -> None:
            wait_for(lambda: page.run("return window.answers") >= count, "they come", PATIENCE_S)

        page.open("topic/orders")
        page.said("main [role=status]", "shown, ")
        page.run(ANSWERS)
        for text in ("late", "wrong", '"n": 77,'):
            page.run("document.querySelector('input[name=text]').value = ''")
            page.find("input[name=text]").send_keys(text)
            page.press("Show")
        page.said("main [role=status]", "1 shown, 120 read")
        goes_on.set()
        come(3)
        page.said("main [role=status]", "1 shown, 120 read")
        assert len(page.all(".records > li")) == 1
        page.open("topic/orders?from=first")
        page.said("main [role=status]", "more follow")
        page.run(ANSWERS)
        page.press("Go on")
        page.press("Go on")
        goes_further.set()
        come(2)
        page.said("main [role=status]", "50 more")
        assert len(page.all(".records > li")) == 100


def test_changes_are_not_offered_to_read_only_users(reading: Page) -> None:
    for view in VIEWS:
        reading.open(view)
        assert reading.all(".write") == [], view


def test_changes(writing: Page) -> None:
    writing.open("topics")
    writing.press("Create a topic")
    writing.find("input[name=new-name]").send_keys("made")
    writing.find(".write button.main").click()
    writing.said("h1", "made")
    writing.press("Produce a message")
    writing.find("textarea[name=produce-value]").send_keys("by hand")
    writing.find(".write button.main").click()
    writing.said("#status", "Written to partition 0 at offset 0")
    writing.press("Show")
    writing.said(".records", "by hand")
    writing.open("group/billing")
    writing.press("Move this group")
    writing.find("input[name=reset-topic]").send_keys("orders")
    writing.find("select[name=reset-to]").send_keys("the end")
    writing.find(".write button.danger").click()
    writing.said("#status", "Moved in 2 partitions")
    writing.open("topic/made/settings")
    writing.press("Delete this topic")
    writing.find("input[name=delete-name]").send_keys("mad")
    writing.find(".write button.danger").click()
    writing.said(".write .problem", "once more")
    writing.find("input[name=delete-name]").send_keys("e")
    writing.find(".write button.danger").click()
    writing.said("#status", "made was deleted")


@pytest.mark.parametrize("scheme", [LIGHT, DARK])
@pytest.mark.parametrize("view", VIEWS)
def test_every_view_is_legible_and_named(writing: Page, view: str, scheme: str) -> None:
    """On a wide screen and on phones, dark and light."""
    for width in (1_200, 390, 320):
        writing.width(width, scheme)
        writing.open(view)
        if writing.all(".records summary"):
            writing.find(".records summary").click()
            writing.find(".records .body dd")
        assert writing.run("return document.documentElement.scrollWidth") <= width, width
        assert writing.run(PALE) == []
        assert writing.run(UNNAMED) == []
    writing.width(1_200)


def test_the_keyboard_reaches_everything_in_order(reading: Page) -> None:
    """The first stop leads past the navigation; a new view begins at its heading."""
    reading.open("topics")
    reading.driver.switch_to.active_element.send_keys("\ue004")
    assert reading.driver.switch_to.active_element.text == "Skip to content"
    places = []
    for _ in range(9):
        reading.driver.switch_to.active_element.send_keys("\ue004")
        one = reading.driver.switch_to.active_element
        places.append(one.text or one.get_attribute("name") or one.get_attribute("type"))
    assert places == ["kafkalog", "Cluster", "Topics", "Groups", "Transactions", "q", "checkbox",
                      "Topic", "Partitions"]  # fmt: skip


def test_a_user_logs_in_and_out(driver: Any, tmp_path: Path) -> None:
    with kafkalog.Broker(tmp_path / "data", config=sasl.settings("PLAIN")) as broker:
        given = checked({"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}, "here")
        with console(Place(lambda: broker.bootstrap_servers, given)) as server:
            page = Page(driver, server.url)
            page.open("topics")
            page.said("h1", "Log in")
            for scheme in (LIGHT, DARK):
                page.width(390, scheme)
                assert page.run(UNNAMED) == [] and page.run(PALE) == []
            page.width(1_200)
            page.find("input[name=user]").send_keys("alice")
            page.find("input[name=password]").send_keys("wrong\n")
            page.said("[role=alert]", "wrong user or password")
            page.find("input[name=password]").send_keys(sasl.USERS["alice"] + "\n")
            page.said("h1", "Topics")
            page.said("#who", "alice")
            page.press("Log out")
            page.said("h1", "Log in")
            assert driver.get_cookies() == []
            assert page.problems() == []
