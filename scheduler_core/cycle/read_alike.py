"""Pods that read alike.

Owns what two pods may differ in so that no plugin built in could tell them apart. It must not know plugins.
"""

from __future__ import annotations

from scheduler_core.framework.object_reads import annotations_of
from scheduler_core.model.pod import Pod


def read_alike(first: Pod, second: Pod) -> bool:
    """Whether two pods differ in nothing that a plugin could read but who they are: name, UID and age."""
    one, other = first.metadata, second.metadata
    return (
        one.labels == other.labels
        and one.namespace == other.namespace
        and first.spec == second.spec
        and one.owner_references == other.owner_references
        and first.status.nominated_node_name == second.status.nominated_node_name
        and annotations_of(first) == annotations_of(second)
    )
