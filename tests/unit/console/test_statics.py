"""The page asks for nothing from elsewhere, and the wheel has all of it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from kafkalog.console.statics import read_statics
from tests.house import tree

STATICS = read_statics()


def test_the_wheel_has_every_static_file(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "setup.py", "--quiet", "build_py", "--build-lib", str(tmp_path)],
        check=True, cwd=tree.ROOT, env={**os.environ, "KAFKALOG_NO_EXTENSION": "1"},
        capture_output=True,
    )  # fmt: skip
    built = tmp_path / "kafkalog" / "console" / "static"
    assert {f"/static/{one.name}" for one in built.iterdir()} == STATICS.keys() - {"/"}
    assert len(STATICS) > 10


def test_modules_import_only_files_that_are_there() -> None:
    found = [
        (path, name)
        for path, (_, data) in STATICS.items() if path.endswith(".js")
        for name in re.findall(r'from "([^"]+)"', data.decode())
    ]  # fmt: skip
    assert len(found) > 15
    assert [(path, name) for path, name in found if f"/static{name[1:]}" not in STATICS] == []


def test_the_page_names_all_modules() -> None:
    """So that they are fetched together, and not each once another has named it."""
    page = STATICS["/"][1].decode()
    named = re.findall(r'<link rel="modulepreload" href="([^"]+)">', page)
    modules = [path for path in STATICS if path.endswith(".js")]
    assert sorted([*named, "/static/main.js"]) == sorted(modules)


def test_nothing_is_inline_or_from_elsewhere() -> None:
    """As the Content-Security-Policy demands."""
    page = STATICS["/"][1].decode()
    assert re.findall(r'(?:src|href)="([^"#]+)"', page)
    assert re.findall(r'(?:src|href)="(?!/static/|#)[^"]*"', page) == []
    assert not re.search(r"<style|style=|<script(?![^>]*src=)| on\w+=", page)
    for path, (_, data) in STATICS.items():
        text = data.decode().replace("http://www.w3.org/2000/svg", "")
        assert not re.search(r"https?://|//[a-z]+\.[a-z]", text), path
        if path.endswith(".js"):
            assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|\beval\(|new Function"
                                 r"|document\.write|javascript:", text), path  # fmt: skip
            assert max(map(len, text.splitlines())) <= 100, path
