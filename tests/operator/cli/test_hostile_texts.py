"""Tests that untrusted text in the output of commands cannot control the terminal or forge a line."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from bayplan.cli import bayplan
from bayplan.profiles.rollback import PROFILES
from bayplan.texts.document_formats import printable
from click.testing import CliRunner, Result

from tests.support.fake_api import FakeApi, Response
from tests.support.manifests import write_kubeconfig
from tests.support.tables import table

HOSTILE = "a\x1b[2J\x1b]0;owned\x07\x7f\x9b31m\u202eb\u2028\rc\nFORGED"
RESERVATIONS = "/apis/bayplan.dev/v1alpha1/nodereservations"
REVISIONS = "/apis/apps/v1/controllerrevisions"
POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": HOSTILE, "labels": {HOSTILE: HOSTILE}},
    "spec": {"schedulerName": HOSTILE, "nodeSelector": {HOSTILE: HOSTILE}, "containers": [{"name": "c", "image": "i"}]},
}
NODE = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": HOSTILE}, "status": {"allocatable": {"cpu": "1"}}}
PROFILE = {
    "apiVersion": "bayplan.dev/v1alpha1",
    "kind": "SchedulerProfile",
    "metadata": {"name": HOSTILE},
    "spec": {HOSTILE: HOSTILE, "schedulerName": HOSTILE, "plugins": {"filter": {"enabled": [{"name": HOSTILE}]}}},
}
CONFIGURATION = {
    "apiVersion": "kubescheduler.config.k8s.io/v1",
    "kind": "KubeSchedulerConfiguration",
    "leaderElection": {"leaderElect": True, "resourceName": HOSTILE, "resourceNamespace": HOSTILE},
    "clientConnection": {"kubeconfig": HOSTILE},
    "profiles": [{"schedulerName": "a"}],
}
BROKEN = '{"kind": "Pod", "metadata": {"name": "\x1b[2J", '


def is_safe(result: Result) -> bool:
    """Return whether the output has no control characters and no forged line."""
    output = result.stdout + result.stderr
    return printable(output) == output and not any(line.startswith("FORGED") for line in output.splitlines())


@table(
    "args, given, expected",
    ("simulate", ["simulate", "-"], [POD, NODE], "FORGED"),
    ("simulate as JSON", ["simulate", "-o", "json", "-"], [POD, NODE], "FORGED"),
    ("simulate as YAML", ["simulate", "-o", "yaml", "-"], [POD, NODE], "FORGED"),
    ("simulate, rejected", ["simulate", "-"], [PROFILE], "FORGED"),
    ("validate", ["validate", "-"], [PROFILE, CONFIGURATION], "FORGED"),
    ("validate as JSON", ["validate", "-o", "json", "-"], [PROFILE, CONFIGURATION], "FORGED"),
    ("explain", ["explain", "-f", "-", HOSTILE], [POD, NODE], "FORGED"),
    ("explain as YAML", ["explain", "-f", "-", "-o", "yaml", HOSTILE], [POD, NODE], "FORGED"),
)
def test_texts_in_files(args: list[str], given: list[dict[str, Any]], expected: str) -> None:
    """Control characters in names, fields and values of manifests are escaped."""
    text = json.dumps(given[0]) if len(given) == 1 else "---\n".join(yaml.safe_dump(each) for each in given)
    result = CliRunner().invoke(bayplan, args, input=text)
    assert expected in result.stdout + result.stderr
    assert is_safe(result), result.output


@pytest.mark.parametrize("command", ["simulate", "validate"])
def test_an_unreadable_file_is_quoted_escaped(command: str) -> None:
    """An error that quotes an unreadable file escapes control characters."""
    result = CliRunner().invoke(bayplan, [command, "-"], input=BROKEN)
    assert result.exit_code != 0
    assert is_safe(result), result.output


@pytest.mark.parametrize("file", ["kube.yaml", "kube\nkind: Secret\x1b[2J.yaml"])
def test_imported_manifests(tmp_path: Path, file: str) -> None:
    """Line breaks in comments are escaped, so the manifests are only those of the profiles."""
    (tmp_path / file).write_text(yaml.safe_dump(CONFIGURATION))
    result = CliRunner().invoke(bayplan, ["import-config", str(tmp_path / file)])
    assert result.exit_code == 0, result.output
    assert is_safe(result), result.output
    documents = [one for one in yaml.safe_load_all(result.stdout) if one]
    assert [one["kind"] for one in documents] == ["SchedulerProfile"]
    assert "FORGED" in result.stdout


@pytest.fixture
async def api() -> AsyncIterator[FakeApi]:
    """Yield an API server with a profile of hostile text and two revisions of it."""
    spec = {"plugins": {"filter": {"disabled": [{"name": HOSTILE}]}}}
    status = {"conditions": [{"type": "Ready", "status": "True", "message": HOSTILE}], "activeRevision": HOSTILE}
    metadata = {"name": "batch", "uid": "u", "generation": 1, "resourceVersion": "1"}
    owner = {"kind": "SchedulerProfile", "name": "batch", "uid": "u"}
    revisions = [
        {
            "metadata": {
                "name": f"batch-{number}",
                "namespace": "ops",
                "ownerReferences": [owner],
                "annotations": {"kubernetes.io/change-cause": HOSTILE, "bayplan.dev/manager": HOSTILE},
            },
            "revision": number,
            "data": {
                "revision": HOSTILE,
                "profile": {"schedulerName": "batch", "percentageOfNodesToScore": number},
                "spec": {"percentageOfNodesToScore": number, HOSTILE: HOSTILE},
            },
        }
        for number in (1, 2)
    ]
    async with FakeApi() as made:
        made.on("GET", f"{PROFILES}/batch", Response(body={"metadata": metadata, "spec": spec, "status": status}))
        made.on("GET", REVISIONS, Response(body={"items": revisions}))
        reserved = {"metadata": {"name": HOSTILE}, "spec": {HOSTILE: 1}}
        made.on("GET", RESERVATIONS, Response(body={"metadata": {"resourceVersion": "1"}, "items": [reserved]}))
        yield made


@table(
    "args",
    ("history", ["history", "batch"]),
    ("history as JSON", ["history", "batch", "-o", "json"]),
    ("history as YAML", ["history", "batch", "-o", "yaml"]),
    ("one revision", ["history", "batch", "--revision", "1"]),
    ("two revisions", ["history", "batch", "--diff", "1", "2"]),
    ("rollback", ["rollback", "batch", "--to-revision", "1", "--dry-run"]),
    ("reservations", ["reserve"]),
    ("reservations as YAML", ["reserve", "-o", "yaml"]),
)
async def test_texts_in_the_cluster(api: FakeApi, tmp_path: Path, args: list[str]) -> None:
    """Control characters in objects of the cluster are escaped."""
    kubeconfig = write_kubeconfig(tmp_path / "kubeconfig", api.base_url)
    result = await asyncio.to_thread(CliRunner().invoke, bayplan, [*args, f"--kubeconfig={kubeconfig}"])
    assert "FORGED" in result.stdout + result.stderr, result.output
    assert is_safe(result), result.output
