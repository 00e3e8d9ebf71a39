"""DefaultBinder: binds the pod to its node.

The cluster writer retries, and finds out the outcome when a response is lost; the cycle handles a failed bind.

Follows kube-scheduler v1.37.1, ``pkg/scheduler/framework/plugins/defaultbinder/default_binder.go``.
"""

from __future__ import annotations

from scheduler_core.errors import BoundElsewhereError, ClusterWriteError, WriteTimeoutError
from scheduler_core.framework.cycle_state import CycleState
from scheduler_core.framework.extension_points import BindPlugin
from scheduler_core.framework.status import SUCCESS, Status, failed_write
from scheduler_core.ports import Binding
from scheduler_core.snapshot.pod_info import PodInfo


class DefaultBinder(BindPlugin):
    """Binds pods through the binding subresource of the API server, with the annotations of the attempt."""

    name = "DefaultBinder"
    events = ()

    async def bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        """Bind the pod; return an error with the API server's message if that fails.

        Raises:
            BoundElsewhereError: The pod is already bound to another node; the cycle drops it.
            WriteTimeoutError: The outcome of the bind is unknown; the pod stays assumed until it is known.
        """
        metadata, annotations = pod.pod.metadata, tuple(state.bind_annotations.items())
        try:
            await self.handle.writer.bind(Binding(metadata.namespace, metadata.name, pod.uid, node_name, annotations))
        except (BoundElsewhereError, WriteTimeoutError):
            raise
        except ClusterWriteError as problem:
            return failed_write(problem)
        return SUCCESS
