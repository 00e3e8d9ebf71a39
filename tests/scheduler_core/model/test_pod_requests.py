"""Resource requests of a pod, compared with the formula in exact fractions."""

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_core.errors import QuantityError
from scheduler_core.model.pod import Container, ContainerStatus, Pod, PodCondition, ResourceRequirements
from scheduler_core.model.pod_requests import (
    accounted_milli,
    is_extended_resource,
    is_scalar_resource,
    pod_requests,
    same_granted_resources,
)
from tests.support.builders import Amounts, container, pod
from tests.support.tables import table

MIB = 1024 * 1024
DEFAULT_CPU = 100
DEFAULT_MEMORY = 200 * MIB


@table(
    "name, extended, scalar",
    ("cpu", "cpu", False, False),
    ("pods", "pods", False, False),
    ("extended", "example.com/gpu", True, True),
    ("hugepages", "hugepages-2Mi", False, True),
    ("volumes", "attachable-volumes-aws-ebs", False, True),
    ("native-with-prefix", "kubernetes.io/thing", False, True),
    ("quota", "requests.example.com/gpu", False, False),
    ("native-but-unknown", "unknown", False, False),
    ("empty-prefix", "/gpu", False, False),
    ("empty-name", "example.com/", False, False),
)
def test_kinds_of_resources(name: str, extended: bool, scalar: bool) -> None:
    """Only extended, hugepage, attachable-volume and prefixed native resources are scalar."""
    assert (is_extended_resource(name), is_scalar_resource(name)) == (extended, scalar)


@table(
    "subject, fit",
    ("best-effort", pod(), {}),
    ("one-container", pod(requests={"cpu": "250m", "memory": "1Mi"}), {"cpu": 250, "memory": MIB}),
    ("cpu-is-rounded-up", pod(requests={"cpu": "0.1m"}), {"cpu": 1}),
    ("not-counted", pod(requests={"unknown": "1", "pods": "3"}), {}),
    (
        "summed-before-it-is-rounded",
        pod(containers=[container(name=name, requests={"memory": "500m"}) for name in "ab"]),
        {"memory": 1},
    ),
    (
        "init-container-needs-more",
        pod(requests={"cpu": "1"}, init_containers=[container(name="i", requests={"cpu": "3"})]),
        {"cpu": 3000},
    ),
    (
        "init-container-needs-less",
        pod(requests={"cpu": "1"}, init_containers=[container(name="i", requests={"cpu": "500m"})]),
        {"cpu": 1000},
    ),
    (
        "sidecar-adds",
        pod(
            requests={"cpu": "1"}, init_containers=[container(name="s", requests={"cpu": "2"}, restart_policy="Always")]
        ),
        {"cpu": 3000},
    ),
    (
        "init-container-after-a-sidecar",
        pod(
            requests={"cpu": "1"},
            init_containers=[
                container(name="s", requests={"cpu": "2"}, restart_policy="Always"),
                container(name="i", requests={"cpu": "4"}),
            ],
        ),
        {"cpu": 6000},
    ),
    (
        "init-container-before-a-sidecar",
        pod(
            requests={"cpu": "1"},
            init_containers=[
                container(name="i", requests={"cpu": "4"}),
                container(name="s", requests={"cpu": "2"}, restart_policy="Always"),
            ],
        ),
        {"cpu": 4000},
    ),
    ("overhead", pod(requests={"cpu": "1"}, overhead={"cpu": "250m"}), {"cpu": 1250}),
    (
        "pod-level",
        pod(requests={"cpu": "1", "example.com/gpu": "2"}, pod_requests={"cpu": "3"}),
        {"cpu": 3000, "example.com/gpu": 2},
    ),
    ("pod-level-unsupported", pod(requests={"cpu": "1"}, pod_requests={"example.com/gpu": "5"}), {"cpu": 1000}),
    (
        "overhead-on-pod-level",
        pod(requests={"cpu": "1"}, pod_requests={"cpu": "3"}, overhead={"cpu": "1"}),
        {"cpu": 4000},
    ),
)
def test_fit(subject: Pod, fit: dict[str, int]) -> None:
    """The request is the largest sum of the containers that run at the same time."""
    requests = pod_requests(subject)
    assert requests.fit == fit
    assert requests.accounted == fit


@table(
    "subject, nonzero, scored",
    ("no-requests", pod(), (DEFAULT_CPU, DEFAULT_MEMORY), (DEFAULT_CPU, DEFAULT_MEMORY)),
    ("cpu-only", pod(requests={"cpu": "1"}), (1000, DEFAULT_MEMORY), (1000, DEFAULT_MEMORY)),
    ("zero-requests", pod(requests={"cpu": "0", "memory": "0"}), (0, 0), (0, 0)),
    (
        "each-container-on-its-own",
        pod(containers=[container(name="a", requests={"cpu": "1"}), container(name="b")]),
        (1000 + DEFAULT_CPU, 2 * DEFAULT_MEMORY),
        (1000 + DEFAULT_CPU, 2 * DEFAULT_MEMORY),
    ),
    (
        "pod-level-of-one-resource",
        pod(
            containers=[container(name="a", requests={"memory": "1Mi"}), container(name="b")], pod_requests={"cpu": "3"}
        ),
        (3000, MIB),
        (3000, MIB + DEFAULT_MEMORY),
    ),
    ("pod-level-alone", pod(pod_requests={"cpu": "3"}), (3000, DEFAULT_MEMORY), (3000, DEFAULT_MEMORY)),
)
def test_defaults_of_scoring(subject: Pod, nonzero: tuple[int, int], scored: tuple[int, int]) -> None:
    """Containers without a request for cpu or memory count with a default in scoring."""
    requests = pod_requests(subject)
    assert (requests.nonzero_cpu_milli, requests.nonzero_memory) == nonzero
    assert (requests.scored_cpu_milli, requests.scored_memory) == scored


def status(name: str, in_force: str | None, allocated: str = "0") -> ContainerStatus:
    resources = None if in_force is None else ResourceRequirements(requests={"cpu": in_force})
    return ContainerStatus(name=name, allocated_resources={"cpu": allocated}, resources=resources)


INFEASIBLE = PodCondition("PodResizePending", "True", reason="Infeasible")
DEFERRED = PodCondition("PodResizePending", "True", reason="Deferred")


@table(
    "statuses, conditions, accounted_cpu",
    ("no-status", [], [], 2000),
    ("requests-more-than-in-force", [status("main", "1")], [], 2000),
    ("more-in-force", [status("main", "3")], [], 3000),
    ("more-allocated", [status("main", "1", "4")], [], 4000),
    ("infeasible-resize-does-not-count", [status("main", "1", "500m")], [INFEASIBLE], 1000),
    ("deferred-resize-counts", [status("main", "1", "500m")], [DEFERRED], 2000),
    ("only-allocated", [status("main", None, "4")], [], 4000),
    ("infeasible-without-a-status", [], [INFEASIBLE], 0),
    ("another-container", [status("other", "9")], [], 2000),
)
def test_resize(statuses: list[ContainerStatus], conditions: list[PodCondition], accounted_cpu: int) -> None:
    """The accounted amount includes granted resources; the fit check uses the spec's requests."""
    running = pod(requests={"cpu": "2"}, container_statuses=statuses, conditions=conditions, node_name="n")
    requests = pod_requests(running)
    assert requests.accounted.get("cpu", 0) == accounted_cpu
    assert requests.fit == {"cpu": 2000}
    assert requests.nonzero_cpu_milli == (accounted_cpu or DEFAULT_CPU)


@table("restart_policy, accounted_cpu", ("sidecar", "Always", 4000), ("init", "", 3000))
def test_resize_of_init_containers(restart_policy: str, accounted_cpu: int) -> None:
    """The status of init containers counts too."""
    resized = pod(
        requests={"cpu": "1"},
        init_containers=[container(name="i", requests={"cpu": "2"}, restart_policy=restart_policy)],
    )
    init_status = msgspec.structs.replace(resized.status, init_container_statuses=(status("i", "3"),))
    assert pod_requests(msgspec.structs.replace(resized, status=init_status)).accounted == {"cpu": accounted_cpu}


@table(
    "in_force, allocated, accounted_cpu",
    ("requests-more", "1", "1", 2000),
    ("more-in-force", "5", "1", 5000),
    ("more-allocated", "1", "6", 6000),
)
def test_resize_at_pod_level(in_force: str, allocated: str, accounted_cpu: int) -> None:
    """Pod-level resources have their own status."""
    resized = pod(requests={"cpu": "1"}, pod_requests={"cpu": "2"})
    of_pod = msgspec.structs.replace(
        resized.status,
        resources=ResourceRequirements(requests={"cpu": in_force}),
        allocated_resources={"cpu": allocated},
    )
    requests = pod_requests(msgspec.structs.replace(resized, status=of_pod))
    assert requests.accounted == {"cpu": accounted_cpu}
    assert requests.fit == {"cpu": 2000}


def test_an_invalid_quantity_is_an_error() -> None:
    """An invalid quantity raises QuantityError and does not count as 0."""
    with pytest.raises(QuantityError, match='"much"'):
        pod_requests(pod(requests={"cpu": "much"}))


class Step(NamedTuple):
    requests: Amounts
    sidecar: bool


_QUANTITIES = st.sampled_from(["0", "1", "2500u", "100m", "1.5", "3", "700n"])
_NAMES = ("cpu", "memory", "example.com/gpu")
_AMOUNTS = st.dictionaries(st.sampled_from(_NAMES), _QUANTITIES)
_STEPS = st.lists(st.builds(Step, _AMOUNTS, st.booleans()), max_size=3)
_EXACT = {
    "0": Fraction(0),
    "1": Fraction(1),
    "2500u": Fraction(1, 400),
    "100m": Fraction(1, 10),
    "1.5": Fraction(3, 2),
    "3": Fraction(3),
    "700n": Fraction(7, 10**7),
}


def exact(amounts: Amounts, name: str, missing: Fraction) -> Fraction:
    return _EXACT[str(amounts[name])] if name in amounts else missing


def peak(name: str, containers: Sequence[Amounts], steps: Sequence[Step], missing: Fraction) -> Fraction:
    """Return the largest amount of a resource that runs at the same time."""
    running = sum((exact(step.requests, name, missing) for step in steps if step.sidecar), Fraction(0))
    running += sum((exact(amounts, name, missing) for amounts in containers), Fraction(0))
    started = Fraction(0)
    highest = running
    for step in steps:
        own = exact(step.requests, name, missing)
        highest = max(highest, started + own)
        if step.sidecar:
            started += own
    return highest


def build(containers: Sequence[Amounts], steps: Sequence[Step], overhead: Amounts, pod_level: Amounts) -> Pod:
    def sequence(kind: str, amounts: Sequence[Amounts]) -> list[Container]:
        return [container(name=f"{kind}{index}", requests=each) for index, each in enumerate(amounts)]

    inits = [
        msgspec.structs.replace(each, restart_policy="Always" if step.sidecar else "")
        for each, step in zip(sequence("i", [step.requests for step in steps]), steps, strict=True)
    ]
    if pod_level:
        return pod(
            containers=sequence("c", containers), init_containers=inits, overhead=overhead, pod_requests=pod_level
        )
    return pod(containers=sequence("c", containers), init_containers=inits, overhead=overhead)


@given(
    st.lists(_AMOUNTS, min_size=1, max_size=3),
    _STEPS,
    _AMOUNTS,
    st.dictionaries(st.sampled_from(["cpu", "memory"]), _QUANTITIES),
)
def test_requests_equal_the_formula(
    containers: list[Amounts], steps: list[Step], overhead: Amounts, pod_level: Amounts
) -> None:
    """Requests equal the formula for any mix of containers, sidecars, overhead and pod-level resources."""
    requests = pod_requests(build(containers, steps, overhead, pod_level))
    named = {
        name for amounts in (*containers, *(step.requests for step in steps), overhead, pod_level) for name in amounts
    }
    defaults = {"cpu": Fraction(DEFAULT_CPU, 1000), "memory": Fraction(DEFAULT_MEMORY)}

    def expected(name: str, missing: Fraction) -> int:
        whole = _EXACT[str(pod_level[name])] if name in pod_level else peak(name, containers, steps, missing)
        whole += exact(overhead, name, Fraction(0))
        return math.ceil(whole * (1000 if name == "cpu" else 1))

    assert requests.fit == {name: expected(name, Fraction(0)) for name in named}
    assert requests.accounted == requests.fit
    assert requests.scored_cpu_milli == expected("cpu", defaults["cpu"])
    assert requests.scored_memory == expected("memory", defaults["memory"])
    for name, nonzero in (("cpu", requests.nonzero_cpu_milli), ("memory", requests.nonzero_memory)):
        skips_defaults = bool(pod_level) and name in named
        assert nonzero == expected(name, Fraction(0) if skips_defaults else defaults[name])


@table(
    "requests, milli",
    ("rounded-up", {"cpu": "1500u"}, {"cpu": 2}),
    ("finer-than-bytes", {"memory": "1100m"}, {"memory": 1100}),
    ("zero", {"memory": "0"}, {"memory": 0}),
    ("not-counted", {"unknown": "2"}, {"unknown": 2000}),
)
def test_accounted_milli_units(requests: Amounts, milli: dict[str, int]) -> None:
    """Scale-downs are detected in milli units, which are smaller than the units of node columns."""
    assert accounted_milli(pod(requests=requests)) == milli


def _running(**status: object) -> Pod:
    """Return a pod that requests one cpu, at container and pod level, with the fields ``status`` in its status."""
    requested = ResourceRequirements(requests={"cpu": "1"})
    running = pod(requests={"cpu": "1"}, pod_requests={"cpu": "1"})
    in_force = (ContainerStatus(name="main", resources=requested),)
    granted: dict[str, object] = {"container_statuses": in_force, "resources": requested}
    return msgspec.structs.replace(running, status=msgspec.structs.replace(running.status, **granted | status))


_TWO_CPUS = ResourceRequirements(requests={"cpu": "2"})


@table(
    "status, is_same",
    ("phase", {"phase": "Running"}, True),
    ("another-condition", {"conditions": (PodCondition("PodScheduled", "True"),)}, True),
    ("resize-deferred", {"conditions": (PodCondition("PodResizePending", "True", "Deferred"),)}, True),
    ("resize-is-infeasible", {"conditions": (PodCondition("PodResizePending", "True", "Infeasible"),)}, False),
    ("no-container-status", {"container_statuses": ()}, False),
    ("container-grew", {"container_statuses": (ContainerStatus(name="main", resources=_TWO_CPUS),)}, False),
    ("init-started", {"init_container_statuses": (ContainerStatus(name="first", resources=_TWO_CPUS),)}, False),
    ("pod-grew", {"resources": _TWO_CPUS}, False),
    ("pod-was-allocated-more", {"allocated_resources": {"cpu": "2"}}, False),
)
def test_granted_resources_are_compared_by_status(status: dict[str, object], is_same: bool) -> None:
    """If granted resources are the same, the sums are equal and need not be recomputed."""
    before, after = _running(), _running(**status)
    assert same_granted_resources(before, after) is is_same
    if is_same:
        assert (pod_requests(before), accounted_milli(before)) == (pod_requests(after), accounted_milli(after))
