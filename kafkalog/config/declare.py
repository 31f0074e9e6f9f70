"""Declares, parses, bounds and describes settings: the base of the other modules."""

import operator
import re
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Generic, TypeVar, overload

from kafkalog.errors import InvalidSetting, UnknownSetting

__all__ = [
    "FOREVER",
    "Flag",
    "Long",
    "Password",
    "Rate",
    "Ratio",
    "Secret",
    "Setting",
    "Settings",
    "Whole",
    "Word",
    "Words",
]

T = TypeVar("T")
C = TypeVar("C", bound="Settings")

FOREVER = (1 << 63) - 1
"""Kafka's value for "never" or "no limit" in a 64-bit setting."""
INT_MAX = (1 << 31) - 1


class Password:
    """A secret text that neither `str` nor `repr` shows.  `==` takes constant time."""

    __slots__ = ("value",)

    def __init__(self, value: str) -> None:
        self.value = value

    def __bool__(self) -> bool:
        return bool(self.value)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Password):
            return NotImplemented
        from hmac import compare_digest  # loads OpenSSL, and most programs compare no password

        return compare_digest(self.value.encode(), other.value.encode())

    def __hash__(self) -> int:
        return hash(self.value)

    def __repr__(self) -> str:
        return "[hidden]"


class Setting(ABC, Generic[T]):
    """One setting: how its value is written, read, bounded and described."""

    kind: ClassVar[str] = ""

    def __init__(
        self,
        default: T,
        text: str,
        *,
        unit: str = "",
        synonym: str = "",
        also: Mapping[str, int] | None = None,
        kafka: T | None = None,
        served: T | None = None,
    ) -> None:
        """`synonym`: the broker's name for the default of all topics; `also`: further broker
        names, used in this order if it is missing, each with how many of this setting's units make
        one of its own; `kafka`: Kafka's default if ours differs; `served`: a broker's default for a
        topic's setting, instead of the general one.
        """
        self.name = ""
        self.default = default
        self.text = text
        self.unit = unit
        self.synonym = synonym
        self.also = dict(also or {})
        self.kafka = kafka
        self.served = default if served is None else served

    def __set_name__(self, owner: type, attribute: str) -> None:
        self.name = attribute.replace("_", ".")

    @overload
    def __get__(self, config: None, owner: type) -> "Setting[T]": ...
    @overload
    def __get__(self, config: "Settings", owner: type) -> T: ...
    def __get__(self, config: "Settings | None", owner: type) -> "Setting[T] | T":
        if config is None:
            return self
        value: T = config._values[self.name]
        return value

    def __set__(self, config: "Settings", value: object) -> None:
        raise AttributeError(f"{self.name} cannot be set: settings cannot change once created")

    @abstractmethod
    def parse(self, found: object) -> T:
        """The value of `found` (text or a Python value).

        Raises: ValueError, TypeError if it is invalid; the caller writes the message.
        """

    def wanted(self) -> str:
        """Describes what parse accepts."""
        return self.kind

    def show(self, value: Any) -> str:
        """`value` in the form that Kafka's files have."""
        return str(value)

    def checked(self, found: object, name: str = "") -> T:
        """As parse; an error names the setting (or `name`), what was found and what was wanted.

        Raises: InvalidSetting.
        """
        try:
            return self.parse(found)
        except (ValueError, TypeError):
            wanted = self.wanted()
            raise InvalidSetting(f"{name or self.name}: found {found!r}, wanted {wanted}") from None


class Flag(Setting[bool]):
    """true or false."""

    kind = "bool"

    def __init__(self, default: bool, text: str, *, only: bool | None = None, **rest: Any) -> None:
        """`only`: the one accepted value, if the other would need an unsupported feature."""
        super().__init__(default, text, **rest)
        self.only = only

    def parse(self, found: object) -> bool:
        if isinstance(found, str):
            found = {"true": True, "false": False}.get(found.strip().lower())
        if not isinstance(found, bool):
            raise TypeError
        if self.only is not None and found != self.only:
            raise ValueError
        return found

    def wanted(self) -> str:
        return "true or false" if self.only is None else self.show(self.only)

    def show(self, value: Any) -> str:
        return str(value).lower()


class Whole(Setting[int]):
    """A whole number of 32 bits (int) or 64 (long)."""

    kind = "int"
    highest: ClassVar[int] = INT_MAX

    def __init__(
        self,
        default: int,
        text: str,
        *,
        low: int | None = None,
        high: int | None = None,
        never: tuple[int, ...] = (),
        **rest: Any,
    ) -> None:
        super().__init__(default, text, **rest)
        self.low = low
        self.high = high
        self.never = never

    def parse(self, found: object) -> int:
        if isinstance(found, str):
            # int() would also take "1_000" and digits of other scripts.
            if not re.fullmatch(r"\s*[+-]?[0-9]{1,20}\s*", found):
                raise ValueError
            value = int(found)
        elif isinstance(found, bool):
            raise TypeError
        else:
            value = operator.index(found)  # type: ignore[arg-type]
        low = -self.highest - 1 if self.low is None else self.low
        high = self.highest if self.high is None else self.high
        if not low <= value <= high or value in self.never:
            raise ValueError
        return value

    def wanted(self) -> str:
        unit = f" in {self.unit}" if self.unit else ""
        return f"{'an' if self.kind == 'int' else 'a'} {self.kind}{unit}, {self.range()}"

    def range(self) -> str:
        """The bounds in words."""
        if self.low is None:
            bounds = "any"
        elif self.high is None:
            bounds = f"at least {self.low}"
        else:
            bounds = f"{self.low} to {self.high}"
        return bounds + "".join(f", not {value}" for value in self.never)


class Long(Whole):
    """A whole number of 64 bits."""

    kind = "long"
    highest = FOREVER

    def show(self, value: Any) -> str:
        return f"{value}" if value != FOREVER else "9223372036854775807 (no limit)"


class Ratio(Setting[float]):
    """A number from 0 to 1."""

    kind = "double"

    def parse(self, found: object) -> float:
        if isinstance(found, bool) or not isinstance(found, (str, int, float)):
            raise TypeError
        value = float(found)
        if not 0.0 <= value <= 1.0:
            raise ValueError
        return value

    def wanted(self) -> str:
        return "a number from 0 to 1"


class Rate(Setting[float]):
    """A number above 0; Kafka's largest double means no limit."""

    kind = "double"

    def parse(self, found: object) -> float:
        if isinstance(found, bool) or not isinstance(found, (str, int, float)):
            raise TypeError
        value = float(found)
        if not value > 0.0:
            raise ValueError
        return value

    def wanted(self) -> str:
        return "a number above 0"

    def show(self, value: Any) -> str:
        return f"{value}" if value < sys.float_info.max else "1.7976931348623157E308 (no limit)"


class Word(Setting[str]):
    """One word, one of `choices` if there are any."""

    kind = "string"

    def __init__(
        self,
        default: str,
        text: str,
        *,
        choices: Sequence[str] = (),
        fold: Callable[[str], str] = str,
        **rest: Any,
    ) -> None:
        """`fold`: the form of the choices, such as `str.upper`: any case is then accepted."""
        super().__init__(default, text, **rest)
        self.choices = tuple(choices)
        self.fold = fold

    def parse(self, found: object) -> str:
        if not isinstance(found, str):
            raise TypeError
        value = self.fold(found.strip())
        if self.choices and value not in self.choices:
            raise ValueError
        return value

    def wanted(self) -> str:
        named = ", ".join(one or "nothing" for one in self.choices)
        return f"one of {named}" if named else "a word"


class Words(Setting[tuple[str, ...]]):
    """Comma-separated words, each one of `choices` or of the form `pattern`."""

    kind = "list"

    def __init__(
        self,
        default: tuple[str, ...],
        text: str,
        *,
        choices: Sequence[str] = (),
        pattern: str = "",
        example: str = "",
        **rest: Any,
    ) -> None:
        """`repeats` among the rest: a word may come more than once."""
        self.repeats = bool(rest.pop("repeats", False))
        super().__init__(default, text, **rest)
        self.choices = tuple(choices)
        self.pattern = pattern
        self.example = example

    def parse(self, found: object) -> tuple[str, ...]:
        if isinstance(found, str):
            words = tuple(word.strip() for word in found.split(",")) if found.strip() else ()
        elif isinstance(found, Sequence) and all(isinstance(word, str) for word in found):
            words = tuple(word.strip() for word in found)
        else:
            raise TypeError
        if not self.repeats and len(set(words)) != len(words):
            raise ValueError
        for word in words:
            known = word in self.choices if self.choices else re.fullmatch(self.pattern, word)
            if not known:
                raise ValueError
        return words

    def wanted(self) -> str:
        of = ", ".join(self.choices) if self.choices else self.example
        return f"a list of {of}" + ("" if self.repeats else ", each at most once")

    def show(self, value: Any) -> str:
        return ",".join(value)


class Secret(Setting[Password]):
    """Secret text, as a password; empty: none."""

    kind = "password"

    def __init__(self, text: str, **rest: Any) -> None:
        super().__init__(Password(""), text, **rest)

    def parse(self, found: object) -> Password:
        if isinstance(found, Password):
            return found
        if not isinstance(found, str):
            raise TypeError
        return Password(found)

    def wanted(self) -> str:
        return "text, which is never shown"

    def show(self, value: Any) -> str:
        return repr(value) if value else ""

    def checked(self, found: object, name: str = "") -> Password:
        try:
            return self.parse(found)
        except TypeError:
            kind = type(found).__name__
            raise InvalidSetting(f"{name or self.name}: found {kind}, wanted text") from None


class Settings(Mapping[str, Any]):
    """All settings of one scope, immutable; a mapping from Kafka's names to values.

    Sizes are bytes and times milliseconds, as the names say.
    """

    scope: ClassVar[str] = ""
    table: ClassVar[dict[str, Setting[Any]]] = {}
    """Every setting of the scope by Kafka's name, in the order of declaration."""

    def __init_subclass__(cls) -> None:
        own = {s.name: s for s in vars(cls).values() if isinstance(s, Setting)}
        inherited = [base.table for base in reversed(cls.__bases__) if issubclass(base, Settings)]
        cls.table = {name: s for table in [*inherited, own] for name, s in table.items()}

    def __init__(self, given: Mapping[str, object] | None = None) -> None:
        """The values of `given` (text or Python values; None: the default) over the defaults.

        Raises: UnknownSetting, InvalidSetting.
        """
        self._values: dict[str, Any] = {s.name: s.default for s in self.table.values()}
        self._given: frozenset[str] = frozenset()
        self._take(given or {})

    def _take(self, given: Mapping[str, object]) -> None:
        for name, found in given.items():
            setting = self.table.get(name)
            if setting is None:
                raise self._unknown(name)
            if found is not None:
                self._values[name] = setting.checked(found)
        self._given |= {name for name, found in given.items() if found is not None}
        self._check()

    def _check(self) -> None:
        """Refuse values that contradict each other."""

    @classmethod
    def of(cls: type[C], given: "Mapping[str, object] | None", defaults: "C | None" = None) -> C:
        """Settings from `given`; `defaults` provides the rest.

        Without defaults, a `cls` is returned as it is; so are defaults if nothing is given.
        Raises: UnknownSetting, InvalidSetting.
        """
        if isinstance(given, cls):
            if defaults is None:
                return given
            given = given._explicit()
        elif given is not None and not isinstance(given, Mapping):
            raise InvalidSetting(
                f"config: found {type(given).__name__}, wanted a mapping from the names of "
                f"{cls.scope} settings to values"
            )
        if not given and isinstance(defaults, cls):
            return defaults  # immutable: ten thousand logs may share one
        made = cls()
        if defaults is not None:
            made._inherit(defaults)
        made._take(given or {})
        return made

    def _inherit(self, defaults: "Settings") -> None:
        """Start from the values of `defaults`."""
        self._values = dict(defaults._values)
        self._given = defaults._given

    def _explicit(self) -> dict[str, object]:
        """The settings that were given."""
        return {name: self._values[name] for name in self.table if name in self._given}

    @classmethod
    def _unknown(cls, name: object) -> UnknownSetting:
        if not isinstance(name, str):
            return UnknownSetting(f"a setting's name is text, found {name!r}")
        return UnknownSetting(f"{name} is not a {cls.scope} setting; {cls._hint(name)}")

    @classmethod
    def _hint(cls, name: str) -> str:
        # Imported here because only an error needs it, and the import time of kafkalog is limited.
        import difflib

        plain = name.lower().replace("_", ".")
        near = difflib.get_close_matches(plain, cls.names(), 1, 0.5)
        return f"the nearest is {near[0]}" if near else "docs/settings.md lists all of them"

    @classmethod
    def names(cls) -> list[str]:
        """Every name that `given` may use."""
        return list(cls.table)

    def explicit(self, name: str) -> bool:
        """True if the setting was given, even with the default's value."""
        if name not in self._values:
            raise self._unknown(name)
        return name in self._given

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __hash__(self) -> int:
        return hash(tuple(self._values.values()))

    def __repr__(self) -> str:
        given = {name: self._values[name] for name in self.table if name in self._given}
        return f"{type(self).__name__}({given!r})"
