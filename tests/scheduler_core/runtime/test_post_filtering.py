"""Previews of PostFilter, which return its result without side effects."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from scheduler_core.framework.cycle_state import CycleState
from scheduler_core.framework.diagnosis import Diagnosis
from scheduler_core.framework.extension_points import (
    PostFilterPlugin,
    PostFilterPreview,
    PostFilterResult,
    PreemptionCandidate,
)
from scheduler_core.framework.status import SUCCESS, Code, Status, error, unschedulable
from scheduler_core.runtime.post_filtering import PostFilterOutcome, preview_post_filters
from scheduler_core.snapshot.node_columns import NodeColumns
from scheduler_core.snapshot.pod_info import PodInfo
from tests.support.builders import pod
from tests.support.presence import present
from tests.support.scheduling import DEFAULT_NAME, rig
from tests.support.tables import table

SUCCEEDS = PostFilterPreview(PostFilterResult(SUCCESS, "n"), (PreemptionCandidate("n", ()),))
REJECTS = PostFilterPreview(PostFilterResult(unschedulable("no"), ""))
FAILS = PostFilterPreview(PostFilterResult(error("not found"), "n"))


class Case(NamedTuple):
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
    ("first-succeeds", Case(SUCCEEDS, REJECTS, PostFilterOutcome(SUCCESS.of("A"), "n"), SUCCEEDS)),
    ("second-succeeds", Case(REJECTS, SUCCEEDS, PostFilterOutcome(SUCCESS.of("B"), "n"), SUCCEEDS)),
    ("both-reject", Case(REJECTS, REJECTS, PostFilterOutcome(Status(Code.UNSCHEDULABLE, ("no", "no"), "A"), ""))),
    ("first-has-no-preview", Case(None, REJECTS, PostFilterOutcome(Status(Code.UNSCHEDULABLE, ("no",), "B"), ""))),
    ("first-fails", Case(FAILS, SUCCEEDS, PostFilterOutcome(error("not found").of("A")))),
)
def test_preview(case: Case) -> None:
    """Previews are combined like results of PostFilter, which is not called."""
    made = rig([previewing("A", case.first), previewing("B", case.second)])
    instance = present(made.context.profiles.get(DEFAULT_NAME))
    columns = made.columns
    diagnosis = Diagnosis(0, np.zeros(0, dtype=np.int32), columns.alive, lambda _verdict: SUCCESS)
    found = preview_post_filters(instance, CycleState(), columns.compile_pod(pod()), columns, diagnosis)
    assert found == (case.outcome, case.preview)
