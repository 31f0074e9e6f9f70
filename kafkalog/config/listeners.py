"""The security protocols of listeners, and the settings that a listener has of its own."""

import re
from collections.abc import Mapping
from enum import IntEnum
from typing import Any, NamedTuple, TypeVar

from kafkalog.config.declare import Settings
from kafkalog.errors import UnknownSetting

__all__ = ["ListenerSettings", "SecurityProtocol", "own_setting"]

_NAME = re.compile(r"listener\.name\.([^.]+)\.(.+)")
_BEGINS = ("sasl.", "ssl.")
_NAMES = (
    "connections.max.reauth.ms", "max.connection.creation.rate", "max.connections",
    "principal.builder.class",
)  # fmt: skip
JAAS = "sasl.jaas.config"
C = TypeVar("C", bound="ListenerSettings")


class SecurityProtocol(IntEnum):
    """How clients of a listener are authenticated and their bytes encrypted; Kafka's numbers."""

    PLAINTEXT = 0
    SSL = 1
    SASL_PLAINTEXT = 2
    SASL_SSL = 3

    @property
    def encrypts(self) -> bool:
        """True if its connections use TLS."""
        return self in (self.SSL, self.SASL_SSL)

    @property
    def authenticates(self) -> bool:
        """True if its clients authenticate by SASL."""
        return self in (self.SASL_PLAINTEXT, self.SASL_SSL)


class OwnSetting(NamedTuple):
    """A setting of one listener: listener.name.LISTENER.NAME or
    listener.name.LISTENER.MECHANISM.NAME."""

    listener: str
    """In capitals."""
    mechanism: str
    """In capitals; empty: for all of them."""
    name: str


def own_setting(name: str) -> OwnSetting | None:
    """The parts of a listener's own setting; None: it is none."""
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    listener, bare = match[1].upper(), match[2]
    if _may_differ(bare):
        return OwnSetting(listener, "", bare)
    mechanism, _, rest = bare.partition(".")
    if _may_differ(rest):
        return OwnSetting(listener, mechanism.upper(), rest)
    return OwnSetting(listener, "", bare)


def _may_differ(name: str) -> bool:
    return name.startswith(_BEGINS) or name in _NAMES


class ListenerSettings(Settings):
    """Settings of all listeners, which each may override, also for one of its SASL mechanisms."""

    def __init__(self, given: Mapping[str, object] | None = None) -> None:
        self._own: dict[str, object] = {}  # listener.name.…: as given, checked
        super().__init__(given)

    def _take(self, given: Mapping[str, object]) -> None:
        own = {name: value for name, value in given.items() if own_setting(str(name))}
        for name, value in own.items():
            self._own[name] = self._checked(name, value)
        super()._take({name: value for name, value in given.items() if name not in own})

    def _checked(self, name: str, value: object) -> Any:
        parts = own_setting(name)
        assert parts is not None
        setting = self.table.get(parts.name)
        if setting is None or not _may_differ(parts.name):
            raise UnknownSetting(f"{name}: {parts.name} is not a setting that a listener may have")
        return None if value is None else setting.checked(value, name)

    def _inherit(self, defaults: Settings) -> None:
        super()._inherit(defaults)
        assert isinstance(defaults, ListenerSettings)
        self._own = dict(defaults._own)

    def _explicit(self) -> dict[str, object]:
        return {**super()._explicit(), **self._own}

    @property
    def own_listeners(self) -> Mapping[str, str]:
        """The listeners, in capitals, that have settings of their own; with the name of one."""
        return {parts.listener: name for name in self._own if (parts := own_setting(name))}

    @property
    def unused_jaas(self) -> str:
        """The name of a sasl.jaas.config that is not for a single mechanism of a listener, and
        would have no effect; empty if there is none."""
        if self.explicit(JAAS):
            return JAAS
        own = (name for name in self._own if (parts := own_setting(name)) and
               parts.name == JAAS and not parts.mechanism)  # fmt: skip
        return next(own, "")

    def of_listener(self: C, listener: str, mechanism: str = "") -> C:
        """The settings in effect for a listener, and for a SASL mechanism of it."""
        own: dict[str, object] = {}
        for wanted in ("", mechanism.upper()) if mechanism else ("",):
            for name, value in self._own.items():
                parts = own_setting(name)
                assert parts is not None
                if (parts.listener, parts.mechanism) == (listener.upper(), wanted):
                    own[parts.name] = value
        return type(self).of(own, self) if own else self

    def __hash__(self) -> int:
        return super().__hash__()
