"""Readings as text for Prometheus."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from kafkalog.metrics.exposition import page
from kafkalog.metrics.metric import Readings, gauge


def test_texts_of_clients_cannot_end_the_page() -> None:
    """Prometheus takes a NUL for the end of the text, and a surrogate has no UTF-8."""
    readings = Readings([gauge("n", "", ["group"], "A group.")])
    for number, name in enumerate(("a\0b", "\ud800", "\x1b[2J", 'quote"\nline\\', "\u00e4\u3042")):
        readings.add("n", number, group=name)
    _, body = page(readings, "")
    text = body.decode()
    assert "\0" not in text and "\x1b" not in text
    (found,) = text_string_to_metric_families(text)
    assert [one.labels["group"] for one in found.samples] == [
        "a\\x00b", "\\ud800", "\\x1b[2J", 'quote"\nline\\', "\u00e4\u3042",
    ]  # fmt: skip


def test_two_texts_never_become_one() -> None:
    """Prometheus refuses a page with equal series.  Only a text that could be mistaken for one with
    an escape is changed, besides those that need escapes."""
    texts = [
        "a\0b", "a\\x00b", "a\\\\x00b", "a\\\0b", "a\\b\0", "a\\\\b\0", "\ud800", "\\ud800", "a\\b",
    ]  # fmt: skip
    readings = Readings([gauge("n", "", ["group"], "A group.")])
    for number, name in enumerate(texts):
        readings.add("n", number, group=name)
    (found,) = text_string_to_metric_families(page(readings, "")[1].decode())
    labels = [one.labels["group"] for one in found.samples]
    assert len({*labels}) == len(texts)
    assert labels[:2] == ["a\\x00b", "a\\\\x00b"] and labels[-1] == "a\\b"
