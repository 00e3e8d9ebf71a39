"""Filter and score of VolumeBinding: from which nodes a pod's claims are usable, for all rows at once.

Loops run over the pod's few claims and the volumes of a class, never over nodes. A volume that is reserved for the
claim is chosen, else the smallest suitable one. Among volumes of equal size kube-scheduler takes any; here it is the
first by name, so that decisions are reproducible.

The score groups claims by storage class. Rows where a claim gets an existing volume are scored by the sizes of these
volumes only, other rows by the storage capacity that drivers report.

Follows kube-scheduler v1.37.1, ``plugins/volumebinding/volume_binding.go`` (``podHasPVCs``, ``Score``), ``binder.go``
(``GetPodVolumeClaims``, ``FindPodVolumes``, ``findMatchingVolumes``, ``checkVolumeProvisions``, ``hasEnoughCapacity``)
and ``scorer.go``, and ``k8s.io/component-helpers`` v0.37.1, ``storage/volume/pv_helpers.go`` (``FindMatchingVolume``).
A storage capacity without ``capacity`` is left out; kube-scheduler ends there with a nil dereference.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np
from msgspec import Struct, field
from numpy.typing import NDArray

from scheduler_core.config.plugin_args import UtilizationShapePoint
from scheduler_core.errors import SelectorError, StorageError
from scheduler_core.framework.extension_points import MAX_NODE_SCORE, Codes, Scores
from scheduler_core.kernels.go_arithmetic import PERCENT
from scheduler_core.kernels.resource_scores import scores_by_percentage
from scheduler_core.model.affinity import Requirement
from scheduler_core.model.pod_requests import nano, value
from scheduler_core.model.pod_volumes import in_tree_plugin, translated_affinity
from scheduler_core.model.selectors import (
    IN,
    LabelMatcher,
    NodeMatcher,
    NodeTerm,
    compile_label_selector,
    compile_requirement,
)
from scheduler_core.model.storage import (
    AVAILABLE,
    LOST,
    SELECTED_NODE,
    STORAGE,
    UNREADABLE,
    WAIT_FOR_FIRST_CONSUMER,
    CsiStorageCapacity,
    PersistentVolumeClaim,
    StorageClass,
    TopologySelectorTerm,
)
from scheduler_core.snapshot.indexes.storage_index import KnownVolume, StorageIndex, volume_affinity
from scheduler_core.snapshot.node_columns import ALL_ROWS, NodeColumns, Rows
from scheduler_core.snapshot.node_selector_matching import NodeMatching
from scheduler_core.snapshot.pod_info import PodInfo
from scheduler_core.snapshot.row_cache import CsiNodeColumns


class DelayedClaim(Struct, frozen=True):
    """An unbound claim that waits for its first consumer, with its storage class."""

    claim: PersistentVolumeClaim
    storage_class: StorageClass


class PodClaims(Struct):
    """A pod's claims, each list in the order of the pod's volumes.

    Attributes:
        immediate: Unbound claims that should have been bound independently of the pod.
    """

    bound: list[PersistentVolumeClaim] = field(default_factory=list)
    delayed: list[DelayedClaim] = field(default_factory=list)
    immediate: list[PersistentVolumeClaim] = field(default_factory=list)


def rejection_of_claims(pod: PodInfo, storage: StorageIndex) -> str:
    """Return why the pod's claims make it unschedulable on every node, "" if they do not."""
    for reference in pod.volumes.claims:
        claim = storage.claims.get(reference.key)
        if claim is None:
            if reference.is_ephemeral:
                return f'waiting for ephemeral volume controller to create the persistentvolumeclaim "{reference.name}"'
            return f'persistentvolumeclaim "{reference.name}" not found'
        if claim.status.phase == LOST:
            return (
                f'persistentvolumeclaim "{reference.name}" bound to non-existent persistentvolume '
                f'"{claim.spec.volume_name}"'
            )
        if claim.status.phase == UNREADABLE:
            return f'persistentvolumeclaim "{reference.name}" could not be decoded'
        volume = storage.volumes.get(claim.spec.volume_name) if claim.spec.volume_name else None
        if volume is not None and volume.status.phase == UNREADABLE:
            return f'the persistentvolume of persistentvolumeclaim "{reference.name}" could not be decoded'
        if claim.metadata.deletion_timestamp is not None:
            return f'persistentvolumeclaim "{reference.name}" is being deleted'
        if reference.is_ephemeral and not claim.metadata.is_controlled_by(pod.uid):
            return f"PVC {claim.key} was not created for pod {pod.key} (pod is not owner)"
    return ""


def claims_of_pod(pod: PodInfo, storage: StorageIndex) -> PodClaims:
    """Classify the claims in their assumed or reported state."""
    sorted_claims = PodClaims()
    for reference in pod.volumes.claims:
        claim = storage.claims.current(reference.key)
        if claim is None:
            raise StorageError(f'error getting PVC "{reference.key}": not found')
        if claim.is_fully_bound:
            sorted_claims.bound.append(claim)
            continue
        storage_class = storage.classes.get(claim.class_name) if claim.class_name else None
        if storage_class is not None and storage_class.volume_binding_mode is None:
            raise StorageError(f'VolumeBindingMode not set for StorageClass "{claim.class_name}"')
        # A claim that names its volume is bound by the controller, regardless of its class.
        if (
            storage_class is not None
            and storage_class.volume_binding_mode == WAIT_FOR_FIRST_CONSUMER
            and not claim.spec.volume_name
        ):
            sorted_claims.delayed.append(DelayedClaim(claim, storage_class))
        else:
            sorted_claims.immediate.append(claim)
    return sorted_claims


def are_bound(pod: PodInfo, storage: StorageIndex) -> bool:
    for reference in pod.volumes.claims:
        claim = storage.claims.current(reference.key)
        if claim is None or not claim.is_fully_bound:
            return False
        if reference.is_ephemeral and not claim.metadata.is_controlled_by(pod.uid):
            return False
    return True


CANNOT_BIND = 2
NO_SPACE = 4

UNKNOWN_CAPACITY = -1

Capacities = NDArray[np.int64]
"""Storage capacity in bytes by row; UNKNOWN_CAPACITY if the driver reports a maximum volume size only."""

_Mask = NDArray[np.bool_]


def provision_codes(matching: NodeMatching, delayed: DelayedClaim) -> tuple[Codes, Capacities | None]:
    """Return int16[row], 0, CANNOT_BIND or NO_SPACE; and the capacity of the rows if the driver reports it."""
    size = matching.nodes.size
    storage_class = delayed.storage_class
    if not storage_class.provisions:
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


NONE = -1

_FEW_ROWS = 16
_BATCH = 2048


_RowNumbers = NDArray[np.intp]


class VolumeReach:
    """Rows from which volumes are accessible; cached until a node changes."""

    def __init__(self, nodes: NodeColumns) -> None:
        self.nodes = nodes
        self.matching = NodeMatching(nodes)
        self._version = -1
        self._rows: dict[NodeMatcher, _RowNumbers] = {}

    def rows(self, affinity: NodeMatcher) -> _RowNumbers:
        """Return the rows that an affinity allows, intp[k] ascending, possibly with unused rows; do not modify it.

        The cache stores rows, not masks, because a local volume has one row, and a class may have thousands of them.
        """
        if self._version != self.nodes.version or len(self._rows) >= self.nodes.bounds.volume_affinities:
            self._rows.clear()
            self._version = self.nodes.version
        found = self._rows.get(affinity)
        if found is None:
            found = self._rows[affinity] = np.flatnonzero(self.matching.selector(affinity, ALL_ROWS))
        return found


class _Matching:
    """Volumes that are chosen for one claim after the other, on each row.

    Volumes with few rows are handled in batches, because a class may have one volume per node.

    Attributes:
        assigned: Per claim int32[row], the number of its volume or -1.
        volumes: The volumes by number.
    """

    def __init__(self, reach: VolumeReach, looking: _Mask) -> None:
        self.assigned: list[NDArray[np.int32]] = []
        self.volumes: list[KnownVolume] = []
        self._numbers: dict[str, int] = {}
        self._reach = reach
        self._looking = looking

    def match(self, claim: PersistentVolumeClaim) -> None:
        self._open = self._looking.copy()
        self._left = int(np.count_nonzero(self._looking))
        self._result = np.full(len(self._looking), NONE, dtype=np.int32)
        self._choose(claim)
        self.assigned.append(self._result)

    def _choose(self, claim: PersistentVolumeClaim) -> None:
        storage = self._reach.nodes.storage
        size = nano(claim.spec.resources.requests.get(STORAGE, 0))
        selector = None if claim.spec.selector is None else compile_label_selector(claim.spec.selector)
        for known in storage.volumes_reserved_for(claim):
            if _is_suitable(known, claim, size):
                # Where the reserved volume is not accessible, the claim gets no other volume.
                self._take([known], [np.flatnonzero(self._open)], reserved=True)
        batch: list[KnownVolume] = []
        rows_of_batch: list[_RowNumbers] = []
        for known in storage.free_volumes(claim.class_name):
            if not self._left:
                return
            if not (_is_suitable(known, claim, size) and _is_available(known, claim, selector)):
                continue
            rows = np.flatnonzero(self._open) if known.affinity is None else self._reach.rows(known.affinity)
            batch.append(known)
            rows_of_batch.append(rows)
            if len(rows) > _FEW_ROWS or len(batch) == _BATCH:
                self._take(batch, rows_of_batch)
                batch, rows_of_batch = [], []
        if batch:
            self._take(batch, rows_of_batch)

    def _take(self, batch: list[KnownVolume], rows_of_batch: list[_RowNumbers], *, reserved: bool = False) -> None:
        """Assign each open row the first volume of a batch that is accessible and not assigned to an earlier claim."""
        rows = np.concatenate(rows_of_batch)
        positions = np.repeat(np.arange(len(batch)), [len(each) for each in rows_of_batch])
        free = self._open[rows]
        if self.volumes:
            unknown = len(self.volumes)
            known_as = [self._numbers.get(known.volume.metadata.name, unknown) for known in batch]
            numbers = np.array(known_as, dtype=np.int32)[positions]
            for choice in self.assigned:
                free &= choice[rows] != numbers
        rows, firsts = np.unique(rows[free], return_index=True)
        positions = positions[free][firsts]
        self._open[rows] = False
        self._left -= len(rows)
        affinity = batch[0].affinity
        if reserved and affinity is not None:
            reached = np.isin(rows, self._reach.rows(affinity), assume_unique=True)
            rows, positions = rows[reached], positions[reached]
        numbered = np.empty(len(batch), dtype=np.int32)
        for position in np.unique(positions).tolist():
            numbered[position] = self._number(batch[position])
        self._result[rows] = numbered[positions]

    def _number(self, known: KnownVolume) -> int:
        number = self._numbers.setdefault(known.volume.metadata.name, len(self.volumes))
        if number == len(self.volumes):
            self.volumes.append(known)
        return number


def _is_suitable(known: KnownVolume, claim: PersistentVolumeClaim, size: int) -> bool:
    volume = known.volume
    return (
        known.size >= size
        and volume.mode == claim.mode
        and (volume.spec.volume_attributes_class_name or "") == (claim.spec.volume_attributes_class_name or "")
        and volume.metadata.deletion_timestamp is None
    )


def _is_available(known: KnownVolume, claim: PersistentVolumeClaim, selector: LabelMatcher | None) -> bool:
    volume = known.volume
    return (
        volume.status.phase == AVAILABLE
        and (selector is None or selector.matches(volume.metadata.labels))
        and all(mode in volume.spec.access_modes for mode in claim.spec.access_modes)
    )


OUT_OF_REACH = 1
NO_VOLUME = 8
_FIRST_PROBLEM = 16

REASONS = (
    (OUT_OF_REACH, "node(s) didn't match PersistentVolume's node affinity"),
    (CANNOT_BIND, "node(s) didn't find available persistent volumes to bind"),
    (NO_SPACE, "node(s) did not have enough free storage"),
    (NO_VOLUME, "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"),
)
"""The bits of a code with their reasons, in the order in which a node's reasons are reported."""


class VolumeEvaluation(Struct):
    """Result for all rows.

    Attributes:
        codes: int16[row], bits of :data:`REASONS`; or one of ``problems``.
        problems: Why a row cannot be evaluated, by its code.
        matched: Claims that were matched with volumes, the smallest first.
        assigned: Per claim of ``matched``, int32[row]: index of its volume in ``volumes``, -1 for none.
        capacities: Storage capacity by row for each claim that may get a new volume, by the claim's key.
    """

    codes: Codes
    problems: dict[int, str] = field(default_factory=dict)
    preselected: list[PersistentVolumeClaim] = field(default_factory=list)
    matched: list[PersistentVolumeClaim] = field(default_factory=list)
    assigned: list[NDArray[np.int32]] = field(default_factory=list)
    volumes: list[KnownVolume] = field(default_factory=list)
    capacities: dict[str, Capacities] = field(default_factory=dict)


class NodeEvaluator:
    """Evaluates the rows of one set of columns; caches data of nodes between pods."""

    def __init__(self, nodes: NodeColumns) -> None:
        self.nodes = nodes
        self._reach = VolumeReach(nodes)
        self._csi_nodes = CsiNodeColumns(nodes)

    def evaluate(self, claims: PodClaims) -> VolumeEvaluation:
        """Evaluate every row; raise SelectorError if the selector of a claim is invalid."""
        evaluation = VolumeEvaluation(np.zeros(self.nodes.size, dtype=np.int16))
        if claims.bound:
            self._evaluate_bound(claims.bound, evaluation)
        if claims.delayed:
            self._evaluate_delayed(claims.delayed, evaluation)
        return evaluation

    def _evaluate_bound(self, claims: list[PersistentVolumeClaim], evaluation: VolumeEvaluation) -> None:
        """Evaluate bound claims: the first claim that rejects a row decides; a missing volume rejects all rows."""
        codes = evaluation.codes
        left = self.nodes.alive.copy()
        for claim in claims:
            known = self.nodes.storage.known_volume(claim.spec.volume_name)
            if known is None:
                codes[left] = NO_VOLUME
                return
            reached, unreadable = self._reached(known, evaluation)
            if unreadable is not None:
                codes[left & unreadable[0]] = unreadable[1]
                left &= ~unreadable[0]
            if reached is not None:
                codes[left & ~reached] = OUT_OF_REACH
                left &= reached

    def _reached(
        self, known: KnownVolume, evaluation: VolumeEvaluation
    ) -> tuple[_Mask | None, tuple[_Mask, int] | None]:
        """Return the rows that can access a volume (None: all), and the rows where that is unknown, with their code.

        If a CSI driver serves an in-tree volume, its affinity is translated for that driver.
        """
        reached = None if known.affinity is None else self._reach.matching.selector(known.affinity, ALL_ROWS)
        plugin = in_tree_plugin(known.volume)
        migrated = None
        if plugin is not None and plugin.is_migrated:
            migrated = self._csi_nodes.migrated(plugin.name)
        if plugin is None or migrated is None:
            return reached, None
        try:
            translated = volume_affinity(translated_affinity(known.volume, plugin))
        except StorageError as problem:
            code = _FIRST_PROBLEM + len(evaluation.problems)
            evaluation.problems[code] = f"could not translate pv: {problem}"
            return reached, (migrated, code)
        if translated == known.affinity:
            return reached, None
        if reached is None:
            reached = np.ones(self.nodes.size, dtype=np.bool_)
        if translated is None:
            reached[migrated] = True
        else:
            reached[migrated] = self._reach.matching.selector(translated, ALL_ROWS)[migrated]
        return reached, None

    def _evaluate_delayed(self, claims: list[DelayedClaim], evaluation: VolumeEvaluation) -> None:
        nodes, codes = self.nodes, evaluation.codes
        looking = nodes.alive & (codes < _FIRST_PROBLEM)
        to_match: list[DelayedClaim] = []
        preselected: list[DelayedClaim] = []
        for delayed in claims:
            selected = delayed.claim.metadata.annotations.get(SELECTED_NODE)
            if selected is None:
                to_match.append(delayed)
                continue
            preselected.append(delayed)
            elsewhere = looking.copy()
            row = nodes.row_of(selected)
            if row >= 0:
                elsewhere[row] = False
            codes[elsewhere] |= CANNOT_BIND
            looking &= ~elsewhere
        to_match.sort(key=lambda delayed: nano(delayed.claim.spec.resources.requests.get(STORAGE, 0)))
        evaluation.preselected = [delayed.claim for delayed in preselected]
        evaluation.matched = [delayed.claim for delayed in to_match]
        if not looking.any():
            evaluation.assigned = [np.full(nodes.size, NONE, dtype=np.int32) for _ in to_match]
            return
        matching = _Matching(self._reach, looking)
        for claim in evaluation.matched:
            matching.match(claim)
        evaluation.assigned, evaluation.volumes = matching.assigned, matching.volumes
        for delayed in preselected:
            looking = self._provision(delayed, looking, looking, evaluation)
        for delayed, assigned in zip(to_match, evaluation.assigned, strict=True):
            looking = self._provision(delayed, looking, looking & (assigned == NONE), evaluation)

    def _provision(self, delayed: DelayedClaim, looking: _Mask, wanting: _Mask, evaluation: VolumeEvaluation) -> _Mask:
        """Evaluate the rows where a claim needs a new volume; return the rows that remain."""
        if not wanting.any():
            return looking
        verdicts, capacities = provision_codes(self._reach.matching, delayed)
        if capacities is not None:
            evaluation.capacities[delayed.claim.key] = capacities
        failed = wanting & (verdicts != 0)
        evaluation.codes[failed] |= verdicts[failed]
        left: _Mask = looking & ~failed
        return left


_MAX_SHAPE_SCORE = 10


class _ClassUse:
    """Requested and available bytes of one storage class, by row; ``counts`` marks the rows where the class counts."""

    __slots__ = ("capacity", "counts", "requested")

    def __init__(self, size: int) -> None:
        self.requested = np.zeros(size, dtype=np.int64)
        self.capacity = np.zeros(size, dtype=np.int64)
        self.counts = np.zeros(size, dtype=np.bool_)


class CapacityScore:
    """Scores rows by a function of the utilization."""

    def __init__(self, shape: tuple[UtilizationShapePoint, ...]) -> None:
        scale = MAX_NODE_SCORE // _MAX_SHAPE_SCORE
        self._by_percentage = scores_by_percentage([(point.utilization, point.score * scale) for point in shape])

    def scores(self, evaluation: VolumeEvaluation, rows: Rows) -> Scores:
        """Return the mean score of the storage classes that count on each row, 0 without any; int64 per row."""
        size = len(evaluation.codes)
        total, classes = np.zeros(size, dtype=np.int64), np.zeros(size, dtype=np.int64)
        for use in _uses(evaluation):
            full = (use.capacity == 0) | (use.requested > use.capacity)
            share = use.requested * PERCENT // np.maximum(use.capacity, 1)
            score = self._by_percentage[np.where(full, PERCENT, np.clip(share, 0, PERCENT))]
            total += np.where(use.counts, score, 0)
            classes += use.counts
        # Half rounds up, as in math.Round.
        divisor = 2 * np.maximum(classes, 1)
        rounded: Scores = (2 * total + np.maximum(classes, 1)) // divisor
        return rounded[rows]


def _uses(evaluation: VolumeEvaluation) -> Iterator[_ClassUse]:
    size = len(evaluation.codes)
    static, dynamic = dict[str, _ClassUse](), dict[str, _ClassUse]()
    volumes = [known.volume.spec for known in evaluation.volumes]
    sizes = np.array([value(volume.capacity.get(STORAGE, 0)) for volume in volumes], dtype=np.int64)
    of_class: dict[str, list[int]] = {}
    for number, volume in enumerate(volumes):
        of_class.setdefault(volume.storage_class_name, []).append(number)
    for (claim, assigned), (name, numbers) in product(list(_matched(evaluation)), of_class.items()):
        here = np.isin(assigned, numbers)
        if here.any():
            use = static.setdefault(name, _ClassUse(size))
            use.requested[here] += _requested(claim)
            use.capacity[here] += sizes[assigned[here]]
            use.counts |= here
    has_static = np.zeros(size, dtype=np.bool_)
    for use in static.values():
        has_static |= use.counts
    wanting = [(claim, ~has_static) for claim in evaluation.preselected]
    wanting += [(claim, ~has_static & (assigned == NONE)) for claim, assigned in _matched(evaluation)]
    for claim, here in wanting:
        capacities = evaluation.capacities.get(claim.key)
        if capacities is None:
            continue
        known = here & (capacities != UNKNOWN_CAPACITY)
        use = dynamic.setdefault(claim.class_name, _ClassUse(size))
        use.requested[known] += _requested(claim)
        # The claims of a class share its capacity.
        use.capacity[known] = capacities[known]
        use.counts |= known
    yield from static.values()
    yield from dynamic.values()


def _matched(evaluation: VolumeEvaluation) -> Iterator[tuple[PersistentVolumeClaim, NDArray[np.int32]]]:
    return zip(evaluation.matched, evaluation.assigned, strict=True)


def _requested(claim: PersistentVolumeClaim) -> int:
    return value(claim.spec.resources.requests.get(STORAGE, 0))
