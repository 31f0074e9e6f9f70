"""Commands in the documents of clusters are commands that there are, with their options."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from kafkalog.cli import parser_of

DOCS = Path(__file__).parents[3] / "docs"
BLOCK = re.compile(r"^ *```sh\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"\bkafkalog (?!-)([^)&;]*)")
"""Up to the end of the line, or of `$(...)`."""


def commands(document: str) -> list[str]:
    """The commands in a document's blocks of shell, without `kafkalog`."""
    found = []
    for block in BLOCK.findall((DOCS / document).read_text()):
        lines = block.replace("\\\n", " ").splitlines()
        found += [text for line in lines for text in COMMAND.findall(line.partition("  #")[0])]
    return found


@pytest.mark.parametrize("document", ["moving.md", "quorum.md", "cluster.md", "top.md"])
def test_documented_commands_are_understood(document: str) -> None:
    found = commands(document)
    assert found
    for text in found:
        command, *words = shlex.split(text, comments=True)
        parser_of(command).parse_args(words)
