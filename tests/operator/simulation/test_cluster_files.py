"""Tests of reading clusters from files."""

import io
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from bayplan.simulation.admission import admit
from bayplan.simulation.cluster_files import Place, decoding_problem, read_cluster_files

from scheduler_core.errors import ConfigError
from scheduler_core.model.pod import Pod
from tests.support.tables import table

NODE = "apiVersion: v1\nkind: Node\nmetadata: {name: a}\n"
POD = "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\n"
SPEC = "spec: {containers: [{name: c, image: x}]}\n"


def write_file(path: Path, text: str, name: str = "cluster.yaml") -> str:
    file = path / name
    file.write_text(text, encoding="utf-8")
    return str(file)


def problems_of(path: Path, text: str) -> list[str]:
    """Return the problems of a file, without the path of its directory."""
    with pytest.raises(ConfigError) as caught:
        admit(read_cluster_files([write_file(path, text)]))
    return [str(problem).replace(f"{path}/", "") for problem in caught.value.problems]


@table(
    "text",
    ("documents", f"{NODE}---\n{POD}"),
    ("empty documents", f"---\n# nothing\n---\n{NODE}---\n{POD}---\n"),
    (
        "List",
        (
            "apiVersion: v1\nkind: List\nitems:\n"
            "- {apiVersion: v1, kind: Node, metadata: {name: a}}\n- {apiVersion: v1, kind: Pod, metadata: {name: p}}\n"
        ),
    ),
    (
        "typed lists, whose items have no kind",
        (
            "apiVersion: v1\nkind: NodeList\nitems: [{metadata: {name: a}}]\n---\n"
            "apiVersion: v1\nkind: PodList\nitems: [{metadata: {name: p}}]\n"
        ),
    ),
    (
        "JSON",
        (
            '{"apiVersion": "v1", "kind": "List", "items": [{"apiVersion": "v1", "kind": "Node", "metadata": '
            '{"name": "a"}}, {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}}]}'
        ),
    ),
    (
        "JSON documents",
        (
            '{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a"}}\n---\n'
            '{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}}'
        ),
    ),
    ("nulls", f"{NODE}spec: null\nstatus: {{images: null}}\n---\n{POD}spec: {{affinity: null, nodeName: null}}\n"),
)
def test_every_form_is_read(tmp_path: Path, text: str) -> None:
    """Documents, lists and JSON contain the same objects."""
    files = read_cluster_files([write_file(tmp_path, text)])
    assert [placed.object.metadata.name for placed in files.nodes] == ["a"]
    assert [placed.object.metadata.name for placed in files.pods] == ["p"]
    assert files.notices == []


def test_standard_input_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """A dash means standard input."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(NODE.encode())))
    (node,) = read_cluster_files(["-"]).nodes
    assert node.place == Place("standard input", 1)


def test_dates_are_text(tmp_path: Path) -> None:
    """A label that looks like a date is text, as in kubectl."""
    text = "apiVersion: v1\nkind: Node\nmetadata:\n  name: a\n  labels: {since: 2026-01-31}\n"
    (node,) = read_cluster_files([write_file(tmp_path, text)]).nodes
    assert node.object.metadata.labels == {"since": "2026-01-31"}


def test_profiles_and_configurations_are_stored(tmp_path: Path) -> None:
    """Profiles, plugin configs and kube-scheduler configurations are stored as written."""
    text = (
        "apiVersion: bayplan.dev/v1alpha1\nkind: SchedulerProfile\nmetadata: {name: sp}\nspec: {}\n---\n"
        "apiVersion: bayplan.dev/v1alpha1\nkind: PluginConfig\nmetadata: {name: plc}\n---\n"
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
    )
    files = read_cluster_files([write_file(tmp_path, text)])
    assert files.profiles[0].object["metadata"] == {"name": "sp"}
    assert files.plugin_configs[0].place.document == 2
    assert files.configurations[0].place.document == 3


@table(
    "text, notices",
    (
        "two objects of a kind",
        (
            "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: d}\n---\n"
            "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: e}\n"
        ),
        ["2 objects of kind Deployment are ignored; only nodes, pods and objects that affect scheduling are read"],
    ),
    (
        "a kind of another API",
        "apiVersion: serving.knative.dev/v1\nkind: Service\nmetadata: {name: d}\n",
        ["1 Service is ignored; only nodes, pods and objects that affect scheduling are read"],
    ),
)
def test_ignored_objects_are_reported(tmp_path: Path, text: str, notices: list[str]) -> None:
    """Each ignored kind has one notice."""
    assert read_cluster_files([write_file(tmp_path, text)]).notices == notices


@table(
    "text, problems",
    (
        "number for text",
        f"{NODE}---\n{POD}{SPEC}".replace("{name: p}", "{name: p, namespace: shop, labels: {gen: 10}}"),
        [("cluster.yaml, document 2 (Pod shop/p): metadata.labels[gen]: must be text, not 10; put it in quotes")],
    ),
    (
        "missing field in a list",
        (
            "apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: Node, metadata: {name: a}}\n"
            "- {apiVersion: v1, kind: Node, metadata: {name: b}, spec: {taints: [{key: k}]}}\n"
        ),
        ["cluster.yaml, document 1, item 2 (Node b): spec.taints[0].effect: Required value: add it"],
    ),
    (
        "mapping for a list",
        f"{POD}spec: {{containers: {{name: main}}}}\n",
        [("cluster.yaml, document 1 (Pod p): spec.containers: must be a list, not a mapping; begin each entry with -")],
    ),
    (
        "no metadata",
        f"apiVersion: v1\nkind: Pod\n{SPEC}",
        ["cluster.yaml, document 1 (Pod): metadata.name: Required value: name or generateName is required"],
    ),
    (
        "no name",
        "apiVersion: bayplan.dev/v1alpha1\nkind: SchedulerProfile\nspec: {}\n",
        [
            (
                "cluster.yaml, document 1 (SchedulerProfile): metadata.name: Required value: name or generateName "
                "is required"
            )
        ],
    ),
    (
        "not objects",
        "just a text\n---\n- a list\n",
        [
            "cluster.yaml, document 1: is not a Kubernetes object; give it apiVersion, kind and metadata",
            "cluster.yaml, document 2: is not a Kubernetes object; give it apiVersion, kind and metadata",
        ],
    ),
    (
        "invalid YAML",
        "kind: Pod\nmetadata: {name: [\n",
        ["cluster.yaml, line 3, column 1: is not YAML: did not find expected node content; correct it"],
    ),
)
def test_a_problem_has_its_place(tmp_path: Path, text: str, problems: list[str]) -> None:
    """A problem names the file, document, object and field, and the remedy."""
    assert problems_of(tmp_path, text) == problems


def test_problems_of_all_files_are_reported(tmp_path: Path) -> None:
    """An unreadable file does not hide the problems of the next file."""
    bad = write_file(tmp_path, "kind: 1\n")
    with pytest.raises(ConfigError) as caught:
        read_cluster_files([str(tmp_path / "gone.yaml"), bad])
    paths = [problem.path.replace(f"{tmp_path}/", "") for problem in caught.value.problems]
    assert paths == ["gone.yaml", "cluster.yaml, document 1"]


@table(
    "body, problem",
    (
        "boolean for text",
        {"metadata": {"name": True}},
        "metadata.name: must be text, not true or false; put it in quotes",
    ),
    (
        "text for an optional number",
        {"metadata": {"name": "p"}, "spec": {"priority": "5"}},
        "spec.priority: must be a whole number or null, not text; remove the quotes",
    ),
    (
        "text for a boolean",
        {"metadata": {"name": "p"}, "spec": {"hostNetwork": "true"}},
        "spec.hostNetwork: must be true or false, not text; remove the quotes",
    ),
    ("missing field", {"metadata": {}}, "metadata.name: is required; add it"),
    ("missing top-level field", {}, "metadata: is required; add it"),
    (
        "value of a mapping",
        {"metadata": {"name": "p"}, "spec": {"nodeSelector": {"disk": "ssd", "gen": 7}}},
        "spec.nodeSelector[gen]: must be text, not a whole number; put it in quotes",
    ),
    (
        "value of several types",
        {"metadata": {"name": "p"}, "spec": {"containers": [{"resources": {"requests": {"cpu": [1]}}}]}},
        (
            "spec.containers[0].resources.requests[cpu]: must be a whole number or a number or text, not a list; "
            "correct it"
        ),
    ),
    (
        "invalid time",
        {"metadata": {"name": "p", "creationTimestamp": "yesterday"}},
        "metadata.creationTimestamp: invalid RFC3339 encoded datetime; correct it",
    ),
)
def test_a_problem_has_field_error_and_remedy(body: dict[str, Any], problem: str) -> None:
    """A problem has the path of the field, the error and the remedy."""
    with pytest.raises(msgspec.ValidationError) as caught:
        msgspec.convert(body, Pod)
    assert str(decoding_problem(caught.value, body)) == problem
