"""Rejects nodes whose licence seats are all used: a Filter plugin that checks one node at a time.

The node label ``<domain>/<licence>: "2"`` sets how many pods may use a licence on the node; the pod label
``<domain>/name: <licence>`` selects the licence that the pod uses.
"""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import Field

from scheduler_core.config.config_model import ConfigModel
from scheduler_core.framework.cluster_events import Action, ClusterEvent, EventRegistration, Hint, Resource, hint_on
from scheduler_core.framework.cycle_state import CycleState
from scheduler_core.framework.extension_points import NodeFilterPlugin, PodReads, Reuse
from scheduler_core.framework.object_reads import NodeView
from scheduler_core.framework.status import SUCCESS, Status, unresolvable, unschedulable
from scheduler_core.model.node import Node
from scheduler_core.model.pod import Pod
from scheduler_core.snapshot.pod_info import PodInfo


class LicenseSeatsArgs(ConfigModel):
    """Arguments of the plugin."""

    domain: str = Field(default="licenses.example.com", min_length=1, description="Domain of the labels.")


class LicenseSeats(NodeFilterPlugin):
    """Rejects nodes without a free seat of the pod's licence."""

    name = "LicenseSeats"
    args_model = LicenseSeatsArgs
    reuse = Reuse(pod=PodReads.LABELS)

    def filter_node(self, state: CycleState, pod: PodInfo, node: NodeView) -> Status:
        """Count the pods on the node that use the licence, against its seats."""
        del state
        wanted = self._license_of(pod.pod)
        if not wanted:
            return SUCCESS
        seats = self._seats(node.node, wanted)
        if not seats:
            # Removing pods does not help, so preemption skips the node.
            return unresolvable(f"node(s) had no seats of licence {wanted}")
        taken = sum(self._license_of(other.pod) == wanted for other in node.pods)
        return SUCCESS if taken < seats else unschedulable(f"node(s) had all seats of licence {wanted} taken")

    def events_to_register(self) -> Sequence[EventRegistration]:
        """Return the events that may make a rejected pod schedulable: a deleted pod, and a node with seats."""
        more_seats = Action.ADD | Action.UPDATE_NODE_LABEL
        return (
            EventRegistration(ClusterEvent(Resource.POD, Action.DELETE), hint_on(Pod)(self._seat_was_freed)),
            EventRegistration(ClusterEvent(Resource.NODE, more_seats), hint_on(Node)(self._node_has_seats)),
        )

    def _seat_was_freed(self, pod: Pod, old: Pod | None, new: Pod | None) -> Hint:
        del new
        used = self._license_of(old) if old is not None and old.spec.node_name else ""
        return Hint.QUEUE if used and used == self._license_of(pod) else Hint.SKIP

    def _node_has_seats(self, pod: Pod, old: Node | None, new: Node | None) -> Hint:
        wanted = self._license_of(pod)
        after = 0 if new is None else self._seats(new, wanted)
        before = 0 if old is None else self._seats(old, wanted)
        return Hint.QUEUE if after > before else Hint.SKIP

    def _license_of(self, pod: Pod) -> str:
        return pod.metadata.labels.get(f"{self.args.domain}/name", "")

    def _seats(self, node: Node, wanted: str) -> int:
        label = node.metadata.labels.get(f"{self.args.domain}/{wanted}", "")
        return int(label) if label.isdecimal() else 0
