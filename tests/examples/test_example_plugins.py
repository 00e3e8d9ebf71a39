"""The example plugins in an environment of their own: installed, enabled by name, and a pod scheduled by them.

The commands are those of docs/write-a-plugin.md. The locked dependencies are borrowed from this environment, so that
nothing but a build backend comes from the package index; Bayplan and the plugins are built and installed again.
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
    """The words of a command, which the document must show as it is run."""
    assert f"\n{command}\n" in DOCUMENT, f"docs/write-a-plugin.md does not show: {command}"
    return command.split()


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of a clean environment in which Bayplan and the plugins are installed."""
    place = tmp_path_factory.mktemp("environment") / "venv"
    uv = shutil.which("uv") or str(ROOT / ".uv" / "bin" / "uv")
    subprocess.run([uv, "venv", "--quiet", "--no-project", "--python", sys.executable, place], check=True)
    (packages,) = place.glob("lib/python*/site-packages")
    # A path alone: the .pth files there, by which Bayplan's sources would be found, are not read.
    (packages / "locked_dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    install = _documented("pip install . ./examples/plugins")
    command = [uv, *install[:2], "--quiet", "--no-deps", f"--python={place / 'bin' / 'python'}", *install[2:]]
    subprocess.run(command, cwd=ROOT, check=True)
    return place / "bin"


@pytest.fixture
def objects(control_plane: ControlPlane, namespace: str) -> Iterator[str]:
    """The namespace of the manifests' pods; their nodes and profile are removed at the end."""
    control_plane.kubectl(*_documented("kubectl apply -f crds/")[1:-1], str(ROOT / "crds"))
    yield namespace
    for name in ("profile.yaml", "nodes.yaml"):
        with suppress(ControlPlaneError):
            control_plane.kubectl("delete", "--ignore-not-found", "-f", str(ROOT / MANIFESTS / name))


def test_the_installed_plugins_are_simulated(environment: Path) -> None:
    """Nothing but the installation makes the plugins known, to files as well."""
    words = _documented(f"bayplan simulate {MANIFESTS}/*.yaml")
    files = sorted((ROOT / MANIFESTS).glob("*.yaml"))
    command = [str(environment / words[0]), words[1], "--output=json", *map(str, files)]
    shown = subprocess.run(command, cwd=environment, env=_ENVIRONMENT, capture_output=True, check=True).stdout
    placed = {pod["name"]: pod["node"] for pod in json.loads(shown)["pods"]}
    assert {name: node or "" for name, node in placed.items()} == {"web": "cheap", "solve": "dear", "solve-later": ""}


def test_a_pod_is_scheduled_by_the_installed_plugins(
    environment: Path, control_plane: ControlPlane, objects: str, tmp_path: Path
) -> None:
    """On the real API server the profile enables both by name, and both decide."""
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
