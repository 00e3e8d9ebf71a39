"""How verdicts are read from the output of Go tests and compared with the pinned ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.upstream.__main__ import differing, read_expected
from tests.upstream.builds import BuildError, patched, patched_setup
from tests.upstream.judging import Verdict, Verdicts, verdicts_in

OUTPUT = """\
=== RUN   TestGangs
=== RUN   TestGangs/fits
EXTERNAL started 7 in /tmp/x
=== RUN   TestGangs/waits_(gate:_true)
EXTERNAL started 8 in /tmp/y
=== RUN   TestGangs/own_plugin
    a_test.go:1: EXTERNAL not applicable: plugins compiled into the test: Mock
--- FAIL: TestGangs (1.00s)
    --- PASS: TestGangs/fits (0.50s)
    --- FAIL: TestGangs/waits_(gate:_true) (0.50s)
    --- FAIL: TestGangs/own_plugin (0.00s)
=== RUN   TestByHand
--- PASS: TestByHand (0.00s)
FAIL
"""


def test_verdicts() -> None:
    """Tests without subtests count; one that never starts the scheduler does not."""
    assert verdicts_in(OUTPUT) == {
        "TestGangs/fits": Verdict.PASS,
        "TestGangs/waits_(gate:_true)": Verdict.FAIL,
        "TestGangs/own_plugin": Verdict.NOT_APPLICABLE,
    }


@pytest.mark.parametrize(
    ("found", "reported"),
    [
        pytest.param({"a": Verdict.PASS, "b": Verdict.FAIL}, [], id="as-pinned"),
        pytest.param({"a": Verdict.FAIL, "b": Verdict.FAIL}, ["a: FAIL, expected PASS"], id="broken"),
        pytest.param({"a": Verdict.PASS, "b": Verdict.PASS}, ["b: PASS, expected FAIL"], id="mended"),
        pytest.param({"b": Verdict.FAIL}, ["a: did not run"], id="gone"),
        pytest.param(
            {"a": Verdict.PASS, "b": Verdict.FAIL, "c": Verdict.PASS}, ["c: PASS, expected no such test"], id="new"
        ),
    ],
)
def test_every_difference_is_reported(found: dict[str, Verdict], reported: list[str]) -> None:
    """A verdict that is better than the pinned one differs too: the list then is to be changed."""
    assert differing(Verdicts(found), {"a": Verdict.PASS, "b": Verdict.FAIL}) == reported


def test_the_pinned_list_gives_a_reason_for_each_test_that_does_not_pass() -> None:
    """The list of the repository can be read, and has both packages."""
    expected = read_expected(Path(__file__).with_name("expected.toml"))
    assert set(expected) == {"podgroup", "podgroup/topology_aware_scheduling"}
    assert all(Verdict.PASS in verdicts.values() for verdicts in expected.values())


def test_a_reason_is_required(tmp_path: Path) -> None:
    """An entry without one is an error."""
    file = tmp_path / "expected.toml"
    file.write_text('[a]\nPASS = ["x"]\n[a.FAIL]\ny = ""\n')
    with pytest.raises(ValueError, match="y is listed twice or has no reason"):
        read_expected(file)


def test_both_functions_are_patched() -> None:
    """Run starts the external scheduler first, and New prepares it last; another form of the file is an error."""
    run = "func (sched *Scheduler) Run(ctx context.Context) {\n"
    text = f"func New(ctx context.Context,\n) {{\n\treturn sched, nil\n}}\n{run}\tx()\n}}\n"
    lines = patched(text).splitlines()
    assert lines.index("\tif err := prepareExternal(sched, options); err != nil {") < lines.index("\treturn sched, nil")
    assert lines[lines.index(run.rstrip()) + 1] == "\tif len(externalCommand) > 0 {"
    with pytest.raises(BuildError):
        patched(text.replace("Run(", "Start("))


def test_the_setup_waits_for_the_scheduler() -> None:
    """After each start; another form of the file is an error."""
    start = "\tgo testCtx.Scheduler.Run(testCtx.SchedulerCtx)"
    lines = patched_setup(f"{start}\n\treturn testCtx\n{start}\n").splitlines()
    awaited = "\ttestCtx.Scheduler.AwaitExternal()"
    assert lines == [start, awaited, "\treturn testCtx", start, awaited]
    with pytest.raises(BuildError):
        patched_setup("\treturn testCtx\n")
