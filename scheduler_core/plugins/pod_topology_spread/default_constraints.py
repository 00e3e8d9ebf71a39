"""Default constraints for pods that have no constraints.

Their selector is that of the pod's services and owner; a pod that nothing selects gets no default constraints.

Follows kube-scheduler v1.37.1, ``pkg/scheduler/framework/plugins/podtopologyspread/plugin.go``.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from scheduler_core.config.plugin_args import PodTopologySpreadArgs
from scheduler_core.model.pod import Pod, TopologySpreadConstraint
from scheduler_core.plugins.pod_topology_spread.constraints import SCHEDULE_ANYWAY, Constraints, compiled
from scheduler_core.snapshot.indexes.workload_index import WorkloadIndex

HOSTNAME = "kubernetes.io/hostname"
ZONE = "topology.kubernetes.io/zone"

SYSTEM_DEFAULTS = (
    TopologySpreadConstraint(max_skew=3, topology_key=HOSTNAME, when_unsatisfiable=SCHEDULE_ANYWAY),
    TopologySpreadConstraint(max_skew=5, topology_key=ZONE, when_unsatisfiable=SCHEDULE_ANYWAY),
)


def is_system_defaulted(args: PodTopologySpreadArgs) -> bool:
    """Return whether the system defaults apply."""
    return args.defaulting_type == "System"


def constraints_of(args: PodTopologySpreadArgs) -> tuple[TopologySpreadConstraint, ...]:
    """Return the default constraints of the args, without selectors."""
    if is_system_defaulted(args):
        return SYSTEM_DEFAULTS
    return tuple(
        TopologySpreadConstraint(
            max_skew=one.max_skew,
            topology_key=one.topology_key,
            when_unsatisfiable=one.when_unsatisfiable,
            min_domains=one.min_domains,
            node_affinity_policy=one.node_affinity_policy,
            node_taints_policy=one.node_taints_policy,
        )
        for one in args.default_constraints
    )


def default_constraints(
    defaults: Sequence[TopologySpreadConstraint], pod: Pod, workloads: WorkloadIndex, action: str
) -> Constraints:
    """Return the default constraints with one action for a pod."""
    constraints = compiled(defaults, {}, action)
    if not constraints:
        return ()
    selector = workloads.default_selector(pod)
    if selector.is_everything:
        return ()
    return tuple(replace(constraint, selector=selector) for constraint in constraints)
