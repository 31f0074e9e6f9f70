"""The encoder of one version of a message, written out as Python and compiled.

One function per struct encodes all elements of an array of it, from dicts or Structs.
"""

from __future__ import annotations

import struct
from typing import Any

from kafkalog.wire.decoders import Classes
from kafkalog.wire.notation import FIXED, Field
from kafkalog.wire.runtime import HELPERS, STRING_BYTES_MAX, put_numbers
from kafkalog.wire.source import Part, Source, packer

__all__ = ["Encoder"]

PUT_NUMBERS = {kind: put_numbers(letter) for kind, (letter, _) in FIXED.items()}
ABSENT: dict[str, Any] = {}
"""Replaces a struct that was not given; never changed."""
NULL_STRING, NULL_COUNT = b"\xff" * 2, b"\xff" * 4


class Encoder:
    """Writes the functions for one version of a message."""

    def __init__(self, source: Source, version: int, flexible: bool, classes: Classes) -> None:
        self.source = source
        self.version = version
        self.flexible = flexible
        self.classes = classes
        self.count = 0
        self.tagged: list[tuple[str, str, Field]] = []
        """Function, name of its default's bytes, field: filled in once everything is compiled."""

    def struct(self, path: tuple[str, ...], fields: tuple[Field, ...], indexed: bool) -> str:
        """Write the function that encodes an array's structs; returns its name."""
        present = [f for f in fields if self.version in f.versions]
        inner = {
            f.name: self.struct((*path, f.name), f.fields, f.array)
            for f in present
            if f.kind == "struct"
        }
        tagged = sorted((f for f in present if f.tag is not None), key=lambda f: f.tag or 0)
        puts = {f.name: self.tag(f, inner) for f in tagged}
        add = self.source.add
        name = self.fresh("e")
        if indexed:
            self.source.indexed.add(name)
        if len(path) == 1:
            self.source.rows[path[0]] = name
        names = self.source.name("N", self.classes[path].FIELDS)
        known = f"known_{name}"
        self.source.names[known] = frozenset(self.classes[path].FIELDS).issuperset
        add(0, f"def {name}(out, items):")
        add(1, "for i, d in enumerate(items):")
        add(2, "if d.__class__ is not dict: d = members(d)")
        add(2, f"if not {known}(d): unknown(d, {names})")
        add(2, "get = d.get")
        self.fields(2, [f for f in present if f.tag is None], inner)
        if self.flexible and not tagged:
            add(2, "out.append(0)")
        elif self.flexible:
            add(2, "tags = []")
            for f in tagged:
                self.put_tag(f, *puts[f.name])
            add(2, "put_tags(out, tags)")
        add(1, "return out\n")
        return name

    def fresh(self, prefix: str) -> str:
        self.count += 1
        return f"{prefix}{self.count}"

    def tag(self, field: Field, inner: dict[str, str]) -> tuple[str, str]:
        """Write the function that encodes a single tagged field."""
        name = self.fresh("g")
        default = f"bytes_{name}"
        self.source.names[default] = b""
        self.tagged.append((name, default, field))
        self.source.add(0, f"def {name}(out, x):")
        if field.kind in FIXED and not field.array:
            self.flush(1, [("x", Part(field.name, 1, FIXED[field.kind][0]))])
        else:
            self.value(1, field, inner)
        self.source.add(1, "return out\n")
        return name, default

    def put_tag(self, field: Field, function: str, default: str) -> None:
        """Write its call: a value equal to the default is left out (KIP-482)."""
        add, part = self.source.add, Part(field.name)
        add(2, f"x = get({field.name!r}, MISSING)\nif x is not MISSING:")
        add(3, f"raw = {function}(bytearray(), x)", part)
        add(3, f"if raw != {default}: tags.append(({field.tag}, raw))")

    def fields(self, depth: int, fields: list[Field], inner: dict[str, str]) -> None:
        """Write the fields one after the other; runs of fixed sizes in one call."""
        run: list[tuple[str, Part]] = []
        for field in fields:
            if field.kind in FIXED and not field.array:
                text = f"get({field.name!r}, {field.default!r})"
                run.append((text, Part(field.name, 1, FIXED[field.kind][0])))
                continue
            self.flush(depth, run)
            default = self.source.name("A", self.default(field))
            self.source.add(depth, f"x = get({field.name!r}, {default})")
            self.value(depth, field, inner)
        self.flush(depth, run)

    def flush(self, depth: int, run: list[tuple[str, Part]]) -> None:
        """Write a run of fixed sizes as one pack."""
        if not run:
            return
        letters = "".join(part.letter for _, part in run)
        name = packer("P", letters)
        self.source.names[name] = struct.Struct(f">{letters}").pack
        given = ", ".join(text for text, _ in run)
        self.source.add(depth, f"out += {name}({given})", *(part for _, part in run))
        run.clear()

    @staticmethod
    def default(field: Field) -> Any:
        """The value of a field that was not given."""
        if field.default_null:
            return None
        if field.array:
            return ()
        return ABSENT if field.kind == "struct" else field.default

    def value(self, depth: int, field: Field, inner: dict[str, str]) -> None:
        """Write the encoding of `x`, which is not a number."""
        add, part = self.source.add, Part(field.name)
        if field.kind == "uuid" and not field.array:
            add(depth, "out += x.bytes", part)
            return
        if self.version in field.nullable:
            single = field.kind == "struct" and not field.array
            add(depth, f"if x is None: {self.null(field, single)}\nelse:")
            depth += 1
            if single:
                add(depth, "out.append(1)")
        else:
            add(depth, "if x is None: not_null()", part)
        if field.array:
            self.array(depth, field, inner)
        elif field.kind == "struct":
            add(depth, f"{inner[field.name]}(out, (x,))", part)
        else:
            if field.kind == "str":
                said = field.name.endswith("error_message")
                add(depth, "x = sentence(x)" if said else "x = x.encode()", part)
                if self.flexible:
                    add(depth, f"if len(x) > {STRING_BYTES_MAX}: too_long(x)", part)
            self.length(depth, "h" if field.kind == "str" else "i", part)
            add(depth, "out += x", part)

    def null(self, field: Field, single: bool) -> str:
        if single:
            return "out.append(0)" if field.tag is not None else "out.append(255)"
        if self.flexible:
            return "out.append(0)"
        string = field.kind == "str" and not field.array
        return f"out += {(NULL_STRING if string else NULL_COUNT)!r}"

    def length(self, depth: int, letter: str, part: Part) -> None:
        """Write the length or count of `x`."""
        if self.flexible:
            self.source.add(depth, "n = len(x) + 1", part)
            self.source.add(depth, "if n < 128: out.append(n)\nelse: out += uvarint_bytes(n)")
        else:
            self.source.names[f"P_{letter}"] = struct.Struct(f">{letter}").pack
            self.source.add(depth, f"out += P_{letter}(len(x))", part)

    def array(self, depth: int, field: Field, inner: dict[str, str]) -> None:
        add, part = self.source.add, Part(field.name)
        if field.kind == "struct":
            add(depth, "if x.__class__ not in STRUCTS: not_array(x)", part)
            self.length(depth, "i", part)
            add(depth, f"if x.__class__ is Rows: out += x.data\nelse: {inner[field.name]}(out, x)",
                part)  # fmt: skip
            return
        add(depth, "if x.__class__ is not list and x.__class__ is not tuple: not_array(x)", part)
        self.length(depth, "i", part)
        if field.kind in FIXED:
            function = f"put_{field.kind}"
            self.source.names[function] = PUT_NUMBERS[field.kind]
        elif field.kind == "uuid":
            function = "put_uuids"
        else:
            function = "put_compact_strings" if self.flexible else "put_strings"
        add(depth, f"{function}(out, x)", part)

    def compile(self, path: tuple[str, ...], fields: tuple[Field, ...]) -> Any:
        """The encoder of the whole message."""
        main = self.struct(path, fields, False)
        encode = self.source.compile(HELPERS, main)
        space = self.source.names
        for function, default, field in self.tagged:
            space[default] = bytes(space[function](bytearray(), self.default(field)))
        return encode
