"""Members of a gang that are alike, one after the other: what the plugins prepared for the first serves the next.

Owns when that is exact: the members read alike in everything but their names, and every plugin that judged the first
says that its answers follow from rows and signature alone. PreFilter and PreScore would then prepare the same again,
and which nodes fit and how they score is known but for the rows that have changed. Where anything else could matter
(promised nodes, reservations, a percentage of nodes, a cycle whose plugins are timed) the whole way is taken.

Must not decide otherwise than the whole way does; a law in the tests holds both equal.
"""

from __future__ import annotations

import numpy as np

from scheduler_core.cycle.context import Attempt, CycleContext
from scheduler_core.cycle.node_selection import row_of_ties
from scheduler_core.cycle.read_alike import read_alike
from scheduler_core.framework.cycle_state import CycleState
from scheduler_core.runtime.framework_instance import FrameworkInstance
from scheduler_core.runtime.ranking import Ranking
from scheduler_core.snapshot.pod_info import PodInfo


class Repeats:
    """The last member that went the whole way, as far as it serves others.

    Args:
        context: The shared parts.
        instance: The profile's revision that decides.
    """

    def __init__(self, context: CycleContext, instance: FrameworkInstance) -> None:
        self._context = context
        percentage = instance.config.percentage_of_nodes_to_score
        if percentage is None:
            percentage = context.percentage_of_nodes_to_score
        self._may = percentage is None or percentage >= 100
        self._state: CycleState | None = None
        self._info: PodInfo | None = None
        self._ranking: Ranking | None = None

    def decided(self, attempt: Attempt) -> None:
        """A member has found its node on the whole way, and its scores were asked for."""
        results = self._context.results_of(attempt)
        if results is None:
            # Its plugins were timed, or nothing is remembered at all: it says nothing new of the others.
            return
        self._state = self._info = self._ranking = None
        if not self._may or attempt.feasible_count < 2 or not results.is_local(attempt.state):
            return
        # What they were prepared by cannot change within the cycle, so that it need not be checked again.
        if results.preparation_checks(attempt.info, self._context.cache.columns) is not None:
            self._state, self._info = attempt.state.clone(), attempt.info

    def choose(self, attempt: Attempt) -> str:
        """The node of a member that is like the last one; "" if it is to go the whole way.

        Raises:
            PluginError: A plugin raised, or answered what its point does not allow.
        """
        context, info = self._context, attempt.info
        results = context.results_of(attempt)
        if self._state is None or self._info is None or results is None or context.reservations:
            return ""
        if len(context.queue.nominator) or not read_alike(self._info.pod, info.pod):
            return ""
        if not results.are_alike(self._info, info):
            return ""
        if self._ranking is None:
            nodes = context.cache.columns
            allowed = nodes.alive if attempt.among is None else attempt.among & nodes.alive
            self._ranking = results.ranking(self._state, self._info, nodes, allowed)
        ranking = self._ranking
        if ranking is None or not ranking.refresh():
            # To look for a ranking after each member would cost more than it ever saves.
            self._may = ranking is not None
            self._state = self._info = self._ranking = None
            return ""
        if ranking.fitting < 2:
            # None or one is left, which is for the whole way to say, and to tell why.
            return ""
        times = attempt.state.times
        attempt.state = self._state.clone()
        attempt.state.times = times
        info.signature = self._info.signature
        attempt.feasible_count = ranking.fitting
        tied = np.flatnonzero(ranking.keys == ranking.keys.max())
        return context.cache.columns.node_name(row_of_ties(context, attempt, tied))
