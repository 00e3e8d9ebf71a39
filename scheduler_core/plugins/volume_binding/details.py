"""What a node lacks for the claims of a pod: amounts, the reported storage capacities, and the topology of volumes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from scheduler_core.model.selectors import FieldRequirement, LabelRequirement, NodeMatcher
from scheduler_core.model.storage import STORAGE, PersistentVolumeClaim
from scheduler_core.plugins.volume_binding.claims import DelayedClaim, PodClaims
from scheduler_core.plugins.volume_binding.filtering import NO_VOLUME, OUT_OF_REACH
from scheduler_core.plugins.volume_binding.provisioning import CANNOT_BIND, NO_PROVISIONER, NO_SPACE
from scheduler_core.snapshot.indexes.storage_index import StorageIndex
from scheduler_core.snapshot.node_columns import NodeColumns


def storage_details(claims: PodClaims, nodes: NodeColumns, row: int, code: int) -> Iterator[str]:
    """Yield what the node of a row lacks."""
    node, storage = nodes.nodes[row], nodes.storage
    labels, name = (dict[str, str](), "") if node is None else (node.metadata.labels, node.metadata.name)
    if code & (OUT_OF_REACH | NO_VOLUME):
        for claim in claims.bound:
            known = storage.known_volume(claim.spec.volume_name)
            if known is None:
                yield f"volume {claim.spec.volume_name} of claim {claim.key} does not exist"
            elif known.affinity is not None and not known.affinity.matches(labels, name):
                needed = _affinity_text(known.affinity)
                volume = f"volume {claim.spec.volume_name} of claim {claim.key}"
                yield f"{volume} is accessible only from nodes with {needed}"
    for delayed in claims.delayed:
        if code & NO_SPACE and _reports_capacity(storage, delayed):
            yield _missing_capacity(storage, delayed, labels)
        if code & CANNOT_BIND:
            yield _no_volume(delayed)


def _reports_capacity(storage: StorageIndex, delayed: DelayedClaim) -> bool:
    driver = storage.drivers.get(delayed.storage_class.provisioner)
    return driver is not None and bool(driver.spec.storage_capacity)


def _missing_capacity(storage: StorageIndex, delayed: DelayedClaim, labels: Mapping[str, str]) -> str:
    name = delayed.storage_class.metadata.name
    text = f"claim {delayed.claim.key} needs {_requested(delayed.claim)} of class {name}"
    capacities = storage.capacities_reaching(name, labels)
    if not capacities:
        return f"{text}; no CSIStorageCapacity of the class includes the node"
    largest = capacities[0]
    key = f"{largest.metadata.namespace}/{largest.metadata.name}"
    return f"{text}; CSIStorageCapacity {key} of the node has {largest.volume_limit}"


def _no_volume(delayed: DelayedClaim) -> str:
    name = delayed.storage_class.metadata.name
    text = f"claim {delayed.claim.key} needs {_requested(delayed.claim)} of class {name}"
    if delayed.storage_class.provisioner in ("", NO_PROVISIONER):
        return f"{text}; no free PersistentVolume of the class and size is accessible, and the class provisions none"
    return f"{text}; no free PersistentVolume suits it, and the class does not provision volumes for the node"


def _requested(claim: PersistentVolumeClaim) -> str:
    return str(claim.spec.resources.requests.get(STORAGE, "storage"))


def _affinity_text(affinity: NodeMatcher) -> str:
    terms = [
        " and ".join([*map(_condition_text, term.labels), *map(_condition_text, term.fields)])
        for term in affinity.terms
    ]
    return " or ".join(filter(None, terms)) or "one that matches no node"


def _condition_text(condition: LabelRequirement | FieldRequirement) -> str:
    if isinstance(condition, FieldRequirement):
        return f"{condition.key} {'not in' if condition.negated else 'in'} ({condition.value})"
    if condition.values:
        return f"{condition.key} {condition.operator} ({', '.join(condition.values)})"
    return f"{condition.key} {condition.operator}"
