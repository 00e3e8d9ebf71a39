"""Builds the parts of dry runs: the classes of the cycles, with sinks of their own.

Metrics, recorders, cached results, the position of the next partial search and the pods at Permit are those of one dry
run. What it writes there is dropped with it, so that it leaves no trace in the running scheduler.
"""

from __future__ import annotations

import copy
import math

from scheduler_core.cycle.assume_and_reserve import AssumedPods
from scheduler_core.cycle.cycle_context import CycleContext
from scheduler_core.cycle.cycle_report import CycleRecording, CycleReport
from scheduler_core.cycle.filter_and_score import NodeSelection
from scheduler_core.cycle.freed_capacity_event import FreedCapacity
from scheduler_core.cycle.percentage_of_nodes import PartialSearch
from scheduler_core.cycle.reuse_or_search import NodeChoice
from scheduler_core.cycle.scheduling_cycle_with_extenders import ExtendedChoice
from scheduler_core.framework.waiting_pods import WaitingPods
from scheduler_core.gangs.group_cycle import GangPlacing
from scheduler_core.gangs.preemption import GangPreemption
from scheduler_core.gangs.reservation_lifecycle import GangReservations
from scheduler_core.metrics.attempt_reports import SlowCycles
from scheduler_core.metrics.cycle_recorder import RecorderPool
from scheduler_core.metrics.scheduler_metrics import SchedulerMetrics
from scheduler_core.placement.worlds import CycleWorld, SearchWorld
from scheduler_core.queueing.scheduling_queue import SchedulingQueue


class DryRunParts:
    """The parts of one dry run.

    Args:
        context: The shared state of cycles; only its cache and nominator are changed, and changed back.
        queue: The queue with the pods of the dry run; nominations are those of the running scheduler.

    Attributes:
        selection: Searches and selects nodes.
        world: Places pods and members as cycles do.
        placing: Places gangs and trees.
        preemption: Plans preemptions for gangs.
    """

    def __init__(
        self, context: CycleContext, queue: SchedulingQueue, freed: FreedCapacity, reservations: GangReservations
    ) -> None:
        cache, clock, options, nominator = context.cache, context.clock, context.options, context.queue.nominator
        nodes, metrics, order = cache.columns, SchedulerMetrics(), copy.copy(context.node_order)
        partial = PartialSearch(nodes, order, options.percentage_of_nodes_to_score)
        self.selection = NodeSelection(
            cache, nominator, reservations, partial, contested=context.contested, seed=options.seed
        )
        bounds = options.reuse_bounds if options.reuses_results else None
        assumed = AssumedPods(cache, queue, WaitingPods(clock), freed)
        self.world = CycleWorld(
            cache,
            assumed,
            choice=NodeChoice(self.selection, nominator, reservations, metrics, bounds),
            extended=ExtendedChoice(self.selection),
            order=order,
            report=CycleReport(CycleRecording(RecorderPool(float), SlowCycles(math.inf)), metrics, nodes, clock),
            steps=context.steps,
        )
        search = SearchWorld(cache, assumed, self.selection, clock, context.steps)
        self.placing = GangPlacing(self.world, search, reservations, options.gangs_backtrack)
        self.preemption = GangPreemption(
            cache=cache,
            nominator=nominator,
            groups=context.services.groups,
            search=search,
            members=self.world,
            preemptions=context.services.preemptions,
            is_enabled=options.gangs_preempt,
        )
