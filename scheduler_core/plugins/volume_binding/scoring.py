"""Score of VolumeBinding: how full the pod's new claims make the volumes or the storage of a node.

Claims are grouped by storage class. Rows where a claim gets an existing volume are scored by the sizes of these volumes
only, other rows by the storage capacity that drivers report.

Follows kube-scheduler v1.37.1, ``plugins/volumebinding/volume_binding.go`` (``Score``) and ``scorer.go``. A storage
capacity without ``capacity`` is left out; kube-scheduler ends there with a nil dereference.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np
from numpy.typing import NDArray

from scheduler_core.config.plugin_args import UtilizationShapePoint
from scheduler_core.framework.extension_points import MAX_NODE_SCORE, Scores
from scheduler_core.kernels.go_arithmetic import PERCENT
from scheduler_core.kernels.resource_scores import scores_by_percentage
from scheduler_core.model.quantity import value
from scheduler_core.model.storage import STORAGE, PersistentVolumeClaim
from scheduler_core.plugins.volume_binding.filtering import Evaluation
from scheduler_core.plugins.volume_binding.matching import NONE
from scheduler_core.plugins.volume_binding.provisioning import UNKNOWN_CAPACITY
from scheduler_core.snapshot.node_columns import Rows

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

    def scores(self, evaluation: Evaluation, rows: Rows) -> Scores:
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


def _uses(evaluation: Evaluation) -> Iterator[_ClassUse]:
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


def _matched(evaluation: Evaluation) -> Iterator[tuple[PersistentVolumeClaim, NDArray[np.int32]]]:
    return zip(evaluation.matched, evaluation.assigned, strict=True)


def _requested(claim: PersistentVolumeClaim) -> int:
    return value(claim.spec.resources.requests.get(STORAGE, 0))
