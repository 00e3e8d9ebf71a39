"""PostFilter: which plugins are called, the messages, and the nomination."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest

from scheduler_core.config.plugin_set_types import Plugins
from scheduler_core.framework.extension_points import PostFilterResult
from scheduler_core.framework.status import SKIP, SUCCESS, Code, Status, unresolvable, unschedulable
from tests.support.builders import node, pod
from tests.support.recording_plugins import Journal, recorded, recorder
from tests.support.scheduling import plugin_set, profile, rig

POD = pod("web", nominated_node="gone")


class Help(NamedTuple):
    """A PostFilter result, and the resulting message and nomination."""

    answer: object
    adds: str
    nominated: str
    asks_next: bool


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(Help(PostFilterResult(SUCCESS, "n0"), "", "n0", asks_next=False), id="success"),
        pytest.param(
            Help(PostFilterResult(unschedulable("no victims")), " no victims, B too", "gone", asks_next=True),
            id="unschedulable",
        ),
        pytest.param(Help(PostFilterResult(unschedulable("x"), ""), " x, B too", "", asks_next=True), id="withdraws"),
        pytest.param(
            Help(PostFilterResult(unresolvable("never")), " never", "gone", asks_next=False), id="unresolvable"
        ),
        pytest.param(
            Help(
                PostFilterResult(Status(Code.ERROR, ("bad",)), "n0"),
                " bad",
                "gone",
                asks_next=False,
            ),
            id="error",
        ),
        pytest.param(
            Help(PostFilterResult(SKIP), ' plugin "A" failed at postFilter: returned Skip', "gone", asks_next=False),
            id="skip",
        ),
        pytest.param(
            Help(KeyError("k"), " plugin \"A\" failed at postFilter: raised KeyError: 'k'", "gone", asks_next=False),
            id="raises",
        ),
        pytest.param(
            Help(
                None,
                ' plugin "A" failed at postFilter: returned None; return a PostFilterResult',
                "gone",
                asks_next=False,
            ),
            id="nonsense",
        ),
    ],
)
def test_post_filter(case: Help) -> None:
    """The first success or final answer ends the point; what it says follows the filters' reasons.

    The nomination that the pod's status names stays unless a plugin replaces it or takes it back, as in kube-scheduler.
    """
    codes = np.ones(2, dtype=np.int16)
    journal = Journal(
        answers={
            "A.filter": codes,
            "A.postFilter": case.answer,
            "B.postFilter": PostFilterResult(unschedulable("B too")),
        }
    )
    made = recorded(journal, "A", "B", waiting=POD)
    assert made.decide() is None
    assert made.condition.message == f"0/2 nodes are available: 2 why.{case.adds}"
    assert made.queue.nominator.node_of(POD.metadata.uid) == case.nominated
    assert journal.plugins_at("postFilter") == (["A", "B"] if case.asks_next else ["A"])
    failed = made.queue.find(POD.metadata.uid)
    assert failed is not None
    assert failed.rejected_by == {"A"}


def test_without_post_filter_plugins_a_nomination_is_taken_back() -> None:
    """No plugin is left that would keep it."""
    stuck = pod("stuck", nominated_node="n0")
    journal = Journal(answers={"Rec.filter": np.ones(1, dtype=np.int16)})
    made = rig([recorder("Rec", journal)])
    made.serve(profile(plugins=Plugins(post_filter=plugin_set(disabled=["*"]))))
    made.add(node("n0"), stuck)
    assert made.decide() is None
    assert made.queue.nominator.node_of(stuck.metadata.uid) == ""
    assert made.writer.patches[-1].nominated_node_name == ""
