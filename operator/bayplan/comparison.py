"""Decides the pods of one cluster under two profiles, and compares the decisions.

Both runs are simulations of the same objects with the same seed; only the profile differs. A decision that differs may
change later ones: they see other nodes, and ties between nodes with equal scores are resolved by one random sequence.
Why a pod moves is examined in the state of its decision: the decisions from that pod on are hypothetically removed.
What else changed since (preempted pods, claims) stays as it is, so that a reason may be missing, but none is wrong.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Any

from msgspec import Struct, structs

from bayplan.profiles.rollback import ProfileHistory, is_revision
from bayplan.resources.scheduler_profile import SHADOW_FIELDS
from bayplan.settings.profile_selection import parse_label_selector
from bayplan.simulation.admission import AdmittedCluster
from bayplan.simulation.cluster_files import STANDARD_INPUT, Placed, read_cluster_files
from bayplan.simulation.cluster_snapshot import LIVE
from bayplan.simulation.packing import DeviceUsage, ResourceTotal, devices_title, measure_packing, zones_of
from bayplan.simulation.simulation import (
    Inspect,
    PodPlacement,
    SimulationOptions,
    SimulationResult,
    Verdict,
    cause_of,
    pod_to_schedule,
    simulate,
)
from scheduler_core.errors import ConfigError, Problem, SelectorError
from scheduler_core.explain.pod_dry_run import Examination
from scheduler_core.framework.registry import Registry
from scheduler_core.model.pod import Pod
from scheduler_core.model.pod_group import GroupKey, group_key_of
from scheduler_core.model.selectors import LabelMatcher
from scheduler_core.scheduler import Scheduler
from scheduler_core.snapshot.overlay import ColumnsOverlay
from scheduler_core.snapshot.pod_info import PodInfo

_STATIC_OWNER = "Node"
_DAEMON_SET = "DaemonSet"


class Reschedule(Enum):
    """State from which running pods are decided again."""

    NO = "no"
    EMPTY = "empty"
    PRESENT = "present"


@dataclass(frozen=True, slots=True)
class PodSelection:
    """Selects running pods.

    Attributes:
        namespace: Namespace of the pods; "" for all.
    """

    state: Reschedule
    namespace: str
    labels: LabelMatcher


@dataclass(frozen=True, slots=True)
class RescheduledPods:
    """Running pods that are decided again.

    Attributes:
        restarts: The pods that are restarted one after the other, with the members of a gang in one entry.
    """

    cluster: AdmittedCluster
    restarts: tuple[tuple[Pod, ...], ...]
    chosen: tuple[Pod, ...]
    notices: tuple[str, ...]


def choose_pods(cluster: AdmittedCluster, scheduler_name: str, selection: PodSelection) -> RescheduledPods:
    """Choose the running pods that are decided again.

    Pods of DaemonSets, static pods and pods with resource claims stay: the first two are not placed freely, and devices
    that are allocated stay allocated.
    """
    if selection.state is Reschedule.NO:
        return RescheduledPods(cluster, (), (), ())
    stays: Counter[str] = Counter()
    chosen = []
    for pod in cluster.pods:
        if not _is_selected(pod, scheduler_name, selection):
            continue
        reason = next((reason for reason, holds in _STAYS.items() if holds(pod)), "")
        if reason:
            stays[reason] += 1
        else:
            chosen.append(pod)
    notices = tuple(f"{count} selected running pods stay where they are: {why}" for why, count in sorted(stays.items()))
    if selection.state is Reschedule.PRESENT:
        return RescheduledPods(cluster, _restarts(chosen), tuple(chosen), notices)
    uids = {pod.metadata.uid for pod in chosen}
    emptied = replace(
        cluster,
        pods=tuple(pod_to_schedule(pod) if pod.metadata.uid in uids else pod for pod in cluster.pods),
    )
    return RescheduledPods(emptied, (), tuple(chosen), notices)


def _is_selected(pod: Pod, scheduler_name: str, selection: PodSelection) -> bool:
    return (
        bool(pod.spec.node_name)
        and not pod.is_terminal
        and pod.spec.scheduler_name == scheduler_name
        and selection.namespace in ("", pod.metadata.namespace)
        and selection.labels.matches(pod.metadata.labels)
    )


def _is_owned_by(pod: Pod, kind: str) -> bool:
    return any(owner.kind == kind for owner in pod.metadata.owner_references)


_STAYS: dict[str, Callable[[Pod], bool]] = {
    "they are being deleted": lambda pod: pod.metadata.deletion_timestamp is not None,
    "they belong to DaemonSets": lambda pod: _is_owned_by(pod, _DAEMON_SET),
    "they are static pods": lambda pod: _is_owned_by(pod, _STATIC_OWNER),
    "they have resource claims": lambda pod: bool(
        pod.spec.resource_claims or pod.status.extended_resource_claim_status is not None
    ),
}


def _restarts(pods: Iterable[Pod]) -> tuple[tuple[Pod, ...], ...]:
    """Put the members of a gang together, at the place of the first."""
    together: dict[GroupKey | str, list[Pod]] = {}
    for pod in pods:
        together.setdefault(group_key_of(pod) or pod.metadata.uid, []).append(pod)
    return tuple(map(tuple, together.values()))


def parse_label_query(text: str) -> LabelMatcher:
    """Parse a selector such as ``app=web,tier in (a, b),!canary``; an empty text matches everything.

    Raises:
        ConfigError: The text is not a selector.
    """
    try:
        return parse_label_selector(text) if text.strip() else LabelMatcher(())
    except SelectorError as error:
        message = f'"{text}" is not a label selector: {error}; write it as for kubectl, such as app=web,tier in (a,b)'
        raise ConfigError([Problem("--selector", message)]) from error


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
        return str(self.profile.object["metadata"]["name"])

    @property
    def scheduler_name(self) -> str:
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


class Outcome(Struct, frozen=True):
    """Decision of one profile on a pod.

    Attributes:
        verdict: The verdict; ``Preempted`` for a running pod that is preempted.
        reason: Why it has no node; None if it has one.
    """

    node: str | None
    verdict: str
    reason: str | None = None


class PodDifference(Struct, frozen=True, rename="camel"):
    """A pod on which the profiles decide differently.

    Attributes:
        runs_on: Node on which the pod runs now.
        reason: Why the decisions differ.
    """

    namespace: str
    name: str
    change: Change
    runs_on: str | None
    before: Outcome
    after: Outcome
    reason: str


class DeviceTotal(DeviceUsage, frozen=True):
    """Devices of one driver, and the standard deviation of the nodes' utilisation."""

    imbalance: float | None


class Side(Struct, frozen=True, rename="camel"):
    """Results of one profile.

    Attributes:
        profile: The profile as the user named it.
        moved_running_pods: Number of running pods that it places on another node than now, or on none.
        resources: Totals by resource; pods, CPU and memory first.
        zone_skew: Difference between the zones with the most and the fewest decided pods; None without two zones.
    """

    profile: str
    scheduled: int
    unscheduled: int
    moved_running_pods: int
    empty_nodes: int
    resources: dict[str, ResourceTotal]
    devices: dict[str, DeviceTotal]
    zone_skew: int | None
    notices: tuple[str, ...]


class ComparisonSummary(Struct, frozen=True):
    """Numbers of nodes, of decided pods, and of pods with each kind of difference."""

    nodes: int
    pending: int
    rescheduled: int
    differences: dict[Change, int]


class Comparison(Struct, frozen=True):
    """Comparison of two profiles; CPU in millicores, shares from 0 to 1.

    Attributes:
        differences: The pods that are decided differently, by kind, namespace and name.
    """

    before: Side
    after: Side
    summary: ComparisonSummary
    differences: tuple[PodDifference, ...]
    notices: tuple[str, ...]


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
    results: list[SimulationResult] = []
    preferences: dict[str, str] = {}

    async def read_end(scheduler: Scheduler, placements: Sequence[PodPlacement]) -> None:
        if inspect is not None:
            await inspect(scheduler, placements)
        if results:
            preferences.update(_preferences(scheduler, results[0].pods, placements))

    for profile in profiles:
        changed = with_profile(again.cluster, profile, profiles[0])
        results.append(simulate(changed, options, registry, again.restarts, read_end))
    runs_on = {pod.key: pod.spec.node_name for pod in cluster.pods if pod.spec.node_name}
    sides = [
        _side(profile, scheduler_name, result, cluster, again)
        for profile, result in zip(profiles, results, strict=True)
    ]
    before, after = map(_outcomes, results)
    differences = tuple(_differences(before, after, runs_on, preferences))
    counts = Counter(each.change for each in differences)
    shared = [notice for notice in sides[0].notices if notice in sides[1].notices]
    return Comparison(
        before=_without_notices(sides[0], shared),
        after=_without_notices(sides[1], shared),
        summary=ComparisonSummary(
            nodes=len(cluster.nodes),
            pending=sides[0].scheduled + sides[0].unscheduled - len(again.chosen),
            rescheduled=len(again.chosen),
            differences={change: counts[change] for change in Change},
        ),
        differences=differences,
        notices=(*shared, *again.notices, *_nothing_compared(sides[0], scheduler_name)),
    )


def _nothing_compared(side: Side, scheduler_name: str) -> list[str]:
    if side.scheduled or side.unscheduled:
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
    return Side(
        profile=profile.title,
        scheduled=len(placed),
        unscheduled=len(compared) - len(placed),
        moved_running_pods=len(moved),
        empty_nodes=packing.empty_nodes,
        resources=packing.resources,
        devices={
            driver: DeviceTotal(use.requested, use.allocatable, packing.imbalance.get(devices_title(driver)))
            for driver, use in packing.devices.items()
        },
        zone_skew=packing.zone_skew,
        notices=result.notices,
    )


def _without_notices(side: Side, shared: Iterable[str]) -> Side:
    known = set(shared)
    return structs.replace(side, notices=tuple(notice for notice in side.notices if notice not in known))


def _outcomes(result: SimulationResult) -> dict[str, Outcome]:
    outcomes = {
        f"{each.namespace}/{each.name}": Outcome(each.node, each.verdict.value, each.reason) for each in result.pods
    }
    for key in result.preempted:
        outcomes.setdefault(key, Outcome(None, Change.PREEMPTED.value, "preempted"))
    return outcomes


def _preferences(scheduler: Scheduler, before: Iterable[PodPlacement], after: Iterable[PodPlacement]) -> dict[str, str]:
    """Return why the second profile moves pods, at the end of its run."""
    nodes = {f"{each.namespace}/{each.name}": each.node for each in after}
    old = {f"{each.namespace}/{each.name}": each.node for each in before}
    moved = {key: node for key, node in old.items() if node and nodes.get(key, node) not in (None, node)}
    return node_preferences(scheduler, set(nodes), moved) if moved else {}


def _differences(
    before: Mapping[str, Outcome],
    after: Mapping[str, Outcome],
    runs_on: Mapping[str, str],
    preferences: Mapping[str, str],
) -> list[PodDifference]:
    found = []
    for key in sorted(before.keys() | after.keys()):
        # A running pod without a decision is preempted under one profile only.
        unchanged = Outcome(runs_on.get(key), Verdict.PLACED.value)
        first, second = before.get(key, unchanged), after.get(key, unchanged)
        change = _change(first, second)
        if change is not None:
            namespace, _, name = key.partition("/")
            reason = preferences.get(key) or reason_of(change, first, second)
            found.append(PodDifference(namespace, name, change, runs_on.get(key), first, second, reason))
    order = {change: number for number, change in enumerate(Change)}
    return sorted(found, key=lambda each: order[each.change])


def _change(first: Outcome, second: Outcome) -> Change | None:
    if Change.PREEMPTED.value in (first.verdict, second.verdict) and first.verdict != second.verdict:
        return Change.SPARED if first.verdict == Change.PREEMPTED.value else Change.PREEMPTED
    if first.node and second.node:
        return None if first.node == second.node else Change.MOVES
    if first.node or second.node:
        return Change.FITS_NOW if second.node else Change.NO_LONGER_FITS
    same = first.verdict == second.verdict and cause_of(first.reason or "") == cause_of(second.reason or "")
    return None if same else Change.OTHER_REASON


def reason_of(change: Change, first: Outcome, second: Outcome) -> str:
    """Return why the decisions differ, which is never empty: what the pod waits for, or which node is preferred."""
    before, after = (cause_of(side.reason) if side.reason else "" for side in (first, second))
    if change is Change.OTHER_REASON:
        return f"{before or first.verdict}; then {after or second.verdict}"
    if change is Change.MOVES:
        return f"{second.node} is preferred to {first.node}"
    return after or before or (first.verdict if second.node else second.verdict)


_SUFFIXES = (".yaml", ".yml", ".json")

History = Callable[[str], ProfileHistory]
"""Reads the history of the profile of a name."""


@dataclass(frozen=True, slots=True)
class ProfileReference:
    """A profile as the user named it.

    Attributes:
        file: Path of the file; "" for a profile of the cluster.
        name: Name of the profile; "" for the only one in the file.
        revision: Number or hash of the stored revision; None for the present spec.
    """

    text: str
    file: str
    name: str
    revision: str | None = None


def parse_reference(text: str) -> ProfileReference:
    """Parse ``FILE``, ``FILE#NAME``, ``NAME`` or ``NAME@REVISION``.

    An argument is a file if it ends with .yaml, .yml or .json, contains a slash, is ``-``, or if such a file exists.

    Raises:
        ConfigError: The revision is neither a positive number nor a hash.
    """
    path, _, wanted = text.partition("#")
    if path == STANDARD_INPUT or "/" in path or path.endswith(_SUFFIXES) or Path(path).is_file():
        return ProfileReference(text, path, wanted)
    name, at, revision = text.partition("@")
    if not at:
        return ProfileReference(text, "", name)
    if not is_revision(revision):
        message = (
            f'"{revision}" is not a revision; write NAME@REVISION, with a number or hash of: bayplan history {name}'
        )
        raise ConfigError([Problem(text, message)])
    return ProfileReference(text, "", name, revision)


def find_profile(reference: ProfileReference, cluster: AdmittedCluster, history: History) -> ComparedProfile:
    """Find a profile.

    Raises:
        ConfigError: There is no such profile, or the file has several.
        ClusterWriteError: The stored revisions cannot be read.
    """
    if reference.file:
        return _in_file(reference)
    if reference.revision is None:
        return ComparedProfile(reference.text, _named(reference.name, cluster.profiles, reference.text))
    found = history(reference.name)
    spec = found.spec_of(found.named(reference.revision), resolved=True)
    body = {**found.body, "spec": spec}
    return ComparedProfile(reference.text, Placed(body, LIVE))


def _in_file(reference: ProfileReference) -> ComparedProfile:
    files = read_cluster_files([reference.file])
    if files.problems:
        raise ConfigError(files.problems)
    if reference.name:
        profile = _named(reference.name, files.profiles, reference.text)
    elif len(files.profiles) == 1:
        profile = files.profiles[0]
    else:
        names = _names(files.profiles)
        message = (
            f"has {len(files.profiles)} SchedulerProfiles ({names}); choose one with {reference.file}#NAME"
            if files.profiles
            else "has no SchedulerProfile; a KubeSchedulerConfiguration is converted by: bayplan import-config"
        )
        raise ConfigError([Problem(reference.file, message)])
    return ComparedProfile(reference.text, profile, tuple(files.plugin_configs))


def _named(name: str, profiles: Iterable[Placed[dict[str, Any]]], text: str) -> Placed[dict[str, Any]]:
    for placed in profiles:
        if placed.object["metadata"]["name"] == name:
            return placed
    raise ConfigError([Problem(text, f'there is no SchedulerProfile "{name}"; existing: {_names(profiles)}')])


def _names(profiles: Iterable[Placed[dict[str, Any]]]) -> str:
    return ", ".join(sorted(str(placed.object["metadata"]["name"]) for placed in profiles)) or "none"


EXPLAINED = 1000
"""Maximum number of pods that are examined, because each takes a dry run on all nodes."""


def node_preferences(scheduler: Scheduler, decided: set[str], others: Mapping[str, str]) -> dict[str, str]:
    """Return why pods have their nodes and not the given ones.

    Returns:
        The reasons by ``namespace/name``; without pods of gangs, which get their nodes together, and without those
        whose state cannot be restored.
    """
    context, found = scheduler.context, dict[str, str]()
    with context.steps.dry_run(), ColumnsOverlay(context.cache.columns) as overlay:
        # The cache returns pods in the order in which they were assumed, which is that of the decisions.
        for placed in reversed(context.cache.placed_pods()):
            info = placed.info
            if info.key not in decided:
                continue
            own = info.node_name
            overlay.remove((info,))
            other = others.get(info.key)
            if other is not None and len(found) < EXPLAINED:
                reason = _preference(scheduler, info, own, other)
                if reason:
                    found[info.key] = reason
    return found


def _preference(scheduler: Scheduler, info: PodInfo, own: str, other: str) -> str:
    context, examiner = scheduler.context, scheduler.cycles.examiner
    pod = info.pod
    instance = context.profiles.get(pod.spec.scheduler_name)
    if instance is None or context.queue.gangs.key_of(pod) is not None:
        return ""
    waiting = context.cache.columns.compile_pod(structs.replace(pod, spec=structs.replace(pod.spec, node_name="")))
    try:
        examination = examiner.examine_alone(instance, waiting)
    except Exception:  # noqa: BLE001 - a plugin's; the decision is compared without the reason
        return ""
    return _preference_of(examination, own, other)


def _preference_of(found: Examination, own: str, other: str) -> str:
    """Return why an examined attempt selects one node and not another; "" if it does not."""
    if found.error or own not in found.best:
        return ""
    if other not in found.feasible:
        status = found.rejected.get(other, found.pre_filter)
        reason = ", ".join(status.reasons)
        return f"{status.plugin or 'PreFilter'} rejects {other}: {reason}" if reason else ""
    if other in found.best:
        return f"{own} and {other} have equal scores"
    first, second = found.feasible.index(own), found.feasible.index(other)
    pairs = {name: (int(part.weighted[first]), int(part.weighted[second])) for name, part in found.scores.items()}
    name, (more, less) = max(pairs.items(), key=lambda pair: pair[1][0] - pair[1][1])
    return f"{name} scores {own} {more}, {other} {less}"
