"""Bayplan's own feature gates.

A beta gate can be turned off: each is a part that the operator also works without, so that a suspected part can be
ruled out without changing the version.

Follows component-base v0.37.1, featuregate/feature_gate.go: ``AllAlpha`` and ``AllBeta`` apply to the gates of their
stage that are not set by name; a gate that is locked to its default accepts no other value.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import Enum

from msgspec import Struct
from msgspec.structs import replace

from scheduler_core.config.config_model import RuleProblem
from scheduler_core.config.validation import did_you_mean
from scheduler_core.devices.records import DeviceFeatures
from scheduler_core.errors import ConfigError, Problem
from scheduler_core.scheduler_options import SchedulerOptions

_TRUE = frozenset({"true", "t", "1"})
_FALSE = frozenset({"false", "f", "0"})


class Stage(Enum):
    """Maturity of a feature; the values are those of kube-scheduler's metric."""

    ALPHA = "ALPHA"
    BETA = "BETA"
    GA = ""
    DEPRECATED = "DEPRECATED"

    @property
    def word(self) -> str:
        """The stage as shown to people."""
        return self.value or "GA"


class FeatureGate(Struct, frozen=True):
    """Feature gate.

    Attributes:
        name: Name in ``--feature-gates``.
        since: Version of Bayplan in which it reached this stage.
        description: What it turns on, and what happens when it is off.
        is_locked: Whether it accepts only its default.
    """

    name: str
    default: bool
    stage: Stage
    since: str
    description: str
    is_locked: bool = False


def _alpha(name: str, description: str, since: str = "0.1") -> FeatureGate:
    return FeatureGate(name, False, Stage.ALPHA, since, description)


def _beta(name: str, description: str, since: str = "0.1") -> FeatureGate:
    return FeatureGate(name, True, Stage.BETA, since, description)


RESULT_CACHE = "ResultCache"
DRA_DERIVED_ATTRIBUTES = "DRADerivedAttributes"
DRA_DEVICE_COMPATIBILITY_GROUPS = "DRADeviceCompatibilityGroups"
DRA_LIST_TYPE_ATTRIBUTES = "DRAListTypeAttributes"
DRA_OPTIONAL_NODE_OPERATIONS = "DRAOptionalNodeOperations"
DRA_WORKLOAD_RESOURCE_CLAIMS = "DRAWorkloadResourceClaims"
GANG_DEVICE_BACKTRACKING = "GangDeviceBacktracking"
GANG_PREEMPTION = "GangPreemption"
DEFERRED_RESIZE_PREEMPTION = "InPlacePodVerticalScalingSchedulerPreemption"
COMPATIBLE_POD_GROUPS = "CompatiblePodGroups"
COMPOSITE_POD_GROUPS = "CompositePodGroups"
KUEUE_ADMISSION_CHECK = "KueueAdmissionCheck"
NODE_RESERVATION = "NodeReservation"
REBALANCE_PLAN = "RebalancePlan"
VOLCANO_POD_GROUPS = "VolcanoPodGroups"

GATES: tuple[FeatureGate, ...] = (
    _beta(
        COMPATIBLE_POD_GROUPS,
        "PodGroups of scheduler-plugins (scheduling.x-k8s.io) and of Kubernetes itself (scheduling.k8s.io) are gangs "
        "too; a pod that names a PodGroup that cannot be read is held back. When off, they are neither read nor "
        "written: a pod that names one is scheduled on its own. Bayplan's own PodGroups are gangs either way.",
    ),
    _alpha(
        COMPOSITE_POD_GROUPS,
        "PodGroups of Kubernetes itself whose spec.parentCompositePodGroupName names a CompositePodGroup "
        "(scheduling.k8s.io/v1alpha3) are scheduled together with the other groups of that tree, as its policies "
        "require. When off, the pods of such PodGroups are held back. Needs CompatiblePodGroups.",
    ),
    _alpha(
        DRA_DERIVED_ATTRIBUTES,
        "Requests of claims may have derivedAttributes: an expression computes for each device the value that "
        "constraints compare. When off, a pod with such a claim is not scheduled, and its event has the reason. "
        "Needs the gate of the same name of the API server.",
    ),
    _alpha(
        DRA_DEVICE_COMPATIBILITY_GROUPS,
        "Devices may have compatibilityGroups for the shared counters that they consume: devices of one counter set "
        "are allocated at the same time only if one group is common to all of them, or none of them has a group. When "
        "off, a ResourceSlice with such a device counts as missing. Needs the gate of the same name of the API server.",
    ),
    _alpha(
        DRA_LIST_TYPE_ATTRIBUTES,
        "Attributes of devices may be lists, which constraints compare as sets: devices match if they have a common "
        "value, and are distinct if no two of them have one. When off, a list equals no value; selectors read lists "
        "either way. Needs the gate of the same name of the API server.",
    ),
    _alpha(
        DRA_OPTIONAL_NODE_OPERATIONS,
        "ResourceSlices may have skipNodeOperations, which are copied to allocations: their devices are allocated only "
        "on nodes that declare the feature DRAOptionalNodeOperations in status.declaredFeatures. When off, such a "
        "ResourceSlice counts as missing. Needs the gate of the same name of the API server and the kubelets.",
    ),
    _alpha(
        DRA_WORKLOAD_RESOURCE_CLAIMS,
        "PodGroups of Kubernetes itself (v1beta1) may have spec.resourceClaims: a claim that a member names in the "
        "same way is reserved for the group. When off, the pods of such PodGroups are held back. Needs "
        "CompatiblePodGroups, and the gate of the same name of the API server and the controller manager.",
    ),
    _alpha(
        GANG_DEVICE_BACKTRACKING,
        "If a gang whose members need devices does not fit with the best node and the first devices for each member, "
        "other nodes and devices of earlier members are tried, up to gangSearchSteps of DynamicResources. When off, "
        "such a gang waits, as with kube-scheduler.",
    ),
    _beta(
        GANG_PREEMPTION,
        "A gang that does not fit evicts pods of lower priority if its quorum then fits. When off, it waits until "
        "capacity becomes free; single pods preempt either way.",
    ),
    _alpha(
        DEFERRED_RESIZE_PREEMPTION,
        "A running pod whose in-place resize the kubelet has deferred evicts pods of lower priority on its node, "
        "unless spec.podPreemptionPolicy of the node disables that (Kubernetes 1.37, with the gate of the same name of "
        "the API server). Adds DeferredPodScheduling to the default plugins. When off, such a pod waits for room.",
    ),
    _alpha(
        KUEUE_ADMISSION_CHECK,
        "AdmissionChecks of Kueue with controllerName bayplan.dev/fit are answered: a Workload with quota is admitted "
        "only if its pods fit, and their room is held until they are scheduled. When off, a Workload with such a check "
        "is not admitted.",
    ),
    _alpha(
        NODE_RESERVATION,
        "Room on nodes is held for the pods that a NodeReservation (bayplan.dev) selects, until they are bound or its "
        "time is over. When off, NodeReservations have no effect.",
    ),
    _alpha(
        REBALANCE_PLAN,
        "RebalancePlans (bayplan.dev) plan moves of running pods that empty nodes or make room for a gang, and make "
        "them if spec.dryRun is false: pods are evicted through the Eviction API, at most spec.budget.concurrentMoves "
        "(1) at the same time. Annotations and all volumes of pods are decoded. When off, RebalancePlans have no "
        "effect.",
    ),
    _beta(
        RESULT_CACHE,
        "Plugin results are reused for pods of the same class, on nodes that did not change. When off, every plugin is "
        "called for every node and pod: the same decisions, at a higher cost.",
    ),
    _alpha(
        VOLCANO_POD_GROUPS,
        "PodGroups of Volcano (scheduling.volcano.sh/v1beta1), which pods name in the annotation "
        "scheduling.k8s.io/group-name, are gangs too: minMember, minResources and priorityClassName count, the queue "
        "is ignored. When off, that annotation is a mark of another gang scheduler; see the setting foreignGangs.",
    ),
)
"""Sorted by name."""

GATE_OF_KIND: Mapping[str, str] = {"NodeReservation": NODE_RESERVATION, "RebalancePlan": REBALANCE_PLAN}
"""Gates without which objects of a kind have no effect."""


def how_to_turn_on(gate: str) -> str:
    """Return how a gate is turned on, as a clause."""
    return (
        f"turn it on with --feature-gates={gate}=true of `bayplan run`, or the value "
        f"settings.featureGates.{gate}=true of the chart"
    )


_SETS: Mapping[str, Stage] = {"AllAlpha": Stage.ALPHA, "AllBeta": Stage.BETA}


class FeatureGates:
    """The state of all gates; raises ConfigError for an unknown name, or another value of a locked gate."""

    def __init__(self, given: Mapping[str, bool] | None = None, known: Sequence[FeatureGate] = GATES) -> None:
        given = given or {}
        problems = [Problem(f"featureGates.{each.location[-1]}", each.message) for each in gate_problems(given, known)]
        if problems:
            raise ConfigError(problems)
        self._on = {gate.name: _value_of(gate, given) for gate in known}
        self._sets = {name: given.get(name, False) for name in _SETS}
        self.known = tuple(known)

    def is_on(self, name: str) -> bool:
        return self._on[name]

    def states(self) -> Iterator[tuple[str, Stage, bool]]:
        """Yield name, stage and state of every gate, ``AllAlpha`` and ``AllBeta`` included as Kubernetes does."""
        for name, stage in _SETS.items():
            yield name, stage, self._sets[name]
        for gate in self.known:
            yield gate.name, gate.stage, self._on[gate.name]


def gate_problems(given: Mapping[str, bool], known: Sequence[FeatureGate] = GATES) -> Iterator[RuleProblem]:
    """Yield a problem for each unknown name and each locked gate with another value; its location is the name."""
    by_name = {gate.name: gate for gate in known}
    names = sorted((*by_name, *_SETS))
    for name, value in given.items():
        gate = by_name.get(name)
        if gate is None:
            if name not in _SETS:
                hint = did_you_mean(name, names)
                text = f'"{name}" is not a feature gate of Bayplan{hint}; remove it if it is one of Kubernetes, or use'
                yield RuleProblem((name,), f"{text} one of {', '.join(names)}")
        elif gate.is_locked and value != gate.default:
            locked = str(gate.default).lower()
            yield RuleProblem((name,), f"is {gate.stage.word} and locked to {locked}; remove it")


def parse_feature_gates(text: str) -> dict[str, bool]:
    """Parse the value of ``--feature-gates``.

    Args:
        text: Such as ``ResultCache=false,AllAlpha=true``.

    Returns:
        The values by name; the last one wins if a name is repeated.

    Raises:
        ConfigError: An entry is not ``Name=true`` or ``Name=false``; with every such entry.
    """
    gates: dict[str, bool] = {}
    problems = []
    for entry in filter(None, (part.strip() for part in text.split(","))):
        name, sign, value = (part.strip() for part in entry.partition("="))
        word = value.lower()
        if not name or not sign or word not in _TRUE | _FALSE:
            problems.append(Problem("--feature-gates", f'"{entry}" must have the form ResultCache=false'))
        else:
            gates[name] = word in _TRUE
    if problems:
        raise ConfigError(problems)
    return gates


def gates_summary() -> str:
    """List each gate with its stage and default, as ``kube-scheduler --help`` does."""
    gates = [f"{gate.name} ({gate.stage.word}, default {str(gate.default).lower()})" for gate in GATES]
    return f"{', '.join(gates)}, and AllAlpha and AllBeta for all gates of a stage that are not named"


def _value_of(gate: FeatureGate, given: Mapping[str, bool]) -> bool:
    if gate.name in given:
        return given[gate.name]
    if not gate.is_locked:
        for name, stage in _SETS.items():
            if gate.stage is stage and name in given:
                return given[name]
    return gate.default


def with_gates(options: SchedulerOptions, gates: FeatureGates) -> SchedulerOptions:
    return replace(
        options,
        reuses_results=gates.is_on(RESULT_CACHE),
        gangs_preempt=gates.is_on(GANG_PREEMPTION),
        group_claims=gates.is_on(DRA_WORKLOAD_RESOURCE_CLAIMS),
        volcano_groups=gates.is_on(VOLCANO_POD_GROUPS),
        gangs_backtrack=gates.is_on(GANG_DEVICE_BACKTRACKING),
        deferred_resizes=gates.is_on(DEFERRED_RESIZE_PREEMPTION),
        plans_moves=options.plans_moves or gates.is_on(REBALANCE_PLAN),
        device_features=device_features(gates),
    )


def device_features(gates: FeatureGates) -> DeviceFeatures:
    return DeviceFeatures(
        compatibility_groups=gates.is_on(DRA_DEVICE_COMPATIBILITY_GROUPS),
        derived_attributes=gates.is_on(DRA_DERIVED_ATTRIBUTES),
        list_type_attributes=gates.is_on(DRA_LIST_TYPE_ATTRIBUTES),
        optional_node_operations=gates.is_on(DRA_OPTIONAL_NODE_OPERATIONS),
    )
