"""Stages of a cycle, and the sinks of a cycle: what the runtime records of stages and plugins, and counts of them.

Live attempts have a :class:`scheduler_core.metrics.cycle_recorder.CycleRecorder` and the counts of their profile. Dry
runs have :data:`NOT_RECORDED` and :data:`NOT_COUNTED`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from enum import IntEnum
from typing import Protocol

from msgspec import Struct, field

from scheduler_core.framework.status import Code


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

    def interrupt(self) -> None:
        """Do nothing."""


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
