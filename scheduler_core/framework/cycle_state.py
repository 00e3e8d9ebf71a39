"""What plugins keep from one extension point to the next, within one attempt of one pod.

Owns a typed store: a plugin declares a :class:`StateKey` and gets back what it put in, of the type that it said. It
lives from PreFilter to PostBind and is dropped with the attempt.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Generic, TypeVar, cast

from msgspec import Struct

from scheduler_core.errors import PluginError
from scheduler_core.framework.cycle_times import UNTIMED, CycleTimes

T = TypeVar("T")


class StateKey(Struct, Generic[T], frozen=True):
    """Names a value of type T; the plugin's own name as a prefix keeps keys apart."""

    name: str


class CycleState:
    """Values of one attempt.

    Attributes:
        skip_filter: Names of the plugins whose PreFilter answered Skip.
        skip_score: Names of the plugins whose PreScore answered Skip.
        skip_pre_bind: Names of the plugins whose PreBindPreFlight answered Skip.
        times: Where the runtime notes when plugins were done; a clone notes nothing.
    """

    __slots__ = ("_values", "skip_filter", "skip_pre_bind", "skip_score", "times")

    def __init__(self) -> None:
        # By name and not by key: the hash of a text is known, that of a data class is computed by a function in Python.
        self._values: dict[str, Any] = {}
        self.skip_filter: set[str] = set()
        self.skip_score: set[str] = set()
        self.skip_pre_bind: set[str] = set()
        self.times: CycleTimes = UNTIMED

    def write(self, key: StateKey[T], value: T) -> None:
        """Keep a value; an earlier one of the same key is replaced."""
        self._values[key.name] = value

    def read(self, key: StateKey[T]) -> T:
        """The value kept under ``key``.

        Raises:
            PluginError: Nothing was kept: the point that should have written it did not run.
        """
        try:
            return cast("T", self._values[key.name])
        except KeyError:
            message = f'no "{key.name}" in the cycle state; enable the plugin at the extension point that writes it too'
            raise PluginError(key.name.partition("/")[0], "cycleState", message) from None

    def get(self, key: StateKey[T]) -> T | None:
        """The value kept under ``key``, None if there is none."""
        return cast("T | None", self._values.get(key.name))

    def clone(self, without: Collection[str] = ()) -> CycleState:
        """A copy for a what-if: values that have a ``clone`` method are cloned, others shared.

        Args:
            without: Plugins of which nothing is copied.
        """
        copy = CycleState()
        copy.skip_filter = set(self.skip_filter)
        copy.skip_score = set(self.skip_score)
        copy.skip_pre_bind = set(self.skip_pre_bind)
        if without:
            copy.skip_filter.difference_update(without)
            copy.skip_score.difference_update(without)
        for name, value in self._values.items():
            if without and name.partition("/")[0] in without:
                continue
            clone = getattr(value, "clone", None)
            copy._values[name] = clone() if callable(clone) else value
        return copy
