"""Each kind of record has one purpose.

- a **msgspec struct** is decoded or encoded: an object of the API, a document, a line of a record;
- a **pydantic model** is a custom resource or configuration, which users write;
- everything else is a **dataclass**.

In packages that take part in a decision a struct may also hold what cannot be encoded: a cycle makes such records for
each pod or node, and their constructor is the only one that runs in C.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import bayplan
import msgspec
from msgspec import Struct
from msgspec import inspect as types
from pydantic import BaseModel

import scheduler_core
from tests.support.tables import table

_OF_USERS = ("bayplan.resources.", "bayplan.settings.", "scheduler_core.config.")
_OF_DECISIONS = tuple(
    f"scheduler_core.{name}"
    for name in (
        "cycle",
        "framework",
        "kernels",
        "placement",
        "plugins",
        "queueing",
        "runtime",
        "scheduler_options",
        "shadows",
        "snapshot",
    )
)
_SPECIAL = {
    "bayplan.extenders.json_bodies.SentVictims": "encoded only: one list of names or of pods",
    "bayplan.page.report_documents.Work": "encoded only: the explanation of a pod or of a gang",
    "scheduler_core.recording.record_file.RecordHeader": "its options are encoded by a hook",
}
"""Structs that msgspec cannot describe as a whole, and why they are structs."""


def _modules() -> Iterator[ModuleType]:
    for package in (bayplan, scheduler_core):
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not found.name.endswith("__main__"):
                yield importlib.import_module(found.name)


def _classes(base: type) -> list[type]:
    found = {
        value
        for module in _modules()
        for value in vars(module).values()
        if inspect.isclass(value) and issubclass(value, base) and value.__module__ == module.__name__
    }
    return sorted(found, key=_name)


def _name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _holds_custom(kind: Any, seen: set[type]) -> bool:
    if isinstance(kind, types.CustomType):
        return True
    if isinstance(kind, types.StructType | types.DataclassType):
        if kind.cls in seen:
            return False
        seen.add(kind.cls)
        return any(_holds_custom(each.type, seen) for each in kind.fields)
    parts = [getattr(kind, name) for name in ("item_type", "key_type", "value_type") if hasattr(kind, name)]
    parts += [part for name in ("types", "item_types") for part in getattr(kind, name, ())]
    return any(_holds_custom(part, seen) for part in parts)


def can_be_encoded(kind: type[Struct]) -> bool:
    """Return whether msgspec can encode and decode all fields of a struct."""
    try:
        return not _holds_custom(types.type_info(kind), set())
    except (TypeError, NameError):
        # A union whose members JSON does not distinguish, or a type that is imported for the type checker only.
        return False


def test_structs_are_serialised() -> None:
    """A struct outside a decision can be encoded as a whole; the others are dataclasses."""
    others = [
        _name(kind)
        for kind in _classes(Struct)
        if not kind.__module__.startswith(_OF_DECISIONS)
        and not getattr(kind, "__parameters__", ())
        and not can_be_encoded(kind)
    ]
    assert others == sorted(_SPECIAL)


def test_pydantic_models_are_what_users_write() -> None:
    """A pydantic model is a custom resource, a setting or configuration."""
    models = [_name(kind) for kind in _classes(BaseModel)]
    assert models
    assert [name for name in models if not name.startswith(_OF_USERS)] == []


class _WithModule(Struct):
    module: ModuleType


@table(
    "kind, expected",
    ("plain", msgspec.defstruct("Plain", [("name", str), ("ports", list[int])]), True),
    ("custom", msgspec.defstruct("Custom", [("modules", dict[str, ModuleType])]), False),
    ("nested", msgspec.defstruct("Nested", [("inner", tuple[_WithModule, ...])]), False),
)
def test_the_check_finds_what_cannot_be_encoded(kind: type[Struct], expected: bool) -> None:
    """The check reads nested types and elements of collections."""
    assert can_be_encoded(kind) is expected
