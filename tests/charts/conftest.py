"""Helm for the tests of the chart.

Owns how Helm is called and what happens where it cannot be had. It must not know the chart's values. Why the binary is
looked for between collection and the first test: see ``tests/conftest.py``.
"""

import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from hack.controlplane import binaries

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "charts" / "bayplan"

_PROBLEM = pytest.StashKey[str]()


@dataclass(frozen=True, slots=True)
class Helm:
    """Calls Helm, with a home of its own.

    Args:
        program: The executable.
        home: Directory that takes what it keeps.
    """

    program: Path
    home: Path

    def run(self, *args: str) -> subprocess.CompletedProcess[str]:
        """Call it, whatever it answers."""
        environment = {"HOME": str(self.home), "PATH": os.defpath}
        return subprocess.run(
            [self.program, *args], capture_output=True, text=True, env=environment, timeout=60, check=False
        )

    def template(self, values: Mapping[str, Any], namespace: str = "default", flags: Sequence[str] = ()) -> str:
        """The chart's manifests as one YAML stream, its custom resource definitions left out."""
        answer = self.refused_or_rendered(values, namespace, flags)
        assert answer.returncode == 0, answer.stderr
        return answer.stdout

    def documents(self, values: Mapping[str, Any], namespace: str = "default") -> dict[str, dict[str, Any]]:
        """The chart's manifests by kind."""
        documents = [document for document in yaml.safe_load_all(self.template(values, namespace)) if document]
        by_kind = {str(document["kind"]): document for document in documents}
        assert len(by_kind) == len(documents)
        return by_kind

    def refused_or_rendered(
        self, values: Mapping[str, Any], namespace: str = "default", flags: Sequence[str] = ()
    ) -> subprocess.CompletedProcess[str]:
        """What `helm template` says to some values."""
        file = self.home / "values.yaml"
        file.write_text(yaml.safe_dump(dict(values)))
        return self.run("template", "release", str(CHART), f"--namespace={namespace}", f"--values={file}", *flags)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Find or build Helm when a collected test needs it."""
    needed = any("helm" in getattr(item, "fixturenames", ()) for item in session.items)
    if not needed or session.config.option.collectonly:
        return
    capture = session.config.pluginmanager.getplugin("capturemanager")
    try:
        with capture.global_and_fixture_disabled():
            binaries.resolve(["helm"])
    except binaries.MissingBinary as problem:
        session.config.stash[_PROBLEM] = str(problem)


@pytest.fixture(scope="session")
def helm(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Helm:
    """Helm 4; a test without it is skipped, and fails in CI."""
    problem = request.config.stash.get(_PROBLEM, None)
    if problem is not None:
        if os.environ.get("CI"):
            pytest.fail(problem, pytrace=False)
        pytest.skip(problem)
    return Helm(binaries.resolve(["helm"])["helm"], tmp_path_factory.mktemp("helm"))
