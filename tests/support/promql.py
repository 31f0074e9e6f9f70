"""A parser of PromQL, for the queries of docs/deploy: it finds what a query selects."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

__all__ = ["BadQuery", "Selection", "parse"]

TOKEN = re.compile(r"""\s*(?:
    (?P<time>\d+[smhdw]\b | \$__rate_interval\b)
    |(?P<number>\d+(?:\.\d+)?)
    |(?P<text>"[^"\\]*")
    |(?P<name>[A-Za-z_]\w*)
    |(?P<sign>=~|!~|!=|==|<=|>=|[-+*/<>=(){}\[\],])
)""", re.VERBOSE)  # fmt: skip
AGGREGATES = {"sum", "max", "min", "avg", "count", "topk"}
FUNCTIONS = {"rate", "increase", "changes", "deriv", "predict_linear", "histogram_quantile"}
ON_COUNTERS = {"rate", "increase"}
OPERATORS = {"+", "-", "*", "/", "==", "!=", "<", ">", "<=", ">=", "and", "or", "unless"}


class BadQuery(Exception):
    """It is no PromQL, or more of it than these queries need."""


class Selection(NamedTuple):
    """The series that a query reads somewhere."""

    name: str
    matchers: tuple[tuple[str, str, str], ...]
    """Label, operator, value."""
    function: str
    """The function of a range that is applied to it; empty: none."""
    grouped: frozenset[str]
    """The labels that the aggregations around it name."""


class _Parser:
    def __init__(self, query: str) -> None:
        self.tokens = [*_tokens(query), ("end", "")]
        self.at = 0

    def take(self, wanted: str = "") -> str:
        kind, text = self.tokens[self.at]
        if (wanted and text != wanted) or kind == "end":
            raise BadQuery(f"found {text!r}, wanted {wanted or 'more'!r}, at token {self.at}")
        self.at += 1
        return text

    def next(self, text: str) -> bool:
        return self.tokens[self.at][1] == text

    def whole(self) -> list[Selection]:
        found = self.expression()
        if self.tokens[self.at][0] != "end":
            raise BadQuery(f"not read: {self.tokens[self.at :]}")
        return found

    def expression(self, function: str = "") -> list[Selection]:
        """Precedence does not matter to what is selected."""
        found = self.operand(function)
        while self.tokens[self.at][1] in OPERATORS:
            self.take()
            found += self.operand(function)
        return found

    def operand(self, function: str) -> list[Selection]:
        kind, text = self.tokens[self.at]
        if kind == "number":
            self.take()
            return []
        if text == "(":
            return self.arguments(function)
        if kind != "name":
            raise BadQuery(f"found {text!r}, wanted a value, at token {self.at}")
        self.take()
        if text in AGGREGATES:
            return self.aggregate()
        if self.next("("):
            if text not in FUNCTIONS:
                raise BadQuery(f"unknown function {text}")
            return self.arguments(text)
        return [self.selector(text, function)]

    def arguments(self, function: str) -> list[Selection]:
        self.take("(")
        found = self.expression(function)
        while self.next(","):
            self.take()
            found += self.expression(function)
        self.take(")")
        return found

    def aggregate(self) -> list[Selection]:
        labels: list[str] = []
        if self.next("by"):
            self.take()
            self.take("(")
            labels.append(self.take())
            while self.next(","):
                self.take()
                labels.append(self.take())
            self.take(")")
        return [one._replace(grouped=one.grouped | {*labels}) for one in self.arguments("")]

    def selector(self, name: str, function: str) -> Selection:
        matchers: list[tuple[str, str, str]] = []
        if self.next("{"):
            self.take()
            while not self.next("}"):
                label, operator, value = self.take(), self.take(), self.take()
                if operator not in ("=", "!=", "=~", "!~") or value[:1] != '"':
                    raise BadQuery(f"{name}: no matcher: {label}{operator}{value}")
                matchers.append((label, operator, value[1:-1]))
                if not self.next("}"):
                    self.take(",")
            self.take()
        ranged = self.next("[")
        if ranged:
            self.take()
            self.time()
            self.take("]")
        if self.next("offset"):
            self.take()
            self.time()
        if ranged != (function in FUNCTIONS - {"histogram_quantile"}):
            raise BadQuery(f"{name}: a range belongs to a function of ranges: {function!r}")
        return Selection(name, tuple(matchers), function, frozenset())

    def time(self) -> None:
        if self.tokens[self.at][0] != "time":
            raise BadQuery(f"found {self.tokens[self.at][1]!r}, wanted a time")
        self.take()


def _tokens(query: str) -> Iterator[tuple[str, str]]:
    at = 0
    while at < len(query.rstrip()):
        match = TOKEN.match(query, at)
        if match is None:
            raise BadQuery(f"no PromQL: {query[at:]!r}")
        assert match.lastgroup is not None
        yield match.lastgroup, match[match.lastgroup]
        at = match.end()


def parse(query: str) -> list[Selection]:
    """Each selection of a query, in the order of the text.

    Raises: BadQuery.
    """
    return _Parser(query).whole()
