"""DynamicResources lets pods without claims pass, and says why others do not."""

import asyncio

import msgspec
import numpy as np

from scheduler_core.config.plugin_args import DynamicResourcesArgs
from scheduler_core.framework.cycle_state import CycleState
from scheduler_core.framework.diagnosis import Diagnosis
from scheduler_core.framework.status import SUCCESS, Code
from scheduler_core.model.pod import Pod, ResourceClaimReference
from scheduler_core.plugins.dynamic_resources import DynamicResources
from scheduler_core.snapshot.node_columns import ALL_ROWS
from tests.support.builders import node, pod
from tests.support.columns import columns
from tests.support.handles import FakeHandle

PLAIN = pod()
CLAIMING = msgspec.structs.replace(
    PLAIN, spec=msgspec.structs.replace(PLAIN.spec, resource_claims=(ResourceClaimReference("gpu"),))
)
NODES = columns([node("a"), node("b")])
DIAGNOSIS = Diagnosis(2, np.zeros(2, dtype=np.int32), NODES.alive, lambda _verdict: SUCCESS)


def plugin() -> DynamicResources:
    return DynamicResources(DynamicResourcesArgs(), FakeHandle(nodes=NODES))


def looked_at(wanted: Pod) -> CycleState:
    state = CycleState()
    plugin().pre_filter(state, NODES.compile_pod(wanted), NODES)
    return state


def test_a_pod_without_claims_skips_filter_and_score() -> None:
    """It costs nothing and its score is absent."""
    state, info = CycleState(), NODES.compile_pod(PLAIN)
    assert plugin().pre_filter(state, info, NODES).status.is_skip
    assert state.skip_score == {"DynamicResources"}


def test_a_pod_with_claims_is_turned_away() -> None:
    """The reason says what to do; no pod's going would help."""
    state, info = CycleState(), NODES.compile_pod(CLAIMING)
    status = plugin().pre_filter(state, info, NODES).status
    assert status.code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE
    assert status.reasons == ("resource claims are not supported yet; remove spec.resourceClaims from the pod",)
    assert plugin().decode(state, info, 1) == status


def test_is_told_why_rather_than_gated() -> None:
    """A gated pod would get no event."""
    assert plugin().pre_enqueue(NODES.compile_pod(CLAIMING)).is_success
    assert plugin().events_to_register() == ()


def test_has_nothing_to_deallocate() -> None:
    """It adds nothing to the message of a failed preemption."""
    for wanted in (PLAIN, CLAIMING):
        result = plugin().post_filter(looked_at(wanted), NODES.compile_pod(wanted), NODES, DIAGNOSIS)
        assert (result.status.code, result.nominated_node) == (Code.UNSCHEDULABLE, None)
        assert result.status.reasons == ()


def test_fails_where_pre_filter_did_not_come_so_far() -> None:
    """Another plugin rejected the pod for good before this one looked at it; the reference's words."""
    result = plugin().post_filter(CycleState(), NODES.compile_pod(PLAIN), NODES, DIAGNOSIS)
    assert (result.status.code, result.status.message) == (Code.ERROR, "not found")


def test_previews_what_it_answers() -> None:
    """It changes nothing either way."""
    state, info = looked_at(PLAIN), NODES.compile_pod(PLAIN)
    preview = plugin().preview(state, info, NODES, DIAGNOSIS)
    assert preview.result == plugin().post_filter(state, info, NODES, DIAGNOSIS)
    assert preview.candidates == ()


def test_every_node_is_alike() -> None:
    """Where PreFilter is left out of the profile, nodes pass and get 0."""
    state, info = CycleState(), NODES.compile_pod(PLAIN)
    assert plugin().filter(state, info, NODES, ALL_ROWS) is None
    assert plugin().score(state, info, NODES, ALL_ROWS).tolist() == [0, 0]
    assert plugin().score(state, info, NODES, np.array([1])).tolist() == [0]


def test_holds_and_writes_nothing() -> None:
    """The points after the decision let the pod pass."""
    state, info = CycleState(), NODES.compile_pod(PLAIN)
    assert plugin().reserve(state, info, "a").is_success
    plugin().unreserve(state, info, "a")
    assert plugin().pre_bind_pre_flight(state, info, "a").is_skip
    assert asyncio.run(plugin().pre_bind(state, info, "a")).is_success
