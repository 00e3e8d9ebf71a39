"""Choice of an existing volume for an unbound claim on each node.

A volume that is reserved for the claim is chosen, else the smallest suitable one. Follows ``k8s.io/component-helpers``
v0.37.1, ``storage/volume/pv_helpers.go`` (``FindMatchingVolume``), and kube-scheduler v1.37.1,
``plugins/volumebinding/binder.go`` (``findMatchingVolumes``). Among volumes of equal size kube-scheduler takes any;
here it is the first by name, so that decisions are reproducible.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from scheduler_core.model.quantity import nano
from scheduler_core.model.selectors import LabelMatcher, NodeMatcher, compile_label_selector
from scheduler_core.model.storage import AVAILABLE, STORAGE, PersistentVolumeClaim
from scheduler_core.snapshot.indexes.storage_index import KnownVolume
from scheduler_core.snapshot.node_columns import ALL_ROWS, NodeColumns
from scheduler_core.snapshot.node_selector_matching import NodeMatching

NONE = -1

_FEW_ROWS = 16
_BATCH = 2048

_Mask = NDArray[np.bool_]
_RowNumbers = NDArray[np.intp]


class VolumeReach:
    """Rows from which volumes are accessible; cached until a node changes.

    Attributes:
        nodes: The columns.
        matching: Selectors on the columns.
    """

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


def match_volumes(
    reach: VolumeReach, claims: Sequence[PersistentVolumeClaim], looking: _Mask
) -> tuple[list[NDArray[np.int32]], list[KnownVolume]]:
    """Choose a volume for each claim on each row.

    Args:
        claims: Claims in the order in which volumes are chosen, the smallest first.
        looking: bool[row], the rows to choose for.

    Returns:
        Per claim int32[row], the number of its volume or -1; and the volumes by number.

    Raises:
        SelectorError: The selector of a claim is invalid.
    """
    assigned: list[NDArray[np.int32]] = []
    volumes: list[KnownVolume] = []
    numbers: dict[str, int] = {}
    for claim in claims:
        choice = _Choice(reach, looking, assigned, volumes, numbers)
        choice.choose(claim)
        assigned.append(choice.result)
    return assigned, volumes


class _Choice:
    """The volumes chosen for one claim, after those of earlier claims.

    Volumes with few rows are handled in batches, because a class may have one volume per node.
    """

    def __init__(
        self,
        reach: VolumeReach,
        looking: _Mask,
        earlier: Sequence[NDArray[np.int32]],
        volumes: list[KnownVolume],
        numbers: dict[str, int],
    ) -> None:
        self.result = np.full(len(looking), NONE, dtype=np.int32)
        self._reach = reach
        self._open = looking.copy()
        self._left = int(np.count_nonzero(looking))
        self._earlier = earlier
        self._volumes = volumes
        self._numbers = numbers

    def choose(self, claim: PersistentVolumeClaim) -> None:
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
        if self._volumes:
            unknown = len(self._volumes)
            known_as = [self._numbers.get(known.volume.metadata.name, unknown) for known in batch]
            numbers = np.array(known_as, dtype=np.int32)[positions]
            for choice in self._earlier:
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
        self.result[rows] = numbered[positions]

    def _number(self, known: KnownVolume) -> int:
        number = self._numbers.setdefault(known.volume.metadata.name, len(self._volumes))
        if number == len(self._volumes):
            self._volumes.append(known)
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
