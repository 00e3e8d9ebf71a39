"""Dry run of several copies of a pod, scheduled one after another: how many of them fit, and why the next one does not.

Copies are counted on their nodes as pods are, so that amounts, ports, spreading and affinity between the copies hold.
Devices are not: a claim is allocated in Reserve, which a dry run does not reach.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from scheduler_core.explain.pod_dry_run import Examination, Examiner
from scheduler_core.model.pod import Pod
from scheduler_core.runtime.framework_instance import FrameworkInstance
from scheduler_core.snapshot.node_columns import NodeColumns
from scheduler_core.snapshot.overlay import ColumnsOverlay


@dataclass(slots=True)
class CopiesFit:
    """Result of the dry run.

    Attributes:
        nodes: Node of each copy that fits.
        first: Result for the first copy.
        rejected: Result for the copy that does not fit; None if all fit.
    """

    first: Examination
    nodes: list[str] = field(default_factory=list)
    rejected: Examination | None = None


def fit_copies(
    examiner: Examiner,
    columns: NodeColumns,
    instance: FrameworkInstance,
    pod: Pod,
    count: int,
    *,
    among: NDArray[np.bool_] | None = None,
) -> CopiesFit:
    """Schedule copies of a pod one after another, as a dry run; nothing is changed.

    Args:
        pod: A pod that need not exist; its node, its nomination and its gang are ignored.
        count: Number of copies, at least 1.
        among: The nodes to consider, bool per row; None for all.

    Raises:
        SchedulerCoreError: The pod cannot be compiled.
    """
    found: CopiesFit | None = None
    with ColumnsOverlay(columns) as overlay:
        for number in range(count):
            info = columns.compile_pod(_copy(pod, number))
            examined = examiner.examine_alone(instance, info, among)
            found = found or CopiesFit(examined)
            if not examined.node:
                found.rejected = examined
                break
            found.nodes.append(examined.node)
            overlay.add(info, columns.row_of(examined.node))
    assert found is not None
    return found


def _copy(pod: Pod, number: int) -> Pod:
    meta = replace(pod.metadata, uid=f"copy-{number}-of-{pod.metadata.uid}", deletion_timestamp=None)
    return replace(
        pod,
        metadata=meta,
        spec=replace(pod.spec, node_name="", scheduling_gates=()),
        status=replace(pod.status, nominated_node_name="", phase="Pending"),
    )
