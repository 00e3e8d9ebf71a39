"""DefaultBinder: tells the cluster on which node the pod runs.

Owns the request only. Retries, and finding out how a bind ended whose answer was lost, are the writer's; what becomes
of a pod whose bind failed is the cycle's.

Follows kube-scheduler v1.36.3, ``pkg/scheduler/framework/plugins/defaultbinder/default_binder.go``.
"""

from __future__ import annotations

from scheduler_core.errors import BoundElsewhereError, ClusterWriteError, WriteTimeoutError
from scheduler_core.framework.cluster_events import EventRegistration
from scheduler_core.framework.cycle_state import CycleState
from scheduler_core.framework.extension_points import BindPlugin
from scheduler_core.framework.status import SUCCESS, Status, error
from scheduler_core.ports import Binding
from scheduler_core.snapshot.pod_info import PodInfo


class DefaultBinder(BindPlugin):
    """Binds through the cluster's own binding subresource."""

    name = "DefaultBinder"

    def events_to_register(self) -> tuple[EventRegistration, ...]:
        """None: it rejects no pod."""
        return ()

    async def bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        """Bind the pod; Error with the cluster's own words if it is refused.

        Raises:
            BoundElsewhereError: Someone else has bound it to another node; the cycle lets it go.
            WriteTimeoutError: Whether it is bound is unknown; the cycle keeps its node until it is.
        """
        del state
        metadata = pod.pod.metadata
        try:
            await self.handle.writer.bind(Binding(metadata.namespace, metadata.name, pod.uid, node_name))
        except (BoundElsewhereError, WriteTimeoutError):
            raise
        except ClusterWriteError as problem:
            return error(str(problem))
        return SUCCESS
