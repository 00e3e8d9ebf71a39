"""Law: files are accepted and rejected as by the API server, for near-valid objects of every kind that is read.

``kubectl apply --dry-run=server`` sends the same request: POST with ``dryRun=All`` and ``fieldValidation=Strict``.
"""

from __future__ import annotations

import json
import random
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from bayplan.api_validation.object_validation import ObjectValidation
from bayplan.api_validation.strict_decoding import kubernetes_schema
from bayplan.cli import bayplan
from bayplan.simulation.cluster_files import kubernetes_kinds
from click.testing import CliRunner

from hack.controlplane.api_client import ApiClient
from hack.controlplane.launcher import ControlPlane
from hack.kubernetes_schema import complete_options, read_document, reduced_schema
from tests.support.mutated_objects import mutated_object, valid_objects

pytestmark = [pytest.mark.cluster, pytest.mark.reference]
_FORBIDDEN, _CONFLICT = 403, 409


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    """Run an API server that serves every version that is read."""
    with ControlPlane(complete_options()) as plane:
        for version in {version for version, _ in kubernetes_kinds()}:
            read_document(plane, version)
        yield plane


@pytest.fixture(scope="module")
def api(plane: ControlPlane) -> Iterator[ApiClient]:
    """Open a client of that API server."""
    with ApiClient(plane) as api:
        yield api


def disagreements(api: ApiClient, seed: str, count: int) -> tuple[list[str], Counter[str]]:
    """Generate objects; return those on which the API server disagrees, and the numbers of its answers.

    Answers of admission plugins, which see only the cluster, are not compared.
    """
    validation = ObjectValidation()
    found, answers = [], Counter[str]()
    for number in range(count):
        body = mutated_object(random.Random(f"{seed}-{number}"))
        status, message = api.would_create(body)
        if status in (_FORBIDDEN, _CONFLICT):
            answers["admission"] += 1
            continue
        accepted = status < 400
        answers["accepted" if accepted else "rejected"] += 1
        problems = validation.problems(body)
        if accepted != (not problems):
            ours = "; ".join(map(str, problems)) or "no problem"
            found.append(f"{seed}-{number} {body['kind']}: API server {status} {message}; here {ours}")
    return found, answers


def test_the_schema_is_that_of_the_api_server(plane: ControlPlane) -> None:
    """The packaged schema equals that of the API server; `python -m hack.kubernetes_schema` writes it."""
    served = reduced_schema(kubernetes_kinds(), lambda version: read_document(plane, version))
    assert served["types"] == kubernetes_schema().types
    assert served["served"] == kubernetes_schema().served


@pytest.mark.parametrize(
    "body", [pytest.param(each, id=f"{each['kind']}-{n}") for n, each in enumerate(valid_objects())]
)
def test_the_bases_are_valid(api: ApiClient, body: dict[str, Any]) -> None:
    """The objects that are mutated are accepted by both."""
    assert api.would_create(body) == (201, "")
    assert ObjectValidation().problems(body) == ()


def test_the_api_server_agrees(api: ApiClient) -> None:
    """Both accept or both reject each of 400 objects, and each does so for at least a quarter of them."""
    found, answers = disagreements(api, "law", 400)
    assert found == []
    assert min(answers["accepted"], answers["rejected"]) > 100, answers


POD = """apiVersion: v1
kind: Pod
metadata: {name: p, labels: {LABEL}}
spec:
  terminationGracePeriodSeconds: SECONDS
  hostIPC: FLAG
  containers: [{name: c, image: x, resources: {requests: {cpu: CPU}}}]
"""


def pod_text(label: str = "a: x", seconds: str = "5", flag: str = "false", cpu: str = "1") -> str:
    return POD.replace("LABEL", label).replace("SECONDS", seconds).replace("FLAG", flag).replace("CPU", cpu)


_SCALARS = (
    *("~", "yes", "on", "off", "True", "TRUE", "tRUE", '"true"', "null", "=", "!x 5a"),
    *("05", "08", "010", "0777", "0x5", "0o5", "0b11", "1_0", "+5", "-0", "1:30", "99999999999999999999"),
    *("5.0", "5e0", "1e1", "5.5", ".5", "5.", ".5e1", "1e400", ".inf", ".nan", "1Gi"),
    *("!!str 5", '!!int "5"', "!!binary eA==", "2020-01-01", "2020-01-01T00:00:00Z"),
)
TEXTS = {
    **{f"seconds: {value}": pod_text(seconds=value) for value in _SCALARS},
    **{f"flag: {value}": pod_text(flag=value) for value in _SCALARS},
    **{f"cpu: {value}": pod_text(cpu=value) for value in _SCALARS},
    **{f"label: {value}": pod_text(label=f"a: {value}") for value in _SCALARS},
    **{
        f"{key}: x": pod_text(label=f"{key}: x") for key in ("5", "1.0", "1.5", "yes", "true", "~", "2020-01-01", "'5'")
    },
    "merged mapping": pod_text(label="<<: {b: z}, a: x"),
    "anchors": pod_text(label="a: &v x, b: *v"),
    "several documents": "---\n---\n" + pod_text() + "---\n# nothing\n---\n" + pod_text().replace("name: p", "name: q"),
    "end of document": f"{pod_text()}...\n",
    "list": f"apiVersion: v1\nkind: List\nitems:\n- {json.dumps(valid_objects()[0])}\n",
    "list of another version": f"apiVersion: v2\nkind: List\nitems:\n- {json.dumps(valid_objects()[0])}\n",
    "list without version": f"kind: List\nitems:\n- {json.dumps(valid_objects()[0])}\n",
    "JSON objects": f"{json.dumps(valid_objects()[0])}\n{json.dumps(valid_objects()[2])}",
    "JSON objects in one line": f"{json.dumps(valid_objects()[0])}{json.dumps(valid_objects()[2])}",
    "JSON and more": f"{json.dumps(valid_objects()[0])} x",
    "JSON with a comma": f"{json.dumps(valid_objects()[0])[:-1]},}}",
    "carriage returns": pod_text().replace("\n", "\r\n"),
    "byte order mark": f"\ufeff{pod_text()}",
}


_NAME = "name: p,"


@pytest.fixture(scope="module")
def accepted(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """Return the texts that kubectl accepts.

    One process reads all texts of one pod, because it continues after an error and prints the name of what it accepts;
    each other text has a process of its own.
    """
    directory = tmp_path_factory.mktemp("texts")
    names = {f"p-{number}": text for number, text in enumerate(TEXTS.values())}
    of_one_pod = {name: text for name, text in names.items() if text.count(_NAME) == text.count("kind: ") == 1}
    for name, text in names.items():
        (directory / name).with_suffix(".yaml").write_text(
            text.replace(_NAME, f"name: {name},") if name in of_one_pod else text
        )
    printed = _printed(plane, *(directory / f"{name}.yaml" for name in of_one_pod))[1].split()
    found = {text for name, text in of_one_pod.items() if f"pod/{name}" in printed}
    others = names.keys() - of_one_pod.keys()
    return found | {names[name] for name in others if _printed(plane, directory / f"{name}.yaml")[0] == 0}


def _printed(plane: ControlPlane, *files: Path) -> tuple[int, str]:
    """Create what is in some files, in a dry run; return the exit code and the output."""
    cluster = (f"--kubeconfig={plane.kubeconfig}", f"--cache-dir={plane.state_dir / 'kubectl'}")
    command = ("create", "--dry-run=server", "--validate=strict", *(f"--filename={file}" for file in files))
    outcome = subprocess.run(
        (str(plane.binary("kubectl")), *cluster, *command), capture_output=True, text=True, check=False
    )
    return outcome.returncode, outcome.stdout


@pytest.mark.parametrize("text", [pytest.param(text, id=name) for name, text in TEXTS.items()])
def test_kubectl_agrees_on_text(accepted: set[str], tmp_path: Path, text: str) -> None:
    """Numbers, keys, documents and lists are read as by kubectl, by both readers of manifests."""
    file = tmp_path / "manifest.yaml"
    file.write_text(text)
    for command in (["validate"], ["simulate"]):
        found = CliRunner().invoke(bayplan, [*command, str(file)])
        assert (found.exit_code == 0) is (text in accepted), (command, found.output)


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(5))
def test_the_api_server_agrees_on_more_objects(api: ApiClient, seed: int) -> None:
    """Both accept or both reject each of 2,000 objects of another seed."""
    found, _ = disagreements(api, f"night-{seed}", 2000)
    assert found == []
