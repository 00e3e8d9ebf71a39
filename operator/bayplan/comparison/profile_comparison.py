"""Decides the pods of one cluster under two profiles, and compares the decisions.

Both runs are simulations of the same objects with the same seed; only the profile differs. A decision that differs may
change later ones: they see other nodes, and ties between nodes with equal scores are resolved by one random sequence.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from bayplan.comparison.rescheduled_pods import PodSelection, RescheduledPods, choose_pods
from bayplan.resources.scheduler_profile import SHADOW_FIELDS
from bayplan.simulation.admission import AdmittedCluster
from bayplan.simulation.cluster_files import Placed
from bayplan.simulation.packing import Packing, measure_packing, zones_of
from bayplan.simulation.rejection_causes import cause_of
from bayplan.simulation.simulation import (
    Inspect,
    PodPlacement,
    SimulationOptions,
    SimulationResult,
    Verdict,
    simulate,
)
from scheduler_core.framework.registry import Registry
from scheduler_core.model.pod import Pod

Raw = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ComparedProfile:
    """One of the two profiles.

    Attributes:
        plugin_configs: PluginConfigs that take precedence over those of the cluster with the same names.
    """

    title: str
    profile: Placed[Raw]
    plugin_configs: tuple[Placed[Raw], ...] = ()

    @property
    def name(self) -> str:
        """Name of the object."""
        return str(self.profile.object["metadata"]["name"])

    @property
    def scheduler_name(self) -> str:
        """SchedulerName of the pods that it serves."""
        return _scheduler_name(self.profile.object)

    @property
    def references(self) -> set[str]:
        """Names of the PluginConfigs that its spec references, as far as it can be read."""
        spec = self.profile.object.get("spec")
        written = spec.get("pluginConfigRefs") if isinstance(spec, Mapping) else None
        entries = written if isinstance(written, list) else []
        return {str(each["name"]) for each in entries if isinstance(each, Mapping) and "name" in each}


class Change(Enum):
    """Difference between the decisions on one pod."""

    NO_LONGER_FITS = "NoLongerFits"
    FITS_NOW = "FitsNow"
    MOVES = "Moves"
    OTHER_REASON = "OtherReason"
    PREEMPTED = "Preempted"
    SPARED = "Spared"


@dataclass(frozen=True, slots=True)
class Outcome:
    """Decision of one profile on a pod.

    Attributes:
        node: Its node; "" for none.
        verdict: The verdict; ``Preempted`` for a running pod that is preempted.
        reason: Why it has no node; "" if it has one.
    """

    node: str
    verdict: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class PodDifference:
    """A pod on which the profiles decide differently.

    Attributes:
        runs_on: Node on which the pod runs now; "" for none.
        before: Decision of the first profile.
        after: Decision of the second profile.
    """

    namespace: str
    name: str
    change: Change
    runs_on: str
    before: Outcome
    after: Outcome


@dataclass(frozen=True, slots=True)
class Side:
    """Results of one profile.

    Attributes:
        placed: Number of the compared pods that have a node.
        unplaced: Number of the compared pods that have none.
        moved: Number of running pods that it places on another node than now, or on none.
    """

    title: str
    placed: int
    unplaced: int
    moved: int
    packing: Packing
    notices: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Comparison:
    """Comparison of two profiles.

    Attributes:
        before: Results of the first profile.
        after: Results of the second profile.
        rescheduled: Number of running pods that were decided again.
        differences: The pods that are decided differently, by kind, namespace and name.
    """

    before: Side
    after: Side
    pending: int
    rescheduled: int
    nodes: int
    differences: tuple[PodDifference, ...]
    notices: tuple[str, ...]

    def count(self, change: Change) -> int:
        """Return the number of pods with a kind of difference."""
        return sum(each.change is change for each in self.differences)


def compare(
    cluster: AdmittedCluster,
    profiles: tuple[ComparedProfile, ComparedProfile],
    selection: PodSelection,
    options: SimulationOptions,
    registry: Registry,
    *,
    inspect: Inspect | None = None,
) -> Comparison:
    """Compare two profiles.

    The second profile decides the pods of the first one, whatever its own name and scheduler name are. The other
    profiles of the cluster decide their pending pods in both runs.

    Args:
        inspect: Called at the end of each run, of the first profile first.

    Raises:
        ConfigError: A profile is invalid.
    """
    scheduler_name = profiles[0].scheduler_name
    again = choose_pods(cluster, scheduler_name, selection)
    results = []
    for profile in profiles:
        changed = with_profile(again.cluster, profile, profiles[0])
        results.append(simulate(changed, options, registry, again.restarts, inspect))
    runs_on = {pod.key: pod.spec.node_name for pod in cluster.pods if pod.spec.node_name}
    sides = [
        _side(profile, scheduler_name, result, cluster, again)
        for profile, result in zip(profiles, results, strict=True)
    ]
    before, after = (_outcomes(result) for result in results)
    shared = [notice for notice in sides[0].notices if notice in sides[1].notices]
    return Comparison(
        before=_without_notices(sides[0], shared),
        after=_without_notices(sides[1], shared),
        pending=sides[0].placed + sides[0].unplaced - len(again.chosen),
        rescheduled=len(again.chosen),
        nodes=len(cluster.nodes),
        differences=tuple(_differences(before, after, runs_on)),
        notices=(*shared, *again.notices, *_nothing_compared(sides[0], scheduler_name)),
    )


def _nothing_compared(side: Side, scheduler_name: str) -> list[str]:
    if side.placed or side.unplaced:
        return []
    return [f"there is no pending pod with schedulerName {scheduler_name}, and no running one is decided again"]


def with_profile(cluster: AdmittedCluster, profile: ComparedProfile, served: ComparedProfile) -> AdmittedCluster:
    """Return the cluster with one profile in the place of the profile that serves the compared pods.

    Args:
        served: The profile whose pods it decides; the decider gets its name and scheduler name.
    """
    body = profile.profile.object
    written = {name: value for name, value in (body.get("spec") or {}).items() if name not in SHADOW_FIELDS}
    spec = {**written, "schedulerName": served.scheduler_name}
    decider = {**body, "metadata": {**body["metadata"], "name": served.name}, "spec": spec}
    others = tuple(
        each
        for each in cluster.profiles
        if each.object["metadata"]["name"] != served.name and _scheduler_name(each.object) != served.scheduler_name
    )
    overridden = {each.object["metadata"]["name"] for each in profile.plugin_configs}
    configs = tuple(each for each in cluster.plugin_configs if each.object["metadata"]["name"] not in overridden)
    return replace(
        cluster,
        profiles=(*others, Placed(decider, profile.profile.place)),
        plugin_configs=(*configs, *profile.plugin_configs),
    )


def _scheduler_name(body: Mapping[str, Any]) -> str:
    spec = body.get("spec")
    written = spec.get("schedulerName") if isinstance(spec, Mapping) else None
    return str(written or body["metadata"]["name"])


def _side(
    profile: ComparedProfile,
    scheduler_name: str,
    result: SimulationResult,
    cluster: AdmittedCluster,
    again: RescheduledPods,
) -> Side:
    compared = [each for each in result.pods if each.profile == scheduler_name]
    outcomes = _outcomes(result)
    moved = {pod.key for pod in again.chosen if outcomes[pod.key].node != pod.spec.node_name} | set(result.preempted)
    names = {f"{each.namespace}/{each.name}" for each in compared}
    pods: list[Pod] = [pod for pod in cluster.pods if pod.key in names]
    placed = [each.node for each in compared if each.node]
    packing = measure_packing(result.nodes, result.packing.devices, pods, zones_of(cluster.nodes), placed)
    return Side(profile.title, len(placed), len(compared) - len(placed), len(moved), packing, result.notices)


def _without_notices(side: Side, shared: Iterable[str]) -> Side:
    known = set(shared)
    return replace(side, notices=tuple(notice for notice in side.notices if notice not in known))


def _outcomes(result: SimulationResult) -> dict[str, Outcome]:
    outcomes = {f"{each.namespace}/{each.name}": _outcome(each) for each in result.pods}
    for key in result.preempted:
        outcomes.setdefault(key, Outcome("", Change.PREEMPTED.value, "preempted"))
    return outcomes


def _outcome(placement: PodPlacement) -> Outcome:
    return Outcome(placement.node, placement.verdict.value, placement.reason)


def _differences(
    before: Mapping[str, Outcome], after: Mapping[str, Outcome], runs_on: Mapping[str, str]
) -> list[PodDifference]:
    found = []
    for key in sorted(before.keys() | after.keys()):
        # A running pod without a decision is preempted under one profile only.
        unchanged = Outcome(runs_on.get(key, ""), Verdict.PLACED.value)
        first, second = before.get(key, unchanged), after.get(key, unchanged)
        change = _change(first, second)
        if change is not None:
            namespace, _, name = key.partition("/")
            found.append(PodDifference(namespace, name, change, runs_on.get(key, ""), first, second))
    order = {change: number for number, change in enumerate(Change)}
    return sorted(found, key=lambda each: order[each.change])


def _change(first: Outcome, second: Outcome) -> Change | None:
    if Change.PREEMPTED.value in (first.verdict, second.verdict) and first.verdict != second.verdict:
        return Change.SPARED if first.verdict == Change.PREEMPTED.value else Change.PREEMPTED
    if first.node and second.node:
        return None if first.node == second.node else Change.MOVES
    if first.node or second.node:
        return Change.FITS_NOW if second.node else Change.NO_LONGER_FITS
    same = first.verdict == second.verdict and cause_of(first.reason) == cause_of(second.reason)
    return None if same else Change.OTHER_REASON
