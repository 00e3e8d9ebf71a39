"""What is told of a profile's extenders: how they are, and that a simulation does not ask them.

Owns the words and the order. It must not know how extenders are called. Why a sentence where they are not: a profile
with extenders must never be judged without them in silence.
"""

from __future__ import annotations

from collections.abc import Sequence

from bayplan.extending.http_extender import ExtenderState, HttpExtender
from scheduler_core.config.extender_config import Extender
from scheduler_core.runtime.framework_instance import FrameworkInstance


def not_asked_notice(extenders: Sequence[Extender]) -> str:
    """Tell that extenders are not asked outside the running operator.

    Args:
        extenders: Those of a profile.

    Returns:
        A sentence; empty without extenders.
    """
    if not extenders:
        return ""
    urls = ", ".join(extender.url_prefix for extender in extenders)
    return f"Extenders are not asked here, as the running operator would: {urls}."


def extender_states(instance: FrameworkInstance) -> tuple[ExtenderState, ...]:
    """How the extenders of a live profile are, in the order of its spec."""
    order = [extender.url_prefix for extender in instance.config.extenders]
    states = [runner.client.state for runner in instance.extenders if isinstance(runner.client, HttpExtender)]
    return tuple(sorted(states, key=lambda state: order.index(state.url_prefix)))
