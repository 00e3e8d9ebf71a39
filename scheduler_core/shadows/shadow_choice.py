"""The decision of a shadow profile on a pod: the steps of a scheduling cycle up to the choice of the node.

Reserve, Permit, PreBind, Bind and PostFilter are not run, because they may act on the cluster.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import NamedTuple

from scheduler_core.cycle.attempt import Attempt
from scheduler_core.cycle.decided_pods import DecidedPod
from scheduler_core.cycle.filter_and_score import NoNodesError
from scheduler_core.cycle.percentage_of_nodes import NodeOrder
from scheduler_core.cycle.reuse_or_search import NodeChoice
from scheduler_core.cycle.scheduling_cycle_with_extenders import ExtendedChoice
from scheduler_core.errors import error_message
from scheduler_core.framework.diagnosis import Diagnosis
from scheduler_core.metrics.cycle_recorder import RecorderPool
from scheduler_core.ports import Clock
from scheduler_core.queueing.gates_and_hints import QueueingRules
from scheduler_core.runtime.framework_instance import FrameworkInstance
from scheduler_core.step_counter import StepCounter


class ShadowDecision(NamedTuple):
    """What a shadow decides.

    Attributes:
        node_name: The node, "" for none.
        message: Why no node is feasible, "" if one is.
        error: Why the decision failed, "" if it did not.
    """

    node_name: str = ""
    message: str = ""
    error: str = ""


class ShadowChoice:
    """Decides pods under profiles that are not live, without any effect on the cluster or on live profiles.

    Args:
        choice: Chooses nodes, with metrics of its own.
        extended: Chooses nodes with extenders.
        order: Start of the next search of a percentage of the nodes; restored after each decision.
        recorders: Recorders of cycles.
        clock: Time.
        steps: Counts the steps of decisions.
    """

    def __init__(
        self,
        choice: NodeChoice,
        extended: ExtendedChoice,
        order: NodeOrder,
        recorders: RecorderPool,
        clock: Clock,
        *,
        steps: StepCounter,
    ) -> None:
        self._steps = steps
        self._choice = choice
        self._extended = extended
        self._order = order
        self._recorders = recorders
        self._clock = clock

    def decide(self, instance: FrameworkInstance, pod: DecidedPod) -> ShadowDecision:
        """Decide a pod that is on no node, without extenders; an error is returned."""
        start, self._order.next_start = self._order.next_start, pod.next_start
        attempt = self._attempt(instance, pod)
        try:
            gated = _gate(instance, pod)
            if gated:
                return ShadowDecision(message=gated)
            with self._steps.dry_run(in_slices=True):
                node_name = self._choice.reuse(attempt)
                if node_name:
                    return ShadowDecision(node_name)
                node_name, diagnosis = self._choice.search(attempt)
            return ShadowDecision(node_name, "" if node_name else diagnosis.message())
        except Exception as error:
            return _failed(error)
        finally:
            self._end(attempt, start)

    async def decide_with_extenders(
        self, instance: FrameworkInstance, pod: DecidedPod, seconds: float
    ) -> ShadowDecision:
        """Decide a pod that is on no node with the profile's extenders, while a suspension is on.

        Args:
            instance: The profile.
            pod: The pod.
            seconds: Time after which the decision ends with an error.
        """
        gated = _gate(instance, pod)
        if gated:
            return ShadowDecision(message=gated)
        start, self._order.next_start = self._order.next_start, pod.next_start
        attempt = self._attempt(instance, pod)
        task = asyncio.get_running_loop().create_task(self._extended.choose(attempt))
        timer = self._clock.call_later(seconds, partial(_cancel, task))
        try:
            with self._steps.dry_run():
                await asyncio.wait((task,))
            if task.cancelled():
                return ShadowDecision(
                    error=f"the extenders did not answer within {1000 * seconds:.0f} ms of the budget"
                )
            node_name, diagnosis = task.result()
            return ShadowDecision(node_name, "" if node_name else diagnosis.message())
        except Exception as error:
            return _failed(error)
        finally:
            timer.cancel()
            task.cancel()
            self._end(attempt, start)

    def _attempt(self, instance: FrameworkInstance, pod: DecidedPod) -> Attempt:
        recorder = self._recorders.take()
        attempt = Attempt(pod.queued, pod.info, instance, recorder.times[0], recorder, number=pod.number)
        attempt.state.recorder = recorder
        attempt.among, attempt.among_reason = pod.among, pod.among_reason
        return attempt

    def _end(self, attempt: Attempt, start: int) -> None:
        self._order.next_start = start
        assert attempt.recorder is not None
        self._recorders.release(attempt.recorder)


def _cancel(task: asyncio.Task[tuple[str, Diagnosis]]) -> None:
    task.cancel()


def _gate(instance: FrameworkInstance, pod: DecidedPod) -> str:
    if not instance.pre_enqueue:
        return ""
    rules = QueueingRules(instance.pre_enqueue, instance.registrations, instance.queue_sort.sort_key)
    status = rules.preview_gate(pod.queued)
    return "" if status.is_success else f"gated by {status.plugin}: {status.message or status.code_name}"


def _failed(error: Exception) -> ShadowDecision:
    if isinstance(error, NoNodesError):
        return ShadowDecision(message=str(error))
    return ShadowDecision(error=error_message(error))
