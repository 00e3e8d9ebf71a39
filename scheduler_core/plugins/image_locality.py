"""ImageLocality: prefers nodes that have the pod's images already.

An image that few nodes have counts less, so that the pods of a rare image do not all go to one node.

Follows kube-scheduler v1.37.1, ``pkg/scheduler/framework/plugins/imagelocality/image_locality.go``.

Each image counts from 0 up to the upper bound of the sum, which gives the same score for all sizes of 0 and more. With
a size near 2**63 kube-scheduler's result depends on the processor, whose conversion of floats to int64 overflows.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from scheduler_core.framework.cycle_state import CycleState
from scheduler_core.framework.extension_points import (
    MAX_NODE_SCORE,
    Normalization,
    PodReads,
    Reads,
    Reuse,
    ScorePlugin,
    Scores,
)
from scheduler_core.kernels.go_arithmetic import truncated_quotients
from scheduler_core.model.pod import Pod
from scheduler_core.snapshot.node_columns import NodeColumns, Rows
from scheduler_core.snapshot.pod_info import PodInfo

_MIB = 1024 * 1024
_LOWEST_SUM = 23 * _MIB
_HIGHEST_SUM_PER_IMAGE = 1000 * _MIB


class ImageLocality(ScorePlugin):
    """Sums the sizes of the pod's images on a node, each scaled by the share of nodes that have it.

    A score depends on all nodes, through the number of nodes that have an image.
    """

    name = "ImageLocality"
    events = ()
    reuse = Reuse(score=Reads.NODE | Reads.NODES, pod=PodReads.NOTHING)
    normalization = Normalization.NONE

    def score(self, state: CycleState, pod: PodInfo, nodes: NodeColumns, rows: Rows) -> Scores:
        """Score between two bounds, int64 per row: 0 up to 23 MiB on the node, 100 from 1,000 MiB per image."""
        sums = None
        names = tuple(_images(pod.pod))
        highest = _HIGHEST_SUM_PER_IMAGE * len(names)
        for name in names:
            image = nodes.images.get(name)
            if image is None:
                continue
            if sums is None:
                sums = np.zeros(nodes.size, dtype=np.int64)
            spread = len(image.rows) / nodes.count
            sums[image.row_array()] += min(max(int(image.size_bytes * spread), 0), highest)
        if sums is None:
            return np.zeros(len(nodes.pod_count[rows]), dtype=np.int64)
        chosen = sums[rows]
        np.clip(chosen, _LOWEST_SUM, highest, out=chosen)
        chosen -= _LOWEST_SUM
        chosen *= MAX_NODE_SCORE
        return truncated_quotients(chosen, highest - _LOWEST_SUM)


def full_image_name(name: str) -> str:
    """Return the name with ``:latest`` unless it has a tag or a digest; a registry's port is not a tag."""
    return f"{name}:latest" if name.rfind(":") <= name.rfind("/") else name


def _images(pod: Pod) -> Iterator[str]:
    for container in (*pod.spec.init_containers, *pod.spec.containers):
        yield full_image_name(container.image)
    for volume in pod.spec.volumes:
        if volume.image is not None:
            yield full_image_name(volume.image.reference)
