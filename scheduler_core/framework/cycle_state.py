"""The state of one scheduling attempt: data that plugins pass between extension points, and records of its stages.

A plugin declares a :class:`StateKey` and reads back the value that it wrote, with its type. The state exists from
PreFilter to PostBind and is dropped when the attempt ends.

Live attempts have a :class:`scheduler_core.metrics.cycle_recorder.CycleRecorder` and the counts of their profile. Dry
runs have :data:`NOT_RECORDED` and :data:`NOT_COUNTED`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Mapping
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from msgspec import Struct, field

from scheduler_core.errors import PluginError
from scheduler_core.framework.status import Code

if TYPE_CHECKING:
    from scheduler_core.framework.pods_to_activate import PodsToActivate


class CycleStage(IntEnum):
    """Extension points, and other stages that a cycle spends time in."""

    PRE_FILTER = 0
    FILTER = 1
    POST_FILTER = 2
    PRE_SCORE = 3
    SCORE = 4
    EXTENDERS = 5
    RESERVE = 6
    PERMIT = 7
    UNRESERVE = 8
    PRE_BIND_PRE_FLIGHT = 9
    WAIT_ON_PERMIT = 10
    PRE_BIND = 11
    BIND = 12
    POST_BIND = 13
    PRE_ENQUEUE = 14
    REUSE = 15

    # The hash of an Enum is computed by a Python function, which is slower.
    __hash__ = int.__hash__


STAGE_NAMES = tuple(stage.name.title().replace("_", "") for stage in CycleStage)
"""Names by number; those of extension points are kube-scheduler's, such as ``PreBindPreFlight``."""

EXTENSION_POINTS = tuple(
    stage for stage in CycleStage if stage not in (CycleStage.EXTENDERS, CycleStage.WAIT_ON_PERMIT, CycleStage.REUSE)
)
"""Stages that run plugins."""

PluginEnd = tuple[str, Code, float]
"""Name of a plugin, status that it returned, and when, in the clock's seconds."""


class Recorder(Protocol):
    """Records one cycle; a stage is left before the next one is entered.

    Attributes:
        now: The clock.
        enter: Records the start of a stage, at the time at which the stage before it ended.
        plugin_left: Records that a plugin of the current stage returned. It takes a tuple and is a method of a list,
            because it is called some thirty times a cycle.
    """

    now: Callable[[], float]
    enter: Callable[[CycleStage], object]
    plugin_left: Callable[[PluginEnd], object]

    def leave(self, stage: CycleStage, code: Code, /) -> None:
        """Record the end of the current stage, with its overall status."""

    def skip_search(self) -> None:
        """Record that PreFilter to Score succeed without running, because their results are reused."""

    def interrupt(self) -> None:
        """Leave the current stage with Error, because of an exception; no effect between stages."""


class _NotRecorded:
    """A recorder that discards everything; its clock stands still."""

    def __init__(self) -> None:
        self.now: Callable[[], float] = float
        discarded: deque[object] = deque(maxlen=0)
        self.enter: Callable[[CycleStage], object] = discarded.append
        self.plugin_left: Callable[[PluginEnd], object] = discarded.append

    def leave(self, stage: CycleStage, code: Code, /) -> None:
        """Do nothing."""

    def skip_search(self) -> None:
        """Do nothing."""

    interrupt = skip_search


NOT_RECORDED: Recorder = _NotRecorded()
"""For states that belong to no attempt, such as dry runs."""


class Evaluations(Struct, frozen=True):
    """Number of evaluations per plugin, by plugin name.

    Follows kube-scheduler v1.37.1 (``framework/runtime/instrumented_plugins.go``): PreFilter and PreScore count pods
    for which they did not skip, Filter and Score count nodes.
    """

    pre_filter: dict[str, int] = field(default_factory=dict)
    filter: dict[str, int] = field(default_factory=dict)
    pre_score: dict[str, int] = field(default_factory=dict)
    score: dict[str, int] = field(default_factory=dict)


class _Discarded(dict[str, int]):
    """Counts that stay empty."""

    def __missing__(self, name: str) -> int:
        return 0

    def __setitem__(self, name: str, count: int) -> None:
        """Do nothing."""


NOT_COUNTED = Evaluations(_Discarded(), _Discarded(), _Discarded(), _Discarded())
"""For states that belong to no live attempt, such as dry runs of an explanation."""


T = TypeVar("T")
_NO_ANNOTATIONS: Mapping[str, str] = {}


class StateKey(Struct, Generic[T], frozen=True):
    """Name of a value of type T; prefix it with the name of the plugin and ``/`` to avoid collisions."""

    name: str


class CycleState:
    """Data of one scheduling attempt.

    Attributes:
        recorder: Records the stages and plugins of the cycle; a clone records nothing.
        evaluations: Counts evaluations; those of a clone are counted, too, as kube-scheduler counts its dry runs.
        bind_annotations: Annotations that the bind adds to the pod, see :func:`annotate_bind`.
        to_activate: Pods to activate when the cycle ends; None for none. A clone adds to the same list.
    """

    __slots__ = (
        "_values", "bind_annotations", "evaluations", "recorder", "skip_filter", "skip_pre_bind", "skip_score",
        "to_activate",
    )  # fmt: skip

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
