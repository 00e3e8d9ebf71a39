"""Members of a gang that are alike, one after the other: what the plugins prepared for the first serves the next.

Owns when that is exact: the members read alike in everything but their names, and every plugin that judged the first
says that its answers follow from rows and signature alone. PreFilter and PreScore would then prepare the same again,
and which nodes fit and how they score is known but for the rows that have changed. Where anything else could matter
(promised nodes, reservations, a percentage of nodes, a cycle whose plugins are timed) the whole way is taken.

Must not decide otherwise than the whole way does; a law in the tests holds both equal.
"""

from __future__ import annotations

from scheduler_core.cycle.context import Attempt, CycleContext
from scheduler_core.cycle.cycle_report import reuse_failed
from scheduler_core.cycle.pod_kinds import PodKind
from scheduler_core.cycle.ranked_choice import choose_among
from scheduler_core.runtime.framework_instance import FrameworkInstance


class Repeats:
    """The last member that went the whole way, as far as it serves others.

    Args:
        context: The shared parts.
        instance: The profile's revision that decides.
    """

    def __init__(self, context: CycleContext, instance: FrameworkInstance) -> None:
        self._context = context
        self._may = context.percentage_of(instance) >= 100
        self._kind: PodKind | None = None

    def decided(self, attempt: Attempt) -> None:
        """A member has found its node on the whole way, and its scores were asked for."""
        results = self._context.results_of(attempt)
        if results is None:
            # Its plugins were timed, or nothing is remembered at all: it says nothing new of the others.
            return
        self._kind = None
        if self._may and attempt.feasible_count > 1:
            # What it was prepared by cannot change within the cycle, so that its checks need not be asked.
            kind = PodKind(attempt.info, results)
            try:
                kind.keep(attempt.info, attempt.state, self._context.cache.columns)
            except Exception as error:
                # A plugin's signature or check raised; the member has its node all the same.
                reuse_failed(self._context, attempt, error)
            else:
                self._kind = kind

    def choose(self, attempt: Attempt) -> str:
        """Return the node of a member that is like the last one, or "" for the full scheduling cycle.

        An error falls back to the full cycle, is counted, and drops what was cached.
        """
        try:
            return self._choose(attempt)
        except Exception as error:
            self._kind = None
            reuse_failed(self._context, attempt, error)
            return ""

    def _choose(self, attempt: Attempt) -> str:
        context, kind = self._context, self._kind
        if kind is None or context.results_of(attempt) is None:
            return ""
        if context.reservations or len(context.queue.nominator) or not kind.is_of(attempt.info):
            return ""
        nodes = context.cache.columns
        ranking = kind.ranked(nodes, nodes.alive if attempt.among is None else attempt.among & nodes.alive)
        if ranking is None:
            # Where there is none, to look for one after each member would cost more than it ever saves.
            self._may, self._kind = False, None
            return ""
        return choose_among(context, attempt, kind, ranking)
