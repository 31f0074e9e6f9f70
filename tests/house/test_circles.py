"""No circular imports: files that import each other, by any path, are one file in pieces."""

from __future__ import annotations

from tests.house import imports


def test_no_files_import_each_other() -> None:
    """An import in a function, or for types only, counts: the reader has to know both files."""
    found = imports.circles(imports.graph())
    assert not found, "\n".join("circle: " + ", ".join(group) for group in found)


def test_a_circle_is_found() -> None:
    """A canary: without it, a search that finds nothing would pass."""
    edges = {"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": set(), "e": {"d"}}
    assert imports.circles(edges) == [["a", "b", "c"]]


def test_every_form_of_import_is_seen() -> None:
    """At the top, in a function, for types only."""
    edges = imports.graph()
    assert "kafkalog.config.topic" in edges["kafkalog.log.log"]
    assert "kafkalog.log.compaction" in edges["kafkalog.log.log"]
    assert "kafkalog.report" in edges["kafkalog.log.hooks"]
