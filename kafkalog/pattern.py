"""Regular expressions from clients, matched in time linear in the text, with a bound in all.

Kafka uses RE2, so syntax and meaning are RE2's: no backreferences and no lookaround, whose time is
unbounded.  Rarely used parts of RE2 are refused: word boundaries, flags, Unicode and POSIX
classes.  A match only says whether the pattern matches the whole text.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from operator import length_hint
from typing import Any, NamedTuple

from kafkalog.errors import ArgumentError

__all__ = ["Pattern"]

TEXT_MAX = 1_000
"""Characters of a pattern."""
NODES_MAX = 1_000
"""How large a pattern may become with its repetitions expanded."""
BUILD_MAX = 20_000
"""The same, with parts that are empty."""
NESTED_MAX = 50
REPEATS_MAX = 1_000
"""RE2's limit."""
WORK_MAX = 200_000
"""How many steps of the pattern may be looked at, for all texts together: about 0.1 s.  A character
that came in the same place before costs none."""
CACHED_MAX = 50_000
"""Numbers and characters in the cache, about 5 MB: when full, it is cleared."""
CODE_MAX = 0x10FFFF
PART_WORK, CHARACTERS_A_STEP = 10, 10
"""The time of reading a part of a pattern, in steps, and of a step, in characters that came in the
same place before.  Measured, and rounded up."""


class _Set(NamedTuple):
    """Characters, as ranges of code points; `out`: all others."""

    ranges: tuple[tuple[int, int], ...]
    out: bool = False

    @property
    def single(self) -> bool:
        """True if it is a single character."""
        return not self.out and len(self.ranges) == 1 and len(set(self.ranges[0])) == 1

    def inside(self) -> tuple[tuple[int, int], ...]:
        """The same without `out`."""
        if not self.out:
            return self.ranges
        found, start = [], 0
        for low, high in sorted(self.ranges):
            if low > start:
                found.append((start, low - 1))
            start = max(start, high + 1)
        return (*found, (start, CODE_MAX)) if start <= CODE_MAX else tuple(found)

    def edges(self) -> list[int]:
        """Where characters begin to be inside and where they cease to be, in turn, ascending."""
        found: list[int] = []
        for low, high in sorted(self.inside()):
            if found and low <= found[-1]:
                found[-1] = max(found[-1], high + 1)
            else:
                found += (low, high + 1)
        return found


_DIGITS = ((48, 57),)
_WORD = ((48, 57), (65, 90), (95, 95), (97, 122))
_SPACE = ((9, 10), (12, 13), (32, 32))
_CLASSES = {
    "d": _Set(_DIGITS), "D": _Set(_DIGITS, True), "w": _Set(_WORD), "W": _Set(_WORD, True),
    "s": _Set(_SPACE), "S": _Set(_SPACE, True),
}  # fmt: skip
_CONTROLS = {"a": 7, "f": 12, "t": 9, "n": 10, "r": 13, "v": 11}
_ANY = _Set(((10, 10),), True)

Node = Callable[["_Program", int], int]
"""Adds itself to a program before what follows; returns where it begins."""


class _Program:
    """The instruction at each place of a pattern; the last is the end."""

    def __init__(self) -> None:
        self.steps: list[tuple[str, Any]] = [("done", None)]
        self._spent = 0

    def spend(self) -> None:
        """A part is about to be added, which may be empty."""
        self._spent += 1
        if self._spent > BUILD_MAX:
            raise ArgumentError(f"a pattern with more than {BUILD_MAX} parts, wanted fewer")

    def add(self, kind: str, what: Any) -> int:
        if len(self.steps) >= NODES_MAX:
            raise ArgumentError(f"a pattern with more than {NODES_MAX} parts, wanted fewer")
        self.steps.append((kind, what))
        return len(self.steps) - 1


def _one(found: _Set) -> Node:
    edges = found.edges()
    return lambda program, after: program.add("one", (edges, after))


def _edge(kind: str) -> Node:
    return lambda program, after: program.add(kind, after)


def _row(nodes: list[Node]) -> Node:
    def add(program: _Program, after: int) -> int:
        for node in reversed(nodes):
            program.spend()
            after = node(program, after)
        return after

    return add


def _any_of(nodes: list[Node]) -> Node:
    if len(nodes) == 1:
        return nodes[0]

    def add(program: _Program, after: int) -> int:
        begins = []
        for node in nodes:
            program.spend()
            begins.append(node(program, after))
        return program.add("split", begins)

    return add


def _repeated(node: Node, least: int, most: int | None) -> Node:
    def add(program: _Program, after: int) -> int:
        begin = after
        if most is None:
            begin = program.add("split", [])
            program.steps[begin][1].extend((node(program, begin), after))
        else:
            for _ in range(most - least):
                program.spend()
                begin = program.add("split", [node(program, begin), after])
        for _ in range(least):
            program.spend()
            begin = node(program, begin)
        return begin

    return add


class _Reader:
    """Reads a pattern."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.nested = 0

    def bad(self, why: str) -> ArgumentError:
        return ArgumentError(f"pattern {self.text!r}, at {self.at}: {why}")

    def next_is(self, *words: str) -> bool:
        return any(self.text.startswith(word, self.at) for word in words)

    def took(self, word: str) -> bool:
        if not self.next_is(word):
            return False
        self.at += len(word)
        return True

    def take(self) -> str:
        if self.at >= len(self.text):
            raise self.bad("unexpected end")
        self.at += 1
        return self.text[self.at - 1]

    def whole(self) -> Node:
        found = self.choices()
        if self.at < len(self.text):
            raise self.bad("a closing bracket without its opening one")
        return found

    def choices(self) -> Node:
        found = [self.row()]
        while self.took("|"):
            found.append(self.row())
        return _any_of(found)

    def row(self) -> Node:
        found: list[Node] = []
        while self.at < len(self.text) and not self.next_is("|", ")"):
            found.append(self.repeated())
        return _row(found)

    def repeated(self) -> Node:
        node, times = self.atom(), 0
        while (bounds := self.bounds()) is not None:
            node = _repeated(node, *bounds)
            self.took("?")  # greedy or not makes no difference to a whole match
            times += 1
            if times > 1:
                raise self.bad("a repetition of a repetition")
        return node

    def bounds(self) -> tuple[int, int | None] | None:
        """How often the preceding part is repeated; None: it is not."""
        for word, found in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
            if self.took(word):
                return found
        begin = self.at
        if not self.took("{"):
            return None
        low, comma, high = self.text[self.at :].partition("}")[0].partition(",")
        end = self.text.find("}", self.at)
        if end < 0 or not _is_number(low) or (high and not _is_number(high)):
            self.at = begin
            return None  # a literal brace
        self.at = end + 1
        least = int(low)
        most = least if not comma else int(high) if high else None
        if least > REPEATS_MAX or (most is not None and not least <= most <= REPEATS_MAX):
            raise self.bad(
                f"found this repetition count, wanted 0 to {REPEATS_MAX}, the smaller first"
            )
        return least, most

    def atom(self) -> Node:
        first = self.take()
        if first == "(":
            return self.group()
        if first == "[":
            return _one(self.bracket())
        if first == ".":
            return _one(_ANY)
        if first in "^$":
            return _edge("begin" if first == "^" else "end")
        if first in "*+?":
            self.at -= 1
            raise self.bad("a repetition of nothing")
        if first != "\\":
            return _one(_Set(((ord(first), ord(first)),)))
        if self.took("A"):
            return _edge("begin")
        return _edge("end") if self.took("z") else _one(self.escaped())

    def group(self) -> Node:
        self.nested += 1
        if self.nested > NESTED_MAX:
            raise self.bad(f"more than {NESTED_MAX} nested brackets")
        if self.next_is("?") and not self.took("?:"):
            raise self.bad("flags and named groups are not supported")
        found = self.choices()
        if not self.took(")"):
            raise self.bad("a bracket is not closed")
        self.nested -= 1
        return found

    def escaped(self) -> _Set:
        """Parse the characters after a backslash."""
        word = self.take()
        if word in _CLASSES:
            return _CLASSES[word]
        if word in _CONTROLS:
            code = _CONTROLS[word]
        elif word == "x":
            long = self.took("{")
            digits = self.text[self.at :].partition("}")[0] if long else self.text[self.at :][:2]
            try:
                code = int(digits, 16) if digits.isalnum() and (long or len(digits) == 2) else -1
            except ValueError:
                code = -1
            if not 0 <= code <= CODE_MAX:
                raise self.bad("not the number of a character")
            self.at += len(digits) + long
        elif word.isalnum() or not word.isascii():
            raise self.bad(f"\\{word} is not supported")
        else:
            code = ord(word)
        return _Set(((code, code),))

    def bracket(self) -> _Set:
        out = self.took("^")
        ranges: list[tuple[int, int]] = []
        first = True
        while first or not self.next_is("]"):
            if self.next_is("[:"):
                raise self.bad("POSIX classes are not supported")
            low = self.member()
            first = False
            rest = self.text[self.at :]
            if not low.single or not rest.startswith("-") or rest[1:2] == "]":
                ranges += low.inside()
                continue
            self.at += 1
            high = self.member()
            (start, _), (end, _) = low.ranges[0], high.ranges[0]
            if not high.single or end < start:
                raise self.bad("a range whose end is below its start")
            ranges.append((start, end))
        self.at += 1
        return _Set(tuple(ranges), out)

    def member(self) -> _Set:
        word = self.take()
        return self.escaped() if word == "\\" else _Set(((ord(word), ord(word)),))


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 9


class _State:
    """A place in a text: the steps of the pattern that may come next."""

    __slots__ = ("ends", "follow", "ones")

    def __init__(self, ones: list[tuple[list[int], int]], ends: bool) -> None:
        self.ones = ones
        """The characters that may come next, as edges, and the step that follows each."""
        self.ends = ends
        """True if the text may end here."""
        self.follow: dict[str, _State] = {}
        """The places after characters that were seen here."""


class Pattern:
    """A pattern, ready to be matched.  One thread only."""

    def __init__(
        self, text: str, work_max: int = WORK_MAX, cached_max: int = CACHED_MAX
    ) -> None:  # fmt: skip
        """`work_max`, `cached_max`: instead of WORK_MAX and CACHED_MAX.

        Raises: ArgumentError, with what is wrong and where.
        """
        if len(text) > TEXT_MAX:
            raise ArgumentError(f"a pattern of {len(text)} characters, wanted at most {TEXT_MAX}")
        program = _Program()
        begin = _Reader(text).whole()(program, 0)
        self._steps = program.steps
        self.work = 0
        """Steps looked at so far, of `work_max`."""
        self._work_max, self._cached_max = work_max, cached_max
        self._walked = 0
        self._states: dict[frozenset[int], _State] = {}
        self._cached = 0
        self._begin = self._state(frozenset([begin]), begin=True)

    @property
    def cost(self) -> int:
        """All that was done so far, with the characters that cost no work, in steps."""
        return PART_WORK * len(self._steps) + self.work + self._walked // CHARACTERS_A_STEP

    def matches(self, text: str) -> bool:
        """True if the pattern matches all of a text.

        Raises: ArgumentError if it takes more than `work_max` steps, with the texts before it.
        """
        at, left = self._begin, iter(text)
        for char in left:
            after = at.follow.get(char)
            at = self._moved(at, char) if after is None else after
            if not at.ones and not at.ends:
                break
        self._walked += len(text) - length_hint(left)
        return at.ends

    def matches_alone(self, text: str) -> bool:
        """As `matches`, with all of `work_max` for this text.  Raises: ArgumentError."""
        self.work = 0
        return self.matches(text)

    def _moved(self, at: _State, char: str) -> _State:
        code = ord(char)
        self._spend(len(at.ones))
        found = frozenset(after for edges, after in at.ones if bisect_right(edges, code) & 1)
        state = self._states.get(found)
        if state is None:
            state = self._state(found)
            self._cached += len(found) + len(state.ones)
            self._states[found] = state
        at.follow[char] = state
        self._cached += 1
        if self._cached > self._cached_max:
            for one in (self._begin, at, *self._states.values()):
                one.follow.clear()
            self._states.clear()
            self._cached = 0
        return state

    def _state(self, at: frozenset[int], begin: bool = False) -> _State:
        reached = self._reached(at, begin, False)
        steps = self._steps
        ones = [steps[one][1] for one in reached if steps[one][0] == "one"]
        return _State(ones, 0 in self._reached(at, begin, True))

    def _reached(self, at: frozenset[int], begin: bool, end: bool) -> set[int]:
        """The steps reachable without a character."""
        found, left = set(at), list(at)
        while left:
            kind, what = self._steps[left.pop()]
            more: list[int] = []
            if kind == "split":
                more = what
            elif (kind == "begin" and begin) or (kind == "end" and end):
                more = [what]
            self._spend(1 + len(more))
            for one in more:
                if one not in found:
                    found.add(one)
                    left.append(one)
        return found

    def _spend(self, steps: int) -> None:
        self.work += steps
        if self.work > self._work_max:
            raise ArgumentError(
                f"matching this pattern takes more than {self._work_max} steps, wanted a simpler "
                f"one"
            )
