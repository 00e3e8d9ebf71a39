"""Combines the explanation of a pod with that of its gang.

The pod's own nodes and scores stay in the explanation, because users ask why a pod waits although it fits alone.
"""

from __future__ import annotations

from msgspec.structs import replace

from bayplan.explanation.gang_model import GangExplanation, GangVerdict
from bayplan.explanation.model import Explanation, Verdict
from scheduler_core.model.pod import Pod

_ALONE = "nodes and scores are those of this pod alone, as if it had no gang"
_ON_ITS_OWN = frozenset((GangVerdict.PLACED, GangVerdict.FINISHED, GangVerdict.ONE_BY_ONE))
"""Verdicts of gangs whose remaining members are scheduled one by one."""
_HELD = frozenset((GangVerdict.NO_GROUP, GangVerdict.INCOMPLETE))
_WAITING = frozenset((Verdict.FITS, Verdict.UNSCHEDULABLE))


def with_gang(built: Explanation, pod: Pod, gang: GangExplanation) -> Explanation:
    """Add the gang's explanation to the explanation of a member.

    Args:
        built: The explanation of the pod alone.
        pod: The pod.
        gang: The explanation of its gang.

    Returns:
        The explanation; if the pod waits, its verdict takes the gang into account.
    """
    explanation = replace(built, gang=gang)
    if built.verdict not in _WAITING or gang.verdict in _ON_ITS_OWN:
        return explanation
    notices = (_ALONE, *built.notices)
    node = next((each.node for each in gang.placement if each.member == pod.key), None)
    if gang.verdict is GangVerdict.FITS:
        if node is None:
            headline = f"pod {pod.key} has no node in the placement of its gang, which fits without it; {gang.headline}"
            verdict = Verdict.UNSCHEDULABLE
        else:
            headline = f"pod {pod.key} would be scheduled to node {node} with its gang; {gang.headline}"
            verdict = Verdict.FITS
    else:
        headline = f"pod {pod.key} waits for its gang; {gang.headline}"
        verdict = Verdict.GATED if gang.verdict in _HELD else Verdict.UNSCHEDULABLE
    return replace(
        explanation, verdict=verdict, headline=headline, node=node, tied=(), preemption=None, notices=notices
    )
