"""The example plugins are installed in a separate environment, enabled by name, and schedule a pod.

The commands are those of docs/write-a-plugin.md. The locked dependencies of this environment are used, so that only a
build backend comes from the package index; Bayplan and the plugins are built and installed.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from hack.controlplane.launcher import ControlPlane, ControlPlaneError
from hack.controlplane.probes import LOOPBACK, free_port

ROOT = Path(__file__).resolve().parents[2]
DOCUMENT = (ROOT / "docs" / "write-a-plugin.md").read_text()
_ENVIRONMENT = {"PATH": os.defpath, "HOME": "/nonexistent"}
MANIFESTS = "examples/plugins/manifests"


def _documented(command: str) -> list[str]:
    """Return the words of a command; the document must show the command."""
    assert f"\n{command}\n" in DOCUMENT, f"docs/write-a-plugin.md does not show: {command}"
    return command.split()


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install Bayplan and the plugins in a clean environment; return the directory of its programs."""
    place = tmp_path_factory.mktemp("environment") / "venv"
    uv = shutil.which("uv") or str(ROOT / ".uv" / "bin" / "uv")
    subprocess.run([uv, "venv", "--quiet", "--no-project", "--python", sys.executable, place], check=True)
    (packages,) = place.glob("lib/python*/site-packages")
    # Only the path: .pth files in that directory, which would add Bayplan's sources, are not read.
    (packages / "locked_dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    install = _documented("pip install . ./examples/plugins")
    command = [uv, *install[:2], "--quiet", "--no-deps", f"--python={place / 'bin' / 'python'}", *install[2:]]
    subprocess.run(command, cwd=ROOT, check=True)
    return place / "bin"


@pytest.fixture
def objects(control_plane: ControlPlane, namespace: str) -> Iterator[str]:
    """Return the namespace of the manifests' pods; their nodes and profile are deleted at the end."""
    control_plane.kubectl(*_documented("kubectl apply -f crds/")[1:-1], str(ROOT / "crds"))
    yield namespace
    for name in ("profile.yaml", "nodes.yaml"):
        with suppress(ControlPlaneError):
            control_plane.kubectl("delete", "--ignore-not-found", "-f", str(ROOT / MANIFESTS / name))


def test_simulate_finds_the_installed_plugins(environment: Path) -> None:
    """After the installation, ``bayplan simulate`` finds the plugins by name."""
    words = _documented(f"bayplan simulate {MANIFESTS}/*.yaml")
    files = sorted((ROOT / MANIFESTS).glob("*.yaml"))
    command = [str(environment / words[0]), words[1], "--output=json", *map(str, files)]
    shown = subprocess.run(command, cwd=environment, env=_ENVIRONMENT, capture_output=True, check=True).stdout
    placed = {pod["name"]: pod["node"] for pod in json.loads(shown)["pods"]}
    assert {name: node or "" for name, node in placed.items()} == {"web": "cheap", "solve": "dear", "solve-later": ""}


def test_a_pod_is_scheduled_by_the_installed_plugins(
    environment: Path, control_plane: ControlPlane, objects: str, tmp_path: Path
) -> None:
    """On a real API server the profile enables both plugins by name, and both affect the decision."""
    command = [str(environment / "bayplan"), *_documented("bayplan run")[1:]]
    command += [f"--kubeconfig={control_plane.kubeconfig}", f"--serve-address={LOOPBACK}:{free_port()}"]
    log = tmp_path / "operator.log"
    with (
        log.open("wb") as output,
        subprocess.Popen(command, stdout=output, stderr=output, cwd=tmp_path, env=_ENVIRONMENT) as operator,
    ):
        try:
            for name in ("profile", "nodes", "pods"):
                _documented(f"kubectl apply -f {MANIFESTS}/{name}.yaml")
                control_plane.kubectl("apply", f"--namespace={objects}", "-f", str(ROOT / MANIFESTS / f"{name}.yaml"))
            wait = _documented("kubectl wait --for=condition=PodScheduled --timeout=60s pod/web pod/solve")
            control_plane.kubectl(*wait[1:], f"--namespace={objects}")
            later = "--for=jsonpath={.status.conditions[0].reason}=Unschedulable"
            control_plane.kubectl("wait", later, "--timeout=60s", f"--namespace={objects}", "pod/solve-later")
            nodes = "jsonpath={range .items[*]}{.metadata.name}={.spec.nodeName} {end}"
            placed = control_plane.kubectl("get", "pods", f"--namespace={objects}", "-o", nodes).split()
        except ControlPlaneError:
            print(log.read_text()[-4000:])  # noqa: T201 - pytest shows it beside the failure
            raise
        finally:
            operator.terminate()
            operator.wait(60)
    assert sorted(placed) == ["solve-later=", "solve=dear", "web=cheap"]
