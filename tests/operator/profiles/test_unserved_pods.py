"""Tests of the reports about pods whose profile is not live."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest
from bayplan.introspection.status_building import StatusSources, operator_status
from bayplan.kube.readiness import Readiness
from bayplan.profiles.profile_status import ProfileReading
from bayplan.profiles.unserved_pods import NO_PROFILE, NO_PROFILE_CONDITION, UnservedPods

from scheduler_core.model.pod import Pod, PodCondition
from tests.support.builders import pod
from tests.support.scheduling import Rig, profile, rig
from tests.support.tables import table
from tests.support.virtual_clock import VirtualClock

MISSPELT = (
    'no profile serves schedulerName "pakc" (did you mean "pack"?); create the pod again with that name, because the '
    "field cannot be changed, or a SchedulerProfile that serves this one"
)
REJECTED = (
    'no profile serves schedulerName "batch": SchedulerProfile batch would serve it and is not live (Accepted is '
    "False): wrong"
)
BATCH = ProfileReading("batch", "batch", "", "", ({"type": "Accepted", "status": "False", "message": "wrong"},), ())


@pytest.fixture
def cluster() -> Rig:
    """Return a scheduler on a virtual clock, without nodes and profiles."""
    return rig(clock=VirtualClock(), serve=False)


def waiting(name: str, scheduler: str, conditions: Sequence[PodCondition] = ()) -> Pod:
    made = pod(name, scheduler_name=scheduler)
    return msgspec.structs.replace(made, status=msgspec.structs.replace(made.status, conditions=tuple(conditions)))


def reports(made: Rig, unserved: UnservedPods) -> list[tuple[str, str, str]]:
    """Look once; return pod, status and message of each condition that is written."""
    made.writer.patches.clear()
    unserved.look()
    patches = [(patch.name, patch.condition) for patch in made.writer.patches]
    own = [(name, each) for name, each in patches if each is not None and each.type == NO_PROFILE_CONDITION]
    return [(name, each.status, each.message) for name, each in own]


def scheduled_conditions(made: Rig) -> list[tuple[str, str]]:
    """Return pod and reason of each condition PodScheduled=False that the last look has written."""
    patches = [(patch.name, patch.condition) for patch in made.writer.patches]
    found = [(name, each) for name, each in patches if each is not None and each.type == "PodScheduled"]
    assert all(each.status == "False" for _, each in found)
    return [(name, each.reason) for name, each in found]


@table(
    "name, conditions, expected",
    ("misspelt", "pakc", [], [("a", "True", MISSPELT)]),
    ("rejected", "batch", [], [("a", "True", REJECTED)]),
    ("kube-scheduler", "default-scheduler", [], []),
    ("another scheduler", "volcano", [], []),
    ("reported", "pakc", [PodCondition("PodScheduled", "False", "Unschedulable", "no room")], []),
    ("written before", "pakc", [PodCondition(NO_PROFILE_CONDITION, "True", NO_PROFILE, MISSPELT)], []),
)
def test_only_pods_that_mean_a_profile_are_reported(
    cluster: Rig, name: str, conditions: Sequence[PodCondition], expected: list[tuple[str, str, str]]
) -> None:
    """Pods of other schedulers, and those that another scheduler has reported on, are left alone."""
    cluster.context.profiles.claim(["pack", "batch"])
    unserved = UnservedPods(cluster.context, lambda: [BATCH])
    cluster.add(waiting("a", name, conditions))
    assert reports(cluster, unserved) == []
    cluster.clock.advance(10.0)
    assert reports(cluster, unserved) == expected
    events = [(event.regarding.name, event.type, event.reason, event.note) for event in cluster.writer.events]
    assert events == [(pod_name, "Warning", NO_PROFILE, text) for pod_name, _, text in expected]
    cluster.clock.advance(30.0)
    assert reports(cluster, unserved) == []


@table(
    "name, conditions, expected",
    ("a profile that is not live", "batch", [], [("a", NO_PROFILE)]),
    ("misspelt: perhaps the name of another scheduler", "pakc", [], []),
    ("another scheduler", "volcano", [], []),
    ("reported by others", "batch", [PodCondition("PodScheduled", "False", "Unschedulable", "no room")], []),
    ("written before", "batch", [PodCondition("PodScheduled", "False", NO_PROFILE, REJECTED)], []),
    ("reason changed", "batch", [PodCondition("PodScheduled", "False", NO_PROFILE, "x")], [("a", NO_PROFILE)]),
)
def test_autoscalers_add_no_nodes(
    cluster: Rig, name: str, conditions: Sequence[PodCondition], expected: list[tuple[str, str]]
) -> None:
    """A pod whose name is that of a profile gets PodScheduled=False with a reason that autoscalers ignore."""
    cluster.context.profiles.claim(["pack", "batch"])
    unserved = UnservedPods(cluster.context, lambda: [BATCH])
    cluster.add(waiting("a", name, conditions))
    cluster.clock.advance(10.0)
    reports(cluster, unserved)
    assert scheduled_conditions(cluster) == expected


def test_an_unschedulable_pod_loses_its_profile(cluster: Rig) -> None:
    """The condition Unschedulable, which this scheduler wrote, does not outlast the profile."""
    cluster.serve(profile("batch"))
    cluster.add(waiting("a", "batch"))
    cluster.decide()
    assert cluster.condition.reason == "Unschedulable"
    cluster.context.profiles.claim(["batch"])
    cluster.scheduler.withdraw("batch")
    unserved = UnservedPods(cluster.context, lambda: [BATCH])
    cluster.clock.advance(10.0)
    reports(cluster, unserved)
    assert scheduled_conditions(cluster) == [("a", NO_PROFILE)]


def test_a_changed_reason_is_reported_after_a_minute(cluster: Rig) -> None:
    """A pod is reported once a minute at most."""
    cluster.context.profiles.claim(["pack"])
    unserved = UnservedPods(cluster.context, list)
    cluster.add(waiting("a", "pakc"))
    cluster.clock.advance(10.0)
    assert len(reports(cluster, unserved)) == 1
    cluster.context.profiles.claim(["pakcs"])
    cluster.clock.advance(59.0)
    assert reports(cluster, unserved) == []
    cluster.clock.advance(1.0)
    ((_, _, message),) = reports(cluster, unserved)
    assert 'did you mean "pakcs"?' in message


def test_the_condition_is_cleared_when_the_profile_is_live(cluster: Rig) -> None:
    """The condition becomes False when the profile is live, also if an earlier process has written it."""
    cluster.context.profiles.claim(["pakc"])
    marked = waiting("b", "pakc", [PodCondition(NO_PROFILE_CONDITION, "True", NO_PROFILE, "x")])
    cluster.add(waiting("a", "pakc"), marked)
    unserved = UnservedPods(cluster.context, list)
    cluster.clock.advance(10.0)
    assert {name for name, _, _ in reports(cluster, unserved)} == {"a", "b"}
    cluster.serve(profile("pakc"))
    assert sorted(reports(cluster, unserved)) == [(name, "False", "A profile is live.") for name in "ab"]
    assert reports(cluster, unserved) == []


def test_pods_of_other_schedulers_are_shown_on_request(cluster: Rig) -> None:
    """The status has the pods of other schedulers only if all pods are requested, and no count includes them."""
    context = cluster.context
    context.profiles.claim(["pack"])
    cluster.add(waiting("a", "pakc"), waiting("b", "volcano"), waiting("c", "default-scheduler"))
    sources = StatusSources(cluster.scheduler, Readiness(()))
    assert operator_status(sources, 0.0).parked == {"pakc": 1}
    assert operator_status(sources, 0.0, limit=0).parked == {"pakc": 1, "volcano": 1, "default-scheduler": 1}
    assert context.profiles.count_meant(context.queue.readings.parked_counts()) == 1


def test_a_name_that_was_served_still_counts(cluster: Rig) -> None:
    """Pods of a profile that was deleted are not pods of another scheduler."""
    cluster.serve(profile("volcano"))
    cluster.context.profiles.claim(["pack"])
    cluster.scheduler.withdraw("volcano")
    cluster.add(waiting("a", "volcano"))
    assert operator_status(StatusSources(cluster.scheduler, Readiness(())), 0.0).parked == {"volcano": 1}
