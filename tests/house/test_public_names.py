"""`kafkalog` exports exactly the listed names; each resolves, and so do its signatures."""

from __future__ import annotations

import ast
import inspect
import re
import sys
import typing
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from types import GenericAlias, ModuleType
from typing import Any

import pytest

import kafkalog
from tests.house import tree
from tests.house.test_layers import typing_only

CAUGHT = {
    "Closed", "ForkedHandle", "KafkalogError", "Locked", "NoSpace", "OffsetOutOfRange", "Timeout",
    "UnexpectedAppendOffset",
}  # fmt: skip
"""The errors that programs catch most; the others are only in kafkalog.errors."""


def test_all_lists_exactly_the_public_names() -> None:
    listed = set(kafkalog.__all__)
    assert len(kafkalog.__all__) == len(listed)
    assert dir(kafkalog) == sorted(listed)
    for name in listed:
        getattr(kafkalog, name)
    there = {name for name, thing in vars(kafkalog).items()
             if not name.startswith("_") and not isinstance(thing, ModuleType)}  # fmt: skip
    assert there == {name for name in listed if name != "__version__"} - MODULES


TYPES = {"double", "int", "json", "long", "string"}
PUBLIC = {
    "kafkalog.aio": {"Admin", "Consumer", "Producer", "ShareConsumer"},
    "kafkalog.arrow": {"dataset"},
    "kafkalog.opentelemetry": {"instrument", "observe", "process", "uninstrument"},
    "kafkalog.pandas": {"read"},
    "kafkalog.polars": {"scan"},
    "kafkalog.pytest_plugin": {
        f"kafkalog_{name}"
        for name in ("broker", "cluster", "config", "session_broker", "store", "topic_prefix")
    },
    "kafkalog.serializers": {
        "Deserializer", "Serializer", *(f"{way}_{one}" for way in ("from", "to") for one in TYPES)
    },
    "kafkalog.store": {"Store", "Topic"},
    "kafkalog.testing.broker": {"SETTINGS", "TestBroker"},
    "kafkalog.testing.cluster": {"NODES", "SETTINGS", "TestCluster"},
}  # fmt: skip
"""Names that the documents list of each module that programs import by name.  Of errors and types
everything is public."""


@pytest.mark.parametrize("name", PUBLIC)
def test_public_modules_export_exactly_the_documented_names(name: str) -> None:
    module = import_module(name)
    assert len(module.__all__) == len(set(module.__all__))
    assert set(module.__all__) == PUBLIC[name]
    for one in module.__all__:
        getattr(module, one)
    listed, text = set(), ""
    for page in (tree.ROOT / "docs").glob("*.md"):
        found = page.read_text(encoding="utf-8")
        listed |= set(re.findall(r"^::: (\S+)$", found, re.MULTILINE))
        text += found
    named = {one for one in PUBLIC[name] if re.search(rf"\b{one}\b", text)}
    assert name in listed or named == PUBLIC[name], "a document names each"


def test_no_public_module_is_left_out_above() -> None:
    assert {f"kafkalog.{name}" for name in MODULES - {"errors", "types"}} <= set(PUBLIC)


MODULES = {name for name in kafkalog.__all__ if isinstance(getattr(kafkalog, name), ModuleType)}


def test_an_unknown_name_is_refused_and_an_error_is_pointed_to_its_module() -> None:
    with pytest.raises(AttributeError, match=r"'kafkalog' has no attribute 'Any'$"):
        kafkalog.Any  # type: ignore[attr-defined]  # noqa: B018
    with pytest.raises(AttributeError, match=r"'CorruptLog' \(kafkalog\.errors has it\)"):
        kafkalog.CorruptLog  # type: ignore[attr-defined]  # noqa: B018


def test_errors_are_in_one_module_and_the_common_ones_are_also_on_top() -> None:
    errors = kafkalog.errors
    classes = {name for name, thing in vars(errors).items()
               if inspect.isclass(thing) and issubclass(thing, BaseException)}  # fmt: skip
    assert set(errors.__all__) == classes
    assert {name for name in classes if name in kafkalog.__all__} == CAUGHT
    assert all(getattr(kafkalog, name) is getattr(errors, name) for name in CAUGHT)


def calls() -> Iterator[tuple[str, Any]]:
    """Functions and classes that are exported, and the public functions of these classes."""
    exported = [(name, getattr(kafkalog, name)) for name in kafkalog.__all__]
    for module in sorted(MODULES):
        inside = getattr(kafkalog, module)
        exported += [(f"{module}.{name}", getattr(inside, name)) for name in inside.__all__]
    for name, thing in exported:
        if not (inspect.isclass(thing) or inspect.isfunction(thing)):
            continue
        yield name, thing
        for member in dir(thing) if inspect.isclass(thing) else ():
            value = inspect.getattr_static(thing, member)
            call = getattr(value, "fget", None) or getattr(value, "__func__", value)
            public = not member.startswith("_") or member == "__init__"
            if public and inspect.isfunction(call) and call.__module__.startswith("kafkalog"):
                yield f"{name}.{member}", call


@cache
def seen_by_type_checkers(module: str) -> dict[str, Any]:
    """Names that a module imports only for type checkers, e.g. numpy, which is loaded when used."""
    found: dict[str, Any] = {}
    parsed = ast.parse(inspect.getsource(sys.modules[module]))
    only = typing_only(parsed)
    for node in only:
        if isinstance(node, ast.Import | ast.ImportFrom):
            exec(compile(ast.Module([node], []), module, "exec"), found)
    return found


def classes_in(hint: Any) -> Iterator[Any]:
    yield hint
    for part in () if typing.get_origin(hint) is typing.Literal else typing.get_args(hint):
        for one in part if isinstance(part, list) else [part]:
            yield from classes_in(one)


def test_public_signatures_resolve_and_name_nothing_private() -> None:
    private, count = [], 0
    for name, call in calls():
        seen = seen_by_type_checkers(call.__module__)
        hints = typing.get_type_hints(call, localns=seen | vars(sys.modules[call.__module__]))
        for part, hint in hints.items():
            count += 1
            for one in classes_in(hint):
                assert not isinstance(one, typing.ForwardRef | str), f"{name}: {part}: {hint}"
                if getattr(one, "__name__", "").startswith("_"):
                    private.append(f"{name}: {part}: {hint}")
        if not inspect.isclass(call):
            private += [f"{name}({one})" for one in inspect.signature(call).parameters
                        if one.startswith("_")]  # fmt: skip
    assert private == []
    assert count > 800
    named = GenericAlias(list, ("Record",))  # an annotation that was not resolved
    assert "Record" in list(classes_in(named))


def test_a_log_names_the_options_of_its_scans() -> None:
    """With the same defaults as Scan."""
    of_log = inspect.signature(kafkalog.Log.scan).parameters.values()
    of_scan = inspect.signature(kafkalog.Scan).parameters.values()
    wanted = [(one.name, one.default, one.annotation) for one in of_scan if one.name != "log"]
    assert [(one.name, one.default, one.annotation) for one in of_log][1:] == wanted


INTERNAL = {"append_as_follower"}
"""Methods of Log that other programs already call, but that only replicas of a log need."""


def test_replication_calls_are_not_public_methods() -> None:
    assert not hasattr(kafkalog.Log, "truncate_fully") and not hasattr(kafkalog.Broker, "node")
    for name in INTERNAL:
        assert "only for\n" in (inspect.getdoc(getattr(kafkalog.Log, name)) or "")


def test_the_reference_lists_every_public_name() -> None:
    """The class itself, or the whole module that contains it."""
    text = (tree.ROOT / "docs" / "reference.md").read_text(encoding="utf-8")
    listed = set(re.findall(r"^::: (\S+)$", text, re.MULTILINE))
    missing = []
    for name in kafkalog.__all__:
        thing = getattr(kafkalog, name)
        if inspect.isclass(thing) and not {thing.__module__, f"{thing.__module__}.{name}"} & listed:
            missing.append(name)
    assert missing == []
    for one in listed:
        module, _, last = one.rpartition(".")
        assert hasattr(import_module(module), last), f"reference.md: {one}"
