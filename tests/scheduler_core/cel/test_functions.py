"""Completeness of the table of functions; parity compares signatures, results and costs with the reference."""

from __future__ import annotations

from scheduler_core.cel.checker import FUNCTIONS

AUTHORIZATION = frozenset({
    "allowed", "check", "error", "errored", "fieldSelector", "group", "labelSelector", "name", "namespace", "path",
    "reason", "resource", "serviceAccount", "subresource",
})  # fmt: skip
PLANNED = frozenset({
    "_&&_", "_||_", "_?_:_", "_?._", "_[?_]", "_[_]", "or", "orValue", "cel.@mapInsert",
})  # fmt: skip


def test_all_other_functions_are_implemented() -> None:
    """An overload has an implementation unless its function has, the planner compiles it, or it is authorization."""
    missing = {
        name
        for name, function in FUNCTIONS.items()
        if function.run is None and not all(overload.run for overload in function.overloads)
    }
    assert missing == AUTHORIZATION | PLANNED


def test_a_function_serves_all_overloads_or_none() -> None:
    """No row of a function that checks types itself has an implementation of one overload."""
    both = [
        name
        for name, function in FUNCTIONS.items()
        if function.run is not None and any(overload.run for overload in function.overloads)
    ]
    assert both == []
