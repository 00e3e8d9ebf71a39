"""What is told of extenders as long as they are only validated.

Owns one sentence. Why one place: a profile with extenders must never run without them in silence, however it came.
"""

from __future__ import annotations

from collections.abc import Sequence

from scheduler_core.config.extender_config import Extender


def extender_notice(extenders: Sequence[Extender]) -> str:
    """Tell that extenders are not called.

    Args:
        extenders: Those of a profile.

    Returns:
        A sentence; empty without extenders.
    """
    if not extenders:
        return ""
    urls = ", ".join(extender.url_prefix for extender in extenders)
    return f"Extenders are not called yet, pods are placed without them: {urls}."
