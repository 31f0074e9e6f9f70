"""The decoder of one version of a message, written out as Python and compiled.

One function per struct decodes all elements of an array of it.  Consecutive fields of fixed size,
and the length after them, are read by one `struct` call.
"""

from __future__ import annotations

import struct
from typing import Any

from kafkalog.wire.notation import FIXED, Field
from kafkalog.wire.runtime import HELPERS, STRING_BYTES_MAX, numbers
from kafkalog.wire.source import Part, Source, packer
from kafkalog.wire.values import Struct

__all__ = ["NUMBERS", "Decoder"]

NUMBERS = {kind: numbers(letter, size) for kind, (letter, size) in FIXED.items()}

MIN_BYTES = {"uuid": 16, "str": 2, "bytes": 4, "records": 4}
STRUCT_BYTES, FIELD_BYTES = 120, 40
"""Approximate memory of a struct and of each of its fields."""

Classes = dict[tuple[str, ...], type[Struct]]
"""The class of each struct of a message, by the path of names to it."""


class Decoder:
    """Writes the functions for one version of a message."""

    def __init__(self, source: Source, version: int, flexible: bool, classes: Classes) -> None:
        self.source = source
        self.version = version
        self.flexible = flexible
        self.classes = classes
        self.count = 0

    def struct(self, path: tuple[str, ...], fields: tuple[Field, ...], indexed: bool) -> str:
        """Write the function that decodes `count` structs; returns its name."""
        present = [f for f in fields if self.version in f.versions]
        tagged = [f for f in present if f.tag is not None]
        plain = [f for f in present if f.tag is None]
        inner = {
            f.name: self.struct((*path, f.name), f.fields, f.array)
            for f in present
            if f.kind == "struct"
        }
        tags = self.tags(tagged, inner) if tagged else ""
        add = self.source.add
        name = self.fresh("d")
        if indexed:
            self.source.indexed.add(name)
        made = self.source.name("C", self.classes[path])
        add(0, f"def {name}(data, pos, size, left, count):")
        add(1, "items = []\nfor i in range(count):")
        add(2, f"s = {made}.__new__({made})\nitems.append(s)")
        read = {f.name for f in plain}
        for field, make in self.classes[path].MUTABLE:
            if field not in read:
                add(2, f"s.{field} = {self.source.name('M', make)}()")
        self.fields(2, plain, inner)
        if self.flexible:
            add(2, "n = data[pos]\npos += 1", Part("tagged fields", 1, "B"))
            add(2, "if n:")
            add(3, "if n > 127: n, pos = uvarint(data, pos - 1)", Part("tagged fields"))
            skip = f"{tags}(s, data, pos, size, left, n)" if tags else None
            if skip:
                add(3, f"pos = {skip}")
            else:
                add(3, "pos = skip_tags(data, pos, size, n)", Part("tagged fields"))
        add(1, "return items, pos\n")
        return name

    def fresh(self, prefix: str) -> str:
        self.count += 1
        return f"{prefix}{self.count}"

    def tags(self, fields: list[Field], inner: dict[str, str]) -> str:
        """Write the function that decodes `n` tagged fields of a struct; returns its name."""
        add = self.source.add
        name = self.fresh("t")
        add(0, f"def {name}(s, data, pos, size, left, count):")
        add(1, "for _ in range(count):")
        add(
            2,
            "tag, pos = uvarint(data, pos)\nn, pos = uvarint(data, pos)\n"
            "if n > size - pos: short(n, pos, size)\nend = pos + n",
            Part("tagged fields"),
        )
        for at, field in enumerate(fields):
            add(2, f"{'el' if at else ''}if tag == {field.tag}:")
            self.fields(3, [field], inner)
            add(3, "if pos != end: strange_tag(tag, pos, end)", Part(field.name))
        add(2, "else: pos = end")
        add(1, "return pos\n")
        return name

    def fields(self, depth: int, fields: list[Field], inner: dict[str, str]) -> None:
        """Write the fields one after the other; runs of fixed sizes in one call."""
        run: list[tuple[str, Part]] = []
        for field in fields:
            fixed = field.kind in FIXED and not field.array
            if fixed:
                self.extend(run, f"s.{field.name}", field.name, field.kind)
                continue
            length = self.length_kind(field)
            if length and not self.flexible:
                self.extend(run, "n", field.name, length)
            self.flush(depth, run)
            if length and self.flexible:
                part = Part(field.name, 1, "B")
                self.source.add(depth, "n = data[pos] - 1\npos += 1", part)
                self.source.add(depth, "if n > 126: n, pos = compact(data, pos - 1)", part)
            if length:
                self.counted(depth, field, inner)
            else:
                self.single(depth, field, inner)
        self.flush(depth, run)

    @staticmethod
    def extend(run: list[tuple[str, Part]], target: str, name: str, kind: str) -> None:
        letter, size = FIXED[kind]
        end = run[-1][1].end if run else 0
        run.append((target, Part(name, end + size, letter)))

    def flush(self, depth: int, run: list[tuple[str, Part]]) -> None:
        """Write a run of fixed sizes as one unpack."""
        if not run:
            return
        letters = "".join(part.letter for _, part in run)
        name = packer("U", letters)
        self.source.names[name] = struct.Struct(f">{letters}").unpack_from
        parts = [part for _, part in run]
        targets = ", ".join(target for target, _ in run)
        comma = "," if len(run) == 1 else ""
        self.source.add(depth, f"{targets}{comma} = {name}(data, pos)", *parts)
        self.source.add(depth, f"pos += {parts[-1].end}")
        run.clear()

    @staticmethod
    def length_kind(field: Field) -> str | None:
        """The type of the length or count that comes first if nothing is compact."""
        if field.array or field.kind in ("bytes", "records"):
            return "i32"
        return "i16" if field.kind == "str" else None

    def counted(self, depth: int, field: Field, inner: dict[str, str]) -> None:
        """Write what follows a field's length or count `n`."""
        add, part = self.source.add, Part(field.name)
        if self.version in field.nullable:
            add(depth, f"if n < 0: s.{field.name} = None\nelse:")
            depth += 1
        else:
            add(depth, "if n < 0: null()", part)
        if field.array:
            self.source.arrays += 1
            at = self.source.arrays
            add(depth, f"left[{at}] -= n\nif left[{at}] < 0: many(n, left[{at}])", part)
        if not field.array:
            text = ".decode()" if field.kind == "str" else ""
            if text and self.flexible:
                add(depth, f"if n > {STRING_BYTES_MAX}: long(n)", part)
            add(depth, "if n > size - pos: short(n, pos, size)", part)
            add(depth, f"s.{field.name} = data[pos : pos + n]{text}", part)
            add(depth, "pos += n")
        elif field.kind == "struct":
            least = self.least(field)
            weight = STRUCT_BYTES + FIELD_BYTES * len(field.fields)
            room = "size - pos" if least == 1 else f"(size - pos) // {least}"
            add(depth, f"if n > {room}: crowded(n, {least}, pos, size)", part)
            add(depth, f"charge(left, n, {weight})", part)
            add(depth, f"s.{field.name}, pos = {inner[field.name]}(data, pos, size, left, n)", part)
        else:
            if field.kind in FIXED:
                function = f"ints_{field.kind}"
                self.source.names[function] = NUMBERS[field.kind]
            elif field.kind == "uuid":
                function = "uuids"
            else:
                function = "compact_strings" if self.flexible else "strings"
            add(depth, f"s.{field.name}, pos = {function}(data, pos, size, left, n)", part)

    def single(self, depth: int, field: Field, inner: dict[str, str]) -> None:
        """Write a field without a length: a uuid or a struct."""
        add, part = self.source.add, Part(field.name)
        if field.kind == "uuid":
            add(depth, f"s.{field.name} = uuid(data, pos, size)\npos += 16", part)
            return
        if self.version in field.nullable:
            add(depth, "n = data[pos]\npos += 1", part)
            # A byte below 0 is null; in a tagged field, where Kafka has a varint here, 0 is.
            null = "n == 0" if field.tag is not None else "n > 127"
            add(depth, f"if {null}: s.{field.name} = None\nelse:")
            depth += 1
        call = f"{inner[field.name]}(data, pos, size, left, 1)"
        add(depth, f"(s.{field.name},), pos = {call}", part)

    def least(self, field: Field) -> int:
        """The fewest bytes that a struct of the array takes."""
        total = 1 if self.flexible else 0
        for f in field.fields:
            if self.version in f.versions and f.tag is None:
                total += self.least_of(f)
        return max(total, 1)

    def least_of(self, field: Field) -> int:
        if self.length_kind(field):
            return 1 if self.flexible else FIXED[self.length_kind(field) or ""][1]
        if field.kind == "struct":
            return 1 if self.version in field.nullable else self.least(field)
        return FIXED[field.kind][1] if field.kind in FIXED else MIN_BYTES[field.kind]

    def compile(self, path: tuple[str, ...], fields: tuple[Field, ...]) -> Any:
        """The decoder of the whole message."""
        main = self.struct(path, fields, False)
        return self.source.compile(HELPERS, main)
