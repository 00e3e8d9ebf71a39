"""Groups unscheduled pods by cause.

The message of a rejected pod counts nodes, so two pods with the same problem have different messages if another pod was
scheduled between them. A cause is the message without counts, names of objects and the result of preemption.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from bayplan.simulation.simulation import PodPlacement, Verdict
from scheduler_core.framework.diagnosis import NO_NODE_AVAILABLE

_NO_NODE = re.compile(NO_NODE_AVAILABLE.format(count=r"\d+") + ": (?P<reasons>.*)", re.DOTALL)
_NEXT_REASON = re.compile(r", (?=\d+ )")
_NUMBER = re.compile(r"^\d+ ")
_END = re.compile(r"\.(?: |$)")
_QUOTED = re.compile('"[^"]*"')
_PERMIT_NODE = re.compile(r"^(waits at Permit) on node \S+")
_OUTSIDE_DOMAIN = "node(s) were outside the gang's domain"


@dataclass(frozen=True, slots=True)
class RejectionCause:
    """Cause for which pods are not scheduled.

    Attributes:
        text: The reasons, separated by commas.
        example: One of the pods, as ``namespace/name``.
    """

    verdict: Verdict
    text: str
    pods: int
    example: str


def rejection_causes(pods: Iterable[PodPlacement]) -> tuple[RejectionCause, ...]:
    """Group the pods that are not scheduled by cause, largest group first."""
    counts, examples = Counter[tuple[Verdict, str]](), dict[tuple[Verdict, str], str]()
    for pod in pods:
        if pod.verdict is not Verdict.PLACED:
            key = pod.verdict, cause_of(pod.reason)
            counts[key] += 1
            examples.setdefault(key, f"{pod.namespace}/{pod.name}")
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0][1], item[0][0].value))
    return tuple(RejectionCause(*key, count, examples[key]) for key, count in ordered)


def cause_of(message: str) -> str:
    """Return the cause that a pod's message states.

    Args:
        message: Text of the PodScheduled condition, or of a gate.

    Returns:
        The distinct reasons in alphabetical order; the message itself if it does not count nodes.
    """
    found = _NO_NODE.search(message)
    if found is None:
        return _PERMIT_NODE.sub(r"\1", message)
    rejection = _QUOTED.sub('"..."', _END.split(found["reasons"], maxsplit=1)[0])
    # A rejection by PreFilter holds for all nodes and has no number: its one reason may contain commas.
    reasons = {_NUMBER.sub("", reason) for reason in _NEXT_REASON.split(rejection)}
    inside = {reason for reason in reasons if not reason.startswith(_OUTSIDE_DOMAIN)}
    text = ", ".join(sorted(inside or {_OUTSIDE_DOMAIN}))
    return text if found.start() == 0 else f"no room for its gang: {text}"
