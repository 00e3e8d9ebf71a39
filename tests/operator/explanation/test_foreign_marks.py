"""Explanations of pods that name a gang of another scheduler."""

from __future__ import annotations

from typing import get_args

import msgspec
import pytest
from bayplan.explanation.documents import Verdict
from bayplan.explanation.pod_building import explain_pod

from scheduler_core.in_tree import default_plugins
from scheduler_core.model.pod_group import ForeignGangs, foreign_gang
from scheduler_core.scheduler import SchedulerOptions
from tests.support.builders import node, pod
from tests.support.scheduling import rig


@pytest.mark.parametrize("handling", get_args(ForeignGangs))
def test_an_explanation_names_the_mark(handling: ForeignGangs) -> None:
    """The explanations of a waiting and of a bound pod name the mark, unless marks are ignored."""
    made = rig(defaults=default_plugins(), options=SchedulerOptions(foreign_gangs=handling))
    made.add(node("n"))
    marked = pod("a", labels={"pod-group-name": "job-1"})
    bound = msgspec.structs.replace(marked, spec=msgspec.structs.replace(marked.spec, node_name="n"))
    text = foreign_gang(marked.metadata)
    for each in (marked, bound):
        made.scheduler.feed.pod_added(each)
        found = explain_pod(made.scheduler, each)
        named = any(text in notice for notice in (*found.notices, found.message or ""))
        assert named is (handling != "Ignore")
        assert (found.verdict is Verdict.GATED) is (handling == "Hold" and each is marked)
    made.queue.close()
