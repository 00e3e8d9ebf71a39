"""States of a profile's extenders, and the notice of a dry run that does not call them."""

from __future__ import annotations

from collections.abc import Sequence

from bayplan.extenders.http_extender import ExtenderState
from scheduler_core.config.extender_config import Extender
from scheduler_core.runtime.framework_instance import FrameworkInstance


def extenders_skipped_notice(extenders: Sequence[Extender]) -> str:
    """Return the notice that extenders are not called outside the running operator.

    Args:
        extenders: The extenders of a profile.

    Returns:
        A sentence; empty without extenders.
    """
    if not extenders:
        return ""
    urls = ", ".join(extender.url_prefix for extender in extenders)
    return f"Extenders are not called here, unlike in the running operator: {urls}."


def extender_states(instance: FrameworkInstance) -> tuple[ExtenderState, ...]:
    """Return the states of a live profile's extenders, in the order of its spec."""
    order = [extender.url_prefix for extender in instance.config.extenders]
    # Read as an attribute: while decisions are recorded the client is one that records, and passes it on.
    states = [getattr(runner.client, "state", None) for runner in instance.extenders]
    found = [state for state in states if isinstance(state, ExtenderState)]
    return tuple(sorted(found, key=lambda state: order.index(state.url_prefix)))
