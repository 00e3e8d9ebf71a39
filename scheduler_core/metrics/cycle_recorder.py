"""Recorder of a scheduling cycle or binding cycle: which stages and plugins ran, when, and with which status.

Each stage is entered and left by name, and each plugin is left by name. One clock reading is the end of one and the
start of the next: a stage starts when the stage before it ended. Stages are stored as flat lists of numbers, so
that :mod:`.scheduler_metrics` can append a whole cycle to its backlog at once; names are only looked up for the few
cycles that are sampled, slow or traced.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from scheduler_core.framework.cycle_state import STAGE_NAMES, CycleStage, PluginEnd
from scheduler_core.framework.status import Code
from scheduler_core.ports import Stage

STAGE_ENDS: tuple[tuple[CycleStage, Code], ...] = tuple((stage, code) for stage in CycleStage for code in Code)
"""Stage and status by the number that stands for both."""

CYCLE_STARTED = len(STAGE_ENDS)
"""Number of the start of a cycle."""

_NUMBERS = tuple(tuple(len(Code) * stage + code for code in Code) for stage in CycleStage)
_SEARCH = (CycleStage.PRE_FILTER, CycleStage.FILTER, CycleStage.PRE_SCORE, CycleStage.SCORE)
_SEARCH_NUMBERS = tuple(_NUMBERS[stage][Code.SUCCESS] for stage in _SEARCH)
_MAX_SPARE = 128


PluginDuration = tuple[CycleStage, str, Code, float]
"""Stage and name of a plugin, the status that it returned, and its duration in seconds."""


class CycleRecorder:
    """Implementation of :class:`scheduler_core.framework.cycle_state.Recorder`.

    Attributes:
        times: The start of the cycle, then the end of each stage, in seconds.
        left: :data:`CYCLE_STARTED`, then the number of each stage with its status, see :data:`STAGE_ENDS`.
        leave: Records the end of the current stage; a closure is faster than a method.
    """

    __slots__ = ("_marks", "enter", "leave", "left", "now", "plugin_left", "times")

    def __init__(self, now: Callable[[], float]) -> None:
        self.now = now
        self.times = [0.0]
        self.left = [CYCLE_STARTED]
        # Stages as they were entered, each followed by its plugins.
        self._marks: list[CycleStage | PluginEnd] = []
        self.enter: Callable[[CycleStage], object] = self._marks.append
        self.plugin_left: Callable[[PluginEnd], object] = self._marks.append
        add_time, add_left = self.times.append, self.left.append

        def leave(stage: CycleStage, code: Code, /) -> None:
            add_time(now())
            add_left(_NUMBERS[stage][code])

        self.leave = leave

    def start(self) -> None:
        self._marks.clear()
        self.times[:] = (self.now(),)
        self.left[:] = (CYCLE_STARTED,)

    def skip_search(self) -> None:
        self._marks += _SEARCH
        self.times += [self.times[-1]] * len(_SEARCH)
        self.left += _SEARCH_NUMBERS

    def interrupt(self) -> None:
        entered = self._entered()
        if len(entered) == len(self.left):
            stage = self._marks[entered[-1]]
            assert isinstance(stage, CycleStage)
            self.leave(stage, Code.ERROR)

    def rewind(self, count: int) -> None:
        """Drop all stages after the first *count*, because they run again."""
        entered = self._entered()
        if count < len(entered):
            del self._marks[entered[count] :], self.times[count + 1 :], self.left[count + 1 :]

    def resume(self) -> None:
        """End a pause that began with the last stage: shift all times, so that the pause does not count."""
        paused = self.now() - self.times[-1]
        self.times[:] = [time + paused for time in self.times]
        self._marks[:] = [
            mark if isinstance(mark, CycleStage) else (mark[0], mark[1], mark[2] + paused) for mark in self._marks
        ]

    def _entered(self) -> list[int]:
        """Return the places of the stages among the marks."""
        return [place for place, mark in enumerate(self._marks) if isinstance(mark, CycleStage)]

    def stages(self) -> tuple[Stage, ...]:
        """Return the stages that were left, in order."""
        found: list[Stage] = []
        for number, started, ended in zip(self.left[1:], self.times, self.times[1:], strict=False):
            stage, code = STAGE_ENDS[number]
            found.append(Stage(STAGE_NAMES[stage], started, ended, code.name))
        return tuple(found)

    def plugins(self) -> Iterator[PluginDuration]:
        """Yield the plugins that returned, in order; a plugin that raised is missing."""
        entered = iter(self.times)
        stage, started = CycleStage.PRE_FILTER, 0.0
        for mark in self._marks:
            if isinstance(mark, CycleStage):
                stage, started = mark, next(entered)
            else:
                plugin, code, ended = mark
                yield stage, plugin, code, ended - started
                started = ended


@dataclass(frozen=True, slots=True, eq=False)
class RecorderPool:
    """Pool of recorders, because allocating lists for each cycle would add to the recorded time."""

    _now: Callable[[], float]
    _spare: list[CycleRecorder] = field(default_factory=list)

    def take(self) -> CycleRecorder:
        recorder = self._spare.pop() if self._spare else CycleRecorder(self._now)
        recorder.start()
        return recorder

    def release(self, recorder: CycleRecorder) -> None:
        """Return a recorder to the pool once nothing refers to it; a cycle that is aborted may skip this call."""
        if len(self._spare) < _MAX_SPARE:
            self._spare.append(recorder)
