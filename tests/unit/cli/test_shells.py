"""`kafkalog completion` in real shells, and `kafkalog man` through groff."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from kafkalog.cli import COMMANDS
from kafkalog.cli.documents import manual_pages
from tests.unit.cli.conftest import Command

ZSH = """
_describe() { for one in "${(@P)2}"; do print -r -- "${one%%:*}"; done }
compadd() { shift; print -rl -- "$@" }
_files() { print -r -- FILES }
compdef() { }
source SCRIPT
words=(LINE); CURRENT=${#words}; _kafkalog
"""
BASH = """
source SCRIPT
COMP_WORDS=(LINE); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); COMPREPLY=(FILES); _kafkalog
printf '%s\\n' "${COMPREPLY[@]}"
"""
Complete = Callable[[str], list[str]]


@pytest.fixture(params=["bash", "zsh", "fish"])
def complete(request: pytest.FixtureRequest, tmp_path: Path, kafkalog: Command) -> Complete:
    """The words that a shell offers for a line whose last word is to be completed."""
    shell = request.param
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    script = tmp_path / "script"
    script.write_text(kafkalog("completion", shell).out)
    program = tmp_path / "program"

    def offered(line: str) -> list[str]:
        words = " ".join(word or "''" for word in line.split(" "))
        if shell == "fish":
            text = f"source {script}; complete -C '{line}'"
        else:
            text = ZSH if shell == "zsh" else BASH
            text = text.replace("SCRIPT", str(script)).replace("LINE", words)
        program.write_text(text)
        options = ["-f"] if shell == "zsh" else ["--no-config"] if shell == "fish" else []
        found = subprocess.run(
            [shell, *options, str(program)], capture_output=True, text=True, cwd=tmp_path,
            env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}, timeout=60,
        )  # fmt: skip
        assert found.stderr == ""
        return [one.split("\t")[0] for one in found.stdout.splitlines()]

    return offered


def test_a_shell_completes_commands_actions_options_and_values(complete: Complete) -> None:
    assert {*COMMANDS} <= {*complete("kafkalog ")}
    assert {"reset-offsets", "describe"} <= {*complete("kafkalog groups ")}
    assert {"--dir", "--log-format"} <= {*complete("kafkalog serve --")}
    assert sorted(complete("kafkalog serve --log-format ")) == ["json", "text"]
    assert "DEBUG" not in complete("kafkalog serve --config ")


def test_each_manual_page_is_valid() -> None:
    if shutil.which("groff") is None:
        pytest.skip("groff is not installed")
    pages = dict(manual_pages())
    assert {*pages} == {"kafkalog", *(f"kafkalog-{name}" for name in COMMANDS)}
    shown = subprocess.run(
        ["groff", "-man", "-ww", "-Tutf8", "-P-bcou"], input="".join(pages.values()),
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert shown.stderr == ""
    words = " ".join(shown.stdout.split())
    assert "kafkalog-serve - run a broker on a port, for any Kafka client" in words
    assert words.count("EXIT STATUS") == len(pages)
    assert "--log-format text|json" in words


def test_man(kafkalog: Command, tmp_path: Path) -> None:
    assert kafkalog("man").out.startswith(".TH KAFKALOG 1")
    assert kafkalog("man", "serve").out == dict(manual_pages())["kafkalog-serve"]
    assert kafkalog("man", "none").status == 2
    assert kafkalog("man", "serve", "--dir", tmp_path).status == 2
    assert kafkalog("man", "--dir", tmp_path / "made" / "man1").status == 0
    assert len([*(tmp_path / "made" / "man1").iterdir()]) == len(COMMANDS) + 1
