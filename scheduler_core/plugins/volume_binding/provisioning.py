"""Where a new volume can be provisioned for a claim, by allowed topologies and reported storage capacity.

Follows kube-scheduler v1.37.1, ``plugins/volumebinding/binder.go`` (``checkVolumeProvisions``, ``hasEnoughCapacity``).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from scheduler_core.errors import SelectorError
from scheduler_core.framework.extension_points import Codes
from scheduler_core.model.affinity import Requirement
from scheduler_core.model.quantity import value
from scheduler_core.model.selectors import (
    IN,
    LabelMatcher,
    NodeMatcher,
    NodeTerm,
    compile_label_selector,
    compile_requirement,
)
from scheduler_core.model.storage import STORAGE, CsiStorageCapacity, TopologySelectorTerm
from scheduler_core.plugins.volume_binding.claims import DelayedClaim
from scheduler_core.snapshot.node_columns import ALL_ROWS
from scheduler_core.snapshot.node_selector_matching import NodeMatching

CANNOT_BIND = 2
NO_SPACE = 4

NO_PROVISIONER = "kubernetes.io/no-provisioner"

UNKNOWN_CAPACITY = -1

Capacities = NDArray[np.int64]
"""Storage capacity in bytes by row; UNKNOWN_CAPACITY if the driver reports a maximum volume size only."""

_Mask = NDArray[np.bool_]


def provision_codes(matching: NodeMatching, delayed: DelayedClaim) -> tuple[Codes, Capacities | None]:
    """Evaluate every row for one claim that needs a new volume.

    Returns:
        int16[row]: 0, CANNOT_BIND or NO_SPACE; and the storage capacity of the rows, None if the driver reports none.
    """
    size = matching.nodes.size
    storage_class = delayed.storage_class
    if storage_class.provisioner in ("", NO_PROVISIONER):
        return np.full(size, CANNOT_BIND, dtype=np.int16), None
    codes: Codes = np.zeros(size, dtype=np.int16)
    found = _roomy_rows(matching, delayed)
    if found is not None:
        codes[~found[0]] = NO_SPACE
    if storage_class.allowed_topologies:
        allowed = matching.selector(_topology_matcher(storage_class.allowed_topologies), ALL_ROWS)
        codes[~allowed] = CANNOT_BIND
    return codes, None if found is None else found[1]


def _topology_matcher(terms: tuple[TopologySelectorTerm, ...]) -> NodeMatcher:
    """Compile topology terms; empty and invalid terms match no node."""
    compiled: list[NodeTerm] = []
    for term in terms:
        conditions = (Requirement(one.key, IN, one.values) for one in term.match_label_expressions)
        try:
            requirements = tuple(compile_requirement(condition) for condition in conditions)
        except SelectorError:
            continue
        if requirements:
            compiled.append(NodeTerm(requirements))
    return NodeMatcher(tuple(compiled))


def _roomy_rows(matching: NodeMatching, delayed: DelayedClaim) -> tuple[_Mask, Capacities] | None:
    """Return where the driver reports enough capacity for the claim, and that capacity; None without its reports.

    The first object that suffices counts. kube-scheduler takes any of them.
    """
    storage = matching.nodes.storage
    requested = delayed.claim.spec.resources.requests.get(STORAGE)
    driver = storage.drivers.get(delayed.storage_class.provisioner)
    if requested is None or driver is None or not driver.spec.storage_capacity:
        return None
    wanted = value(requested)
    roomy = np.zeros(matching.nodes.size, dtype=np.bool_)
    capacities: Capacities = np.full(matching.nodes.size, UNKNOWN_CAPACITY, dtype=np.int64)
    for capacity in storage.capacities_of(delayed.storage_class.metadata.name):
        limit = capacity.volume_limit
        if limit is not None and value(limit) >= wanted:
            reached = _reached(matching, capacity)
            if capacity.capacity is not None:
                capacities[reached & ~roomy] = value(capacity.capacity)
            roomy |= reached
    return roomy, capacities


def _reached(matching: NodeMatching, capacity: CsiStorageCapacity) -> _Mask:
    """Return the rows from which a capacity is accessible; none if its topology is missing or invalid."""
    size = matching.nodes.size
    try:
        selector: LabelMatcher = compile_label_selector(capacity.node_topology)
    except SelectorError:
        return np.zeros(size, dtype=np.bool_)
    reached = np.full(size, not selector.nothing, dtype=np.bool_)
    for requirement in selector.requirements:
        reached &= matching.label(requirement, ALL_ROWS)
    return reached
