"""Hypothetical events that might requeue a rejected pod: nodes, pods and the pod itself added, changed or deleted.

They contain real objects, because queueing hints receive the objects that a watch would deliver. Events are proposed
generously: :mod:`scheduler_core.explain.unblocking_events` decides with hints and filters which ones help.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from scheduler_core.explain.findings import NodeLacks
from scheduler_core.explain.satisfying_labels import matching_labels, node_labels, required_terms
from scheduler_core.framework.cluster_events import (
    ASSIGNED_POD_ADD,
    ASSIGNED_POD_DELETE,
    NODE_ADD,
    Action,
    ClusterEvent,
    Resource,
)
from scheduler_core.framework.extension_points import Shortage
from scheduler_core.model.devices import DeviceTaint
from scheduler_core.model.meta import ObjectMeta
from scheduler_core.model.node import Node, NodeSpec, NodeStatus
from scheduler_core.model.pod import Pod, PodSpec, PodStatus, Quantities
from scheduler_core.model.pod_requests import CPU, EPHEMERAL_STORAGE, MEMORY, PODS
from scheduler_core.model.taints import (
    NO_EXECUTE,
    NO_SCHEDULE,
    TAINT_NODE_UNSCHEDULABLE,
    Taint,
    Toleration,
    tolerated,
)
from scheduler_core.snapshot.node_columns import NodeColumns
from scheduler_core.snapshot.pod_info import PodInfo

_HOSTNAME = "kubernetes.io/hostname"
_NEW_NODE = "new-node"
_NEW_POD = "new-pod"
_MAX_PODS = 2000
"""Running pods whose deletion is proposed, those on the nearest nodes first."""
_MAX_NODES = 20
"""Nodes on which a new pod is proposed."""
_BYTES = frozenset({MEMORY, EPHEMERAL_STORAGE})
_BINARY_UNITS = (("Gi", 1 << 30), ("Mi", 1 << 20), ("Ki", 1 << 10))


class Candidate(Struct, frozen=True):
    """A hypothetical event.

    Attributes:
        event: The resource and action.
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


def amount_text(resource: str, amount: int) -> str:
    """Return an amount for display: cores or millicores, bytes with a binary unit, or the plain number."""
    if resource == CPU:
        return f"{amount}m" if amount % 1000 else str(amount // 1000)
    if resource in _BYTES or resource.startswith("hugepages-"):
        for unit, size in _BINARY_UNITS:
            if abs(amount) >= size:
                return f"{amount / size:.1f}".removesuffix(".0") + unit
    return str(amount)


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
    for node in _nodes_of(columns, misses):
        against = _taints_against(pod, node)
        if against:
            added = tuple(Toleration(taint.key, "Equal", taint.value, taint.effect) for taint in against)
            spec = replace(pod.spec, tolerations=(*pod.spec.tolerations, *added))
            words = " and ".join(taint_text(taint) for taint in against)
            yield Candidate(event, pod, replace(pod, spec=spec), f"the pod tolerates {words}")


def node_changes(info: PodInfo, columns: NodeColumns, misses: Sequence[NodeLacks]) -> Iterator[Candidate]:
    """Yield changes of the nearest nodes that each resolve one cause: taints, labels or allocatable resources."""
    for miss in misses:
        row = columns.row_of(miss.node)
        node = columns.nodes[row] if row >= 0 else None
        if node is None:
            continue
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
        if wanted == labels or wanted.get(_HOSTNAME) != labels.get(_HOSTNAME):
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
    for node in _nodes_of(columns, misses):
        domain = {key: node.metadata.labels[key] for key in keys if key in node.metadata.labels and key != _HOSTNAME}
        if domain and domain not in domains:
            domains.append(domain)
    for term in required_terms(info.pod):
        names = [value for one in term.match_fields if one.key == "metadata.name" for value in one.values]
        name = next((value for value in [*names, _NEW_NODE] if value not in taken), None)
        if name is None:
            continue
        for domain in domains:
            own = node_labels(info.pod, term, domain)
            if own.get(_HOSTNAME) in taken:
                continue
            labels = {_HOSTNAME: name, **dict.fromkeys(keys, name), **own}
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
            yield Candidate(ASSIGNED_POD_DELETE, _with_node(info.pod, info.node_name), None, what)


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


def _with_node(pod: Pod, node_name: str) -> Pod:
    return pod if pod.spec.node_name else replace(pod, spec=replace(pod.spec, node_name=node_name))


def _nodes_of(columns: NodeColumns, misses: Sequence[NodeLacks]) -> Iterator[Node]:
    for miss in misses:
        row = columns.row_of(miss.node)
        node = columns.nodes[row] if row >= 0 else None
        if node is not None:
            yield node


def _taints_against(pod: Pod, node: Node) -> list[Taint]:
    """Return the node's taints that the pod does not tolerate; a cordon counts as its taint."""
    taints = [taint for taint in node.spec.taints if taint.effect in (NO_SCHEDULE, NO_EXECUTE)]
    cordon = Taint(TAINT_NODE_UNSCHEDULABLE, NO_SCHEDULE)
    if node.spec.unschedulable and cordon not in taints:
        taints.append(cordon)
    return [taint for taint in taints if not tolerated(taint, pod.spec.tolerations)]


def taint_text(taint: Taint | DeviceTaint) -> str:
    """Return a taint as ``kubectl taint`` writes it."""
    return f"{taint.key}={taint.value}:{taint.effect}" if taint.value else f"{taint.key}:{taint.effect}"


def _topology_keys(pod: Pod) -> list[str]:
    keys = [constraint.topology_key for constraint in pod.spec.topology_spread_constraints]
    affinity = pod.spec.affinity
    if affinity is not None and affinity.pod_affinity is not None:
        keys += [term.topology_key for term in affinity.pod_affinity.required]
    return list(dict.fromkeys(key for key in keys if key))


def _quantity(resource: str, amount: int) -> str | int:
    return f"{amount}m" if resource == CPU else amount
