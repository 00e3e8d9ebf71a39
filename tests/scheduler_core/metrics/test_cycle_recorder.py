"""The cycle recorder: stages and plugins by name, with their durations."""

from __future__ import annotations

from scheduler_core.framework.cycle_state import EXTENSION_POINTS, NOT_RECORDED, STAGE_NAMES, CycleStage, CycleState
from scheduler_core.framework.status import Code
from scheduler_core.metrics.cycle_recorder import CycleRecorder, RecorderPool
from tests.support.virtual_clock import VirtualClock

FILTER, RESERVE, PERMIT = CycleStage.FILTER, CycleStage.RESERVE, CycleStage.PERMIT
SUCCESS, ERROR = Code.SUCCESS, Code.ERROR


class Cycle:
    """A recorded cycle on virtual time."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.pool = RecorderPool(self.clock.now)
        self.recorder = self.pool.take()

    def run(self, stage: CycleStage, *plugins: str, code: Code = SUCCESS) -> None:
        """Run a stage of one second for each plugin, and one second after the last."""
        self.recorder.enter(stage)
        for plugin in plugins:
            self.clock.advance(1)
            self.recorder.plugin_left((plugin, code, self.recorder.now()))
        self.clock.advance(1)
        self.recorder.leave(stage, code)

    def stages(self) -> list[tuple[str, str, float]]:
        return [(stage.name, stage.status, stage.ended - stage.started) for stage in self.recorder.stages()]

    def plugins(self) -> list[tuple[CycleStage, str, Code, float]]:
        return list(self.recorder.plugins())


def test_names_of_extension_points() -> None:
    """The names of extension points equal those in kube-scheduler's metrics."""
    assert [STAGE_NAMES[stage] for stage in EXTENSION_POINTS] == [
        "PreFilter",
        "Filter",
        "PostFilter",
        "PreScore",
        "Score",
        "Reserve",
        "Permit",
        "Unreserve",
        "PreBindPreFlight",
        "PreBind",
        "Bind",
        "PostBind",
        "PreEnqueue",
    ]


def test_a_stage_starts_when_the_one_before_it_ended() -> None:
    """A stage and its first plugin start when the previous stage ends; other plugins when the previous one ends."""
    cycle = Cycle()
    cycle.run(FILTER, "A", "B")
    cycle.clock.advance(16)
    cycle.run(RESERVE, "A", code=Code.UNSCHEDULABLE)
    assert cycle.stages() == [("Filter", "SUCCESS", 3), ("Reserve", "UNSCHEDULABLE", 18)]
    assert cycle.plugins() == [
        (FILTER, "A", SUCCESS, 1),
        (FILTER, "B", SUCCESS, 1),
        (RESERVE, "A", Code.UNSCHEDULABLE, 17),
    ]


def test_a_stage_that_an_exception_interrupts() -> None:
    """An interrupted stage ends with status Error; the next stage starts at its end."""
    cycle = Cycle()
    cycle.run(RESERVE)
    cycle.recorder.interrupt()
    cycle.recorder.enter(PERMIT)
    cycle.clock.advance(2)
    cycle.recorder.interrupt()
    cycle.recorder.interrupt()
    cycle.run(CycleStage.UNRESERVE, "A")
    assert cycle.stages() == [("Reserve", "SUCCESS", 1), ("Permit", "ERROR", 2), ("Unreserve", "SUCCESS", 2)]
    assert cycle.plugins() == [(CycleStage.UNRESERVE, "A", SUCCESS, 1)]


def test_a_pause_does_not_count() -> None:
    """The time between the end of the last stage and resume() does not count."""
    cycle = Cycle()
    cycle.run(RESERVE, "A")
    cycle.clock.advance(512)
    cycle.recorder.resume()
    cycle.run(PERMIT, "B")
    assert cycle.stages() == [("Reserve", "SUCCESS", 2), ("Permit", "SUCCESS", 2)]
    assert cycle.plugins() == [(RESERVE, "A", SUCCESS, 1), (PERMIT, "B", SUCCESS, 1)]
    assert (cycle.recorder.times[-1], cycle.recorder.times[-1] - cycle.recorder.times[0]) == (cycle.clock.now(), 4)


def test_skipped_stages() -> None:
    """Skipped stages succeed with a duration of 0 and have no plugins."""
    cycle = Cycle()
    cycle.recorder.skip_search()
    cycle.run(RESERVE, "A")
    skipped = [(name, "SUCCESS", 0) for name in ("PreFilter", "Filter", "PreScore", "Score")]
    assert cycle.stages() == [*skipped, ("Reserve", "SUCCESS", 2)]
    assert cycle.plugins() == [(RESERVE, "A", SUCCESS, 1)]


def test_stages_that_run_again() -> None:
    """rewind() drops stages and their plugins, also skipped ones; the stage that runs next counts their time."""
    cycle = Cycle()
    cycle.run(CycleStage.REUSE)
    cycle.run(FILTER, "A")
    cycle.recorder.skip_search()
    cycle.recorder.rewind(1)
    cycle.run(FILTER, "B")
    cycle.recorder.rewind(2)
    assert cycle.stages() == [("Reuse", "SUCCESS", 1), ("Filter", "SUCCESS", 4)]
    assert cycle.plugins() == [(FILTER, "B", SUCCESS, 3)]


def test_a_recorder_of_the_pool_is_empty() -> None:
    """A reused recorder contains no stages or plugins of the previous cycle."""
    cycle = Cycle()
    cycle.run(FILTER, "A", code=ERROR)
    cycle.pool.release(cycle.recorder)
    again = cycle.pool.take()
    assert again is cycle.recorder
    assert again.times == [cycle.clock.now()]
    assert (cycle.stages(), cycle.plugins()) == ([], [])


def test_dry_runs_are_not_recorded() -> None:
    """The clone of a state records nothing, neither for itself nor for the attempt."""
    recorder = CycleRecorder(VirtualClock().now)
    state = CycleState()
    state.recorder = recorder
    dry_run = state.clone().recorder
    assert dry_run is NOT_RECORDED
    dry_run.enter(FILTER)
    dry_run.plugin_left(("A", SUCCESS, dry_run.now()))
    dry_run.leave(FILTER, SUCCESS)
    dry_run.skip_search()
    dry_run.interrupt()
    assert (recorder.stages(), list(recorder.plugins())) == ((), [])
