"""Where a codec failed and why, read from the traceback.

The generated functions contain no code for it: each line remembers its fields, each array function
its index, so the frames of the traceback give the field's path.
"""

from __future__ import annotations

import struct
from types import TracebackType
from typing import Any

from kafkalog.errors import ArgumentError, InvalidRequest
from kafkalog.wire.runtime import INDEXED, Malformed
from kafkalog.wire.source import Part, Source

__all__ = ["decode_failure", "encode_failure"]


class _Place:
    """The field and the innermost generated frame."""

    def __init__(self, source: Source, traceback: TracebackType | None) -> None:
        self.path = ""
        self.locals: dict[str, Any] = {}
        self.parts: list[Part] = []
        while traceback is not None:
            code = traceback.tb_frame.f_code
            if code.co_filename == source.file:
                self.locals = dict(traceback.tb_frame.f_locals)
                if code.co_name in source.indexed and "i" in self.locals:
                    self.path += f"[{self.locals['i']}]"
                self.parts = source.parts.get(traceback.tb_lineno, [])
                # The innermost may be a line for several fields: the caller finds out which one
                # failed.
                if len(self.parts) == 1:
                    self.enter(self.parts[0])
            elif code.co_name in INDEXED and "_i" in traceback.tb_frame.f_locals:
                self.path += f"[{traceback.tb_frame.f_locals['_i']}]"
            traceback = traceback.tb_next

    def enter(self, part: Part) -> None:
        self.path += f".{part.name}" if self.path else part.name


def decode_failure(source: Source, error: Exception) -> InvalidRequest:
    """The error to raise instead of a decoder's."""
    place = _Place(source, error.__traceback__)
    if isinstance(error, Malformed):
        found, wanted = error.found, error.wanted
    elif isinstance(error, UnicodeDecodeError):
        found, wanted = f"bytes {error.object[:20]!r}", "UTF-8"
    else:
        found, wanted = _short(place)
    return InvalidRequest(f"{source.title}: {place.path or 'body'}: found {found}, wanted {wanted}")


def _short(place: _Place) -> tuple[str, str]:
    """The bytes left and wanted where the data ended: no other place reports that."""
    pos, size = place.locals.get("pos", 0), place.locals.get("size", 0)
    left = max(size - pos, 0)
    begin = 0
    for part in place.parts:
        if part.end > left:
            if len(place.parts) > 1:
                place.enter(part)
            return f"{left - begin} bytes", f"{part.end - begin}"
        begin = part.end
    return f"{left} bytes", "more"


def encode_failure(source: Source, error: Exception) -> Exception:
    """The error to raise instead of an encoder's: TypeError, or ArgumentError for a value
    that is out of range."""
    place = _Place(source, error.__traceback__)
    why = str(error)
    range_ = isinstance(error, UnicodeEncodeError)
    if isinstance(error, struct.error):
        for part in (part for part in place.parts if part.letter):
            given = place.locals.get("get", {}.get)(part.name, 0)
            if (why_ := _refused(part.letter, given)) is not None:
                range_ = isinstance(given, int)
                why = f"found {given!r:.60}, {why_}"
                if len(place.parts) > 1:
                    place.enter(part)
                break
        else:  # a length or count, or a number of an array
            range_ = "argument" not in why
    kind = ArgumentError if range_ else TypeError
    return kind(f"{source.title}: {place.path or 'fields'}: {why}")


def _refused(letter: str, value: object) -> str | None:
    """Why a number cannot be packed; None when it can."""
    try:
        struct.pack(f">{letter}", value)
    except struct.error as error:
        return str(error)
    return None
