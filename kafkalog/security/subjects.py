"""The names in certificates, and the name of the principal that rules make of a client's.

Source: Java's X500Principal.getName (RFC 2253), Kafka's SslPrincipalMapper.
"""

import base64
import binascii
import re
from collections.abc import Iterator
from typing import NamedTuple

from kafkalog.errors import AuthenticationFailed, InvalidSetting

__all__ = ["PrincipalRules", "distinguished_name", "names_of"]

_KEYWORDS = {
    "2.5.4.3": "CN", "2.5.4.6": "C", "2.5.4.7": "L", "2.5.4.8": "ST", "2.5.4.9": "STREET",
    "2.5.4.10": "O", "2.5.4.11": "OU", "0.9.2342.19200300.100.1.25": "DC",
    "0.9.2342.19200300.100.1.1": "UID",
}  # fmt: skip
"""The attributes that RFC 2253 names; others are written by their number, with the value in hex."""
_TEXTS = {
    0x0C: "utf-8", 0x13: "ascii", 0x14: "latin-1", 0x16: "ascii", 0x1B: "ascii",
    0x1C: "utf-32-be", 0x1E: "utf-16-be",
}  # fmt: skip
"""Encodings by the tag of a string of ASN.1."""
_SEQUENCE, _SET, _OID = 0x30, 0x31, 0x06
_VERSION, _EXTENSIONS = 0xA0, 0xA3
"""Tags of optional parts of a certificate."""
_OTHER_NAMES = bytes.fromhex("551d11")
"""The number of the extension subjectAltName."""
_PEM = re.compile(rb"-----BEGIN CERTIFICATE-----([^-]+)-----END")
_ESCAPED = ',=+<>#;"\\'
_SPLITTER = re.compile(
    r"\s*((DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?).*?|(.*?))\s*(,\s*|$)"
)
_RULE = re.compile(r"(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?)")


# ---- the name --------------------------------------------------------------------------------


def distinguished_name(der: bytes) -> str:
    """The subject of a certificate as text, its last part first, such as `CN=alice,O=Example`.

    Raises: AuthenticationFailed (the bytes are no name).
    """
    try:
        ((tag, name),) = _items(der)
        if tag != _SEQUENCE:
            raise ValueError
        parts = _relative_names(name)
    except (ValueError, IndexError):
        raise AuthenticationFailed("the subject of the client's certificate is damaged") from None
    return ",".join(reversed(parts))


def names_of(pem: bytes) -> tuple[str, frozenset[tuple[int, bytes]]]:
    """The subject of the first certificate in a PEM text, and its other names (subjectAltName),
    each with its tag and bytes.

    Raises: InvalidSetting (the bytes are no certificate).
    """
    try:
        match = _PEM.search(pem)
        if match is None:
            raise ValueError
        ((_, certificate),) = _items(base64.b64decode(match[1]))
        (_, signed), *_ = _items(certificate)
        fields = [one for one in _items(signed) if one[0] != _VERSION]
        subject = ",".join(reversed(_relative_names(fields[4][1])))
        others: list[tuple[int, bytes]] = []
        for tag, extensions in fields:
            if tag == _EXTENSIONS:
                ((_, listed),) = _items(extensions)
                for _, extension in _items(listed):
                    (_, number), *_, (_, value) = _items(extension)
                    if number == _OTHER_NAMES:
                        ((_, names),) = _items(value)
                        others += _items(names)
    except (ValueError, IndexError, binascii.Error):
        raise InvalidSetting("the certificate is damaged") from None
    return subject, frozenset(others)


def _relative_names(name: bytes) -> list[str]:
    return ["+".join(_attributes(tag, one)) for tag, one in _items(name)]


def _items(data: bytes) -> Iterator[tuple[int, bytes]]:
    """The tag and the content of each item."""
    pos = 0
    while pos < len(data):
        tag, length = data[pos], data[pos + 1]
        pos += 2
        if length & 0x80:
            count = length & 0x7F
            length = int.from_bytes(data[pos : pos + count], "big")
            pos += count
        if length > len(data) - pos:
            raise ValueError
        yield tag, data[pos : pos + length]
        pos += length


def _attributes(tag: int, relative_name: bytes) -> Iterator[str]:
    if tag != _SET:
        raise ValueError
    for tag, pair in _items(relative_name):
        (kind, number), (value_tag, value) = _items(pair)
        if tag != _SEQUENCE or kind != _OID:
            raise ValueError
        oid = _oid(number)
        keyword, encoding = _KEYWORDS.get(oid), _TEXTS.get(value_tag)
        if keyword is None or encoding is None:
            whole = pair[len(pair) - len(value) - _head_bytes(value) :]
            yield f"{keyword or oid}=#{whole.hex()}"
        else:
            yield f"{keyword}={_escaped(value.decode(encoding, 'replace'))}"


def _head_bytes(value: bytes) -> int:
    """Bytes of the tag and the length before a value."""
    return 2 if len(value) < 0x80 else 2 + (len(value).bit_length() + 7) // 8


def _oid(data: bytes) -> str:
    numbers, number = [], 0
    for byte in data:
        number = number << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(number)
            number = 0
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, [first, numbers[0] - 40 * first, *numbers[1:]]))


def _escaped(text: str) -> str:
    found = "".join(f"\\{c}" if c in _ESCAPED else "\\00" if c == "\0" else c for c in text)
    inner = found.strip(" \r")
    lead = len(found) - len(found.lstrip(" \r"))
    before, after = found[:lead], found[lead + len(inner) :]
    return "".join(f"\\{c}" for c in before) + inner + "".join(f"\\{c}" for c in after)


# ---- rules -----------------------------------------------------------------------------------


class _Rule(NamedTuple):
    pattern: re.Pattern[str] | None
    """None: the name as it is."""
    replacement: tuple[str | int, ...]
    """Texts, and numbers of groups."""
    case: str
    """L, U or empty."""

    def apply(self, name: str) -> str | None:
        if self.pattern is None:
            return name
        if self.pattern.fullmatch(name) is None:
            return None
        found = self.pattern.sub(self._replaced, name)
        return {"L": found.lower(), "U": found.upper()}.get(self.case, found)

    def _replaced(self, match: re.Match[str]) -> str:
        return "".join(
            one if isinstance(one, str) else match.group(one) or "" for one in self.replacement
        )


class PrincipalRules:
    """ssl.principal.mapping.rules: the first rule that matches a whole name applies."""

    def __init__(self, text: str) -> None:
        """Raises: InvalidSetting."""
        self._rules: list[_Rule] = []
        for match in _SPLITTER.finditer(text.strip()):
            if match[1]:
                self._rules.append(_rule(match[1]))

    def name(self, distinguished: str) -> str:
        """The name of the principal.

        Raises: AuthenticationFailed (no rule matches).
        """
        for rule in self._rules:
            found = rule.apply(distinguished)
            if found is not None:
                return found
        raise AuthenticationFailed(
            f"no rule of ssl.principal.mapping.rules matches {distinguished!r}"
        )


def _rule(text: str) -> _Rule:
    match = _RULE.fullmatch(text)
    if match is None:
        raise InvalidSetting(
            f"ssl.principal.mapping.rules: found {text!r}, wanted DEFAULT or "
            "RULE:pattern/replacement/, with L or U at its end or without"
        )
    if match[1]:
        return _Rule(None, (), "")
    try:
        pattern = re.compile(match[2])
        return _Rule(pattern, tuple(_replacement(match[3], pattern.groups)), match[4])
    except (re.error, ValueError) as problem:
        raise InvalidSetting(f"ssl.principal.mapping.rules: {text!r}: {problem}") from None


def _replacement(text: str, groups: int) -> Iterator[str | int]:
    """The parts of a replacement in Java's form: `$1` a group, backslash a literal character."""
    pos = 0
    while pos < len(text):
        if text[pos] == "\\":
            if pos + 1 == len(text):
                raise ValueError("a backslash ends the replacement")
            yield text[pos + 1]
            pos += 2
        elif text[pos] != "$":
            yield text[pos]
            pos += 1
        else:
            digits = re.match(r"[0-9]+", text[pos + 1 :])
            if digits is None:
                raise ValueError("a number of a group is wanted after $")
            number, width = int(digits[0][0]), 1
            while width < len(digits[0]) and number * 10 + int(digits[0][width]) <= groups:
                number = number * 10 + int(digits[0][width])
                width += 1
            if number <= groups:
                yield number
                pos += 1 + width
            elif groups == 0:
                raise ValueError(f"there is no group {number}")
            else:  # as Kafka: it stands for itself
                yield text[pos]
                pos += 1
