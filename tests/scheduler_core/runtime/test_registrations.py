"""Event registrations of a plugin."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from scheduler_core.framework.cluster_events import (
    EVERY_EVENT,
    Action,
    ClusterEvent,
    EventRegistration,
    Hint,
    Resource,
)
from scheduler_core.framework.extension_points import PreEnqueuePlugin
from scheduler_core.framework.status import SUCCESS, Status
from scheduler_core.model.pod import Pod
from scheduler_core.runtime.registrations import registrations_of
from tests.support.handles import FakeHandle

TAINTS = ClusterEvent(Resource.NODE, Action.UPDATE_NODE_TAINT)


def _skip(_pod: Pod, _old: object | None, _new: object | None) -> Hint:
    return Hint.SKIP


class Registering(PreEnqueuePlugin):
    """Registers the given events."""

    name = "Registering"
    wishes: Sequence[EventRegistration] = ()

    def events_to_register(self) -> Sequence[EventRegistration]:
        return self.wishes

    def pre_enqueue(self, *_: object) -> Status:
        return SUCCESS


@pytest.mark.parametrize(
    ("wished", "is_added"),
    [
        pytest.param(ClusterEvent(Resource.NODE, Action.ADD), True, id="new-nodes"),
        pytest.param(ClusterEvent(Resource.NODE, Action.ADD | Action.UPDATE_NODE_LABEL), True, id="and-labels"),
        pytest.param(ClusterEvent(Resource.NODE, Action.ADD | Action.UPDATE_NODE_TAINT), False, id="and-taints"),
        pytest.param(ClusterEvent(Resource.NODE, Action.ALL), False, id="every-change-of-nodes"),
        pytest.param(ClusterEvent(Resource.NODE, Action.UPDATE_NODE_LABEL), False, id="labels-alone"),
        pytest.param(ClusterEvent(Resource.POD, Action.ADD), False, id="new-pods"),
        pytest.param(EVERY_EVENT, False, id="everything"),
    ],
)
def test_new_node_registrations_include_taint_changes(wished: ClusterEvent, is_added: bool) -> None:
    """The added registration has no hint, as in kube-scheduler; an existing taint registration is unchanged."""
    plugin = Registering(None, FakeHandle())
    plugin.wishes = (EventRegistration(wished, _skip),)
    found = registrations_of(plugin)
    assert found[0] == EventRegistration(wished, _skip)
    assert found[1:] == ((EventRegistration(TAINTS),) if is_added else ())
