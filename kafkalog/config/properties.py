"""A Java properties text: meta.properties, server.properties."""

import re

__all__ = ["parse_properties"]


def parse_properties(text: str) -> dict[str, str]:
    """The keys and values of a Java properties text.

    Lines join over a trailing backslash, `#` and `!` begin comments, `=`, `:` or a blank ends
    a key, and \\uXXXX, \\t, \\n, \\r, \\f are characters.  A later key replaces an earlier one.
    """
    escapes = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}

    def plain(word: str) -> str:
        return re.sub(
            r"\\(u[0-9a-fA-F]{4}|.)",
            lambda m: chr(int(m[1][1:], 16)) if len(m[1]) == 5 else escapes.get(m[1], m[1]),
            word,
        )

    found: dict[str, str] = {}
    lines = re.sub(r"(?m)^[ \t\f]*[#!].*$", "", text.replace("\r\n", "\n").replace("\r", "\n"))
    joined = re.sub(r"(?<!\\)((?:\\\\)*)\\\n[ \t\f]*", r"\1", lines)
    for line in joined.split("\n"):
        match = re.match(r"((?:\\.|[^\\=: \t\f])*)[ \t\f]*[=:]?[ \t\f]*(.*)", line.lstrip(" \t\f"))
        if match and (match[1] or match[2]):
            found[plain(match[1])] = plain(match[2])
    return found
