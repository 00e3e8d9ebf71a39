"""Extended resources: the device requests that replace them, and the claim with these requests."""

from __future__ import annotations

from msgspec.structs import replace

from scheduler_core.cycle.journal import Journal
from scheduler_core.model.devices import EXTENDED_RESOURCE_CLAIM
from scheduler_core.model.meta import OwnerReference
from scheduler_core.model.pod import Container
from scheduler_core.plugins.dynamic_resources.pod_claims import (
    claim_in_memory,
    extended_claim,
    extended_claim_of,
    is_in_memory,
)
from scheduler_core.snapshot.indexes.device_index import ClaimTable
from tests.support.builders import container, pod
from tests.support.devices import claim, with_meta
from tests.support.tables import table

GPU, NIC = "example.com/gpu", "example.com/nic"
CLASSES = {GPU: "gpu", NIC: "nic"}


def using_gpus(name: str, count: int, restart_policy: str = "", **others: int) -> Container:
    """Return a container that requests GPUs, and NICs as ``nic``."""
    requests: dict[str, int | str] = {"cpu": "1", GPU: count}
    if "nic" in others:
        requests[NIC] = others["nic"]
    return container(name=name, requests=requests, restart_policy=restart_policy)


def rows_of(init: list[Container], main: list[Container]) -> tuple[dict[str, tuple[str, int]], list[tuple[str, str]]]:
    """Return class and count of each request, and the request of each container, in order."""
    user = pod("p", init_containers=init, containers=main)
    found = extended_claim(claim_in_memory(user, Journal().new_uid), user, CLASSES)
    requests = found.claim.spec.devices.requests
    counts = {each.name: (each.exactly.device_class_name, each.exactly.count) for each in requests if each.exactly}
    assert list(counts) == sorted(counts)
    return counts, [(each.container_name, each.request_name) for each in found.mappings]


@table(
    "init, main, requests, mappings",
    (
        "separate requests per container",
        [],
        [using_gpus("a", 2), using_gpus("b", 0), using_gpus("c", 1)],
        {"container-0-request-1": ("gpu", 2), "container-2-request-1": ("gpu", 1)},
        [("a", "container-0-request-1"), ("c", "container-2-request-1")],
    ),
    (
        "two resources",
        [],
        [using_gpus("a", 1, nic=1)],
        {"container-0-request-1": ("gpu", 1), "container-0-request-2": ("nic", 1)},
        [("a", "container-0-request-1"), ("a", "container-0-request-2")],
    ),
    (
        "an init container reuses later devices",
        [using_gpus("init", 1)],
        [using_gpus("a", 2)],
        {"container-1-request-1": ("gpu", 2)},
        [("a", "container-1-request-1"), ("init", "container-1-request-1")],
    ),
    (
        "an init container requests the excess",
        [using_gpus("init", 3)],
        [using_gpus("a", 2)],
        {"container-0-request-1": ("gpu", 1), "container-1-request-1": ("gpu", 2)},
        [("a", "container-1-request-1"), ("init", "container-1-request-1"), ("init", "container-0-request-1")],
    ),
    (
        "the largest init container",
        [using_gpus("small", 1), using_gpus("large", 2)],
        [using_gpus("a", 0)],
        {"container-1-request-1": ("gpu", 2)},
        [("small", "container-1-request-1"), ("large", "container-1-request-1")],
    ),
    (
        "a sidecar does not share its devices",
        [using_gpus("sidecar", 1, "Always"), using_gpus("init", 1)],
        [using_gpus("a", 1)],
        {"container-0-request-1": ("gpu", 1), "container-2-request-1": ("gpu", 1)},
        [("sidecar", "container-0-request-1"), ("a", "container-2-request-1"), ("init", "container-2-request-1")],
    ),
)
def test_requests_of_a_node(
    init: list[Container], main: list[Container], requests: dict[str, tuple[str, int]], mappings: list[tuple[str, str]]
) -> None:
    """Requests are named by the index of the container and of the resource in it, and sorted by name."""
    assert rows_of(init, main) == (requests, mappings)


def test_requests_are_sorted_as_text() -> None:
    """The request ``container-10`` is sorted before ``container-2``."""
    counts, _ = rows_of([], [using_gpus(f"c{number}", 1) for number in range(11)])
    assert list(counts)[:3] == ["container-0-request-1", "container-1-request-1", "container-10-request-1"]


def test_claim_of_an_earlier_attempt() -> None:
    """A claim of an earlier attempt has the annotation, and the pod as its controller."""
    user = pod("p", namespace="ns", uid="uid-of-p")
    owner = OwnerReference("Pod", "p", "uid-of-p", "v1", controller=True)
    made = with_meta(claim(name="made"), owner_references=(owner,), annotations={EXTENDED_RESOURCE_CLAIM: "true"})
    of_template = with_meta(made, annotations={})
    of_another = with_meta(made, owner_references=(replace(owner, uid="uid-of-another"),))
    not_controlled = with_meta(made, owner_references=(replace(owner, controller=False),))
    assert extended_claim_of(user, [of_template, of_another, not_controlled]) is None
    assert extended_claim_of(user, [of_template, made]) is made


def test_claim_in_memory() -> None:
    """A claim in memory is recognized, belongs to the pod, and has a unique UID."""
    user = pod("p", namespace="ns", uid="uid-of-p")
    first, second = claim_in_memory(user, Journal().new_uid), claim_in_memory(user, Journal().new_uid)
    assert is_in_memory(first)
    assert first.metadata.uid != second.metadata.uid
    assert extended_claim_of(user, [first]) is first
    assert not is_in_memory(claim())


def test_claims_for_resources_are_found_by_owner() -> None:
    """The table returns the newest versions of an owner's claims until they are removed."""
    user = pod("p", namespace="ns", uid="uid-of-p")
    table = ClaimTable()
    made = with_meta(claim_in_memory(user, Journal().new_uid), name="made", uid="u", resource_version="1")
    for each in (made, with_meta(made, name="of-template", uid="u2", annotations={}), claim()):
        table.assign(each)
    assert table.for_resources_of("uid-of-p") == [made]
    newer = with_meta(made, resource_version="2")
    table.assign(newer)
    table.assign(made)
    assert table.for_resources_of("uid-of-p") == [newer]
    table.assign(with_meta(newer, resource_version="3", owner_references=()))
    assert table.for_resources_of("uid-of-p") == []
    table.assign(with_meta(made, resource_version="4"))
    table.remove(with_meta(made, uid="another"))
    assert len(table.for_resources_of("uid-of-p")) == 1
    table.remove(made)
    assert table.for_resources_of("uid-of-p") == []
