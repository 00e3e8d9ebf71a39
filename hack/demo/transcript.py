"""Transcript of a new machine: wheel, simulation, chart, upgrade, `helm test`, rollback, and commands of a workstation.

Everything is real but the nodes: kwok is their kubelet. It connects the ports of the operator's pods to the process
that this program starts for them, with the settings and the service account of the Deployment.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from hack.controlplane import binaries
from hack.controlplane.binaries import MissingBinary
from hack.controlplane.installed_operator import InstalledOperator
from hack.controlplane.launcher import ControlPlane, ControlPlaneError
from hack.controlplane.probes import LOOPBACK, free_port
from hack.controlplane.processes import Process
from hack.controlplane.servers import STAGES, Options
from hack.demo.stage import ROOT, DemoFailed, Screen
from hack.release.locked_dependencies import uv_program
from hack.release.previous_version import NoPreviousVersionError, previous_version

RELEASE, NAMESPACE = "bayplan", "bayplan"
_WAIT_SECONDS = 120.0
_LEFT_OUT = frozenset({"KUBECONFIG", "PYTHONPATH", "VIRTUAL_ENV", "BAYPLAN_SERVER"})
_LOCAL_PORT = 10259
"""Port of the chart's localAddress, to which commands connect through the API server."""
_TOO_LARGE = """\
apiVersion: v1
kind: Pod
metadata: {name: large}
spec:
  schedulerName: bayplan
  containers: [{name: main, image: registry.k8s.io/pause:3.10, resources: {requests: {cpu: "100"}}}]
"""


class Terminal:
    """Commands as a user types them, with their output.

    Args:
        path: Directories with the programs, before those of the system.
        names: Text of a path by the path, as it is printed.
    """

    def __init__(self, screen: Screen, path: Sequence[Path], names: Mapping[str, str], **variables: str) -> None:
        self._screen = screen
        self._names = names
        # Settings of proxies and package indexes stay, those of other Python environments do not.
        kept = {name: value for name, value in os.environ.items() if name not in _LEFT_OUT}
        directories = os.pathsep.join([*map(str, path), os.defpath])
        self._environment = {**kept, "PATH": directories, "COLUMNS": "120", **variables}

    def run(self, command: str, *, limit: int = 0, codes: Sequence[int] = (0,)) -> str:
        """Print a command, run it, print its output, and return it.

        Raises:
            DemoFailed: It ends with another code.
        """
        self._screen.command(self._printed(command))
        outcome = subprocess.run(
            shlex.split(command),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            cwd=ROOT,
            env=self._environment,
        )
        if outcome.stdout:
            self._screen.output(self._printed(outcome.stdout), limit)
        if outcome.returncode not in codes:
            raise DemoFailed(f"`{command}` ended with {outcome.returncode}")
        return outcome.stdout

    def _printed(self, text: str) -> str:
        for path, name in self._names.items():
            text = text.replace(path, name)
        return text


@dataclass(frozen=True, slots=True)
class Version:
    """A version that is installed.

    Attributes:
        chart: Directory of its chart.
        command: Its `bayplan`.
        python_path: Directories of its modules; "" if the command has them.
    """

    chart: Path
    command: tuple[str, ...]
    python_path: str = ""


class Cluster:
    """The control plane, and the process of the operator."""

    def __init__(self, plane: ControlPlane, directory: Path) -> None:
        self.plane = plane
        self._directory = directory
        self._port = free_port()
        self._process: Process | None = None
        self._started = 0

    def start_nodes(self) -> None:
        """Create three nodes, whose kubelet is kwok, and start the controllers of Deployments and of other pods."""
        forwards = {
            "apiVersion": "kwok.x-k8s.io/v1alpha1",
            "kind": "ClusterPortForward",
            "metadata": {"name": "operator"},
            "spec": {
                "selector": {"matchNamespaces": [NAMESPACE]},
                "forwards": [{"ports": [_LOCAL_PORT], "target": {"address": LOOPBACK, "port": self._port}}],
            },
        }
        config = self._directory / "forwards.yaml"
        config.write_text(yaml.safe_dump(forwards))
        port = free_port()
        self.plane.start_kwok((STAGES, config), port)
        self.plane.start_kube_controller_manager()
        self.plane.start_kube_scheduler()
        self.plane.kubectl("apply", "--filename", str(ROOT / "examples" / "quick-start" / "nodes.yaml"))
        status = {
            "addresses": [{"type": "InternalIP", "address": LOOPBACK}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
        }
        for node in self.plane.kubectl("get", "nodes", "--output=name").split():
            # A merge patch removes the host name, which the API server would resolve first.
            patch = json.dumps({"status": status})
            self.plane.kubectl("patch", node, "--subresource=status", "--type=merge", f"--patch={patch}")

    def replace_operator(self, version: Version) -> None:
        """Stop the process of the operator, and start that of the Deployment as it is now."""
        if self._process is not None:
            self._process.stop()
        self._started += 1
        self._process, _ = InstalledOperator(self.plane, NAMESPACE, RELEASE).start(
            version.command,
            self._directory / f"operator-{self._started}",
            ("--local-address", f"{LOOPBACK}:{self._port}"),
            {"PYTHONPATH": version.python_path} if version.python_path else None,
        )


class Transcript:
    """The steps of a new user, from the wheel to the rollback."""

    def __init__(self, screen: Screen, directory: Path) -> None:
        self._screen = screen
        self._directory = directory
        self._programs = directory / "bin"
        self._programs.mkdir()

    def run(self) -> None:
        new = self._install_wheel()
        old = self._previous()
        names = {f"{self._directory}/": "", str(ROOT) + "/": ""}
        with ControlPlane(Options(ready_seconds=_WAIT_SECONDS)) as plane:
            for name in ("kubectl", "helm"):
                program = binaries.resolve([name])[name] if name == "helm" else plane.binary(name)
                (self._programs / name).symlink_to(program)
            cluster = Cluster(plane, self._directory)
            cluster.start_nodes()
            path = (self._programs, self._directory / "venv" / "bin")
            variables = {"KUBECONFIG": str(plane.kubeconfig), "HOME": str(self._directory)}
            terminal = Terminal(self._screen, path, names, **variables)
            self._install_previous(terminal, cluster, old)
            self._upgrade(terminal, cluster, new)
            self._look(terminal)
            self._roll_back(terminal, cluster, old)
            self._upgrade_again(terminal, cluster, new)

    # -- without a cluster --------------------------------------------------------------------------------------

    def _install_wheel(self) -> Version:
        self._screen.step("A wheel in an empty environment, and a simulation without a cluster")
        (self._programs / "uv").symlink_to(uv_program())
        names = {f"{self._directory}/": "", str(ROOT) + "/": ""}
        terminal = Terminal(self._screen, [self._programs, self._directory / "venv" / "bin"], names)
        terminal.run(f"uv build --quiet --wheel --out-dir {self._directory}/dist")
        (wheel,) = (self._directory / "dist").glob("*.whl")
        terminal.run(f"{sys.executable} -m venv --without-pip {self._directory}/venv")
        terminal.run(f"uv pip install --quiet --python {self._directory}/venv {wheel}")
        terminal.run("bayplan --version")
        terminal.run("bayplan simulate examples/simulate/cluster.yaml")
        return Version(ROOT / "charts" / "bayplan", (str(self._directory / "venv" / "bin" / "bayplan"),))

    def _previous(self) -> Version:
        sources = previous_version(self._directory / "previous")
        modules = os.pathsep.join(map(str, (sources / "operator", sources)))
        return Version(sources / "charts" / "bayplan", (sys.executable, "-P", "-m", "bayplan"), modules)

    # -- on a cluster -------------------------------------------------------------------------------------------

    def _install_previous(self, terminal: Terminal, cluster: Cluster, old: Version) -> None:
        self._screen.step("The chart of the previous version on a cluster of three nodes")
        terminal.run("kubectl get nodes")
        flags = f"--namespace {NAMESPACE} --create-namespace --set replicaCount=1"
        terminal.run(f"helm install {RELEASE} {old.chart} {flags}", limit=9)
        cluster.replace_operator(old)
        self._await_rollout(terminal)
        terminal.run("kubectl get sp")
        self._run_pods(terminal, "first")

    def _upgrade(self, terminal: Terminal, cluster: Cluster, new: Version) -> None:
        self._screen.step("Upgrade to this version, and `helm test`")
        flags = f"--namespace {NAMESPACE} --reset-then-reuse-values --take-ownership"
        terminal.run(f"helm upgrade {RELEASE} {new.chart} {flags}")
        cluster.replace_operator(new)
        self._await_rollout(terminal)
        terminal.run(f"helm test {RELEASE} --namespace {NAMESPACE}")
        self._run_pods(terminal, "second")

    def _look(self, terminal: Terminal) -> None:
        self._screen.step("Status and explanations on a workstation, through the API server")
        terminal.run("bayplan status")
        self._apply(terminal, "large", _TOO_LARGE)
        terminal.run("kubectl wait pod/large --for condition=PodScheduled=False --timeout 60s")
        terminal.run("bayplan explain large")
        terminal.run("bayplan history bayplan")

    def _roll_back(self, terminal: Terminal, cluster: Cluster, old: Version) -> None:
        self._screen.step("Rollback to the previous version")
        terminal.run(f"helm rollback {RELEASE} 1 --namespace {NAMESPACE}")
        cluster.replace_operator(old)
        self._await_rollout(terminal)
        self._run_pods(terminal, "third")

    def _upgrade_again(self, terminal: Terminal, cluster: Cluster, new: Version) -> None:
        self._screen.step("The upgrade again: nothing is lost")
        flags = f"--namespace {NAMESPACE} --reset-then-reuse-values"
        terminal.run(f"helm upgrade {RELEASE} {new.chart} {flags}", limit=6)
        cluster.replace_operator(new)
        self._await_rollout(terminal)
        terminal.run(f"helm history {RELEASE} --namespace {NAMESPACE}")
        terminal.run("kubectl get sp,pods")
        terminal.run("bayplan history bayplan")

    def _await_rollout(self, terminal: Terminal) -> None:
        terminal.run(f"kubectl --namespace {NAMESPACE} rollout status deployment/{RELEASE} --timeout 120s")

    def _run_pods(self, terminal: Terminal, name: str) -> None:
        """Create a Deployment that the profile schedules, and wait for its pods."""
        container = {"name": "main", "image": "registry.k8s.io/pause:3.10", "resources": {"requests": {"cpu": "500m"}}}
        deployment = {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": name},
            "spec": {
                "replicas": 3,
                "selector": {"matchLabels": {"app": name}},
                "template": {
                    "metadata": {"labels": {"app": name}},
                    "spec": {"schedulerName": "bayplan", "containers": [container]},
                },
            },
        }
        self._apply(terminal, name, yaml.safe_dump(deployment))
        terminal.run(f"kubectl rollout status deployment/{name} --timeout 120s")

    def _apply(self, terminal: Terminal, name: str, manifest: str) -> None:
        file = self._directory / f"{name}.yaml"
        file.write_text(manifest)
        terminal.run(f"kubectl apply -f {file}")


def main() -> int:
    argparse.ArgumentParser(prog="make transcript", description=__doc__).parse_args()
    try:
        with tempfile.TemporaryDirectory(prefix="bayplan-transcript-") as directory:
            Transcript(Screen(), Path(directory)).run()
    except (ControlPlaneError, MissingBinary, DemoFailed, NoPreviousVersionError) as problem:
        sys.stderr.write(f"transcript: {problem}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
