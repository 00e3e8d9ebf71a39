"""Helm 3 and 4 for the tests of the chart, and a control plane with the definitions of every kind in the chart.

``tests/conftest.py`` explains why the binaries are looked for between collection and the first test.
"""

import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from hack.controlplane import binaries, monitoring
from hack.controlplane.launcher import ControlPlane
from hack.controlplane.schedulers import await_definitions

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "charts" / "bayplan"
LINES = {"helm3": "Helm 3", "helm": "Helm 4"}
"""Name of each Helm release line, by its binary."""

SERVED = ("--api-versions=bayplan.dev/v1alpha1/SchedulerProfile",)
"""Flags for a cluster that serves Bayplan's kinds; without them Helm renders a first installation."""

_ADDITIONAL = (
    ".bayplan.dev",
    "-test",
    "-dashboards",
    "-metrics-reader",
    "-page-reader",
    "-view",
    "-edit-podgroups",
    "-request-fits",
    "-admin-profiles",
    "-read-revisions",
    "-webhook",
)
_PROBLEM = pytest.StashKey[str]()


@dataclass(frozen=True, slots=True)
class Helm:
    """Helm with its own home directory.

    Args:
        program: The executable.
        home: Directory for Helm's files.
    """

    program: Path
    home: Path
    _rendered: dict[tuple[str, ...], str] = field(default_factory=dict)

    def run(self, *args: str, kubeconfig: Path | None = None) -> subprocess.CompletedProcess[str]:
        """Run Helm, whatever its exit code."""
        # Helm ends before Go's garbage collection would be worth its cost.
        environment = {"HOME": str(self.home), "PATH": os.defpath, "GOGC": "off"}
        if kubeconfig is not None:
            environment["KUBECONFIG"] = str(kubeconfig)
        return subprocess.run(
            [self.program, *args], capture_output=True, text=True, env=environment, timeout=120, check=False
        )

    def template(self, values: Mapping[str, Any], namespace: str = "default", flags: Sequence[str] = SERVED) -> str:
        """Return the chart's manifests as one YAML stream; equal inputs are rendered once."""
        inputs = (yaml.safe_dump(dict(values)), namespace, *flags)
        if inputs not in self._rendered:
            answer = self.refused_or_rendered(values, namespace, flags)
            assert answer.returncode == 0, answer.stderr
            self._rendered[inputs] = answer.stdout
        return self._rendered[inputs]

    def documents(
        self, values: Mapping[str, Any], namespace: str = "default", flags: Sequence[str] = SERVED
    ) -> dict[str, dict[str, Any]]:
        """Return the chart's manifests by kind, without objects whose names end with a suffix of _ADDITIONAL."""
        rendered = yaml.safe_load_all(self.template(values, namespace, flags))
        documents = [one for one in rendered if one and not one["metadata"]["name"].endswith(_ADDITIONAL)]
        by_kind = {str(document["kind"]): document for document in documents}
        assert len(by_kind) == len(documents)
        return by_kind

    def refused_or_rendered(
        self, values: Mapping[str, Any], namespace: str = "default", flags: Sequence[str] = SERVED
    ) -> subprocess.CompletedProcess[str]:
        """Return the result of `helm template` for some values."""
        file = self.home / "values.yaml"
        file.write_text(yaml.safe_dump(dict(values)))
        arguments = (f"--namespace={namespace}", f"--values={file}", *flags)
        return self.run("template", "release", str(CHART), *arguments)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Find or build Helm, and the Prometheus operator's definitions, if a collected test needs them."""
    used = {name for item in session.items for name in getattr(item, "fixturenames", ())}
    if not used & {"helm", "helm3", "each_helm"} or session.config.option.collectonly:
        return
    capture = session.config.pluginmanager.getplugin("capturemanager")
    try:
        with capture.global_and_fixture_disabled():
            binaries.resolve(list(LINES))
            monitoring.definitions()
    except binaries.MissingBinary as problem:
        session.config.stash[_PROBLEM] = str(problem)


@pytest.fixture(scope="session")
def helm(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Helm:
    """Return Helm 4; a test without it is skipped, and fails in CI."""
    return _helm("helm", request, tmp_path_factory)


@pytest.fixture(scope="session")
def helm3(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Helm:
    """Return Helm 3, for comparisons with Helm 4."""
    return _helm("helm3", request, tmp_path_factory)


@pytest.fixture(scope="session", params=[pytest.param(name, id=line) for name, line in LINES.items()])
def each_helm(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Helm:
    """Return Helm 3, then Helm 4."""
    return _helm(request.param, request, tmp_path_factory)


@pytest.fixture(scope="session")
def chart_plane(control_plane: ControlPlane) -> ControlPlane:
    """Return the session's control plane with the definitions of Bayplan and of the Prometheus operator."""
    given = [f"--filename={ROOT / 'crds'}"]
    given += [f"--filename={monitoring.definitions() / name}" for name in monitoring.DEFINITIONS]
    control_plane.kubectl("apply", "--server-side", "--force-conflicts", *given)
    await_definitions(control_plane)
    return control_plane


def _helm(name: str, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Helm:
    problem = request.config.stash.get(_PROBLEM, None)
    if problem is not None:
        if os.environ.get("CI"):
            pytest.fail(problem, pytrace=False)
        pytest.skip(problem)
    return Helm(binaries.resolve([name])[name], tmp_path_factory.mktemp(name))
