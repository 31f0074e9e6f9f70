"""The console in a browser: its first picture, and a cluster of many partitions.

One node, `kafkalog console` and Chromium without a window, each in its own process, share the
processors.  A picture is complete with the frame after the first row of the list of topics; its
time is from the start of the navigation, by the browser's clock, and includes the page itself,
which is not cached.  The first picture is that of a console that has just printed its URL, and
that has no connection to the broker yet.  A search is a letter in the field above the list, until
the list shows the topic.  Bytes are those of all answers that a view asks for.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from benchmarks.broker.brokers import OURS, Served, as_installed, brokers
from benchmarks.measure import Part, Want, scaled
from kafkalog import Admin, NewTopic
from tests.support.chromium import chromium

TOPICS = scaled(1_000, 60)
FEW, MANY = 2, scaled(100, 2)
"""Partitions of each topic."""
TOGETHER = 50
PATIENCE_S = 120
WANTED_S = 0.3
NEW = "Nothing here is warmed: each console has just started."
WATCH = """
window.picture = new Promise((done) => {
  const seen = new MutationObserver(() => {
    if (!document.querySelector("main tbody tr")) return;
    seen.disconnect();
    requestAnimationFrame(() => setTimeout(() => done(performance.now()), 0));
  });
  seen.observe(document, { childList: true, subtree: true });
});
"""
"""In each page, before its scripts: when its table was painted."""
SEARCH = """
const [word, done] = arguments;
const q = document.querySelector("input[name=q]");
const begun = performance.now();
const seen = new MutationObserver(() => {
  const rows = document.querySelectorAll("main tbody tr");
  if (rows.length !== 1 || !rows[0].textContent.startsWith(word)) return;
  seen.disconnect();
  requestAnimationFrame(() => setTimeout(() => done(performance.now() - begun), 0));
});
seen.observe(document.querySelector("main"), { childList: true, subtree: true });
q.value = word;
q.dispatchEvent(new Event("input"));
"""
ASKED = """
const done = arguments[0];
const look = () => {
  const left = [...document.querySelectorAll("main tbody tr")].pop();
  if (left.children[3].textContent === "\u2013") return setTimeout(look, 5);
  done(performance.getEntriesByType("resource")
    .filter((one) => one.name.includes("/api/"))
    .reduce((sum, one) => sum + one.encodedBodySize, 0));
};
look();
"""
"""The bytes of all answers, once each row has its records."""


@pytest.fixture(scope="module")
def driver() -> Iterator[Any]:
    with chromium() as made:
        made.set_script_timeout(PATIENCE_S)
        made.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": WATCH})
        yield made


@contextmanager
def console(bootstrap: str) -> Iterator[str]:
    """The URL of a console that has just started."""
    words = ["console", "--bootstrap-server", bootstrap, "--listen", "127.0.0.1:0"]
    with subprocess.Popen(
        [sys.executable, "-m", "kafkalog", *words], stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL, text=True, env=as_installed(),
    ) as process:  # fmt: skip
        try:
            assert process.stdout is not None
            yield process.stdout.readline().removeprefix("console: ").strip()
        finally:
            process.terminate()


def picture_s(driver: Any, url: str) -> float:
    """Open a view; seconds until its table is there."""
    driver.get("about:blank")
    driver.get(url)
    found: float = driver.execute_async_script("window.picture.then(arguments[0])")
    return found / 1_000


@contextmanager
def served(folder: Path, partitions: int) -> Iterator[Served]:
    """A broker with TOPICS topics."""
    with brokers(folder, [OURS]) as running:
        names = [f"topic-{number:04}" for number in range(TOPICS)]
        with Admin(running[OURS].bootstrap, api_timeout_ms=PATIENCE_S * 1_000) as admin:
            for at in range(0, TOPICS, TOGETHER):
                some = [NewTopic(name, partitions) for name in names[at : at + TOGETHER]]
                admin.create_topics(some).check()
        yield running[OURS]


def test_first_picture(measure_together: Any, folder: Path, driver: Any) -> None:
    def once() -> dict[str, float]:
        with console(broker.bootstrap) as url:
            first_s = picture_s(driver, f"{url}#/topics")
            return {"console-first": first_s, "console-again": picture_s(driver, f"{url}#/topics")}

    work = f"The list of {TOPICS:,} topics in a browser"
    parts = [
        Part("console-first", f"{work}: the first picture", "s", [Want(OURS, WANTED_S)]),
        Part("console-again", f"{work}: a later one", "s", [Want(OURS, WANTED_S)]),
    ]
    with served(folder, FEW) as broker:
        measure_together(parts, {OURS: once}, rounds=7, cold=NEW)


@pytest.mark.timeout(1_200)
def test_many_partitions(measure_together: Any, folder: Path, driver: Any) -> None:
    def once() -> dict[str, float]:
        with console(broker.bootstrap) as url:
            found = {"console-many": picture_s(driver, f"{url}#/topics")}
            found["console-many-bytes"] = float(driver.execute_async_script(ASKED))
            search: Callable[..., float] = driver.execute_async_script
            found["console-many-search"] = search(SEARCH, f"topic-{TOPICS - 1:04}") / 1_000
            found["console-many-cluster"] = picture_s(driver, f"{url}#/")
            return found

    work = f"The list of {TOPICS:,} topics with {TOPICS * MANY:,} partitions"
    parts = [
        Part("console-many", f"{work}: the first picture", "s"),
        Part("console-many-search", f"{work}: a search", "s"),
        Part("console-many-bytes", f"{work}: all answers of the first view", "B"),
        Part("console-many-cluster", f"The view of that cluster of {TOPICS * MANY:,}", "s"),
    ]
    with served(folder, MANY) as broker:
        measure_together(parts, {OURS: once}, rounds=3, cold=NEW)
