"""Hypothetical events that might requeue a rejected pod: of the pod itself, other pods, nodes, storage and devices.

They contain real objects, because queueing hints receive the objects that a watch would deliver. Events are proposed
generously: :mod:`scheduler_core.explain.unblocking_events` decides with hints and filters which ones help.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from scheduler_core.cel.device_selector import Version
from scheduler_core.explain.device_findings import DeviceFindings, NearestDevice
from scheduler_core.explain.device_problems import ATTRIBUTES, CAPACITY, DRIVER, Constant, taint_text
from scheduler_core.explain.findings import NodeLacks
from scheduler_core.framework.cluster_events import (
    ASSIGNED_POD_ADD,
    ASSIGNED_POD_DELETE,
    NODE_ADD,
    Action,
    ClusterEvent,
    Resource,
)
from scheduler_core.framework.extension_points import Shortage
from scheduler_core.model.affinity import LabelSelector, NodeSelectorTerm, Requirement
from scheduler_core.model.devices import (
    ClaimMeta,
    Device,
    DeviceAttribute,
    DeviceCapacity,
    DeviceClass,
    DeviceRequest,
    ResourceClaim,
    ResourcePool,
    ResourceSlice,
    ResourceSliceSpec,
)
from scheduler_core.model.meta import AnnotatedMeta, ObjectMeta
from scheduler_core.model.node import HOSTNAME, Node, NodeSpec, NodeStatus
from scheduler_core.model.pod import Pod, PodSpec, PodStatus, Quantities
from scheduler_core.model.pod_requests import CPU, PODS, amount_text, value
from scheduler_core.model.pod_volumes import ClaimReference
from scheduler_core.model.storage import (
    STORAGE,
    CsiNode,
    CsiNodeDriver,
    CsiNodeSpec,
    CsiStorageCapacity,
    DriverAllocatable,
    PersistentVolume,
    PersistentVolumeClaim,
    PersistentVolumeSpec,
    StorageClass,
)
from scheduler_core.model.taints import (
    NO_EXECUTE,
    NO_SCHEDULE,
    TAINT_NODE_UNSCHEDULABLE,
    Taint,
    Toleration,
    tolerated,
)
from scheduler_core.snapshot.indexes.device_index import DeviceIndex
from scheduler_core.snapshot.node_columns import NodeColumns
from scheduler_core.snapshot.pod_info import PodInfo

_NEW_NODE = "new-node"
_NEW_POD = "new-pod"
_MAX_PODS = 2000
"""Running pods whose deletion is proposed, those on the nearest nodes first."""
_MAX_NODES = 20
"""Nodes on which a new pod is proposed."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A hypothetical event.

    Attributes:
        old: The object before the event; None if it is added.
        new: The object after the event; None if it is deleted.
        what: Description, such as ``pod shop/web-0 deleted from node n``.
        is_complete: Whether the objects are complete enough for a dry run.
    """

    event: ClusterEvent
    old: object | None
    new: object | None
    what: str
    is_complete: bool = True


def pod_changes(info: PodInfo, columns: NodeColumns, misses: Sequence[NodeLacks]) -> Iterator[Candidate]:
    """Yield changes of the pod itself: scheduling gates removed, tolerations added for the nearest nodes."""
    pod = info.pod
    gates = pod.spec.scheduling_gates
    if gates:
        names = ", ".join(gate.name for gate in gates)
        event = ClusterEvent(Resource.TARGET_POD, Action.UPDATE_POD_SCHEDULING_GATES_ELIMINATED)
        opened = replace(pod, spec=replace(pod.spec, scheduling_gates=()))
        yield Candidate(
            event, pod, opened, f"scheduling gate{'s' if len(gates) > 1 else ''} {names} removed from the pod"
        )
    event = ClusterEvent(Resource.TARGET_POD, Action.UPDATE_POD_TOLERATION)
    for _, _, node in _near(columns, misses):
        against = _taints_against(pod, node)
        if against:
            added = tuple(Toleration(taint.key, "Equal", taint.value, taint.effect) for taint in against)
            spec = replace(pod.spec, tolerations=(*pod.spec.tolerations, *added))
            words = " and ".join(taint_text(taint) for taint in against)
            yield Candidate(event, pod, replace(pod, spec=spec), f"the pod tolerates {words}")


def node_changes(info: PodInfo, columns: NodeColumns, misses: Sequence[NodeLacks]) -> Iterator[Candidate]:
    """Yield changes of the nearest nodes that each resolve one cause: taints, labels or allocatable resources."""
    for miss, row, node in _near(columns, misses):
        yield from _opened(info.pod, node)
        yield from _labelled(info.pod, node)
        shortages = [shortage for lack in miss.lacks for shortage in lack.amounts]
        if shortages:
            yield _grown(node, shortages, columns, row)


def _opened(pod: Pod, node: Node) -> Iterator[Candidate]:
    against = _taints_against(pod, node)
    if not against:
        return
    name = node.metadata.name
    left = tuple(taint for taint in node.spec.taints if taint not in against)
    words = []
    if node.spec.unschedulable:
        words.append(f"node {name} uncordoned")
    words += [f"taint {taint_text(taint)} removed from node {name}" for taint in against if taint in node.spec.taints]
    changed = replace(node, spec=replace(node.spec, taints=left, unschedulable=False))
    yield Candidate(ClusterEvent(Resource.NODE, Action.UPDATE_NODE_TAINT), node, changed, " and ".join(words))


def _labelled(pod: Pod, node: Node) -> Iterator[Candidate]:
    labels, name = node.metadata.labels, node.metadata.name
    for term in required_terms(pod):
        wanted = node_labels(pod, term, labels)
        for key in _topology_keys(pod):
            wanted.setdefault(key, name)
        if wanted == labels or wanted.get(HOSTNAME) != labels.get(HOSTNAME):
            # The host name label is the node's identity.
            continue
        changed = replace(node, metadata=replace(node.metadata, labels=wanted))
        set_to = [f"{key}={value}" for key, value in wanted.items() if labels.get(key) != value]
        gone = [key for key in labels if key not in wanted]
        words = [f"label {', '.join(set_to)} set on node {name}"] if set_to else []
        words += [f"label {', '.join(gone)} removed from node {name}"] if gone else []
        yield Candidate(ClusterEvent(Resource.NODE, Action.UPDATE_NODE_LABEL), node, changed, " and ".join(words))


def _grown(node: Node, shortages: Sequence[Shortage], columns: NodeColumns, row: int) -> Candidate:
    allocatable: Quantities = dict(node.status.allocatable)
    words = []
    for shortage in shortages:
        name = shortage.resource
        if name == PODS:
            amount = int(columns.pod_count[row]) + shortage.needed
        else:
            amount = shortage.needed + columns.requested_amount(name, row)
        allocatable[name] = _quantity(name, amount)
        words.append(f"{amount_text(name, amount)} {name}")
    changed = replace(node, status=replace(node.status, allocatable=allocatable))
    what = f"node {node.metadata.name} grown to {' and '.join(words)} allocatable"
    return Candidate(ClusterEvent(Resource.NODE, Action.UPDATE_NODE_ALLOCATABLE), node, changed, what)


def nodes_added(info: PodInfo, columns: NodeColumns, misses: Sequence[NodeLacks]) -> Iterator[Candidate]:
    """Yield nodes that are large enough and have the required labels, in a new domain first, then in known ones."""
    amounts = dict(info.requests.fit)
    allocatable: Quantities = {name: _quantity(name, amount) for name, amount in amounts.items()}
    allocatable[PODS] = "110"
    features = sorted({feature for node in columns.nodes if node for feature in node.status.declared_features})
    status = NodeStatus(allocatable, allocatable, declared_features=tuple(features))
    room = [f"{amount_text(name, amount)} {name}" for name, amount in amounts.items() if amount]
    taken = {name for name in columns.names if name is not None}
    keys = _topology_keys(info.pod)
    domains: list[dict[str, str]] = [{}]
    for _, _, node in _near(columns, misses):
        domain = {key: node.metadata.labels[key] for key in keys if key in node.metadata.labels and key != HOSTNAME}
        if domain and domain not in domains:
            domains.append(domain)
    for term in required_terms(info.pod):
        names = [value for one in term.match_fields if one.key == "metadata.name" for value in one.values]
        name = next((value for value in [*names, _NEW_NODE] if value not in taken), None)
        if name is None:
            continue
        for domain in domains:
            own = node_labels(info.pod, term, domain)
            if own.get(HOSTNAME) in taken:
                continue
            labels = {HOSTNAME: name, **dict.fromkeys(keys, name), **own}
            node = Node(ObjectMeta(name, uid=f"uid-of-{name}", labels=labels), NodeSpec(), status)
            label_texts = [f"{key}={value}" for key, value in sorted(own.items())]
            words = f"a node {name} added" if name in names else "a node added"
            words += f" with {' and '.join(room)} or more free" if room else ""
            words += f", labelled {', '.join(label_texts)}" if label_texts else ""
            yield Candidate(NODE_ADD, None, node, words)


def pods_deleted(
    pods: Sequence[PodInfo], columns: NodeColumns, misses: Sequence[NodeLacks], pod: PodInfo
) -> Iterator[Candidate]:
    """Yield deletions of running pods: on the nearest nodes first, and on each node by ascending priority."""
    nearest = {miss.node: place for place, miss in enumerate(misses)}

    def order(info: PodInfo) -> tuple[int, int, str]:
        return nearest.get(info.node_name, len(nearest)), info.priority, info.key

    for info in sorted(pods, key=order)[:_MAX_PODS]:
        if info.uid != pod.uid and columns.row_of(info.node_name) >= 0:
            what = f"pod {info.key} deleted from node {info.node_name}"
            placed = replace(info.pod, spec=replace(info.pod.spec, node_name=info.node_name))
            yield Candidate(ASSIGNED_POD_DELETE, placed, None, what)


def pods_added(info: PodInfo, columns: NodeColumns, misses: Sequence[NodeLacks]) -> Iterator[Candidate]:
    """Yield new running pods: one that the pod's affinity selects, and one with the pod's own labels."""
    own = info.pod.metadata
    wanted: dict[str, str] = {}
    namespace = own.namespace
    affinity = info.pod.spec.affinity
    terms = () if affinity is None or affinity.pod_affinity is None else affinity.pod_affinity.required
    for term in terms:
        wanted.update(matching_labels(term.label_selector))
        namespace = term.namespaces[0] if term.namespaces else namespace
    label_sets = [(namespace, wanted)] if wanted else []
    if info.pod.spec.topology_spread_constraints:
        label_sets.append((own.namespace, own.labels))
    near = [miss.node for miss in misses]
    node_names = near + sorted(name for name in columns.names if name is not None and name not in near)
    for space, labels in label_sets:
        label_texts = ", ".join(f"{key}={value}" for key, value in sorted(labels.items()))
        for place in node_names[:_MAX_NODES]:
            meta = ObjectMeta(_NEW_POD, space, f"uid-of-{_NEW_POD}-on-{place}", labels=dict(labels))
            pod = Pod(meta, PodSpec(node_name=place), PodStatus("Running"))
            words = f"a pod labelled {label_texts}" if label_texts else "a pod"
            yield Candidate(ASSIGNED_POD_ADD, None, pod, f"{words} starts on node {place} (namespace {space})")


def _near(columns: NodeColumns, misses: Sequence[NodeLacks]) -> Iterator[tuple[NodeLacks, int, Node]]:
    """Yield the nodes that exist, each with its row."""
    for miss in misses:
        row = columns.row_of(miss.node)
        node = columns.nodes[row] if row >= 0 else None
        if node is not None:
            yield miss, row, node


def _taints_against(pod: Pod, node: Node) -> list[Taint]:
    """Return the node's taints that the pod does not tolerate; a cordon counts as its taint."""
    taints = [taint for taint in node.spec.taints if taint.effect in (NO_SCHEDULE, NO_EXECUTE)]
    cordon = Taint(TAINT_NODE_UNSCHEDULABLE, NO_SCHEDULE)
    if node.spec.unschedulable and cordon not in taints:
        taints.append(cordon)
    return [taint for taint in taints if not tolerated(taint, pod.spec.tolerations)]


def _topology_keys(pod: Pod) -> list[str]:
    keys = [constraint.topology_key for constraint in pod.spec.topology_spread_constraints]
    affinity = pod.spec.affinity
    if affinity is not None and affinity.pod_affinity is not None:
        keys += [term.topology_key for term in affinity.pod_affinity.required]
    return list(dict.fromkeys(key for key in keys if key))


def _quantity(resource: str, amount: int) -> str | int:
    return f"{amount}m" if resource == CPU else amount


# -- labels that satisfy a selector with few changes; each proposal is tested before it is shown ----------------------


_ANY_VALUE = "true"


def satisfied(labels: Mapping[str, str], requirements: Iterable[Requirement]) -> dict[str, str]:
    """Return a copy of ``labels``, changed where a requirement needs it."""
    changed = dict(labels)
    for requirement in requirements:
        _satisfy(changed, requirement)
    return changed


def matching_labels(selector: LabelSelector | None) -> dict[str, str]:
    if selector is None:
        return {}
    return satisfied(selector.match_labels, selector.match_expressions)


def required_terms(pod: Pod) -> tuple[NodeSelectorTerm, ...]:
    """Return the alternative terms of a pod's required node affinity; one empty term if it has none."""
    affinity = pod.spec.affinity
    node_affinity = None if affinity is None else affinity.node_affinity
    required = None if node_affinity is None else node_affinity.required
    terms = () if required is None else required.node_selector_terms
    return terms or (NodeSelectorTerm(),)


def node_labels(pod: Pod, term: NodeSelectorTerm, labels: Mapping[str, str]) -> dict[str, str]:
    """Return a node's labels, changed to satisfy a pod's node selector and one term of its affinity."""
    return satisfied({**labels, **pod.spec.node_selector}, term.match_expressions)


def _satisfy(labels: dict[str, str], requirement: Requirement) -> None:
    key, values = requirement.key, requirement.values
    match requirement.operator:
        case "In":
            if values and labels.get(key) not in values:
                labels[key] = values[0]
        case "NotIn":
            if labels.get(key) in values:
                del labels[key]
        case "Exists":
            labels.setdefault(key, _ANY_VALUE)
        case "DoesNotExist":
            labels.pop(key, None)
        case "Gt" | "Lt" if values and values[0].lstrip("-").isdigit():
            bound = int(values[0])
            now = labels.get(key, "")
            is_number = now.lstrip("-").isdigit()
            if requirement.operator == "Gt" and not (is_number and int(now) > bound):
                labels[key] = str(bound + 1)
            elif requirement.operator == "Lt" and not (is_number and int(now) < bound):
                labels[key] = str(bound - 1)


# -- claims, volumes, storage classes, capacities and CSI drivers -----------------------------------------------------


_NEW_VOLUME = "new-volume"


def storage_changes(info: PodInfo, columns: NodeColumns, misses: Sequence[NodeLacks]) -> Iterator[Candidate]:
    """Yield events of the pod's claims and of the CSI drivers of the nearest nodes."""
    storage = columns.storage
    for reference in info.volumes.claims:
        claim = storage.claims.get(reference.key)
        if claim is None or claim.metadata.deletion_timestamp is not None:
            made = PersistentVolumeClaim(AnnotatedMeta(reference.name, info.pod.metadata.namespace))
            event = ClusterEvent(Resource.PERSISTENT_VOLUME_CLAIM, Action.ADD)
            again = "" if claim is None else f" again{_after_end(info, reference, columns)}"
            yield Candidate(event, None, made, f"claim {reference.key} created{again}")
        elif not claim.spec.volume_name:
            yield from _for_unbound(claim, columns)
            yield from _grown_capacities(claim, columns, misses)
    for miss in misses:
        csi_node = storage.csi_nodes.get(miss.node)
        if csi_node is not None:
            yield from _raised_limits(csi_node)
        yield from _registered_drivers(info, columns, miss.node, csi_node)
        yield from _detached(columns, miss.node)


def _for_unbound(claim: PersistentVolumeClaim, columns: NodeColumns) -> Iterator[Candidate]:
    bound = replace(claim, spec=replace(claim.spec, volume_name=_NEW_VOLUME))
    event = ClusterEvent(Resource.PERSISTENT_VOLUME_CLAIM, Action.UPDATE_OTHER)
    yield Candidate(event, claim, bound, f"claim {claim.key} bound to a volume")
    class_name = claim.spec.storage_class_name or ""
    if class_name and columns.storage.classes.get(class_name) is None:
        event = ClusterEvent(Resource.STORAGE_CLASS, Action.ADD)
        yield Candidate(event, None, StorageClass(AnnotatedMeta(class_name)), f"storage class {class_name} created")
    spec = PersistentVolumeSpec(
        capacity=dict(claim.spec.resources.requests),
        access_modes=claim.spec.access_modes,
        storage_class_name=class_name,
        volume_mode=claim.spec.volume_mode,
    )
    volume = PersistentVolume(AnnotatedMeta(_NEW_VOLUME), spec)
    words = f"a volume created that suits claim {claim.key}"
    yield Candidate(ClusterEvent(Resource.PERSISTENT_VOLUME, Action.ADD), None, volume, words)


def _after_end(info: PodInfo, reference: ClaimReference, columns: NodeColumns) -> str:
    """Return which pods keep a claim that is being deleted; its finalizer waits for their end."""
    users = sorted(
        other.key
        for pods in columns.pods
        for other in pods.values()
        if other.uid != info.uid and any(each.key == reference.key for each in other.volumes.claims)
    )
    if not users:
        return " after its deletion"
    more = f" and {len(users) - 1} more" if len(users) > 1 else ""
    return f" after its deletion, which waits for the end of pod {users[0]}{more}"


def _grown_capacities(
    claim: PersistentVolumeClaim, columns: NodeColumns, misses: Sequence[NodeLacks]
) -> Iterator[Candidate]:
    """Yield reports of enough storage capacity for a claim on the nearest nodes."""
    storage, requested = columns.storage, claim.spec.resources.requests.get(STORAGE)
    storage_class = storage.classes.get(claim.spec.storage_class_name or "")
    driver = None if storage_class is None else storage.drivers.get(storage_class.provisioner)
    if requested is None or storage_class is None or driver is None or not driver.spec.storage_capacity:
        return
    class_name = storage_class.metadata.name
    for miss, _, node in _near(columns, misses):
        capacity = next(iter(storage.capacities_reaching(class_name, node.metadata.labels)), None)
        if capacity is None:
            made = CsiStorageCapacity(ObjectMeta("new-capacity"), class_name, capacity=requested)
            words = f"a CSIStorageCapacity of class {class_name} with {requested} that includes node {miss.node}"
            yield Candidate(ClusterEvent(Resource.CSI_STORAGE_CAPACITY, Action.ADD), None, made, words)
        elif capacity.volume_limit is None or value(capacity.volume_limit) < value(requested):
            grown = replace(capacity, capacity=requested, maximum_volume_size=None)
            key = f"{capacity.metadata.namespace}/{capacity.metadata.name}"
            amounts = f"from {capacity.volume_limit} to {requested}"
            words = f"CSIStorageCapacity {key} of node {miss.node} grown {amounts}"
            yield Candidate(ClusterEvent(Resource.CSI_STORAGE_CAPACITY, Action.UPDATE), capacity, grown, words)


def _registered_drivers(
    info: PodInfo, columns: NodeColumns, node_name: str, csi_node: CsiNode | None
) -> Iterator[Candidate]:
    """Yield registrations of drivers that pods with their volumes need."""
    storage = columns.storage
    volumes = (storage.use.volume_of_claim(reference.key) for reference in info.volumes.claims)
    for name in dict.fromkeys(volume[0] for volume in volumes if volume is not None):
        driver = storage.drivers.get(name)
        if driver is None or not driver.spec.prevent_pod_scheduling_if_missing:
            continue
        added = CsiNodeDriver(name, DriverAllocatable(1))
        if csi_node is None:
            made = CsiNode(AnnotatedMeta(node_name), CsiNodeSpec((added,)))
            words = f"CSINode {node_name} created with driver {name}"
            yield Candidate(ClusterEvent(Resource.CSI_NODE, Action.ADD), None, made, words)
        elif all(each.name != name for each in csi_node.spec.drivers):
            changed = replace(csi_node, spec=replace(csi_node.spec, driver_list=(*csi_node.spec.drivers, added)))
            words = f"driver {name} registered in CSINode {node_name}, with a limit of volumes"
            yield Candidate(ClusterEvent(Resource.CSI_NODE, Action.UPDATE_OTHER), csi_node, changed, words)


def _detached(columns: NodeColumns, node_name: str) -> Iterator[Candidate]:
    """Yield deletions of attachments to a node whose volume no pod on the node uses."""
    storage, row = columns.storage, columns.row_of(node_name)
    used = {
        claim.spec.volume_name
        for other in columns.pods[row].values()
        for reference in other.volumes.claims
        if (claim := storage.claims.get(reference.key)) is not None
    }
    for attachment in storage.attachments:
        volume = attachment.spec.source.persistent_volume_name
        if attachment.spec.node_name == node_name and volume is not None and volume not in used:
            words = f"VolumeAttachment {attachment.metadata.name} deleted (volume {volume}, node {node_name})"
            yield Candidate(ClusterEvent(Resource.VOLUME_ATTACHMENT, Action.DELETE), attachment, None, words)


def _raised_limits(csi_node: CsiNode) -> Iterator[Candidate]:
    limited = [driver for driver in csi_node.spec.drivers if driver.allocatable is not None]
    if not limited:
        return
    raised = tuple(
        driver
        if driver.allocatable is None
        else replace(driver, allocatable=DriverAllocatable((driver.allocatable.count or 0) + 1))
        for driver in csi_node.spec.drivers
    )
    changed = replace(csi_node, spec=replace(csi_node.spec, driver_list=raised))
    names = ", ".join(driver.name for driver in limited)
    words = f"the limit of volumes raised on node {csi_node.metadata.name} (driver {names})"
    yield Candidate(ClusterEvent(Resource.CSI_NODE, Action.UPDATE_OTHER), csi_node, changed, words)


# -- claims, device classes and devices -------------------------------------------------------------------------------


_CLAIM_ADD = ClusterEvent(Resource.RESOURCE_CLAIM, Action.ADD)
_CLAIM_UPDATE = ClusterEvent(Resource.RESOURCE_CLAIM, Action.UPDATE_OTHER)
_CLASS_ADD = ClusterEvent(Resource.DEVICE_CLASS, Action.ADD)
_SLICE_ADD = ClusterEvent(Resource.RESOURCE_SLICE, Action.ADD)
_NEW = "new-devices"


def device_changes(
    info: PodInfo, columns: NodeColumns, misses: Sequence[NodeLacks], findings: DeviceFindings | None
) -> Iterator[Candidate]:
    """Yield events of the pod's claims and their classes, and of the devices of the nearest nodes."""
    devices = columns.devices
    claims: list[ResourceClaim] = []
    for name in _claim_names(info.pod):
        key = f"{info.pod.metadata.namespace}/{name}"
        claim = devices.claims.get(key)
        if claim is None:
            made = ResourceClaim(ClaimMeta(name, info.pod.metadata.namespace, f"uid-of-{name}"))
            yield Candidate(_CLAIM_ADD, None, made, f"claim {key} created", is_complete=False)
        else:
            claims.append(claim)
    for class_name in _missing_classes(claims, devices):
        made_class = DeviceClass(ObjectMeta(class_name))
        yield Candidate(_CLASS_ADD, None, made_class, f"device class {class_name} created", is_complete=False)
    for claim in claims:
        in_flight = devices.in_flight(claim.metadata.uid)
        if in_flight is not None and claim.status.allocation is None:
            written = replace(claim, status=replace(claim.status, allocation=in_flight.allocation))
            yield Candidate(_CLAIM_UPDATE, claim, written, f"the allocation of claim {claim.key} written")
    if findings is not None:
        for _, row, _ in _near(columns, misses):
            yield from _on_node(columns, row, findings)


def _claim_names(pod: Pod) -> Iterator[str]:
    created = {each.name: each.resource_claim_name for each in pod.status.resource_claim_statuses}
    for reference in pod.spec.resource_claims:
        name = reference.resource_claim_name or created.get(reference.name)
        if name is not None:
            yield name


def _missing_classes(claims: Sequence[ResourceClaim], devices: DeviceIndex) -> list[str]:
    names = [
        name
        for claim in claims
        if claim.status.allocation is None
        for request in claim.spec.devices.requests
        for name in _class_names(request)
    ]
    return [name for name in dict.fromkeys(names) if name and name not in devices.classes]


def _class_names(request: DeviceRequest) -> list[str]:
    alternatives = [each.device_class_name for each in request.first_available]
    return alternatives if request.exactly is None else [request.exactly.device_class_name]


# -- one node -------------------------------------------------------------------------------------------------------


def _on_node(columns: NodeColumns, row: int, findings: DeviceFindings) -> Iterator[Candidate]:
    node_name, claims = columns.node_name(row), columns.devices.claims
    for each in findings.claims_on(row).unavailable:
        yield _deallocated(each.claim, ())
    nearest = findings.nearest(row)
    for _, device in nearest:
        if device is None:
            continue
        for holder in device.holders:
            claim = claims.get(holder.claim)
            if claim is not None and claim.status.allocation is not None:
                yield _deallocated(claim, holder.pods)
        yield _published(device, node_name)
    for obstacle, device in nearest:
        if device is None and not findings.claims_on(row).unavailable:
            request = f"request {obstacle.request} of " if obstacle.request else ""
            words = f"devices for {request}claim {obstacle.claim} published on node {node_name}"
            yield Candidate(_SLICE_ADD, None, _slice(node_name, "", ()), words, is_complete=False)


def _deallocated(claim: ResourceClaim, pods: Sequence[str]) -> Candidate:
    after = ""
    if pods:
        after = f" after pod{'s' if len(pods) > 1 else ''} {', '.join(pods)} end{'' if len(pods) > 1 else 's'}"
    freed = replace(claim, status=replace(claim.status, allocation=None, reserved_for=()))
    return Candidate(_CLAIM_UPDATE, claim, freed, f"claim {claim.key} deallocated{after}")


def _published(device: NearestDevice, node_name: str) -> Candidate:
    """Return the event that devices like one of a node are published, without its problems as far as they are known."""
    facts = device.view.records[device.position].facts
    driver, changes, is_complete = facts.driver, list[str](), True
    attributes, capacity = dict(facts.attributes), dict(facts.capacity)
    for problem in device.problems:
        read, value = problem.read, problem.suitable
        if not problem.required_by:
            # A new device is not in use and has no taint; amounts that a request needs from the device stay too small.
            is_complete = is_complete and (problem.is_use or problem.is_taint)
            continue
        if read is None or value is None or read.kind not in (ATTRIBUTES, CAPACITY, DRIVER):
            is_complete = False
            continue
        changes.append(f"{read.label(facts.driver)} {_plain(value)}")
        if read.kind == DRIVER:
            driver = str(value)
            continue
        key = read.name if read.domain == facts.driver and read.name in attributes | capacity else ""
        key = key or f"{read.domain}/{read.name}"
        if read.kind == ATTRIBUTES:
            attributes[key] = _attribute(value)
        else:
            capacity[key] = DeviceCapacity(str(value))
    many = device.missing
    noun = "a device" if many == 1 else f"{many} devices"
    with_changes = f" with {' and '.join(changes)}" if changes else ""
    words = f"{noun} like {device.name}{with_changes} published on node {node_name}"
    if not is_complete:
        words = f"{noun} for request {device.terms.result_name} published on node {node_name}"
    made = tuple(
        Device(
            f"new-{number}",
            attributes,
            capacity,
            allow_multiple_allocations=facts.allow_multiple_allocations,
        )
        for number in range(many)
    )
    return Candidate(_SLICE_ADD, None, _slice(node_name, driver, made), words, is_complete=is_complete)


def _slice(node_name: str, driver: str, devices: tuple[Device, ...]) -> ResourceSlice:
    spec = ResourceSliceSpec(driver, ResourcePool(_NEW, 1, 1), node_name=node_name, devices=devices)
    return ResourceSlice(ObjectMeta(_NEW), spec)


def _attribute(value: Constant) -> DeviceAttribute:
    if isinstance(value, bool):
        return DeviceAttribute(bool_value=value)
    if isinstance(value, int):
        return DeviceAttribute(int_value=value)
    if isinstance(value, Version):
        return DeviceAttribute(version_value=value.text)
    return DeviceAttribute(string_value=str(value))


def _plain(value: Constant) -> str:
    return value.text if isinstance(value, Version) else str(value)
