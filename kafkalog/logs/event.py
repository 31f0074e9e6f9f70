"""The kind of a line: see events.py, which has them all."""

from typing import NamedTuple

__all__ = ["ALL", "FOREIGN", "LEFT_OUT", "OF_FIRST", "TOGETHER", "VARIES", "Event", "event"]

VARIES = "varies"
TOGETHER, OF_FIRST, ALL = range(3)
"""How the lines of an event are limited: all together, for each value of the first argument, not
at all."""


class Event(NamedTuple):
    """A kind of line."""

    name: str
    level: str
    """That of its usual call: debug, info, warning, error, or VARIES."""
    template: str
    fields: tuple[str, ...]
    """Names of the arguments, in the order of the template."""
    limit: int = TOGETHER


FOREIGN = Event("", VARIES, "", ())
"""A line that is not in the table: of another library, or of a client in the same process."""


def event(name: str, level: str, template: str, fields: str = "", limit: int = TOGETHER) -> Event:
    return Event(name, level, template, tuple(fields.split()), limit)


LEFT_OUT = Event("lines_left_out", VARIES, "%d lines of %s were left out", ("count", "of"))
"""Every logger of a node has it: the limit of its lines."""
