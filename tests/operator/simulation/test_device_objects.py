"""Tests of simulations and explanations of pods with resource claims from files."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from bayplan.cli.explain import from_files
from bayplan.cli.object_names import PodName
from bayplan.cli.simulate import as_document, as_table
from bayplan.explanation.documents import Explanation
from bayplan.settings.feature_gates import FeatureGates
from bayplan.simulation.admission import admit
from bayplan.simulation.cluster_files import read_cluster_files
from bayplan.simulation.packing import DeviceUsage
from bayplan.simulation.simulation import SimulationOptions, SimulationResult, Verdict, simulate

from scheduler_core.errors import ConfigError
from tests.support.presence import present
from tests.support.tables import table

API = "apiVersion: resource.k8s.io/v1\n"
CLASS = f"{API}kind: DeviceClass\nmetadata: {{name: gpu}}\nspec: {{}}\n"
REQUEST = "{devices: {requests: [{name: r, exactly: {deviceClassName: gpu}}]}}"
TEMPLATE = f"{API}kind: ResourceClaimTemplate\nmetadata: {{name: one}}\nspec: {{spec: {REQUEST}}}\n"
CLAIM = f"{API}kind: ResourceClaim\nmetadata: {{name: shared}}\nspec: {REQUEST}\n"
TAINT_RULE = (
    f"{API}kind: DeviceTaintRule\nmetadata: {{name: t}}\n"
    "spec: {deviceSelector: {driver: gpu.example.com}, taint: {key: broken, effect: NoSchedule}}\n"
)


def node(name: str) -> str:
    return (
        f"apiVersion: v1\nkind: Node\nmetadata: {{name: {name}}}\n"
        'status: {allocatable: {cpu: "4", memory: 8Gi, pods: "110"}}\n'
    )


def slice_of(name: str, devices: str = "{name: d0}") -> str:
    pool = f"{{name: {name}, generation: 1, resourceSliceCount: 1}}"
    return (
        f"{API}kind: ResourceSlice\nmetadata: {{name: {name}-slice}}\n"
        f"spec: {{driver: gpu.example.com, nodeName: {name}, pool: {pool}, devices: [{devices}]}}\n"
    )


def pod(name: str, source: str = "resourceClaimTemplateName: one", resources: str = "{}") -> str:
    claims = f"  resourceClaims: [{{name: c, {source}}}]\n" if source else ""
    return (
        f"apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\n"
        f"spec:\n{claims}  containers: [{{name: m, image: x, resources: {resources}}}]\n"
    )


def write_documents(path: Path, *documents: str) -> str:
    """Write the documents to a file and return its name."""
    file = path / "cluster.yaml"
    file.write_text("---\n".join(documents))
    return str(file)


def simulate_documents(path: Path, *documents: str) -> SimulationResult:
    return simulate(admit(read_cluster_files([write_documents(path, *documents)])))


def placements(result: SimulationResult) -> list[tuple[str, Verdict, str]]:
    return [(each.name, each.verdict, each.node or "") for each in result.pods]


def test_each_pod_has_a_claim_of_its_template(tmp_path: Path) -> None:
    """Two pods get the two devices of their claims, and the third pod is unschedulable."""
    result = simulate_documents(
        tmp_path, node("n"), slice_of("n", "{name: d0}, {name: d1}"), CLASS, TEMPLATE, *map(pod, ("a", "b", "x"))
    )
    assert placements(result) == [
        ("a", Verdict.PLACED, "n"),
        ("b", Verdict.PLACED, "n"),
        ("x", Verdict.UNSCHEDULABLE, ""),
    ]
    assert "cannot allocate all claims" in present(result.pods[2].reason)
    allocated = {
        each.status.reserved_for[0].name: each.status.allocation.devices.results[0].device
        for each in result.claims
        if each.status.allocation is not None
    }
    assert allocated == {"a": "d0", "b": "d1"}
    assert result.notices == ()


@table(
    "objects, verdict",
    ("device available", [CLASS, TEMPLATE, slice_of("n")], Verdict.PLACED),
    ("missing template", [CLASS, slice_of("n")], Verdict.GATED),
    ("missing class", [TEMPLATE, slice_of("n")], Verdict.UNSCHEDULABLE),
    ("no device", [CLASS, TEMPLATE], Verdict.UNSCHEDULABLE),
    ("device of another node", [CLASS, TEMPLATE, slice_of("m")], Verdict.UNSCHEDULABLE),
    ("tainted device", [CLASS, TEMPLATE, slice_of("n"), TAINT_RULE], Verdict.UNSCHEDULABLE),
    (
        "binding conditions are met",
        [CLASS, TEMPLATE, slice_of("n", "{name: d0, bindingConditions: [ready], bindingFailureConditions: [failed]}")],
        Verdict.PLACED,
    ),
)
def test_a_claim_requires_template_class_and_device(tmp_path: Path, objects: list[str], verdict: Verdict) -> None:
    """A pod is scheduled if its template, its class and an untainted device of the node exist."""
    assert simulate_documents(tmp_path, node("n"), *objects, pod("a")).pods[0].verdict is verdict


def test_devices_are_counted_by_node_and_driver(tmp_path: Path) -> None:
    """Devices of a node are in the row of the node, and devices of several nodes only in the total."""
    network = slice_of("shared", "{name: nic-0}, {name: nic-1}, {name: nic-2}").replace(
        "driver: gpu.example.com, nodeName: shared", "driver: nic.example.com, allNodes: true"
    )
    result = simulate_documents(
        tmp_path, node("m"), node("n"), slice_of("n", "{name: d0}, {name: d1}"), network, CLASS, TEMPLATE, pod("a")
    )
    assert result.packing.devices == {"gpu.example.com": DeviceUsage(1, 2), "nic.example.com": DeviceUsage(0, 3)}
    assert [each.devices for each in result.nodes] == [{}, {"gpu.example.com": DeviceUsage(1, 2)}]
    assert result.packing.largest_free["devices of gpu.example.com"] == 1
    document = msgspec.to_builtins(as_document(result))
    assert document["summary"]["devices"]["gpu.example.com"] == {
        "inUse": 1,
        "published": 2,
    }
    lines = [line.split() for line in as_table(result).splitlines()]
    assert ["devices", "of", "gpu.example.com", "1", "2", "50%", "1", "-"] in lines
    assert ["devices", "of", "nic.example.com", "0", "3", "0%", "-", "-"] in lines
    assert any(line[:1] == ["n"] and line[-4:] == ["devices", "of", "gpu.example.com", "1/2"] for line in lines)


def test_pods_share_a_claim_on_the_node_of_its_device(tmp_path: Path) -> None:
    """Two pods with one claim are scheduled to the node of its device and are in its reservedFor."""
    source = "resourceClaimName: shared"
    result = simulate_documents(
        tmp_path, node("m"), node("n"), slice_of("n"), CLASS, CLAIM, pod("a", source), pod("b", source)
    )
    assert placements(result) == [("a", Verdict.PLACED, "n"), ("b", Verdict.PLACED, "n")]
    assert [{each.name for each in claim.status.reserved_for} for claim in result.claims] == [{"a", "b"}]


def test_a_claim_is_created_for_an_extended_resource(tmp_path: Path) -> None:
    """A claim is created for a pod that requests the extended resource of a class."""
    class_with_resource = CLASS.replace("spec: {}", "spec: {extendedResourceName: example.com/gpu}")
    resources = '{requests: {example.com/gpu: "1"}, limits: {example.com/gpu: "1"}}'
    result = simulate_documents(
        tmp_path, node("n"), slice_of("n"), class_with_resource, *(pod(each, "", resources) for each in "ab")
    )
    assert [each.verdict for each in result.pods] == [Verdict.PLACED, Verdict.UNSCHEDULABLE]
    assert [each.metadata.owner_references[0].name for each in result.claims] == ["a"]


def test_an_explanation_counts_the_devices_of_other_pods(tmp_path: Path) -> None:
    """A device is free for the explained pod unless another pod is scheduled first."""
    files = [write_documents(tmp_path, node("n"), slice_of("n"), CLASS, TEMPLATE, pod("a"), pod("b"))]

    def is_feasible(name: str, *, others_placed: bool) -> bool:
        cluster = admit(read_cluster_files(files))
        explanation = from_files(cluster, PodName("default", name), SimulationOptions(), others_placed=others_placed)
        assert isinstance(explanation, Explanation)
        return explanation.node == "n"

    assert [is_feasible(each, others_placed=False) for each in "ab"] == [True, True]
    assert [is_feasible(each, others_placed=True) for each in "ab"] == [True, False]


def test_problems_name_the_object(tmp_path: Path) -> None:
    """The problems of an invalid quantity and of a duplicate claim name the object."""
    invalid = slice_of("n", "{name: D0}")
    with pytest.raises(ConfigError) as caught:
        simulate_documents(tmp_path, node("n"), invalid, CLAIM, CLAIM)
    where = [problem.path.partition("(")[2].partition(")")[0] for problem in caught.value.problems]
    assert where == ["ResourceSlice n-slice", "ResourceClaim default/shared"]


_LINKS = (
    "{name: d0, attributes: {link: {strings: [x, y]}}}, {name: d1, attributes: {link: {strings: [z]}}}, "
    "{name: d2, attributes: {link: {string: y}}}"
)
_AT = 'device.attributes["gpu.example.com"].link'


@table(
    "derived, gates, reason, devices",
    ("no-gate", "", {}, "cannot allocate all claims", []),
    ("lists", "", {"DRAListTypeAttributes": True}, "", ["d0", "d2"]),
    ("derived", f"size({_AT})", {}, "cannot handle request with derived attributes, the feature is disabled", []),
    ("derived-with-the-gate", f"size({_AT})", {"DRADerivedAttributes": True}, "", ["d1", "d2"]),
    ("derived-list", _AT, {"AllAlpha": True}, "", ["d0", "d2"]),
)
def test_gates_of_attributes(
    tmp_path: Path, derived: str, gates: dict[str, bool], reason: str, devices: list[str]
) -> None:
    """A simulation and an explanation compare device attributes with the configured feature gates."""
    name = "example.com/d" if derived else "gpu.example.com/link"
    more = f", derivedAttributes: [{{name: {name}, expression: '{derived}'}}]" if derived else ""
    exactly = f"{{deviceClassName: gpu, count: 2{more}}}"
    requests = (
        f"{{devices: {{requests: [{{name: r, exactly: {exactly}}}], constraints: [{{matchAttribute: {name}}}]}}}}"
    )
    template = f"{API}kind: ResourceClaimTemplate\nmetadata: {{name: one}}\nspec: {{spec: {requests}}}\n"
    file = write_documents(tmp_path, node("n"), slice_of("n", _LINKS), CLASS, template, pod("a"))
    options = SimulationOptions(gates=FeatureGates(gates))
    result = simulate(admit(read_cluster_files([file])), options)
    assert reason in (result.pods[0].reason or "")
    found = [each.status.allocation for each in result.claims if each.status.allocation is not None]
    assert [one.device for each in found for one in each.devices.results] == devices
    explanation = from_files(admit(read_cluster_files([file])), PodName("default", "a"), options, others_placed=False)
    assert isinstance(explanation, Explanation)
    assert explanation.node == ("n" if devices else None)
