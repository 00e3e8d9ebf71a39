"""Filter of VolumeBinding: from which nodes a pod's claims are usable, for all rows at once.

Also determines which volume each unbound claim would get on each row. Loops run over the pod's few claims and the
volumes of a class, never over nodes. Follows kube-scheduler v1.37.1, ``plugins/volumebinding/binder.go``
(``FindPodVolumes``).
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct, field
from numpy.typing import NDArray

from scheduler_core.errors import StorageError
from scheduler_core.framework.extension_points import Codes
from scheduler_core.model.pod_volumes import in_tree_plugin, translated_affinity
from scheduler_core.model.quantity import nano
from scheduler_core.model.storage import SELECTED_NODE, STORAGE, PersistentVolumeClaim
from scheduler_core.plugins.volume_binding.claims import DelayedClaim, PodClaims
from scheduler_core.plugins.volume_binding.matching import NONE, VolumeReach, match_volumes
from scheduler_core.plugins.volume_binding.provisioning import CANNOT_BIND, NO_SPACE, Capacities, provision_codes
from scheduler_core.snapshot.csi_node_columns import CsiNodeColumns
from scheduler_core.snapshot.indexes.storage_index import KnownVolume, volume_affinity
from scheduler_core.snapshot.node_columns import ALL_ROWS, NodeColumns

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

_Mask = NDArray[np.bool_]


class Evaluation(Struct):
    """Result for all rows.

    Attributes:
        codes: int16[row], bits of :data:`REASONS`; or one of ``problems``.
        problems: Why a row cannot be evaluated, by its code.
        preselected: Claims with a selected node, which wait for their volume there.
        matched: Claims that were matched with volumes, the smallest first.
        assigned: Per claim of ``matched``, int32[row]: index of its volume in ``volumes``, -1 for none.
        volumes: All volumes that a claim gets on any row.
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

    def evaluate(self, claims: PodClaims) -> Evaluation:
        """Evaluate every row.

        Raises:
            SelectorError: The selector of a claim is invalid.
        """
        evaluation = Evaluation(np.zeros(self.nodes.size, dtype=np.int16))
        if claims.bound:
            self._evaluate_bound(claims.bound, evaluation)
        if claims.delayed:
            self._evaluate_delayed(claims.delayed, evaluation)
        return evaluation

    def _evaluate_bound(self, claims: list[PersistentVolumeClaim], evaluation: Evaluation) -> None:
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

    def _reached(self, known: KnownVolume, evaluation: Evaluation) -> tuple[_Mask | None, tuple[_Mask, int] | None]:
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

    def _evaluate_delayed(self, claims: list[DelayedClaim], evaluation: Evaluation) -> None:
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
        evaluation.assigned, evaluation.volumes = match_volumes(self._reach, evaluation.matched, looking)
        for delayed in preselected:
            looking = self._provision(delayed, looking, looking, evaluation)
        for delayed, assigned in zip(to_match, evaluation.assigned, strict=True):
            looking = self._provision(delayed, looking, looking & (assigned == NONE), evaluation)

    def _provision(self, delayed: DelayedClaim, looking: _Mask, wanting: _Mask, evaluation: Evaluation) -> _Mask:
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
