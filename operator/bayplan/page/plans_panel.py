"""RebalancePlans: their moves with the progress, the pods of the nodes now and after the moves, and what is left alone.

The numbers of pods are those of the present state and of the moves that are not made yet.
"""

from __future__ import annotations

from collections import Counter

from msgspec import Struct

from bayplan.introspection.status_building import plan_states
from bayplan.introspection.status_model import PlanState
from bayplan.page.page_sources import PageSources, Turns
from bayplan.rebalancing.documents import NodePodCounts
from scheduler_core.rebalance.movable_pods import counts_for_node
from scheduler_core.snapshot.node_columns import NodeColumns
from scheduler_core.snapshot.pod_info import NO_ROW

_MOVES, _NODES = 200, 100
_TO_BE_MADE = ("Pending", "Evicting")
_ENDED = ("Completed", "Stopped", "Invalid", "Suspended", "Scheduled")


class ShownPlan(Struct, frozen=True, rename="camel"):
    """A plan.

    Attributes:
        nodes: The first nodes whose pods the moves change that are not made yet, by name.
        command: Command that prints the whole object.
    """

    state: PlanState
    nodes: tuple[NodePodCounts, ...]
    command: str


class Plans(Struct, frozen=True, rename="camel"):
    """Document of the panel.

    Attributes:
        is_served: Whether this process makes plans; the page has no panel otherwise.
    """

    plans: tuple[ShownPlan, ...] = ()
    is_served: bool = False
    command: str = "kubectl get rebalanceplans"


class PlansPanel:
    """Builds the document."""

    interval = 2.0

    def __init__(self, sources: PageSources) -> None:
        self._sources = sources

    async def build(self, turns: Turns) -> Plans:
        if self._sources.plans is None:
            return Plans()
        found = list[ShownPlan]()
        for state in plan_states(self._sources.plans(), _MOVES):
            nodes = _changes(self._sources.scheduler.context.cache.columns, state)
            found.append(ShownPlan(state, nodes, f"kubectl get rebalanceplan {state.name} -o yaml"))
            await turns.pause_if_due()
        return Plans(tuple(found), is_served=True)

    def without_ages(self, document: Plans) -> Plans:
        """Return the document itself: it has no elapsed times."""
        return document


def _changes(nodes: NodeColumns, state: PlanState) -> tuple[NodePodCounts, ...]:
    change = Counter[str]()
    for move in () if state.phase in _ENDED else state.moves:
        if move.state in _TO_BE_MADE:
            change[move.source] -= 1
            change[move.target] += 1
    return tuple(
        NodePodCounts(name, pods, max(pods + change[name], 0))
        for name in sorted(change)[:_NODES]
        for pods in (_pods_on(nodes, name),)
    )


def _pods_on(nodes: NodeColumns, name: str) -> int:
    row = nodes.row_of(name)
    return 0 if row == NO_ROW else sum(map(counts_for_node, nodes.pods[row].values()))
