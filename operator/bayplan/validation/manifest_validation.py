"""Validates manifests as the API server and the operator together do.

It has no rules of its own: those of the API server are in ``api_validation``, the others are those of the models, the
plugins and ``desired_state``, so that it accepts exactly the files that a cluster would run. Each profile
is validated alone: a file does not contain which of two profiles that claim a name is older, so both get the
problem.

A DeschedulerPolicy works against a profile that scores the opposite: LowNodeUtilization evicts pods from full nodes so
that they go to emptier ones, HighNodeUtilization from empty nodes so that these can be removed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from bayplan.api_validation.object_validation import (
    CONFIG_MAP,
    CONFIGURATION,
    ObjectValidation,
    configurations_in,
    documents_in,
    version_problem,
)
from bayplan.configuration.configuration_file import configuration_notes, configuration_problems
from bayplan.extenders.transport import url_problems
from bayplan.profiles.desired_profiles import shadow_of_shadow
from bayplan.resources.crd_generation import RESOURCES
from bayplan.resources.missing_references import (
    OF_EVERY_CLUSTER,
    missing_of_reservation,
    missing_profiles,
    missing_references,
)
from bayplan.resources.node_reservation import NodeReservation
from bayplan.resources.pod_group import PodGroup
from bayplan.resources.rebalance_plan import RebalancePlan
from bayplan.resources.resource_model import API_VERSION
from bayplan.settings.feature_gates import GATE_OF_KIND, FeatureGates, how_to_turn_on
from bayplan.simulation.cluster_files import READ_KINDS
from bayplan.texts.yaml_documents import list_at, mapping_at, value_at
from bayplan.validation.admission_review import ObjectRules, plain_object, plugin_config_references
from bayplan.validation.manifest_files import Finding, Manifest, Severity
from scheduler_core.config.plugin_args import API_VERSION as CONFIGURATION_API
from scheduler_core.config.validation import field_path
from scheduler_core.errors import ConfigError, Problem

_KINDS = {resource.definition.kind: resource for resource in RESOURCES}
_NAMED_KINDS = ("PriorityClass", "Node")
"""Kinds whose names or labels custom resources contain."""


class ManifestValidation:
    """Validation of manifests together.

    Args:
        feature_gates: The feature gates of the operator that will read them; None and empty if they are not known.

    Attributes:
        objects: Number of validated objects, without ignored ones.
    """

    def __init__(
        self,
        manifests: Sequence[Manifest],
        *,
        allow_default_scheduler: bool = False,
        feature_gates: Mapping[str, bool] | None = None,
    ) -> None:
        self.findings: list[Finding] = []
        self.objects = 0
        self._rules = ObjectRules(allow_default_scheduler=allow_default_scheduler)
        self._objects = ObjectValidation()
        self._balancing: frozenset[str] = frozenset()
        ours = [each for each in manifests if self._is_ours(each)]
        self._configs = [plain_object(each.body) for each in ours if _kind(each) == "PluginConfig" and _name(each)]
        self._names: dict[str, Manifest] = {}
        self._order: tuple[Manifest, tuple[str, str]] | None = None
        self._first: dict[tuple[str, ...], Manifest] = {}
        shadows = {_name(each) for each in ours if _shadow_of(each)}
        for each in ours:
            self._validate(each)
            if (of := _shadow_of(each)) in shadows:
                self._report(each, [shadow_of_shadow(of)], Severity.WARNING)
        self._note_unreferenced(ours)
        self._note_missing(manifests, ours)
        self._note_gates(ours, feature_gates or {})

    # -- selection ----------------------------------------------------------------------------------------------

    def _is_ours(self, manifest: Manifest) -> bool:
        body = manifest.body
        if not isinstance(body, Mapping) or not isinstance(body.get("kind"), str):
            self._report(manifest, [Problem("", "is not a Kubernetes object; give it apiVersion, kind and metadata")])
            return False
        kind, version = body["kind"], str(body.get("apiVersion") or "")
        if version == API_VERSION and kind in _KINDS:
            return True
        known = [each for each, name in READ_KINDS if name == kind]
        if is_policy(body):
            self._balancing |= balance_plugins(body)
        if (version, kind) == CONFIG_MAP:
            self._validate_config_map(manifest)
        elif version == CONFIGURATION_API and kind == CONFIGURATION:
            self._validate_configuration(manifest, body)
        elif version in known:
            self.objects += 1
            self._report(manifest, self._objects.problems(body))
        else:
            problem = version_problem(version, kind, known)
            message = f"{kind} ({version}) is ignored: it is not validated here"
            self._report(
                manifest, [problem or Problem("", message)], Severity.NOTE if problem is None else Severity.ERROR
            )
        return False

    def _validate_config_map(self, manifest: Manifest) -> None:
        """Validate a ConfigMap, and the kube-scheduler configurations that it holds."""
        found = configurations_in(manifest.body)
        for policy in policies_in(manifest.body):
            self._balancing |= balance_plugins(policy)
        for name, document in found:
            self._validate_configuration(manifest, document, field_path("data", (name,)))
        if not found:
            message = "ConfigMap (v1) is ignored: it holds no KubeSchedulerConfiguration"
            self._report(manifest, [Problem("", message)], Severity.NOTE)

    def _validate_configuration(self, manifest: Manifest, document: Any, prefix: str = "") -> None:
        self.objects += 1
        if not isinstance(document, Mapping):
            self._report(manifest, [Problem(prefix, "is not a KubeSchedulerConfiguration in YAML; correct the text")])
            return
        version = document.get("apiVersion")
        if version != CONFIGURATION_API:
            message = f'must be "{CONFIGURATION_API}", not "{version}"; convert the configuration to it'
            self._report(manifest, [Problem(_joined(prefix, "apiVersion"), message)])
            document = {**document, "apiVersion": CONFIGURATION_API}
        found = [*configuration_problems(document, self._rules.scheduler), *url_problems(document, "")]
        self._report(manifest, [Problem(_joined(prefix, each.path), each.message) for each in found])
        notes = configuration_notes(document)
        self._report(manifest, [Problem(_joined(prefix, each.path), each.message) for each in notes], Severity.NOTE)

    def _validate(self, manifest: Manifest) -> None:
        self.objects += 1
        kind = _kind(manifest)
        problems: list[Problem] = []
        if not _KINDS[kind].definition.namespaced and _namespace(manifest):
            # A note, because Kustomize sets the namespace in every custom resource.
            message = f"has no effect: a {kind} applies to all namespaces; remove it"
            self._report(manifest, [Problem("metadata.namespace", message)], Severity.NOTE)
        if _name(manifest):
            self._note_repetition(manifest)
            plain = plain_object(manifest.body)
            problems += (
                self._profile_problems(manifest, plain) if kind == "SchedulerProfile" else self._rules.problems(plain)
            )
            problems += self._template_problems(plain)
        reported = {problem.path for problem in problems}
        problems += [each for each in self._objects.problems(manifest.body) if each.path not in reported]
        self._report(manifest, problems)

    def _template_problems(self, plain: Mapping[str, Any]) -> Iterator[Problem]:
        """Yield the problems of the template of a NodeReservation, as those of a pod."""
        template = value_at(plain, "spec", "template") if plain["kind"] == "NodeReservation" else None
        spec = value_at(template, "spec")
        if not isinstance(spec, Mapping):
            return
        metadata = {**mapping_at(template, "metadata"), "name": "template", "namespace": "default"}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
        for each in self._objects.problems(pod):
            yield Problem(f"spec.template.{each.path}", each.message)

    # -- profiles -----------------------------------------------------------------------------------------------

    def _profile_problems(self, manifest: Manifest, plain: Mapping[str, Any]) -> list[Problem]:
        found = self._rules.profile_findings(plain, self._configs)
        self._report(manifest, found.missing, Severity.WARNING)
        self._report(manifest, found.built.warnings, Severity.WARNING)
        self._report(manifest, found.built.notes, Severity.NOTE)
        config = found.profile.config
        if config is not None and self._balancing:
            message = counteracting(scoring_args(config.plugin_config), self._balancing)
            self._report(manifest, [Problem("spec", message)] if message else [], Severity.WARNING)
        problems = [*found.problems, *found.built.problems]
        if found.profile.shadow is None:
            problems += self._name_problems(manifest, found.profile.scheduler_name)
            if not problems and found.order is not None:
                problems += self._order_problems(manifest, found.order)
        return problems

    def _name_problems(self, manifest: Manifest, scheduler_name: str) -> Iterator[Problem]:
        other = self._names.setdefault(scheduler_name, manifest)
        if _name(other) != _name(manifest):
            yield Problem(
                "spec.schedulerName",
                f'"{scheduler_name}" is claimed by {_described(other)} ({_place(other)}) too, and the older of the two '
                "will hold it; choose another name",
            )

    def _order_problems(self, manifest: Manifest, order: tuple[str, str]) -> Iterator[Problem]:
        if self._order is None:
            self._order = manifest, order
        first, its_order = self._order
        if order != its_order:
            yield Problem(
                "spec.plugins.queueSort",
                f"must be that of {_described(first)} ({_place(first)}) with the same args: all profiles share one "
                "queue, and this one would wait until they agree",
            )

    def _note_unreferenced(self, ours: Sequence[Manifest]) -> None:
        """Warn of PluginConfigs that no profile of the files references; files without profiles may be a part only."""
        profiles = [each.body for each in ours if _kind(each) == "SchedulerProfile"]
        if not profiles:
            return
        used = {name for body in profiles for _, name in plugin_config_references(body)}
        for each in ours:
            if _kind(each) == "PluginConfig" and (name := _name(each)) and name not in used:
                message = (
                    "has no effect: no SchedulerProfile of these files references it; add it to pluginConfigRefs of a "
                    "profile, or remove it"
                )
                self._report(each, [Problem("metadata.name", message)], Severity.WARNING)

    def _note_missing(self, manifests: Sequence[Manifest], ours: Sequence[Manifest]) -> None:
        """Warn of PriorityClasses, node labels and profiles that objects name, if the files have others."""
        profiles = [each.body for each in ours if _kind(each) == "SchedulerProfile"]
        of_kind = {kind: [each for each in manifests if value_at(each.body, "kind") == kind] for kind in _NAMED_KINDS}
        classes = {_name(each) for each in of_kind["PriorityClass"]} - {""}
        known = classes and {*classes, *OF_EVERY_CLUSTER}
        node_labels = [_labels(each) for each in of_kind["Node"]]
        for each in ours:
            kind = _KINDS[_kind(each)]
            if kind not in (PodGroup, NodeReservation, RebalancePlan):
                continue
            try:
                resource = kind.from_object(plain_object(each.body))
            except (ConfigError, KeyError, AttributeError):
                continue
            found: Iterable[Problem] = ()
            match resource:
                case PodGroup():
                    found = missing_references(resource, known, node_labels)
                case NodeReservation():
                    found = missing_of_reservation(resource, known, node_labels, profiles)
                case RebalancePlan():
                    found = missing_profiles(resource.spec.scope.profiles, profiles)
            self._report(each, found, Severity.WARNING)

    def _note_gates(self, ours: Sequence[Manifest], given: Mapping[str, bool]) -> None:
        """Report objects of kinds whose feature gate is off; without the gates of the operator, as notes."""
        gates = FeatureGates(given)
        for each in ours:
            kind = _kind(each)
            gate = GATE_OF_KIND.get(kind)
            if gate is None or gates.is_on(gate):
                continue
            if given:
                message = f"{kind} has no effect: its feature gate {gate} is off; {how_to_turn_on(gate)}"
                self._report(each, [Problem("", message)], Severity.WARNING)
            else:
                message = f"{kind} needs the feature gate {gate}, which is off by default; {how_to_turn_on(gate)}"
                self._report(each, [Problem("", message)], Severity.NOTE)

    # -- reporting ----------------------------------------------------------------------------------------------

    def _note_repetition(self, manifest: Manifest) -> None:
        key = (_kind(manifest), _namespace(manifest), _name(manifest))
        other = self._first.setdefault(key, manifest)
        if other is not manifest:
            message = f"is defined in {_place(other)} already, and the later one will replace it; remove one"
            self._report(manifest, [Problem("metadata.name", message)], Severity.WARNING)

    def _report(self, manifest: Manifest, problems: Iterable[Problem], severity: Severity = Severity.ERROR) -> None:
        for problem in problems:
            self.findings.append(
                Finding(
                    severity,
                    manifest.file,
                    problem.message,
                    manifest.line(problem.path),
                    manifest.number,
                    _described(manifest) if severity is not Severity.NOTE else "",
                    problem.path,
                )
            )


def _joined(prefix: str, path: str) -> str:
    return f"{prefix}.{path}" if prefix and path else prefix or path


def _kind(manifest: Manifest) -> str:
    return str(manifest.body["kind"])


def _name(manifest: Manifest) -> str:
    """Return the object's name; empty if it has no valid one."""
    name = value_at(manifest.body, "metadata", "name")
    return name if isinstance(name, str) else ""


def _namespace(manifest: Manifest) -> str:
    return str(value_at(manifest.body, "metadata", "namespace") or "")


def _labels(manifest: Manifest) -> dict[str, str]:
    return dict(mapping_at(manifest.body, "metadata", "labels"))


def _shadow_of(manifest: Manifest) -> str:
    of = value_at(manifest.body, "spec", "shadowOf") if _kind(manifest) == "SchedulerProfile" else None
    return of if isinstance(of, str) else ""


def _described(manifest: Manifest) -> str:
    kind = value_at(manifest.body, "kind")
    return f"{kind} {_name(manifest)}".rstrip() if isinstance(kind, str) else ""


def _place(manifest: Manifest) -> str:
    return f"{manifest.file}:{manifest.line()}"


POLICY_GROUP, POLICY = "descheduler/", "DeschedulerPolicy"
_SCORED_BY = "NodeResourcesFit"
_SPREADS, _PACKS = "LowNodeUtilization", "HighNodeUtilization"


def is_policy(body: Mapping[str, Any]) -> bool:
    return body.get("kind") == POLICY and str(body.get("apiVersion") or "").startswith(POLICY_GROUP)


def policies_in(config_map: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Return the policies that a ConfigMap holds."""
    # The descheduler rejects a policy that is not YAML.
    return (each for _, each in documents_in(config_map, POLICY) if isinstance(each, Mapping) and is_policy(each))


def balance_plugins(policy: Mapping[str, Any]) -> frozenset[str]:
    """Return which of the plugins that balance by utilization a policy enables."""
    found: set[str] = set()
    for profile in list_at(policy, "profiles"):
        found.update(each for each in list_at(profile, "plugins", "balance", "enabled") if isinstance(each, str))
    return frozenset(found & {_SPREADS, _PACKS})


def counteracting(args: Mapping[str, Any] | None, enabled: frozenset[str]) -> str:
    """Return why a profile, by its args of NodeResourcesFit, works against the descheduler, with the remedy, or ""."""
    strategy = mapping_at(args, "scoringStrategy")
    packs = _is_packing(strategy)
    kind = strategy.get("type", "LeastAllocated")
    if packs and _SPREADS in enabled:
        return (
            f"{kind} fills nodes, and the descheduler's {_SPREADS} evicts pods from full nodes: they return to them, "
            f"and are evicted again; use {_PACKS} instead, or exclude the pods of this profile by the labelSelector of "
            "DefaultEvictor"
        )
    if not packs and _PACKS in enabled:
        return (
            f"{kind} prefers empty nodes, and the descheduler's {_PACKS} evicts pods from them: they return, and are "
            f"evicted again; use MostAllocated, or disable {_PACKS}"
        )
    return ""


def scoring_args(plugin_config: Any) -> Mapping[str, Any] | None:
    """Return the args of NodeResourcesFit among those of a profile; None if it sets none."""
    for entry in plugin_config:
        if entry.name == _SCORED_BY and isinstance(entry.args, Mapping):
            return entry.args
    return None


def _is_packing(strategy: Mapping[str, Any]) -> bool:
    if strategy.get("type") == "MostAllocated":
        return True
    if strategy.get("type") != "RequestedToCapacityRatio":
        return False
    points = [
        (each.get("utilization", 0), each.get("score", 0))
        for each in list_at(strategy, "requestedToCapacityRatio", "shape")
        if isinstance(each, Mapping)
    ]
    return bool(points) and max(points)[1] > min(points)[1]
