"""Tests, demos and benchmarks read the status of an object by ``status_of`` and ``condition_of``.

A controller writes the status after the object exists, and it may write a part first. A subscript that reads what is
not written yet fails a test only on a busy machine.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.tables import table

_ROOT = Path(__file__).resolve().parents[2]
_LIVE = (
    "benchmarks",
    "hack",
    "tests/charts",
    "tests/cluster",
    "tests/controlplane",
    "tests/e2e",
    "tests/kind",
    "tests/peers",
    "tests/scenarios",
    "tests/support",
)
_VALUES = (ast.Compare, ast.Tuple, ast.FormattedValue, ast.Dict)
"""Expressions in which ``["status"]`` is the text of a condition, or is copied as a whole."""
_READERS = ("check_of", "condition", "condition_of", "scheduled_condition", "status", "status_of")
"""Functions and methods that return a part of a status, or an empty one."""
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


def unsafe_reads(source: str) -> Iterator[str]:
    """Yield the reads of a module that fail with a KeyError if the status is not written yet."""
    tree = ast.parse(source)
    parents = {child: parent for parent in ast.walk(tree) for child in ast.iter_child_nodes(parent)}
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load)):
            continue
        key = node.slice.value if isinstance(node.slice, ast.Constant) else None
        parent = parents[node]
        is_written = isinstance(parent, ast.Subscript) and isinstance(parent.ctx, ast.Store)
        is_value = isinstance(parent, _VALUES) and not isinstance(parents[parent], ast.Assign)
        is_read = key == "conditions" or (key == "status" and not is_written and not is_value)
        if is_read or (isinstance(key, str) and _is_call(node.value) and _is_in_poll(node, parents)):
            yield f"line {node.lineno}: {ast.unparse(node)}"


def _is_call(node: ast.expr) -> bool:
    """Return whether an expression calls a function or method that returns a status or a part of it."""
    if not isinstance(node, ast.Call):
        return False
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    return name in _READERS


def _is_in_poll(node: ast.AST, parents: dict[ast.AST, ast.AST]) -> bool:
    """Return whether code is in a lambda or in a function that is defined in a function: those are polled."""
    depth = 0
    while node in parents:
        node = parents[node]
        if isinstance(node, ast.Lambda):
            return True
        depth += isinstance(node, _FUNCTIONS)
    return depth > 1


@pytest.mark.parametrize("folder", _LIVE)
def test_statuses_that_may_be_absent(folder: str) -> None:
    """No read of a status requires that it is written."""
    modules = sorted((_ROOT / folder).rglob("*.py"))
    assert modules
    found = {str(path.relative_to(_ROOT)): list(unsafe_reads(path.read_text(encoding="utf-8"))) for path in modules}
    assert {name: reads for name, reads in found.items() if reads} == {}


@table(
    "source, count",
    ("subscript", 'group["status"]["members"]', 1),
    ("method", 'group["status"].get("members", 0)', 1),
    ("assigned", 'status = group["status"]', 1),
    ("unpacked", 'metadata, status = group["metadata"], group["status"]', 1),
    ("listed", '[one["status"] for one in groups]', 1),
    ("conditions", 'next(one for one in status["conditions"])', 1),
    ("poll", 'until(lambda: status_of(group)["members"] == 2)', 1),
    ("poll of a method", 'until(lambda: world.status("train")["phase"] == "Running")', 1),
    ("nested", 'def f():\n    def g():\n        return condition_of(group, "Ready")["status"] == "True"', 1),
    ("after a wait", 'assert status_of(group)["members"] == 2', 0),
    ("of a condition", 'any(one["type"] == "Ready" and one["status"] == "True" for one in found)', 0),
    ("safe poll", 'until(lambda: status_of(group).get("members") == 2)', 0),
    ("written", 'node["status"] = {}', 0),
    ("part written", 'node["status"]["phase"] = "Running"', 0),
)
def test_the_check_finds_unsafe_reads(source: str, count: int) -> None:
    """The check finds reads by subscript, and in polls also of parts of a status."""
    assert len(list(unsafe_reads(source))) == count
