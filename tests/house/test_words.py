"""Not allowed in the project: things left undone, words of elsewhere, translated phrases."""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

from tests.house import tree

# Each is written so that this file does not hold the word itself.
UNDONE = re.compile(r"\b(TO[D]O|FIX[M]E|XX[X]|HAC[K])\b|NotImplemented[E]rror")
ELSEWHERE = re.compile(
    r"/w[o]rk/|/f[a]rm/|/r[o]ot/|\bthe C[E]O\b|steering re[p]o"
    r"|\bdeveloper ses[s]ion\b|sub-?ag[e]nt"
    r"|\b[Ii]ss[u]es? (\*|#?\d)|\bthe br[i]ef\b",
)
TRANSLATED = re.compile(
    r"\b([Aa]ne[w](?! =| \|\|)|[Mm]eanwhil[e])\b"
    r"|(^\W*|[.:;!?\"] +|[\"#*(|] ?)Wh[o] (?![^.]*\?)"
)
"""Phrases that docs/style.md refuses, and sentences that begin with a person and ask nothing."""
HOMEMADE = re.compile(
    r"\b(for eve[r]|besid[e]|[Ww]hoeve[r]|[Ii]n the place o[f]|of befor[e]|(is|are|was|were) tol[d]"
    r"|[Bb]y and b[y]|for so lon[g]|go(es)? ove[r]|not there ye[t])\b"
)
"""Refused in rewritten folders: write forever, next to, instead of, gets, overrides, ..."""
HEADLESS = re.compile(r"def test_(\w+_)?(who|whoever|what)_|^ *(r?\"\"\")(Whether|What|Who|Of) ")
"""Names of tests and docstrings without a head: name the thing, or say "True if"."""
NO_CHECK = re.compile(r"\bassert (True|1)\b|except( Exception| BaseException)?: *(pass|\.\.\.)$")


def parts(*texts: str) -> tuple[str, ...]:
    """The texts, each of which has one letter in brackets."""
    return tuple(text.replace("[", "").replace("]", "") for text in texts)


# Every match contains one of these: looking for them is ten times as fast.
IN_UNDONE = parts("TO[D]O", "FIX[M]E", "XX[X]", "HAC[K]", "NotImplemented[E]rror")
IN_ELSEWHERE = parts(
    "/w[o]rk/", "/f[a]rm/", "/r[o]ot/", "the C[E]O", "steering re[p]o", "developer ses[s]ion",
    "ag[e]nt", "ss[u]e", "the br[i]ef",
)  # fmt: skip


def matches(
    paths: Iterable[Path], pattern: re.Pattern[str], contained: tuple[str, ...] = ("",)
) -> list[str]:
    """Where a pattern matches; each match contains one of `contained`."""
    return [
        f"{tree.named(path)}:{number}: {match[0]}"
        for path in paths
        if any(part in (text := path.read_text(encoding="utf-8")) for part in contained)
        for number, line in enumerate(text.splitlines(), 1)
        if any(part in line for part in contained) and (match := pattern.search(line))
    ]


def test_nothing_is_left_undone() -> None:
    assert matches(tree.files(), UNDONE, IN_UNDONE) == []


def test_no_words_of_elsewhere() -> None:
    assert matches(tree.files(), ELSEWHERE, IN_ELSEWHERE) == []


def plain(path: Path) -> bool:
    """True if the prose of a file is written by hand and reviewed."""
    named = tree.named(path)
    skipped = named in NOT_PLAIN or named.startswith("docs/performance")
    return not skipped and path.suffix not in (".json", ".txt")


NOT_PLAIN = ("docs/style.md",)  # shows what not to write


REWRITTEN = (
    *("_native", "batch", "cli", "client", "cluster", "config", "controller", "coordinator"),
    *("directory", "disk", "inspect", "kraft", "log", "metadata", "mirror", "raft", "replication"),
    *("server", "simulate", "testing", "wire", "zookeeper"),
)
"""Folders of kafkalog whose prose was rewritten as a whole, as were its top-level modules."""


def rewritten(path: Path) -> bool:
    """True if HOMEMADE applies: to rewritten folders, the connector, the README and documents."""
    top, *inner = Path(tree.named(path)).parts
    if top == "docs":
        return path.suffix == ".md"
    if top == "kafkalog":
        return len(inner) == 1 or inner[0] in REWRITTEN
    return top in ("spark_connector", "README.md")


@cache
def prose(path: Path) -> tuple[tuple[int, str], ...]:
    """Lines of a file by number; of Python only comments, docstrings and texts with a space."""
    return tuple(_prose(path))


def _prose(path: Path) -> Iterator[tuple[int, str]]:
    text = path.read_text(encoding="utf-8")
    if not (re.search(r"\b[Aa]ne[w]\b|eanwhil[e]|Wh[o] ", text) or HOMEMADE.search(text)):
        return  # none of the phrases: most files
    if path.suffix != ".py":
        yield from enumerate(text.splitlines(), 1)
        return
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type in TEXTS and " " in token.string:
            yield from enumerate(token.string.splitlines(), token.start[0])


TEXTS = {tokenize.COMMENT, tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING)}


def test_prose_is_plain_english() -> None:
    """docs/style.md, "Plain English": rewrite the sentence, do not just replace the word."""
    found = [
        f"{tree.named(path)}:{number}: {line.strip()}"
        for path in filter(plain, tree.files())
        for number, line in prose(path)
        if TRANSLATED.search(line)
    ]
    assert found == []


def test_rewritten_prose_stays_free_of_homemade_phrases() -> None:
    """docs/style.md, "Plain English": each has a standard term."""
    found = [
        f"{tree.named(path)}:{number}: {line.strip()}"
        for path in filter(rewritten, filter(plain, tree.files()))
        for number, line in prose(path)
        if HOMEMADE.search(line)
    ]
    assert found == []


def test_names_and_docstrings_have_a_head() -> None:
    """docs/style.md, "Plain English": `test_missing_znode`, not `test_what_is_no_such_znode`."""
    assert matches(tree.with_suffix(".py"), HEADLESS) == []


TESTS = [path for path in tree.with_suffix(".py") if tree.ROOT / "tests" in path.parents]


def test_tests_wait_for_conditions() -> None:
    assert matches(TESTS, re.compile(r"\btime\.slee[p]\(")) == []


def test_tests_can_fail() -> None:
    assert matches((path for path in TESTS if path != Path(__file__)), NO_CHECK) == []


def test_the_patterns_match_their_examples() -> None:
    for text in parts("# TO[D]O: later", "FIX[M]E", "XX[X]", "a HAC[K]", "NotImplemented[E]rror"):
        assert UNDONE.search(text) and any(part in text for part in IN_UNDONE)
    for text in parts(
        "see /w[o]rk/main", "/f[a]rm/", "/r[o]ot/a", "the C[E]O", "the steering re[p]o",
        "a developer ses[s]ion", "a sub-ag[e]nt", "subag[e]nts", "as iss[u]e 12 says",
        "Iss[u]es #3", "as the br[i]ef says",
    ):  # fmt: skip
        assert ELSEWHERE.search(text) and any(part in text for part in IN_ELSEWHERE)
    assert not ELSEWHERE.search("the group's session timeout")
    for text in (
        "made ane" + "w",
        "Meanwhil" + "e it",
        "# Wh" + "o asks waits.",
        "It ends.  Wh" + "o is",
    ):
        assert TRANSLATED.search(text)
    for text in (
        "def test_" + "who_waits(",
        "def test_a_log_of_" + "what_is(",
        '  """' + "Whether it",
        '"""' + "Of the producer's buffer.",
    ):
        assert HEADLESS.search(text)
    assert not HEADLESS.search("def test_the_whole_fil" + "e(")
    assert not HEADLESS.search('"""' + "Whatever happens")
    for text in ("it waits for eve" + "r", "a file besid" + "e it", "the client is tol" + "d"):
        assert HOMEMADE.search(text)
    assert not HOMEMADE.search("as was foretol" + "d")
    assert not TRANSLATED.search("test_what_begins_ane" + "w")
    assert not TRANSLATED.search("Wh" + "o leads?")
