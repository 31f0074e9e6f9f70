"""The kind of a line: see events.py, which has them all."""

from typing import NamedTuple

__all__ = ["FOREIGN", "LEFT_OUT", "VARIES", "Event", "event"]

VARIES = "varies"


class Event(NamedTuple):
    """A kind of line."""

    name: str
    level: str
    """That of its usual call: debug, info, warning, error, or VARIES."""
    template: str
    fields: tuple[str, ...]
    """Names of the arguments, in the order of the template."""


FOREIGN = Event("", VARIES, "", ())
"""A line that is not in the table: of another library, or of a client in the same process."""


def event(name: str, level: str, template: str, fields: str = "") -> Event:
    return Event(name, level, template, tuple(fields.split()))


LEFT_OUT = Event("lines_left_out", VARIES, "%d lines of %s were left out", ("count", "of"))
"""Every logger of a node has it: the limit of its lines."""
