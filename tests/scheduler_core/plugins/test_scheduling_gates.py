"""SchedulingGates holds gated pods back and wakes up for the right pod only."""

import pytest

from scheduler_core.framework.cluster_events import Action, ClusterEvent, Hint, Resource
from scheduler_core.framework.status import Code
from scheduler_core.plugins.scheduling_gates import SchedulingGates, after_gates_eliminated
from tests.support.builders import node, pod
from tests.support.columns import columns
from tests.support.handles import FakeHandle


@pytest.fixture
def plugin() -> SchedulingGates:
    return SchedulingGates(None, FakeHandle())


def test_a_pod_without_gates_enters(plugin: SchedulingGates) -> None:
    """No gate, no wait."""
    assert plugin.pre_enqueue(columns([]).compile_pod(pod())).is_success


@pytest.mark.parametrize(
    ("gates", "reason"),
    [
        pytest.param(["example.com/a"], "waiting for scheduling gates: [example.com/a]", id="one"),
        pytest.param(["b", "a"], "waiting for scheduling gates: [b a]", id="in-order-of-the-spec"),
    ],
)
def test_a_gated_pod_is_held_back(plugin: SchedulingGates, gates: list[str], reason: str) -> None:
    """The answer names the gates that are left."""
    status = plugin.pre_enqueue(columns([]).compile_pod(pod(gates=gates)))
    assert (status.code, status.reasons) == (Code.UNSCHEDULABLE_AND_UNRESOLVABLE, (reason,))


def test_it_asks_for_the_removal_of_gates_only(plugin: SchedulingGates) -> None:
    """One registration, which a deleted pod does not fall under."""
    (registration,) = plugin.events_to_register()
    gone = ClusterEvent(Resource.TARGET_POD, Action.UPDATE_POD_SCHEDULING_GATES_ELIMINATED)
    assert registration.event.covers(gone)
    assert not registration.event.covers(ClusterEvent(Resource.POD, Action.DELETE))
    assert registration.hint is after_gates_eliminated


@pytest.mark.parametrize(
    ("new", "hint"),
    [
        pytest.param(pod("waiting"), Hint.QUEUE, id="the-pod-itself"),
        pytest.param(pod("other"), Hint.SKIP, id="another-pod"),
        pytest.param(node(), Hint.QUEUE, id="an-object-of-another-kind"),
    ],
)
def test_hint(new: object, hint: Hint) -> None:
    """Only the pod whose gates went is queued; what cannot be judged is."""
    assert after_gates_eliminated(pod("waiting", gates=["a"]), None, new) is hint
