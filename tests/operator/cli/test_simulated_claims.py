"""Tests of the output of ``bayplan simulate`` about claims that cannot be allocated."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from bayplan.cli import bayplan
from click.testing import CliRunner

from tests.support.tables import table

Document = dict[str, Any]
API = "resource.k8s.io/v1"
DRIVER = "gpu.example.com"


def node(name: str, models: list[str]) -> list[Document]:
    """Return a node and a ResourceSlice with one device of each model."""
    allocatable = {"cpu": "16", "memory": "64Gi", "pods": "110"}
    devices = [{"name": f"d{n}", "attributes": {"model": {"string": model}}} for n, model in enumerate(models)]
    pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
    return [
        {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "status": {"allocatable": allocatable}},
        {
            "apiVersion": API,
            "kind": "ResourceSlice",
            "metadata": {"name": f"{name}-slice"},
            "spec": {"driver": DRIVER, "nodeName": name, "pool": pool, "devices": devices},
        },
    ]


def template(name: str, model: str) -> Document:
    """Return a claim template for one device of a model."""
    selector = {"cel": {"expression": f'device.attributes["{DRIVER}"].model == "{model}"'}}
    request = {"name": "gpu", "exactly": {"deviceClassName": "gpu", "selectors": [selector]}}
    spec = {"spec": {"devices": {"requests": [request]}}}
    return {"apiVersion": API, "kind": "ResourceClaimTemplate", "metadata": {"name": name}, "spec": spec}


def pod(name: str, of: str, labels: dict[str, str] | None = None) -> Document:
    """Return a pod with a claim from a template."""
    spec = {
        "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": of}],
        "containers": [{"name": "main", "image": "x", "resources": {"requests": {"cpu": "1"}}}],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": labels or {}}, "spec": spec}


CLASS = {"apiVersion": API, "kind": "DeviceClass", "metadata": {"name": "gpu"}, "spec": {}}
CLUSTER = [
    CLASS,
    *node("n0", ["a100"]),
    *node("n1", ["l4", "l4"]),
    template("large", "a100"),
    template("other", "h100"),
]


def output_of(path: Path, objects: list[Document], *args: str) -> str:
    """Return the standard output of a command on a file with the objects."""
    file = path / "cluster.yaml"
    file.write_text(yaml.safe_dump_all(objects))
    result = CliRunner().invoke(bayplan, [args[0], *(["-f"] if args[0] == "explain" else []), str(file), *args[1:]])
    assert result.exit_code == 0, result.stderr
    return result.stdout


def test_claims_are_explained_as_by_explain(tmp_path: Path) -> None:
    """Equal pods are explained once, with the sections of ``bayplan explain`` for the first of them."""
    objects = [*CLUSTER, pod("a", "large"), pod("b", "large"), pod("c", "large"), pod("x", "other")]
    simulated = output_of(tmp_path, objects, "simulate")
    explained = output_of(tmp_path, objects, "explain", "--others-placed", "--pod", "default/b")
    start = explained.index("Resource claims\n")
    sections = explained[start : explained.index("\nNearest misses")].split("\n\n")
    assert "in use by claim default/a-gpu-" in explained
    assert "model is l4, must be a100" in explained
    assert len(sections) == 2
    lines = simulated.splitlines()
    at = lines.index("Why the claims of default/b and 1 equal pod cannot be allocated")
    expected = [line for section in sections for line in section.strip().splitlines()]
    assert lines[at + 1 : at + 1 + len(expected)] == expected
    assert "Why the claims of default/x cannot be allocated" in lines


@pytest.mark.parametrize("output", ["json", "yaml"])
def test_documents_have_the_explanations(tmp_path: Path, output: str) -> None:
    """Each group in the document has the document of ``bayplan explain``."""
    objects = [*CLUSTER, pod("a", "large"), pod("b", "large"), pod("c", "large")]
    text = output_of(tmp_path, objects, "simulate", "-o", output)
    claims = (json.loads(text) if output == "json" else yaml.safe_load(text))["claims"]
    explained = json.loads(
        output_of(tmp_path, objects, "explain", "--others-placed", "--pod", "default/b", "-o", "json")
    )
    assert (len(claims["groups"]), claims["groups"][0]["pods"], claims["omitted"]) == (1, 2, 0)
    assert claims["groups"][0]["explanation"]["devices"] == explained["devices"]


def test_a_gang_lacks_a_device_for_its_next_member(tmp_path: Path) -> None:
    """The nearest misses of a gang are those of the first member that lacks a device."""
    group = {
        "apiVersion": "bayplan.dev/v1alpha1",
        "kind": "PodGroup",
        "metadata": {"name": "g"},
        "spec": {"minMember": 2},
    }
    labels = {"bayplan.dev/pod-group": "g"}
    output = output_of(
        tmp_path, [*CLUSTER, group, pod("a", "large", labels), pod("b", "large", labels)], "simulate"
    ).splitlines()
    at = output.index("Why the claims of default/a and 1 equal pod cannot be allocated")
    assert output[at + 1] == "Nearest misses of default/b, with the members before it placed"
    assert any("request gpu: device n0/d0: in use by claim default/a-gpu-" in line for line in output[at:])


def test_pods_without_unallocatable_claims_are_not_explained(tmp_path: Path) -> None:
    """A gated pod and a pod that lacks CPU are not explained."""
    large = pod("large", "large")
    large["spec"] = {"containers": [{"name": "main", "image": "x", "resources": {"requests": {"cpu": "64"}}}]}
    assert "Why the claims" not in output_of(tmp_path, [*CLUSTER, pod("gated", "missing"), large], "simulate")


def test_many_different_claims_are_counted(tmp_path: Path) -> None:
    """The table has 5 groups and the HTML report 20; both have the number of the others."""
    models = [f"m{n:02d}" for n in range(23)]
    objects = [CLASS, *node("n0", ["a100"]), *(template(model, model) for model in models)]
    objects += [pod(f"pod-{model}", model) for model in models]
    beyond = "the claims of 3 more pods are explained by: bayplan explain -f"
    table = output_of(tmp_path, objects, "simulate")
    assert table.count("Why the claims of") == 5
    assert {beyond, "the claims of 15 more pods are explained in -o json and -o html"} <= set(table.splitlines())
    page = output_of(tmp_path, objects, "simulate", "-o", "html")
    assert page.count("<h3>Why the claims of") == 20
    assert f'<p class="dim">{beyond}</p>' in page
    assert "in -o json" not in page


def test_untrusted_text_is_escaped(tmp_path: Path) -> None:
    """Control characters in an attribute are escaped."""
    hostile = "\x1b[2Jx\nFORGED"
    objects = [CLASS, *node("n0", [hostile]), template("large", "a100"), pod("a", "large")]
    output = output_of(tmp_path, objects, "simulate")
    assert "FORGED" in output
    assert "\x1b" not in output
    assert not any(line.startswith("FORGED") for line in output.splitlines())


@table("options, node_name", ("off", [], None), ("on", ["--feature-gates", "DRAOptionalNodeOperations=true"], "n1"))
@pytest.mark.parametrize("command", ["simulate", "explain", "diff"])
def test_feature_gates(tmp_path: Path, command: str, options: list[str], node_name: str | None) -> None:
    """The commands pass feature gates to the scheduler."""
    documents = [CLASS, *node("n0", ["a100"]), *node("n1", ["a100"]), template("large", "a100"), pod("p", "large")]
    for each in documents:
        if each["kind"] == "ResourceSlice":
            each["spec"]["skipNodeOperations"] = ["*"]
        elif each["kind"] == "Node" and each["metadata"]["name"] == "n1":
            each["status"]["declaredFeatures"] = ["DRAOptionalNodeOperations"]
    profile = {
        "apiVersion": "bayplan.dev/v1alpha1",
        "kind": "SchedulerProfile",
        "metadata": {"name": "own"},
        "spec": {"schedulerName": "default-scheduler"},
    }
    file = tmp_path / "cluster.yaml"
    file.write_text(yaml.safe_dump_all([*documents, profile]))
    arguments = {
        "simulate": [str(file)],
        "explain": ["-f", str(file), "p"],
        "diff": ["own", "own", "--cluster", str(file)],
    }
    result = CliRunner().invoke(bayplan, [command, *arguments[command], *options, "-o", "json"])
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    if command == "diff":
        assert [found[side]["scheduled"] for side in ("before", "after")] == [int(node_name is not None)] * 2
    else:
        assert (found["pods"][0] if command == "simulate" else found)["node"] == node_name
