"""The code blocks of README, CONTRIBUTING and docs: Python compiles and names what exists, shell
parses, JSON loads, and every `kafkalog` command has the options that it is shown with."""

from __future__ import annotations

import ast
import importlib
import json
import re
import shlex
import subprocess
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from kafkalog import cli
from kafkalog.cli.common import UsageError
from tests.house import tree

BLOCK = re.compile(r"^( *)```([\w+-]*)[^\n]*\n(.*?)^ *```", re.DOTALL | re.MULTILINE)
COMMAND = re.compile(r"^(?:\$ )?(?:[A-Z_]+=\S+ )*(?:\S*/)?kafkalog (.*)$")
PLACEHOLDER = re.compile(r"\.\.\.|…|[\[\]|<>]|\$")
"""Commands that are shown as a form, or whose words a shell would change, are not parsed."""


class Block(NamedTuple):
    """A fenced block of a document."""

    where: str
    language: str
    text: str


def documents() -> list[Path]:
    pages = [path for path in tree.with_suffix(".md") if path.name != "CHANGELOG.md"]
    assert any(path.name == "README.md" for path in pages)
    return pages


def blocks_of(name: str, text: str) -> Iterator[Block]:
    for found in BLOCK.finditer(text):
        line = text.count("\n", 0, found.start()) + 1
        yield Block(f"{name}:{line}", found[2], textwrap.dedent(found[3]))


def blocks(*languages: str) -> list[Block]:
    every = [
        block
        for path in documents()
        for block in blocks_of(tree.named(path), path.read_text(encoding="utf-8"))
    ]
    return [block for block in every if block.language in languages]


# ---- Python --------------------------------------------------------------------------------------


def named(dotted: str) -> bool:
    """True if a dotted name below kafkalog exists."""
    parts = dotted.split(".")
    for length in range(len(parts), 0, -1):
        try:
            found: object = importlib.import_module(".".join(parts[:length]))
        except ModuleNotFoundError:
            continue
        for part in parts[length:]:
            if not hasattr(found, part):
                return False
            found = getattr(found, part)
        return True
    return False


def dotted(node: ast.AST) -> str | None:
    """`a.b.c` of an expression that is nothing else."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and (before := dotted(node.value)) is not None:
        return f"{before}.{node.attr}"
    return None


def python_problems(block: Block) -> list[str]:
    """Why a block of Python cannot be right."""
    try:
        program = ast.parse(block.text)
    except SyntaxError as problem:
        return [f"{block.where}: line {problem.lineno} of the block: {problem.msg}"]
    names = set()
    for node in ast.walk(program):
        if isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            names |= {f"{node.module}.{one.name}" for one in node.names}
        elif isinstance(node, ast.Import):
            names |= {one.name for one in node.names}
        elif isinstance(node, ast.Attribute) and (name := dotted(node)) is not None:
            names.add(name)
    ours = {name for name in names if name.split(".")[0] == "kafkalog"}
    return [f"{block.where}: {name} does not exist" for name in sorted(ours) if not named(name)]


def test_python_compiles_and_names_existing_things() -> None:
    every = blocks("python")
    assert len(every) > 40
    assert [problem for block in every for problem in python_problems(block)] == []


def test_wrong_python_is_found() -> None:
    text = "x\n```python\n    import kafkalog\n        kafkalog.Log\n```\n"
    text += "```python\nfrom kafkalog.testing.broker import Nothing\nkafkalog.Log.gone()\n```\n"
    first, second = blocks_of("page", text)
    assert python_problems(first) == ["page:2: line 2 of the block: unexpected indent"]
    assert python_problems(second) == [
        "page:6: kafkalog.Log.gone does not exist",
        "page:6: kafkalog.testing.broker.Nothing does not exist",
    ]


# ---- shell, JSON -----------------------------------------------------------------------------


def test_shell_parses() -> None:
    every = blocks("sh")
    assert every
    for block in every:
        done = subprocess.run(["sh", "-n"], input=block.text, capture_output=True, text=True)
        assert done.returncode == 0, f"{block.where}: {done.stderr}"


def test_json_loads() -> None:
    every = blocks("json")
    assert every
    for block in every:
        json.loads(block.text)


# ---- commands --------------------------------------------------------------------------------


def commands(block: Block) -> Iterator[str]:
    """The arguments of each `kafkalog` command in a block."""
    for line in block.text.replace("\\\n", " ").splitlines():
        if found := COMMAND.match(line.strip()):
            yield re.split(r" \| | && | > | < |  +#| # | &$|;", found[1])[0]


def command_problem(arguments: str) -> str | None:
    """The error of the command line's own parser."""
    if PLACEHOLDER.search(arguments):
        return None
    command, *rest = shlex.split(arguments)
    if command.startswith("-"):
        return None
    if command not in cli.COMMANDS:
        return f"there is no command {command}"
    try:
        cli.parser_of(command).parse_args(rest)
    except UsageError as problem:
        return str(problem)
    return None


def test_commands_have_the_options_that_documents_show() -> None:
    every = [(b.where, line) for b in blocks("", "sh", "console") for line in commands(b)]
    assert len(every) > 50
    found = [(where, line, command_problem(line)) for where, line in every]
    assert [one for one in found if one[2] is not None] == []


def test_wrong_commands_are_found() -> None:
    text = "```\n$ kafkalog topics --dir data --nothing | wc\nkafkalog gone\n```\n"
    (block,) = blocks_of("page", text)
    first, second = commands(block)
    assert "--nothing" in (command_problem(first) or "")
    assert command_problem(second) == "there is no command gone"
