"""Tables of test cases whose rows begin with the name of the case."""

from __future__ import annotations

from typing import Any

import pytest


def table(arguments: str, *rows: tuple[str, *tuple[Any, ...]]) -> pytest.MarkDecorator:
    """Run a test once for each row: the name of the case, then a value for each of the *arguments*."""
    return pytest.mark.parametrize(arguments, [pytest.param(*values, id=name) for name, *values in rows])
