"""Verdicts are read from the output of Go tests, the tests are patched, and those that CI runs have pinned verdicts."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support.tables import table
from tests.upstream.__main__ import main, read_selection
from tests.upstream.builds import BuildError, patched, patched_setup
from tests.upstream.verdicts import BY_HAND, SKIPPED, Outcome, Verdict, run_pattern, verdicts_in

OUTPUT = """\
=== RUN   TestGangs
=== RUN   TestGangs/fits
EXTERNAL started 7 in /tmp/x
=== RUN   TestGangs/waits_(gate:_true)
EXTERNAL started 8 in /tmp/y
=== RUN   TestGangs/own_plugin
    a_test.go:1: Couldn't create scheduler: EXTERNAL not applicable: plugins compiled into the test: Mock
=== RUN   TestGangs/left_out
--- FAIL: TestGangs (1.00s)
    --- PASS: TestGangs/fits (0.50s)
    --- FAIL: TestGangs/waits_(gate:_true) (0.50s)
    --- FAIL: TestGangs/own_plugin (0.00s)
    --- SKIP: TestGangs/left_out (0.00s)
=== RUN   TestByHand
--- PASS: TestByHand (0.00s)
=== RUN   TestNoServer
--- FAIL: TestNoServer (0.00s)
FAIL
"""


def test_verdicts() -> None:
    """Only tests without subtests count; a test that the external scheduler did not run fails or has a reason."""
    assert verdicts_in(OUTPUT) == {
        "TestGangs/fits": Outcome(Verdict.PASS),
        "TestGangs/waits_(gate:_true)": Outcome(Verdict.FAIL),
        "TestGangs/own_plugin": Outcome(Verdict.NOT_APPLICABLE, "plugins compiled into the test: Mock"),
        "TestGangs/left_out": Outcome(Verdict.NOT_APPLICABLE, SKIPPED),
        "TestByHand": Outcome(Verdict.NOT_APPLICABLE, BY_HAND),
        "TestNoServer": Outcome(Verdict.FAIL),
    }


SHARED = """\
=== RUN   TestDevices
=== RUN   TestDevices/all
=== RUN   TestDevices/all/binds
EXTERNAL used by TestDevices/all/binds
EXTERNAL started 7 in /tmp/x
=== RUN   TestDevices/all/taints
=== RUN   TestDevices/all/taints/slowly
EXTERNAL used by TestDevices/all/taints
=== RUN   TestDevices/all/converts
--- PASS: TestDevices (1.00s)
    --- PASS: TestDevices/all (1.00s)
        --- PASS: TestDevices/all/binds (0.50s)
        --- PASS: TestDevices/all/taints (0.50s)
            --- PASS: TestDevices/all/taints/slowly (0.50s)
        --- PASS: TestDevices/all/converts (0.00s)
PASS
"""


def test_verdicts_of_tests_that_share_a_scheduler() -> None:
    """A test that shares a scheduler passes only if it prints that it uses it."""
    assert verdicts_in(SHARED) == {
        "TestDevices/all/binds": Outcome(Verdict.PASS),
        "TestDevices/all/taints/slowly": Outcome(Verdict.PASS),
        "TestDevices/all/converts": Outcome(Verdict.NOT_APPLICABLE, BY_HAND),
    }


WORKLOADS = """\
=== RUN   TestSchedulerPerf
=== RUN   TestSchedulerPerf/Claims
=== RUN   TestSchedulerPerf/Claims/fast
EXTERNAL started 7 in /tmp/x
=== RUN   TestSchedulerPerf/Claims/500nodes
    scheduler_perf.go:1: disabled by label filter "integration-test"
=== RUN   TestSchedulerPerf/Publish
=== RUN   TestSchedulerPerf/Publish/500nodes
    scheduler_perf.go:1: disabled by label filter "integration-test"
--- PASS: TestSchedulerPerf (1.00s)
    --- PASS: TestSchedulerPerf/Claims (1.00s)
        --- PASS: TestSchedulerPerf/Claims/fast (1.00s)
        --- SKIP: TestSchedulerPerf/Claims/500nodes (0.00s)
    --- PASS: TestSchedulerPerf/Publish (0.00s)
        --- SKIP: TestSchedulerPerf/Publish/500nodes (0.00s)
PASS
"""


def test_workloads_that_are_benchmarks() -> None:
    """Benchmarks, and groups that contain only benchmarks, have no verdict."""
    assert verdicts_in(WORKLOADS) == {"TestSchedulerPerf/Claims/fast": Outcome(Verdict.PASS)}


@table(
    "only, pattern",
    ("one", ["TestA"], "^TestA$"),
    ("subtest", ["TestA/b_(c)"], r"^TestA$/^b_\(c\)$"),
    ("several", ["TestA", "TestB"], "^(TestA|TestB)$"),
)
def test_selected_tests(only: list[str], pattern: str) -> None:
    """Names are matched as a whole, and pattern characters in names are escaped."""
    assert run_pattern(only) == pattern


def test_a_subtest_cannot_be_selected_beside_others() -> None:
    """A subtest cannot be selected together with other tests, because each part of a pattern applies to all."""
    with pytest.raises(ValueError, match="name one subtest"):
        run_pattern(["TestA/b", "TestC"])


def test_both_functions_are_patched() -> None:
    """Run starts the external scheduler first, and New prepares it last; an unknown form of the file is an error."""
    run = "func (sched *Scheduler) Run(ctx context.Context) {\n"
    text = f"func New(ctx context.Context,\n) {{\n\treturn sched, nil\n}}\n{run}\tx()\n}}\n"
    lines = patched(text).splitlines()
    assert lines.index("\tif err := prepareExternal(sched, options); err != nil {") < lines.index("\treturn sched, nil")
    assert lines[lines.index(run.rstrip()) + 1] == "\tif len(externalCommand) > 0 {"
    with pytest.raises(BuildError):
        patched(text.replace("Run(", "Start("))


def test_a_started_scheduler_is_awaited() -> None:
    """A wait is inserted after each start of a scheduler, with the same indentation."""
    text = "\t\tgo testCtx.Scheduler.Run(testCtx.Ctx)\n\treturn testCtx\n\tgo sched.Run(ctx)\n\tgo other.Run(ctx)\n"
    assert patched_setup(text).splitlines() == [
        "\t\tgo testCtx.Scheduler.Run(testCtx.Ctx)",
        "\t\ttestCtx.Scheduler.AwaitExternal()",
        "\treturn testCtx",
        "\tgo sched.Run(ctx)",
        "\tsched.AwaitExternal()",
        "\tgo other.Run(ctx)",
    ]


def test_a_start_in_a_function_is_awaited() -> None:
    """The wait is inserted after a function literal that runs the scheduler."""
    start = "\tgo func() {\n\t\tsched.Run(tCtx)\n\t\tclose(done)\n\t}()\n"
    assert patched_setup(f"{start}\treturn sched\n") == f"{start}\tsched.AwaitExternal()\n\treturn sched\n"


def test_uses_of_a_shared_scheduler_are_printed() -> None:
    """Each test that uses a shared scheduler prints a line, including the first one."""
    patched_lines = patched_setup("\tscheduler.usageCount++\n\tx()\n").splitlines()
    assert patched_lines == ["\tscheduler.usageCount++", '\tfmt.Printf("EXTERNAL used by %s\\n", tCtx.Name())', "\tx()"]


# -- the selection of tests --------------------------------------------------------------------------------------------


@pytest.mark.upstream
@pytest.mark.reference
@pytest.mark.timeout(900)
@pytest.mark.parametrize("package", read_selection(Path(__file__).with_name("selection.toml")))
def test_selected_tests_have_the_pinned_verdicts(
    package: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every difference is an error, a better verdict included."""
    monkeypatch.setenv("PATH", os.environ["PATH"])
    assert main(["--selection", package]) == 0, capsys.readouterr().out
