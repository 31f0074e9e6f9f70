"""The values of decoded messages."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, ClassVar
from uuid import UUID

__all__ = ["ZERO_UUID", "Rows", "Struct", "mapped"]

ZERO_UUID = UUID(int=0)
"""Kafka's word for no id."""


class Struct:
    """A decoded message, or a struct inside one: its fields are attributes.

    Each struct of each message has a class of its own, made from the table.  A field that the
    version did not have holds its default.  Structs are equal when all their fields are.
    """

    FIELDS: ClassVar[tuple[str, ...]] = ()
    """Names of all fields, in the order of the table."""
    MUTABLE: ClassVar[tuple[tuple[str, type[Any]], ...]] = ()
    """Fields whose default is a new list or struct; the other defaults are class attributes."""

    def __init__(self) -> None:
        for name, make in self.MUTABLE:
            setattr(self, name, make())

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, self.__class__):
            return NotImplemented
        return list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        """Names and values, so that dict(struct) is what one would encode."""
        return ((name, getattr(self, name)) for name in self.FIELDS)

    def __repr__(self) -> str:
        inside = ", ".join(f"{name}={value!r}" for name, value in self)
        return f"{type(self).__name__}({inside})"

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...


class Rows:
    """A message's list of structs that is encoded piece by piece: `rows += structs`.

    It takes the place of the list when the message is encoded.
    """

    __slots__ = ("_encode", "count", "data")

    def __init__(self, encode: Callable[[bytearray, list[Any]], int]) -> None:
        """`encode` appends structs to what is encoded, and returns how many; see Message.rows."""
        self._encode = encode
        self.count = 0
        self.data = bytearray()

    def __iadd__(self, more: list[Any]) -> Rows:
        """Raises: as Message.encode."""
        self.count += self._encode(self.data, more)
        return self

    def __len__(self) -> int:
        return self.count


def mapped(value: Any) -> Any:
    """A decoded value with mappings in place of structs, as handlers answer."""
    if isinstance(value, Struct):
        return {name: mapped(each) for name, each in value}
    return [mapped(each) for each in value] if isinstance(value, list) else value
