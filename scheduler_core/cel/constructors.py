"""Construction of lists and maps, with optional elements and entries."""

from __future__ import annotations

from typing import Any

from scheduler_core.cel.attributes import Run
from scheduler_core.cel.calls import charge
from scheduler_core.cel.cost import LIST_COST, MAP_COST
from scheduler_core.cel.formatting import go_text
from scheduler_core.cel.operators import Frame
from scheduler_core.cel.problems import AbortedError, EvaluationError
from scheduler_core.cel.values import MISSING, Mapping, Optional, Semver, type_name


def list_builder(elements: list[tuple[Run, bool]]) -> Run:
    """Return a function that builds a list; each element has a flag for optional elements."""

    def evaluate(frame: Frame) -> tuple[Any, ...]:
        values = []
        try:
            for run, optional in elements:
                value = run(frame)
                if optional:
                    if type(value) is not Optional:
                        text = go_text(value)
                        raise EvaluationError(f"cannot initialize optional list element from non-optional value {text}")
                    if value.value is MISSING:
                        continue
                    value = value.value
                values.append(value)
        finally:
            charge(frame, LIST_COST)
        return tuple(values)

    return evaluate


def map_builder(entries: list[tuple[Run, Run, bool]]) -> Run:
    """Return a function that builds a map; each entry has a flag for optional entries."""

    def evaluate(frame: Frame) -> Mapping:
        built = Mapping()
        try:
            for key_run, value_run, optional in entries:
                key = key_run(frame)
                value = value_run(frame)
                if optional:
                    if type(value) is not Optional:
                        raise EvaluationError(
                            f"cannot initialize optional entry '{go_text(key)}' from non-optional value "
                            f"{go_text(value)}"
                        )
                    if value.value is MISSING:
                        built.remove(key)
                        continue
                    value = value.value
                _insert(built, key, value)
        finally:
            charge(frame, MAP_COST)
        return built

    return evaluate


def _insert(built: Mapping, key: Any, value: Any) -> None:
    require_hashable(key)
    try:
        built.insert(key, value)
    except TypeError:
        raise EvaluationError(f"unsupported key type in map: {type_name(key)}") from None


def require_hashable(value: Any) -> None:
    """Abort where the reference fails because a value cannot be a key.

    Raises:
        AbortedError: The value is bytes or a version.
    """
    name = {bytes: "types.Bytes", Semver: "cel.Semver"}.get(type(value))
    if name is not None:
        raise AbortedError(f"internal error: runtime error: hash of unhashable type {name}")
