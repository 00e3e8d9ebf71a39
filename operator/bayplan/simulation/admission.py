"""Admission of hand-written objects: what the API server does to them, as far as scheduling is affected.

Sets defaults, priorities, default tolerations and UIDs, and rejects what the API server would reject. Objects that
already went through an API server are unchanged.

Follows Kubernetes v1.37.1: ``pkg/apis/core/v1/defaults.go`` (requests from limits, host ports, allocatable from
capacity), the pod strategy (label keys) and the admission plugins
Priority and DefaultTolerationSeconds.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from bayplan.gangs.group_translation import (
    NativeGroup,
    SchedulerPluginsGroup,
    UnsupportedGroupError,
    from_bayplan,
    from_composite,
    from_native,
    from_scheduler_plugins,
)
from bayplan.resources.pod_group import PodGroup as BayplanGroup
from bayplan.simulation.cluster_files import DEFAULT_NAMESPACE, ClusterFiles, Place, Placed, decoding_problem
from scheduler_core.devices.allocator import ClusterDevices
from scheduler_core.errors import ConfigError, Problem, QuantityError, SchedulerCoreError, SelectorError
from scheduler_core.feeds.object_feed import PodSurrounding
from scheduler_core.fit.claim_binding import with_class
from scheduler_core.model.affinity import Affinity, LabelSelector, PodAffinity, PodAffinityTerm, Requirement
from scheduler_core.model.devices import POD_CLAIM_NAME, ClaimMeta, ResourceClaim, ResourceClaimTemplate, ResourceSlice
from scheduler_core.model.meta import ObjectMeta, OwnerReference
from scheduler_core.model.node import Node
from scheduler_core.model.nullable_forms import convert
from scheduler_core.model.pod import (
    Container,
    ContainerPort,
    Pod,
    PodResourceClaimStatus,
    PodSpec,
    Quantities,
    ResourceClaimReference,
    ResourceRequirements,
)
from scheduler_core.model.pod_group import (
    CompositePodGroup,
    GroupKey,
    GroupSource,
    PodGroup,
    foreign_gang,
    group_key_of,
)
from scheduler_core.model.pod_requests import CPU, MEMORY, nano, pod_requests
from scheduler_core.model.selectors import compile_label_selector
from scheduler_core.model.storage import (
    AVAILABLE,
    CsiStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    StorageObject,
    VolumePhase,
    default_class,
)
from scheduler_core.model.taints import NO_EXECUTE, NO_SCHEDULE, Taint, Toleration
from scheduler_core.model.workloads import Namespace, PriorityClass
from scheduler_core.snapshot.indexes.device_index import DeviceObject
from scheduler_core.snapshot.indexes.storage_index import object_key

_NAMESPACE_NAME = "kubernetes.io/metadata.name"
_UID_SPACE = uuid.UUID("6f1a1b0e-3f0a-5b7e-9f0c-0d6e0b6d5c11")

M = TypeVar("M", bound=ObjectMeta)


def uid_of(kind: str, namespace: str, name: str) -> str:
    """Return a UID computed from the name, so that the same files give the same result."""
    return str(uuid.uuid5(_UID_SPACE, f"{kind}/{namespace}/{name}"))


def merge_label_keys(spec: PodSpec, labels: Mapping[str, str]) -> PodSpec:
    """Merge the keys of a pod's spread constraints and pod affinity terms into their selectors.

    Args:
        labels: The pod's labels; a key that is not among them adds nothing.

    Returns:
        The spec; the same object if there is nothing to merge.
    """
    if any(constraint.match_label_keys for constraint in spec.topology_spread_constraints):
        constraints = tuple(
            replace(each, label_selector=_merged(each.label_selector, _wanted(each.match_label_keys, "In", labels)))
            for each in spec.topology_spread_constraints
        )
        spec = replace(spec, topology_spread_constraints=constraints)
    affinity = spec.affinity
    if affinity is None or (affinity.pod_affinity is None and affinity.pod_anti_affinity is None):
        return spec
    merged = Affinity(
        affinity.node_affinity, _terms(affinity.pod_affinity, labels), _terms(affinity.pod_anti_affinity, labels)
    )
    return spec if merged == affinity else replace(spec, affinity=merged)


def _terms(affinity: PodAffinity | None, labels: Mapping[str, str]) -> PodAffinity | None:
    if affinity is None:
        return None
    return PodAffinity(
        tuple(_term(term, labels) for term in affinity.required),
        tuple(
            replace(weighted, pod_affinity_term=_term(weighted.pod_affinity_term, labels))
            for weighted in affinity.preferred
        ),
    )


def _term(term: PodAffinityTerm, labels: Mapping[str, str]) -> PodAffinityTerm:
    wanted = [*_wanted(term.match_label_keys, "In", labels), *_wanted(term.mismatch_label_keys, "NotIn", labels)]
    return replace(term, label_selector=_merged(term.label_selector, wanted)) if wanted else term


def _wanted(keys: Iterable[str], operator: str, labels: Mapping[str, str]) -> list[Requirement]:
    return [Requirement(key, operator, (labels[key],)) for key in keys if key in labels]


def _merged(selector: LabelSelector | None, wanted: Iterable[Requirement]) -> LabelSelector | None:
    """Add requirements to a selector; an absent selector matches nothing and stays absent."""
    if selector is None:
        return None
    missing = tuple(requirement for requirement in wanted if requirement not in selector.match_expressions)
    return replace(selector, match_expressions=(*selector.match_expressions, *missing)) if missing else selector


_GATE = "CompositePodGroups are simulated as with feature gate CompositePodGroups, which is off by default"

PriorityOf = Callable[[str], int | None]
"""Returns the value of a PriorityClass, of the default one for an empty name; None if there is no such class."""


@dataclass(frozen=True, slots=True)
class AdmittedGroups:
    """PodGroups of all APIs as they are stored; the members of refused ones, which have problems, are gated."""

    groups: tuple[PodGroup | CompositePodGroup, ...] = ()
    refused: tuple[tuple[GroupKey, tuple[Problem, ...]], ...] = ()


def admitted_groups(
    placed: Sequence[Placed[dict[str, Any]]], priority_of: PriorityOf, problems: list[Problem], notices: list[str]
) -> AdmittedGroups:
    """Complete and translate PodGroups of all three APIs."""
    groups: dict[GroupKey, PodGroup | CompositePodGroup] = {}
    refused: dict[GroupKey, tuple[Problem, ...]] = {}
    first: dict[GroupKey, Placed[dict[str, Any]]] = {}
    for each in placed:
        body = _completed(each.object)
        meta = body["metadata"]
        key = GroupKey(_source(body), meta["namespace"], meta["name"])
        where = f"{each.place} ({key.source.kind} {key})"
        other = first.setdefault(key, each)
        if other is not each:
            message = f"is already defined in {other.place}; remove one or give it another name"
            problems.append(Problem(where, message))
            continue
        try:
            groups[key] = _TRANSLATED[key.source](body, priority_of)
            if key.source is GroupSource.BAYPLAN and groups[key].priority is None:
                notices += _missing_class(key, body)
        except UnsupportedGroupError as error:
            refused[key] = error.problems
            notices.append(f"{key.source.kind} {key} cannot be scheduled: {error}")
        except ConfigError as error:
            problems += [Problem(f"{where}: {problem.path}", problem.message) for problem in error.problems]
        except msgspec.ValidationError as error:
            problem = decoding_problem(error, body)
            problems.append(Problem(f"{where}: {problem.path}", problem.message))
    if any(key.source is GroupSource.COMPOSITE for key in groups):
        notices.append(_GATE)
    ordered = sorted(groups.items(), key=lambda pair: (pair[0].namespace, pair[0].name))
    return AdmittedGroups(tuple(group for _, group in ordered), tuple(sorted(refused.items())))


def _source(body: Mapping[str, Any]) -> GroupSource:
    group = str(body["apiVersion"]).partition("/")[0]
    return GroupSource.COMPOSITE if body["kind"] == GroupSource.COMPOSITE.kind else GroupSource(group)


def _completed(body: Mapping[str, Any]) -> dict[str, Any]:
    metadata = dict(body["metadata"])
    namespace = metadata.setdefault("namespace", DEFAULT_NAMESPACE)
    metadata.setdefault("uid", uid_of(f"{body['kind']}.{body['apiVersion']}", namespace, metadata["name"]))
    return {**body, "metadata": metadata}


def _missing_class(key: GroupKey, body: Mapping[str, Any]) -> list[str]:
    name = body["spec"].get("priorityClassName")
    notice = (
        f'PodGroup {key} names PriorityClass "{name}", which is not in the files; it gets the highest priority of its '
        "members"
    )
    return [notice] if name else []


def _bayplan(body: Mapping[str, Any], priority_of: PriorityOf) -> PodGroup:
    resource = BayplanGroup.from_object({"metadata": body["metadata"], "spec": body.get("spec")})
    name = resource.spec.priority_class_name
    return from_bayplan(resource, priority_of(name) if name else None, body.get("status"))


def _scheduler_plugins(body: Mapping[str, Any], priority_of: PriorityOf) -> PodGroup:
    del priority_of
    return from_scheduler_plugins(convert(body, SchedulerPluginsGroup))


def _native(body: Mapping[str, Any], priority_of: PriorityOf) -> PodGroup:
    group = convert(_with_priority(body, priority_of), NativeGroup)
    return from_native(group, _version(body), are_trees_read=True)


def _composite(body: Mapping[str, Any], priority_of: PriorityOf) -> CompositePodGroup:
    return from_composite(convert(_with_priority(body, priority_of), NativeGroup), _version(body))


def _version(body: Mapping[str, Any]) -> str:
    return str(body["apiVersion"]).rpartition("/")[2]


def _with_priority(body: Mapping[str, Any], priority_of: PriorityOf) -> Mapping[str, Any]:
    """Set the priority from the class as admission does, unless an API server has already done so."""
    spec = body.get("spec")
    if not isinstance(spec, Mapping) or spec.get("priority") is not None:
        return body
    name = str(spec.get("priorityClassName") or "")
    value = priority_of(name)
    if value is None and name:
        message = f'there is no PriorityClass "{name}"; add it to the files or correct the name'
        raise ConfigError([Problem("spec.priorityClassName", message)])
    return {**body, "spec": {**spec, "priority": value}}


_TRANSLATED: Mapping[GroupSource, Callable[[Mapping[str, Any], PriorityOf], PodGroup | CompositePodGroup]] = {
    GroupSource.BAYPLAN: _bayplan,
    GroupSource.SCHEDULER_PLUGINS: _scheduler_plugins,
    GroupSource.NATIVE: _native,
    GroupSource.COMPOSITE: _composite,
}


SYSTEM_PRIORITIES: Mapping[str, int] = {
    "system-cluster-critical": 2_000_000_000,
    "system-node-critical": 2_000_001_000,
}
"""PriorityClasses that every cluster has."""

_HUGE_PAGES = "hugepages-"
_PREEMPT = "PreemptLowerPriority"
_UNSCHEDULABLE = "node.kubernetes.io/unschedulable"
"""Key of the taint that the node lifecycle controller adds to a cordoned node."""
_NOT_READY_TAINTS = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")

K = TypeVar("K", bound=Node | Pod | StorageObject | DeviceObject | ResourceClaimTemplate | PodSurrounding)


@dataclass(frozen=True, slots=True)
class AdmittedCluster:
    """Cluster as the API server would store it; a namespace with a pod exists even if it is not in the files.

    Attributes:
        nodes: Nodes in the API server's order, by name.
        pods: Pods in the API server's order, by namespace and name.
        devices: Device classes, slices, taint rules and resource claims, including those created from templates.
        surroundings: Namespaces, PodDisruptionBudgets, and services and owners of pods.
        serves_default: Whether the default profile serves ``default-scheduler`` if there is no profile at all.
        refused_groups: PodGroups that cannot be obeyed, with the problems.
        withheld_groups: APIs whose PodGroups are not known, with the reasons; pods that name one are gated.
        devices_withheld: Why claims and devices are not known, so that pods with claims are gated; "" if they are.
        declared: Objects of the kinds that plugins declare, with the path of their collection.
        claim_templates: Templates of resource claims, from which the claims of the pods were created.
    """

    nodes: tuple[Node, ...] = ()
    pods: tuple[Pod, ...] = ()
    storage: tuple[StorageObject, ...] = ()
    devices: tuple[DeviceObject, ...] = ()
    surroundings: tuple[PodSurrounding, ...] = ()
    profiles: tuple[Placed[dict[str, Any]], ...] = ()
    plugin_configs: tuple[Placed[dict[str, Any]], ...] = ()
    configurations: tuple[Placed[dict[str, Any]], ...] = ()
    serves_default: bool = True
    groups: tuple[PodGroup | CompositePodGroup, ...] = ()
    refused_groups: tuple[tuple[GroupKey, tuple[Problem, ...]], ...] = ()
    withheld_groups: tuple[tuple[GroupSource, str], ...] = ()
    devices_withheld: str = ""
    declared: tuple[tuple[str, Any], ...] = ()
    notices: tuple[str, ...] = ()
    claim_templates: tuple[ResourceClaimTemplate, ...] = ()


def admit(files: ClusterFiles) -> AdmittedCluster:
    """Admit every object as if it were created.

    Raises:
        ConfigError: With every problem: what the API server would reject, duplicate names, unknown priority classes.
    """
    problems = list(files.problems)
    classes = _priority_classes(files.priority_classes, problems)
    rejected: Collection[Place] = files.rejected if files.problems else ()
    admission = _Admission(problems, rejected)
    nodes = [admission.admitted(placed, _node) for placed in files.nodes]
    pods = [admission.admitted(placed, lambda pod: _pod(pod, classes)) for placed in files.pods]
    class_name = default_class(each.object for each in files.storage if isinstance(each.object, StorageClass))
    storage = [
        admission.admitted(placed, lambda given: admitted_storage(given, class_name)) for placed in files.storage
    ]
    storage += _ephemeral_claims(files, [each.object for each in pods], storage, class_name)
    surroundings = [admission.admitted(placed, admitted_surrounding) for placed in files.surroundings]
    devices = [admission.admitted(placed, admitted_device) for placed in files.devices]
    templates = [admission.admitted(placed, admitted_template) for placed in files.claim_templates]
    for admitted in (nodes, pods, storage, devices, templates, surroundings):
        problems += _duplicates((_described(each.object), each.place) for each in admitted)
    problems += _duplicate_uids(pods)
    for kind, objects in (
        ("SchedulerProfile", files.profiles),
        ("PluginConfig", files.plugin_configs),
    ):
        problems += _duplicates([(f"{kind} {_raw_key(each.object)}", each.place) for each in objects])
    notices = list(files.notices)
    groups = admitted_groups(
        [each for each in files.pod_groups if each.place not in rejected], classes.value_of, problems, notices
    )
    notices += _foreign_gangs(each.object for each in pods)
    if problems:
        raise ConfigError(problems)
    device_objects = [each.object for each in devices]
    pods_with_claims, new_claims = with_claims_of_templates(
        [each.object for each in pods],
        [each for each in device_objects if isinstance(each, ResourceClaim)],
        [each.object for each in templates],
    )
    return AdmittedCluster(
        nodes=tuple(sorted((each.object for each in nodes), key=lambda node: node.metadata.name)),
        pods=tuple(sorted(pods_with_claims, key=lambda pod: (pod.metadata.namespace, pod.metadata.name))),
        storage=tuple(each.object for each in storage),
        devices=(*device_objects, *new_claims),
        surroundings=_with_namespaces([each.object for each in surroundings], [each.object for each in pods]),
        profiles=tuple(files.profiles),
        plugin_configs=tuple(files.plugin_configs),
        configurations=tuple(files.configurations),
        groups=groups.groups,
        refused_groups=groups.refused,
        notices=tuple(notices),
        claim_templates=tuple(each.object for each in templates),
    )


class _Admission:
    """Admission of objects one after the other; an object that the API server rejects has its problems already."""

    def __init__(self, problems: list[Problem], rejected: Collection[Place]) -> None:
        self._problems = problems
        self._rejected = rejected

    def admitted(self, placed: Placed[K], change: Callable[[K], K]) -> Placed[K]:
        """Return a changed object; the object itself if it is invalid."""
        try:
            return Placed(change(placed.object), placed.place)
        except ConfigError as error:
            if placed.place not in self._rejected:
                where = f"{placed.place} ({_described(placed.object)})"
                self._problems += [Problem(f"{where}: {each.path}", each.message) for each in error.problems]
            return placed


# -- nodes ------------------------------------------------------------------------------------------------------------


def _node(node: Node) -> Node:
    check_quantities("status.capacity", node.status.capacity)
    check_quantities("status.allocatable", node.status.allocatable)
    if not node.status.allocatable and node.status.capacity:
        node = replace(node, status=replace(node.status, allocatable=node.status.capacity))
    if node.spec.unschedulable and not any(taint.key == _UNSCHEDULABLE for taint in node.spec.taints):
        taints = (*node.spec.taints, Taint(_UNSCHEDULABLE, NO_SCHEDULE))
        node = replace(node, spec=replace(node.spec, taints=taints))
    return replace(node, metadata=_with_uid(node.metadata, "Node"))


# -- pods -------------------------------------------------------------------------------------------------------------


def _pod(pod: Pod, classes: _PriorityClasses) -> Pod:
    meta, spec = pod.metadata, pod.spec
    _check_pod_quantities(spec)
    meta = _with_uid(_with_namespace(meta), "Pod")
    spec = replace(
        spec,
        containers=tuple(_container(each, spec.host_network) for each in spec.containers),
        init_containers=tuple(_container(each, spec.host_network) for each in spec.init_containers),
        tolerations=_tolerations(spec.tolerations),
    )
    spec = merge_label_keys(_with_pod_level_requests(pod, spec), meta.labels)
    return replace(pod, metadata=meta, spec=classes.resolve(spec))


def _check_pod_quantities(spec: PodSpec) -> None:
    for field, containers in (("containers", spec.containers), ("initContainers", spec.init_containers)):
        for index, container in enumerate(containers):
            path = f"spec.{field}[{index}].resources"
            check_quantities(f"{path}.requests", container.resources.requests)
            check_quantities(f"{path}.limits", container.resources.limits)
    check_quantities("spec.overhead", spec.overhead)
    if spec.resources is not None:
        check_quantities("spec.resources.requests", spec.resources.requests)
        check_quantities("spec.resources.limits", spec.resources.limits)


def _container(container: Container, host_network: bool) -> Container:
    resources = container.resources
    if resources.limits:
        resources = replace(resources, requests={**resources.limits, **resources.requests})
    ports = container.ports
    if host_network:
        ports = tuple(_host_port(port) for port in ports)
    return replace(container, resources=resources, ports=ports)


def _host_port(port: ContainerPort) -> ContainerPort:
    return port if port.host_port else replace(port, host_port=port.container_port)


def _with_pod_level_requests(pod: Pod, spec: PodSpec) -> PodSpec:
    """Complete pod-level resources: requests are the sums of the containers, else the pod-level limits.

    Follows Kubernetes v1.37.1, ``pkg/api/pod/util.go`` (``DefaultPodLevelResources``), without limits of CPU and
    memory, which no plugin reads.
    """
    if spec.resources is None or not (spec.resources.limits or spec.resources.requests):
        return spec
    sums = pod_requests(replace(pod, spec=replace(spec, resources=None, overhead={}))).fit
    requests: Quantities = dict(spec.resources.requests)
    limits: Quantities = dict(spec.resources.limits)
    for name, amount in sums.items():
        if name in (CPU, MEMORY):
            requests.setdefault(name, f"{amount}m" if name == CPU else amount)
        elif name.startswith(_HUGE_PAGES) and name not in requests:
            limits.setdefault(name, amount)
    for name, limit in limits.items():
        if name in (CPU, MEMORY) or name.startswith(_HUGE_PAGES):
            requests.setdefault(name, limit)
    return replace(spec, resources=ResourceRequirements(requests, limits))


def _tolerations(tolerations: tuple[Toleration, ...]) -> tuple[Toleration, ...]:
    """Add tolerations of not-ready and unreachable nodes unless the pod has its own."""
    missing = [
        Toleration(key=key, operator="Exists", effect=NO_EXECUTE)
        for key in _NOT_READY_TAINTS
        if not any(each.key in (key, "") and each.effect in (NO_EXECUTE, "") for each in tolerations)
    ]
    return (*tolerations, *missing)


# -- storage and namespaces -------------------------------------------------------------------------------------------


def admitted_storage(given: StorageObject, class_name: str | None) -> StorageObject:
    """Admit a storage object; raises ConfigError if a quantity or a selector is invalid."""
    match given:
        case PersistentVolume():
            check_quantities("spec.capacity", given.spec.capacity)
            phase = given.status.phase or (AVAILABLE if given.spec.claim_ref is None else "Bound")
            return replace(given, metadata=_with_uid(given.metadata, "PersistentVolume"), status=VolumePhase(phase))
        case PersistentVolumeClaim():
            return _volume_claim(given, class_name)
        case StorageClass():
            mode = given.volume_binding_mode or "Immediate"
            metadata = _with_uid(given.metadata, "StorageClass")
            return StorageClass(metadata, given.provisioner, mode, given.allowed_topologies)
        case CsiStorageCapacity():
            limits = {"capacity": given.capacity, "maximumVolumeSize": given.maximum_volume_size}
            for field, limit in limits.items():
                check_quantities(field, {} if limit is None else {"": limit})
            return replace(given, metadata=_with_uid(_with_namespace(given.metadata), "CSIStorageCapacity"))
        case _:
            return given


def admitted_surrounding(given: PodSurrounding) -> PodSurrounding:
    """Admit an object that affects pods; a namespace is labelled with its name."""
    if isinstance(given, Namespace):
        labels = {**given.metadata.labels, _NAMESPACE_NAME: given.metadata.name}
        return Namespace(replace(given.metadata, labels=labels))
    metadata = _with_uid(_with_namespace(given.metadata), type(given).__name__)
    return replace(given, metadata=metadata)


def implied_namespaces(used: Iterable[str], known: Iterable[str]) -> list[Namespace]:
    """Return the namespaces of objects that are not in the files."""
    names = sorted(set(used) - set(known))
    return [Namespace(ObjectMeta(name, labels={_NAMESPACE_NAME: name})) for name in names]


def _volume_claim(given: PersistentVolumeClaim, class_name: str | None) -> PersistentVolumeClaim:
    check_quantities("spec.resources.requests", given.spec.resources.requests)
    if given.spec.selector is not None:
        try:
            compile_label_selector(given.spec.selector)
        except SelectorError as error:
            raise ConfigError([Problem("spec.selector", str(error))]) from error
    claim = replace(given, metadata=_with_uid(_with_namespace(given.metadata), "PersistentVolumeClaim"))
    return with_class(claim, class_name)


def check_quantities(path: str, quantities: Quantities) -> None:
    for name, quantity in quantities.items():
        try:
            nano(quantity)
        except QuantityError as error:
            raise ConfigError([Problem(f"{path}[{name}]" if name else path, str(error))]) from error


def _with_namespace(metadata: M) -> M:
    return metadata if metadata.namespace else replace(metadata, namespace=DEFAULT_NAMESPACE)


def _with_uid(metadata: M, kind: str) -> M:
    return metadata if metadata.uid else replace(metadata, uid=uid_of(kind, metadata.namespace, metadata.name))


# -- devices ----------------------------------------------------------------------------------------------------------


_SUFFIX = 5


def admitted_device(given: DeviceObject) -> DeviceObject:
    """Admit a claim, a class, a slice or a taint rule; raises ConfigError if a slice has an invalid quantity."""
    if isinstance(given, ResourceClaim):
        return replace(given, metadata=_with_uid(_with_namespace(given.metadata), "ResourceClaim"))
    if isinstance(given, ResourceSlice):
        try:
            ClusterDevices.empty().inventory.put_slice(given)
        except SchedulerCoreError as error:
            raise ConfigError([Problem("spec", str(error))]) from error
    return given


def admitted_template(given: ResourceClaimTemplate) -> ResourceClaimTemplate:
    return replace(given, metadata=_with_namespace(given.metadata))


def with_claims_of_templates(
    pods: Sequence[Pod], claims: Iterable[ResourceClaim], templates: Iterable[ResourceClaimTemplate]
) -> tuple[list[Pod], list[ResourceClaim]]:
    """Create the claims of pods from templates.

    Args:
        claims: Admitted claims; one that a pod owns already is used.
        templates: Admitted templates; a pod whose template does not exist waits for it.

    Returns:
        The pods, with ``status.resourceClaimStatuses``, and the new claims.
    """
    by_key = {(each.metadata.namespace, each.metadata.name): each for each in templates}
    owned = {
        (owner.uid, each.metadata.annotations.get(POD_CLAIM_NAME)): each.metadata.name
        for each in claims
        for owner in each.metadata.owner_references
        if owner.controller
    }
    created: list[ResourceClaim] = []
    changed = [pod if pod.is_terminal else _with_claims(pod, by_key, owned, created) for pod in pods]
    return changed, created


def _with_claims(
    pod: Pod,
    templates: Mapping[tuple[str, str], ResourceClaimTemplate],
    owned: Mapping[tuple[str, str | None], str],
    created: list[ResourceClaim],
) -> Pod:
    statuses = list(pod.status.resource_claim_statuses)
    known = {each.name for each in statuses}
    for reference in pod.spec.resource_claims:
        template_name = reference.resource_claim_template_name
        if template_name is None or reference.name in known:
            continue
        name = owned.get((pod.metadata.uid, reference.name))
        if name is None:
            template = templates.get((pod.metadata.namespace, template_name))
            if template is None:
                continue
            claim = _claim_of(pod, reference, template)
            created.append(claim)
            name = claim.metadata.name
        statuses.append(PodResourceClaimStatus(reference.name, name))
    if len(statuses) == len(known):
        return pod
    return replace(pod, status=replace(pod.status, resource_claim_statuses=tuple(statuses)))


def _claim_of(pod: Pod, reference: ResourceClaimReference, template: ResourceClaimTemplate) -> ResourceClaim:
    namespace, pod_name = pod.metadata.namespace, pod.metadata.name
    uid = uid_of("ResourceClaim", namespace, f"{pod.metadata.uid}/{reference.name}")
    metadata = ClaimMeta(
        name=f"{pod_name}-{reference.name}-{uid[:_SUFFIX]}",
        namespace=namespace,
        uid=uid,
        labels=template.spec.metadata.labels,
        annotations={**template.spec.metadata.annotations, POD_CLAIM_NAME: reference.name},
        owner_references=(OwnerReference("Pod", pod_name, pod.metadata.uid, "v1", controller=True),),
    )
    return ResourceClaim(metadata, template.spec.spec)


# -- priorities -------------------------------------------------------------------------------------------------------


class _PriorityClasses:
    """PriorityClasses by name, and the default one."""

    def __init__(self, classes: Mapping[str, PriorityClass], default: PriorityClass | None) -> None:
        self._classes = classes
        self._default = default

    def value_of(self, name: str) -> int | None:
        """Return the value of a class, that of the default class for an empty name; None if there is no such class."""
        if not name:
            return None if self._default is None else self._default.value
        found = self._classes.get(name)
        return SYSTEM_PRIORITIES.get(name) if found is None else found.value

    def resolve(self, spec: PodSpec) -> PodSpec:
        """Set the priority of a pod; raises ConfigError if its class does not exist or has another priority."""
        name = spec.priority_class_name
        if not name:
            if spec.priority is not None:
                return spec
            default = self._default
            if default is None:
                return replace(spec, priority=0, preemption_policy=spec.preemption_policy or _PREEMPT)
            return replace(
                spec,
                priority=default.value,
                priority_class_name=default.metadata.name,
                preemption_policy=default.preemption_policy,
            )
        value, policy = SYSTEM_PRIORITIES.get(name), _PREEMPT
        found = self._classes.get(name)
        if found is not None:
            value, policy = found.value, found.preemption_policy
        if value is None:
            if spec.priority is not None:
                return spec
            message = f'there is no PriorityClass "{name}"; add it to the files or correct the name'
            raise ConfigError([Problem("spec.priorityClassName", message)])
        if spec.priority is not None and spec.priority != value:
            message = f'is {spec.priority}, but the value of PriorityClass "{name}" is {value}; remove it from the pod'
            raise ConfigError([Problem("spec.priority", message)])
        return replace(spec, priority=value, preemption_policy=spec.preemption_policy or policy)


def _priority_classes(placed: Sequence[Placed[PriorityClass]], problems: list[Problem]) -> _PriorityClasses:
    problems += _duplicates([(f"PriorityClass {each.object.metadata.name}", each.place) for each in placed])
    defaults = [each for each in placed if each.object.global_default]
    for other in defaults[1:]:
        message = f"is already true in {defaults[0].place}; only one PriorityClass can be the default"
        problems.append(Problem(f"{other.place} (PriorityClass {other.object.metadata.name}): globalDefault", message))
    classes = {each.object.metadata.name: each.object for each in placed}
    return _PriorityClasses(classes, defaults[0].object if defaults else None)


# -- names ------------------------------------------------------------------------------------------------------------


def _described(admitted: Node | Pod | StorageObject | DeviceObject | ResourceClaimTemplate | PodSurrounding) -> str:
    """Return kind and name, such as ``Pod shop/web-0``."""
    kind = type(admitted).__name__.removeprefix("Written").replace("Csi", "CSI")
    return f"{kind} {object_key(admitted.metadata)}"


def _with_namespaces(surroundings: Sequence[PodSurrounding], pods: Sequence[Pod]) -> tuple[PodSurrounding, ...]:
    known = [each.metadata.name for each in surroundings if isinstance(each, Namespace)]
    return (*surroundings, *implied_namespaces((pod.metadata.namespace for pod in pods), known))


def _raw_key(body: Mapping[str, Any]) -> str:
    meta = body["metadata"]
    return f"{meta['namespace']}/{meta['name']}" if meta.get("namespace") else str(meta["name"])


def _ephemeral_claims(
    files: ClusterFiles, pods: Sequence[Pod], storage: Sequence[Placed[StorageObject]], class_name: str | None
) -> list[Placed[StorageObject]]:
    """Return the claims that the controller of ephemeral volumes creates, unless a file has one of the name."""
    by_key = {(pod.metadata.namespace, pod.metadata.name): pod for pod in pods if not pod.is_terminal}
    known = {each.object.key for each in storage if isinstance(each.object, PersistentVolumeClaim)}
    created: list[Placed[StorageObject]] = []
    for each in files.ephemeral_claims:
        pod = by_key.get(each.pod)
        if pod is None or each.claim.key in known:
            continue
        owner = OwnerReference("Pod", pod.metadata.name, pod.metadata.uid, "v1", controller=True)
        claim = replace(each.claim, metadata=replace(each.claim.metadata, owner_references=(owner,)))
        created.append(Placed(admitted_storage(claim, class_name), Place("", 0)))
    return created


def _duplicates(described: Iterable[tuple[str, Place]]) -> list[Problem]:
    first: dict[str, Place] = {}
    problems = []
    for name, place in described:
        if name in first:
            message = f"is already defined in {first[name]}; remove one or give it another name"
            problems.append(Problem(f"{place} ({name})", message))
        first.setdefault(name, place)
    return problems


def _duplicate_uids(pods: Iterable[Placed[Pod]]) -> list[Problem]:
    first: dict[str, Placed[Pod]] = {}
    problems = []
    for placed in pods:
        pod = placed.object
        if not pod.metadata.uid:
            continue  # A pod that is invalid otherwise gets no UID.
        other = first.setdefault(pod.metadata.uid, placed)
        if other.object.key != pod.key:
            message = f"must be unique, but pod {other.object.key} ({other.place}) has the same UID; remove it"
            problems.append(Problem(f"{placed.place} (Pod {pod.key}): metadata.uid", message))
    return problems


def _foreign_gangs(pods: Iterable[Pod]) -> list[str]:
    """Return a notice if pods have marks of other gang schedulers and name no PodGroup."""
    marks = {pod.key: mark for pod in pods if group_key_of(pod) is None and (mark := foreign_gang(pod.metadata))}
    if not marks:
        return []
    first = min(marks)
    more = f" and {len(marks) - 1} more" if len(marks) > 1 else ""
    return [f"pod {first}{more} is scheduled without its gang: {marks[first]}"]
