"""A login module as Kafka's settings write it: `sasl.jaas.config` and its like.

    MODULE FLAG NAME="value" NAME=value ... ;

Source: javax.security.auth.login.Configuration, and Kafka's JaasConfig, which takes one entry.
"""

import re
from collections.abc import Mapping
from typing import NamedTuple

from kafkalog.errors import InvalidSetting

__all__ = ["LoginModule", "parse_jaas"]

FLAGS = ("required", "requisite", "sufficient", "optional")
_SPACE = re.compile(r"(?:\s|//[^\n\r]*|/\*.*?\*/)*", re.DOTALL)
_QUOTED = re.compile(r'"((?:[^"\\\n\r]|\\[^\n\r])*)"')
_SINGLE = re.compile(r"'((?:[^'\\\n\r]|\\[^\n\r])*)'")
_WORD = re.compile(r"(?:[^\s\"'=;/]|/(?![/*]))+")
_ESCAPE = re.compile(r"\\([0-3]?[0-7]{1,2}|.)")
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "f": "\f", "b": "\b", "a": "\a", "v": "\v"}


class LoginModule(NamedTuple):
    """A login module.  Its repr hides the options, which are secrets."""

    name: str
    """Its class."""
    flag: str
    options: Mapping[str, str]

    @property
    def short_name(self) -> str:
        """The class without its package."""
        return self.name.rpartition(".")[2]

    def __repr__(self) -> str:
        return f"LoginModule({self.name!r}, {self.flag!r}, {len(self.options)} options hidden)"


def parse_jaas(text: str, setting: str = "sasl.jaas.config") -> LoginModule:
    """The one entry of `text`.

    Raises: InvalidSetting, which names `setting` and contains no part of the text.
    """
    tokens = _Tokens(text, setting)
    name = tokens.value("the class of a login module")
    flag = tokens.value("a control flag").lower()
    if flag not in FLAGS:
        raise tokens.wrong(f"a control flag, one of {', '.join(FLAGS)}")
    options: dict[str, str] = {}
    while not tokens.skip(";"):
        key = tokens.value("an option, or ; at the end")
        if not tokens.skip("="):
            raise tokens.wrong("= between an option and its value")
        options[key] = tokens.value('a value such as "text"')
    if not tokens.at_end:
        raise tokens.wrong("nothing after the first ;")
    return LoginModule(name, flag, options)


class _Tokens:
    """The words of a text, one after the other."""

    def __init__(self, text: str, setting: str) -> None:
        self._text, self._setting = text, setting
        self._start = self._pos = 0
        self._space()

    def _space(self) -> None:
        match = _SPACE.match(self._text, self._pos)
        assert match is not None
        self._pos = match.end()

    @property
    def at_end(self) -> bool:
        """True if only blanks and comments are left."""
        self._start = self._pos
        return self._pos == len(self._text)

    def skip(self, sign: str) -> bool:
        """Take a sign; False: something else is next."""
        self._start = self._pos
        if not self._text.startswith(sign, self._pos):
            return False
        self._pos += len(sign)
        self._space()
        return True

    def value(self, wanted: str) -> str:
        """Take a word, or a quoted text."""
        self._start = self._pos
        for pattern in (_QUOTED, _SINGLE, _WORD):
            match = pattern.match(self._text, self._pos)
            if match is not None:
                self._pos = match.end()
                self._space()
                return match[0] if pattern is _WORD else _ESCAPE.sub(_plain, match[1])
        raise self.wrong(wanted)

    def wrong(self, wanted: str) -> InvalidSetting:
        return InvalidSetting(f"{self._setting}: at character {self._start}: wanted {wanted}")


def _plain(match: "re.Match[str]") -> str:
    found = match[1]
    return chr(int(found, 8)) if found.isdigit() else _ESCAPED.get(found, found)
