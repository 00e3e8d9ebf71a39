"""Pods that read alike.

Owns what two pods may differ in so that no plugin built in could tell them apart, or only those that read what a pod's
containers ask for. It must not know plugins.
"""

from __future__ import annotations

from operator import attrgetter

from msgspec import Struct

from scheduler_core.framework.object_reads import annotations_of
from scheduler_core.model.pod import Container, Pod, PodSpec


def read_alike(first: Pod, second: Pod) -> bool:
    """Whether two pods differ in nothing that a plugin could read but who they are: name, UID and age."""
    return first.spec == second.spec and _are_marked_alike(first, second)


def read_alike_but_for_resources(first: Pod, second: Pod) -> bool:
    """Whether two pods differ in nothing but who they are, and what they and their containers ask for."""
    one, other = first.spec, second.spec
    return (
        _BESIDE_RESOURCES(one) == _BESIDE_RESOURCES(other)
        and _containers_alike(one.containers, other.containers)
        and _containers_alike(one.init_containers, other.init_containers)
        and _are_marked_alike(first, second)
    )


def _are_marked_alike(first: Pod, second: Pod) -> bool:
    one, other = first.metadata, second.metadata
    return (
        one.labels == other.labels
        and one.namespace == other.namespace
        and one.owner_references == other.owner_references
        and first.status.nominated_node_name == second.status.nominated_node_name
        and annotations_of(first) == annotations_of(second)
    )


def _containers_alike(one: tuple[Container, ...], other: tuple[Container, ...]) -> bool:
    return len(one) == len(other) and all(
        _OF_CONTAINER(mine) == _OF_CONTAINER(theirs) for mine, theirs in zip(one, other, strict=True)
    )


def _all_but(struct: type[Struct], *names: str) -> attrgetter[tuple[object, ...]]:
    return attrgetter(*(name for name in struct.__struct_fields__ if name not in names))


_BESIDE_RESOURCES = _all_but(PodSpec, "containers", "init_containers", "overhead", "resources")
_OF_CONTAINER = _all_but(Container, "resources")
