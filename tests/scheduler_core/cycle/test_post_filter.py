"""PostFilter: which plugins are called, the resulting messages, and the nomination."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from scheduler_core.config.plugin_set_types import Plugins
from scheduler_core.framework.cycle_state import CycleState
from scheduler_core.framework.diagnosis import Diagnosis
from scheduler_core.framework.extension_points import (
    PostFilterPlugin,
    PostFilterPreview,
    PostFilterResult,
    PreemptionCandidate,
)
from scheduler_core.framework.status import SKIP, SUCCESS, Code, Status, error, unresolvable, unschedulable
from scheduler_core.runtime.post_filtering import PostFilterOutcome, preview_post_filters
from scheduler_core.snapshot.node_columns import NodeColumns
from scheduler_core.snapshot.pod_info import PodInfo
from tests.support.builders import node, pod
from tests.support.presence import present
from tests.support.recording_plugins import Journal, recorder, recorder_rig
from tests.support.scheduling import DEFAULT_NAME, plugin_set, profile, rig
from tests.support.tables import table

POD = pod("web", nominated_node="gone")


class Case(NamedTuple):
    """A PostFilter result, and the resulting message and nomination."""

    answer: object
    message: str
    nominated: str
    calls_next: bool


@table(
    "case",
    ("success", Case(PostFilterResult(SUCCESS, "n0"), "", "n0", calls_next=False)),
    (
        "unschedulable",
        Case(PostFilterResult(unschedulable("no victims")), " no victims, B too", "gone", calls_next=True),
    ),
    ("clears-the-nomination", Case(PostFilterResult(unschedulable("x"), ""), " x, B too", "", calls_next=True)),
    ("unresolvable", Case(PostFilterResult(unresolvable("never")), " never", "gone", calls_next=False)),
    ("error", Case(PostFilterResult(Status(Code.ERROR, ("bad",)), "n0"), " bad", "gone", calls_next=False)),
    ("skip", Case(PostFilterResult(SKIP), ' plugin "A" failed at postFilter: returned Skip', "gone", calls_next=False)),
    (
        "raises",
        Case(KeyError("k"), " plugin \"A\" failed at postFilter: raised KeyError: 'k'", "gone", calls_next=False),
    ),
    (
        "invalid-value",
        Case(
            None, ' plugin "A" failed at postFilter: returned None; return a PostFilterResult', "gone", calls_next=False
        ),
    ),
)
def test_post_filter(case: Case) -> None:
    """The first plugin with success or a final status ends PostFilter; its message follows the filters' reasons.

    The nomination in the pod's status stays unless a plugin replaces or clears it, as in kube-scheduler.
    """
    codes = np.ones(2, dtype=np.int16)
    journal = Journal(
        results={
            "A.filter": codes,
            "A.postFilter": case.answer,
            "B.postFilter": PostFilterResult(unschedulable("B too")),
        }
    )
    made = recorder_rig(journal, "A", "B", waiting=POD)
    assert made.decide() is None
    assert made.condition.message == f"0/2 nodes are available: 2 why.{case.message}"
    assert made.queue.nominator.node_of(POD.metadata.uid) == case.nominated
    assert journal.plugins_at("postFilter") == (["A", "B"] if case.calls_next else ["A"])
    failed = present(made.queue.find(POD.metadata.uid))
    assert failed.rejected_by == {"A"}


def test_without_post_filter_plugins_a_nomination_is_cleared() -> None:
    """A profile without PostFilter plugins clears the nomination of an infeasible pod."""
    stuck = pod("stuck", nominated_node="n0")
    journal = Journal(results={"Rec.filter": np.ones(1, dtype=np.int16)})
    made = rig([recorder("Rec", journal)])
    made.serve(profile(plugins=Plugins(post_filter=plugin_set(disabled=["*"]))))
    made.add(node("n0"), stuck)
    assert made.decide() is None
    assert made.queue.nominator.node_of(stuck.metadata.uid) == ""
    assert made.writer.patches[-1].nominated_node_name == ""


# -- previews, which return the result without side effects ------------------------------------------------------------


SUCCEEDS = PostFilterPreview(PostFilterResult(SUCCESS, "n"), (PreemptionCandidate("n", ()),))
REJECTS = PostFilterPreview(PostFilterResult(unschedulable("no"), ""))
FAILS = PostFilterPreview(PostFilterResult(error("not found"), "n"))


class Preview(NamedTuple):
    """Previews of two plugins, and the combined result."""

    first: PostFilterPreview | None
    second: PostFilterPreview | None
    outcome: PostFilterOutcome
    preview: PostFilterPreview | None = None


def previewing(plugin_name: str, preview_result: PostFilterPreview | None) -> type[PostFilterPlugin]:
    class Previewing(PostFilterPlugin):
        name = plugin_name

        def post_filter(
            self, state: CycleState, pod: PodInfo, nodes: NodeColumns, diagnosis: Diagnosis
        ) -> PostFilterResult:
            raise AssertionError("a preview must not call post_filter")

        def preview(
            self, state: CycleState, pod: PodInfo, nodes: NodeColumns, diagnosis: Diagnosis
        ) -> PostFilterPreview | None:
            return preview_result

    return Previewing


@table(
    "case",
    ("first-succeeds", Preview(SUCCEEDS, REJECTS, PostFilterOutcome(SUCCESS.of("A"), "n"), SUCCEEDS)),
    ("second-succeeds", Preview(REJECTS, SUCCEEDS, PostFilterOutcome(SUCCESS.of("B"), "n"), SUCCEEDS)),
    ("both-reject", Preview(REJECTS, REJECTS, PostFilterOutcome(Status(Code.UNSCHEDULABLE, ("no", "no"), "A"), ""))),
    ("first-has-no-preview", Preview(None, REJECTS, PostFilterOutcome(Status(Code.UNSCHEDULABLE, ("no",), "B"), ""))),
    ("first-fails", Preview(FAILS, SUCCEEDS, PostFilterOutcome(error("not found").of("A")))),
)
def test_preview(case: Preview) -> None:
    """Previews are combined like results of PostFilter, which is not called."""
    made = rig([previewing("A", case.first), previewing("B", case.second)])
    instance = present(made.context.profiles.get(DEFAULT_NAME))
    columns = made.columns
    diagnosis = Diagnosis(0, np.zeros(0, dtype=np.int32), columns.alive, lambda _verdict: SUCCESS)
    found = preview_post_filters(instance, CycleState(), columns.compile_pod(pod()), columns, diagnosis)
    assert found == (case.outcome, case.preview)
