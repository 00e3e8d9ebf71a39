"""What its gang means for a pod that is explained.

Owns how the explanation of a pod and that of its gang go together. It must not look at the cluster: both have been
found before. Why the pod's own nodes are told beside the gang's verdict: a pod that fits alone and waits all the same
is what people ask about.
"""

from __future__ import annotations

from msgspec.structs import replace

from bayplan.explanation.gang_model import GangExplanation, GangVerdict
from bayplan.explanation.model import Explanation, Verdict
from scheduler_core.model.pod import Pod

_ALONE = "what is said of nodes and scores is of this pod alone, as if it had no gang"
_ON_ITS_OWN = frozenset((GangVerdict.PLACED, GangVerdict.FINISHED, GangVerdict.ONE_BY_ONE))
"""Verdicts of gangs whose members come one by one."""
_HELD = frozenset((GangVerdict.NO_GROUP, GangVerdict.INCOMPLETE))
_WAITING = frozenset((Verdict.FITS, Verdict.UNSCHEDULABLE))


def with_gang(built: Explanation, pod: Pod, gang: GangExplanation) -> Explanation:
    """Let a pod's explanation say what its gang makes of it.

    Args:
        built: The explanation of the pod by itself.
        pod: The pod.
        gang: The explanation of its gang.

    Returns:
        The explanation; for a pod that waits, its verdict is that of a member.
    """
    told = replace(built, gang=gang)
    if built.verdict not in _WAITING or gang.verdict in _ON_ITS_OWN:
        return told
    notices = (_ALONE, *built.notices)
    node = next((each.node for each in gang.placement if each.member == pod.key), None)
    if gang.verdict is GangVerdict.FITS:
        if node is None:
            headline = f"pod {pod.key} would be left over: its gang fits without it; {gang.headline}"
            verdict = Verdict.UNSCHEDULABLE
        else:
            headline = f"pod {pod.key} would go to node {node} with its gang; {gang.headline}"
            verdict = Verdict.FITS
    else:
        headline = f"pod {pod.key} waits for its gang; {gang.headline}"
        verdict = Verdict.GATED if gang.verdict in _HELD else Verdict.UNSCHEDULABLE
    return replace(told, verdict=verdict, headline=headline, node=node, tied=(), preemption=None, notices=notices)
