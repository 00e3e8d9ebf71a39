"""Typed store for the data that plugins pass from one extension point to the next within one scheduling attempt.

A plugin declares a :class:`StateKey` and reads back the value that it wrote, with its type. The state exists from
PreFilter to PostBind and is dropped when the attempt ends.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from msgspec import Struct

from scheduler_core.errors import PluginError
from scheduler_core.framework.cycle_stages import NOT_COUNTED, NOT_RECORDED, Evaluations, Recorder

if TYPE_CHECKING:
    from scheduler_core.framework.pods_to_activate import PodsToActivate

T = TypeVar("T")
_NO_ANNOTATIONS: Mapping[str, str] = {}


class StateKey(Struct, Generic[T], frozen=True):
    """Name of a value of type T; prefix it with the name of the plugin and ``/`` to avoid collisions."""

    name: str


class CycleState:
    """Data of one scheduling attempt.

    Attributes:
        skip_filter: Names of the plugins whose PreFilter returned Skip.
        skip_score: Names of the plugins whose PreScore returned Skip.
        skip_pre_bind: Names of the plugins whose PreBindPreFlight returned Skip.
        recorder: Records the stages and plugins of the cycle; a clone records nothing.
        evaluations: Counts evaluations; those of a clone are counted, too, as kube-scheduler counts its dry runs.
        bind_annotations: Annotations that the bind adds to the pod, see :func:`annotate_bind`.
        to_activate: Pods to activate when the cycle ends; None for none. A clone adds to the same list.
    """

    __slots__ = (
        "_values",
        "bind_annotations",
        "evaluations",
        "recorder",
        "skip_filter",
        "skip_pre_bind",
        "skip_score",
        "to_activate",
    )

    def __init__(self) -> None:
        # Keyed by name, not by StateKey: str caches its hash, the hash of a Struct is computed on every lookup.
        self._values: dict[str, Any] = {}
        self.skip_filter: set[str] = set()
        self.skip_score: set[str] = set()
        self.skip_pre_bind: set[str] = set()
        self.recorder: Recorder = NOT_RECORDED
        self.evaluations: Evaluations = NOT_COUNTED
        self.bind_annotations: Mapping[str, str] = _NO_ANNOTATIONS
        self.to_activate: PodsToActivate | None = None

    def write(self, key: StateKey[T], value: T) -> None:
        """Store a value; it replaces an earlier one of the same key."""
        self._values[key.name] = value

    def read(self, key: StateKey[T]) -> T:
        """Return the value stored under ``key``.

        Raises:
            PluginError: There is none, because the extension point that writes it did not run.
        """
        try:
            value: T = self._values[key.name]
        except KeyError:
            message = f'no "{key.name}" in the cycle state; enable the plugin at the extension point that writes it too'
            raise PluginError(key.name.partition("/")[0], "cycleState", message) from None
        return value

    def get(self, key: StateKey[T]) -> T | None:
        """Return the value stored under ``key``, None if there is none."""
        value: T | None = self._values.get(key.name)
        return value

    def clone(self, without: Collection[str] = ()) -> CycleState:
        """Return a copy for a dry run: values that have a ``clone`` method are cloned, others shared."""
        copy = CycleState()
        copy.evaluations = self.evaluations
        copy.bind_annotations, copy.to_activate = self.bind_annotations, self.to_activate
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
            copy._values[name] = value if clone is None else clone()
        return copy


def annotate_bind(state: CycleState, key: str, value: str) -> None:
    """Have DefaultBinder add an annotation to the pod in the write that binds it.

    Call it at Reserve, Permit or PreBind. A failed attempt adds nothing. An extender that binds pods cannot add
    annotations, so that the bind fails in a profile with such an extender.
    """
    state.bind_annotations = {**state.bind_annotations, key: value}
