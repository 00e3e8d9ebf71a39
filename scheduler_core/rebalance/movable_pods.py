"""Which running pods a plan may move, and why the others are left alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from scheduler_core.fit.requests import is_daemon
from scheduler_core.model.movable_pod import (
    LONGEST_OWNER,
    MOST_REQUESTS,
    has_local_volumes,
    is_decoded,
    safe_to_evict,
)
from scheduler_core.model.pod import Pod
from scheduler_core.model.pod_group import GroupKey
from scheduler_core.rebalance.replaced_claims import has_lasting_claims
from scheduler_core.rebalance.requests import Scope
from scheduler_core.runtime.profile_table import ProfileTable
from scheduler_core.snapshot.node_columns import NodeColumns
from scheduler_core.snapshot.pod_info import PodInfo

_CRITICAL = 2_000_000_000
"""Priority of the class system-cluster-critical."""


def counts_for_node(info: PodInfo) -> bool:
    """Return whether a node with this pod is not empty; pods of DaemonSets and terminating pods do not count."""
    return not (info.is_leaving or is_daemon(info.pod))


@dataclass(frozen=True, slots=True)
class MovablePods:
    """Decides which pods a plan may move.

    Args:
        group_of: Returns the gang that a pod is a member of.
        left: Receives why pods are left alone, by ``namespace/name``.
    """

    nodes: NodeColumns
    profiles: ProfileTable
    group_of: Callable[[Pod], GroupKey | None]
    scope: Scope
    left: dict[str, str] = field(default_factory=dict)

    def why_not(self, info: PodInfo) -> str:
        """Return why a pod is left alone; "" if it may be moved."""
        why = self._out_of_scope(info) or self._immovable(info) or self._protected(info)
        if why:
            self.left[info.key] = why
        return why

    def _out_of_scope(self, info: PodInfo) -> str:
        scope, pod = self.scope, info.pod
        if scope.namespaces and pod.metadata.namespace not in scope.namespaces:
            return "its namespace is not in the scope"
        name = pod.spec.scheduler_name
        if scope.profiles and name not in scope.profiles:
            return "its profile is not in the scope"
        if self.profiles.get(name) is None:
            return f'no profile serves its schedulerName "{name}"'
        if scope.pods is not None and not scope.pods.matches(pod.metadata.labels):
            return "its labels are not in the scope"
        return ""

    def _immovable(self, info: PodInfo) -> str:
        pod = info.pod
        if is_daemon(pod):
            return "it is a static pod or one of a DaemonSet"
        owner = next((owner.uid for owner in pod.metadata.owner_references if owner.controller), None)
        if owner is None:
            return "it has no controller that replaces it"
        if len(owner) > LONGEST_OWNER:
            return f"the UID of its controller is longer than {LONGEST_OWNER} characters, so that none has it"
        if len(info.requests.fit) > MOST_REQUESTS:
            return f"it requests more than {MOST_REQUESTS} resources"
        if not pod.spec.node_name:
            return "it is not bound yet"
        if info.is_leaving:
            return "it terminates already"
        if info.priority >= _CRITICAL:
            return "it is critical for the system"
        if not is_decoded(pod):
            return "its annotations and volumes were not read"
        mark = safe_to_evict(pod)
        if mark == "false":
            return "its annotation safe-to-evict is false"
        if mark != "true" and has_local_volumes(pod):
            return "it has local volumes"
        if has_lasting_claims(pod, self.nodes.devices):
            return "it has resource claims that do not end with it, or whose devices other nodes can use"
        if self.group_of(pod) is not None:
            return "it is a member of a gang"
        return ""

    def _protected(self, info: PodInfo) -> str:
        budgets = self.nodes.disruption_budgets.protecting(info)
        if len(budgets) > 1:
            return "several PodDisruptionBudgets select it, and the API server then refuses evictions"
        for budget in budgets:
            if budget.disruptions_allowed < 1:
                return f"the PodDisruptionBudget {budget.name or 'of its namespace'} allows no disruption"
        return ""
