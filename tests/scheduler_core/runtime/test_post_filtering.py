"""Previews of PostFilter."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest

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
from tests.support.scheduling import DEFAULT_NAME, rig

HELP = PostFilterPreview(PostFilterResult(SUCCESS, "n"), (PreemptionCandidate("n", ()),))
NO = PostFilterPreview(PostFilterResult(unschedulable("no"), ""))
FAULT = PostFilterPreview(PostFilterResult(error("not found"), "n"))


class Case(NamedTuple):
    """Previews of two plugins, and the combined result."""

    first: PostFilterPreview | None
    second: PostFilterPreview | None
    outcome: PostFilterOutcome
    preview: PostFilterPreview | None = None


def foretelling(plugin_name: str, foretold: PostFilterPreview | None) -> type[PostFilterPlugin]:
    class Foretelling(PostFilterPlugin):
        name = plugin_name

        def post_filter(
            self, state: CycleState, pod: PodInfo, nodes: NodeColumns, diagnosis: Diagnosis
        ) -> PostFilterResult:
            raise AssertionError("a preview must not act")

        def preview(
            self, state: CycleState, pod: PodInfo, nodes: NodeColumns, diagnosis: Diagnosis
        ) -> PostFilterPreview | None:
            return foretold

    return Foretelling


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(Case(HELP, NO, PostFilterOutcome(SUCCESS.of("A"), "n"), HELP), id="the-first-success-ends"),
        pytest.param(Case(NO, HELP, PostFilterOutcome(SUCCESS.of("B"), "n"), HELP), id="the-second-helps"),
        pytest.param(
            Case(NO, NO, PostFilterOutcome(Status(Code.UNSCHEDULABLE, ("no", "no"), "A"), "")), id="nobody-helps"
        ),
        pytest.param(
            Case(None, NO, PostFilterOutcome(Status(Code.UNSCHEDULABLE, ("no",), "B"), "")), id="one-leaves-it-open"
        ),
        pytest.param(Case(FAULT, HELP, PostFilterOutcome(error("not found").of("A"))), id="an-error-ends"),
    ],
)
def test_preview(case: Case) -> None:
    """Results are combined as if the plugins had acted, but none of them acts."""
    made = rig([foretelling("A", case.first), foretelling("B", case.second)])
    instance = made.context.profiles.get(DEFAULT_NAME)
    assert instance is not None
    columns = made.context.cache.columns
    diagnosis = Diagnosis(0, np.zeros(0, dtype=np.int32), columns.alive, lambda _verdict: SUCCESS)
    found = preview_post_filters(instance, CycleState(), columns.compile_pod(pod()), columns, diagnosis)
    assert found == (case.outcome, case.preview)
