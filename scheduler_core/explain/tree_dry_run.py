"""Dry run of the group cycle of a tree of groups, with the result for one of its gangs.

Extenders are not called, because a dry run must not await.
"""

from __future__ import annotations

from scheduler_core.explain.gang_dry_run import ExaminedPlace, GangExamination
from scheduler_core.explain.gang_member_dry_runs import NextMember
from scheduler_core.gangs.dry_trials import DryTrials, for_dry_run, without_extenders
from scheduler_core.gangs.placement_search import GroupCycle
from scheduler_core.gangs.preemption import GangPreemption
from scheduler_core.gangs.tree_search import TreeCycle
from scheduler_core.queueing.gang_members import Gang
from scheduler_core.queueing.group_trees import GangTree
from scheduler_core.queueing.nominator import NominatedPods
from scheduler_core.snapshot.cluster_cache import ClusterCache


class TreeExaminer:
    """Dry-runs group cycles of trees.

    Args:
        cache: The nodes, and the members that have a node.
        nominator: Nominations.
        trials: Tries trees.
        preemption: Dry-runs preemptions.
    """

    def __init__(
        self, cache: ClusterCache, nominator: NominatedPods, trials: DryTrials, preemption: GangPreemption
    ) -> None:
        self._cache = cache
        self._nominator = nominator
        self._trials = trials
        self._preemption = preemption

    def examine(self, cycle: GroupCycle, part: Gang) -> GangExamination:
        """Dry-run the group cycle of a tree for one of its gangs, between two cycles; nothing is changed.

        Args:
            cycle: The tree, which has its quorum, and the profile.
            part: The gang.
        """
        tree, instance = cycle.gang, for_dry_run(cycle.instance)
        assert isinstance(tree, GangTree)
        found = GangExamination(part.needed)
        refusal = cycle.refusal(self._cache)
        if refusal is not None:
            found.refusal = refusal.message
        else:
            inputs = TreeCycle.of(tree, without_extenders(instance), cycle.members)
            with self._trials.undone(), self._nominator.without(tree.waiting):
                fits = self._trials.fill_tree(inputs)
                nodes = {each.info.key: each.node_name for each in inputs.trial.placed if each.queued.group == part.key}
                self._trials.undo(inputs.trial)
            if fits and nodes:
                found.chosen = ExaminedPlace("", nodes, found.needed)
                return found
            lack = inputs.trial.lacks.get(part.key, "no member fits")
            others = f'other groups of composite pod group "{tree.key.name}" fit without it: {lack}'
            found.refusal = others if fits else inputs.trial.lack
            rejected = [each for each in inputs.trial.failed if each[0].queued.group == part.key]
            broken = next((each for each in inputs.trial.failed if each[1].is_error), None)
            attempt, failure = broken or next(iter(rejected), (None, None))
            if attempt is not None and failure is not None:
                member = NextMember(attempt.info, failure.message)
                found.places = (ExaminedPlace("", {}, found.needed, member, failure.is_error),)
        if not found.error:
            found.preemption = self._preemption.preview(tree, instance)
        return found
