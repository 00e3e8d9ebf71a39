"""A reader who runs the commands of a page as the page shows them.

The reader's cluster has nodes and a running operator from the start, because the pages assume both and no container can
be started here from the chart's Deployment.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hack.controlplane.launcher import ControlPlane
from hack.controlplane.schedulers import install_crds
from tests.docs.markdown import ROOT, Block, Page
from tests.docs.shown_output import agrees
from tests.support.operator_process import OperatorProcess

_PROGRAMS = Path(__file__).resolve().parent / "programs"
_SITUATIONS = Path(__file__).resolve().parent / "situations"
_COMMAND_SECONDS = 120
_RETRY_SECONDS = 45.0
_POLL_SECONDS = 0.3
_READS = ("kubectl get", "kubectl describe", "kubectl events", "bayplan status", "bayplan explain", "bayplan history")


@dataclass(frozen=True, slots=True)
class Paths:
    """Directories and files of the reader.

    Attributes:
        home: Empty home directory.
        installed: Directory of the packages that pip has installed beside Bayplan.
    """

    home: Path
    log: Path
    installed: Path


class Reader:
    """A reader with a terminal, a cluster and this repository.

    Args:
        replicas: Running replicas of the operator; the first one leads.

    Attributes:
        replicas: URL of each replica, the leader first.
    """

    def __init__(self, plane: ControlPlane, replicas: Sequence[OperatorProcess], helm: Path, paths: Paths) -> None:
        self._plane = plane
        self.replicas = [replica.url for replica in replicas]
        self._has_release = False
        home = paths.home
        self._directory = home / "bayplan"
        self._directory.mkdir()
        for entry in ROOT.iterdir():
            if not entry.name.startswith("."):
                (self._directory / entry.name).symlink_to(entry)
        shutil.copytree(_SITUATIONS / "files", self._directory, dirs_exist_ok=True)
        (home / ".kube").mkdir()
        shutil.copy(plane.kubeconfig, home / ".kube" / "config")
        self._environment = {
            "HOME": str(home),
            "PATH": f"{_PROGRAMS}{os.pathsep}{os.defpath}",
            "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "operator"), str(paths.installed)]),
            "COLUMNS": "120",
            "DOCS_KUBECTL": str(plane.binary("kubectl")),
            "DOCS_HELM": str(helm),
            "DOCS_CURL": shutil.which("curl") or "curl",
            "DOCS_PYTHON": sys.executable,
            "DOCS_SERVER": self.replicas[0],
            "DOCS_OPERATOR_LOG": str(paths.log),
        }

    def begin(self, page: Page) -> None:
        """Bring the cluster into the state that a page assumes.

        The state has three nodes, the chart's release unless the page installs it, no other profiles, no pods, and the
        objects of ``situations/PATH.yaml`` for the page ``PATH.md``.
        """
        kubectl = self._plane.kubectl
        if not kubectl("get", "--ignore-not-found", "--filename", str(ROOT / "crds")):
            install_crds(self._plane)
        self._give_definitions_to_the_release()
        kubectl("delete", "pods,podgroups.bayplan.dev", "--all", "--all-namespaces", "--force", "--grace-period=0")
        kubectl("delete", "schedulerprofiles,pluginconfigs,nodes", "--selector=app.kubernetes.io/managed-by!=Helm")
        kubectl("create", "--filename", str(ROOT / "examples" / "quick-start" / "nodes.yaml"), "--save-config")
        if any("helm install bayplan" in block.text for block in page.blocks):
            self._run_successfully("helm uninstall bayplan --namespace bayplan --ignore-not-found")
            self._has_release = False
        elif not self._has_release:
            self._run_successfully("helm upgrade --install bayplan charts/bayplan --namespace bayplan")
            self._has_release = True
        situation = _SITUATIONS / Path(page.name).with_suffix(".yaml")
        if situation.exists():
            kubectl("apply", "--filename", str(situation))

    def _give_definitions_to_the_release(self) -> None:
        """Make Helm the owner, because the chart installs them and the operator starts before the release."""
        kubectl, given = self._plane.kubectl, ("--overwrite", "--filename", str(ROOT / "crds"))
        kubectl("label", "app.kubernetes.io/managed-by=Helm", *given)
        owner = (f"meta.helm.sh/release-{what}=bayplan" for what in ("name", "namespace"))
        kubectl("annotate", *owner, *given)

    def follow(self, block: Block, exit_code: int) -> None:
        """Run a block's commands in order and compare their output; the last one must end with *exit_code*."""
        # kubectl exec into the Deployment chooses any pod, so the commands must work on each replica.
        for replica in self.replicas if " exec " in block.text else self.replicas[:1]:
            self._environment["DOCS_EXEC_SERVER"] = replica
            self._follow(block, exit_code)

    def _follow(self, block: Block, exit_code: int) -> None:
        steps = list(block.steps())
        for number, (command, shown) in enumerate(steps, start=1):
            wanted = exit_code if number == len(steps) else 0
            deadline = time.monotonic() + _RETRY_SECONDS
            while True:
                answer = self._run(command)
                is_expected = answer.returncode == wanted and (shown is None or agrees(shown, answer.stdout))
                if is_expected or not command.startswith(_READS) or time.monotonic() > deadline:
                    break
                time.sleep(_POLL_SECONDS)
            assert answer.returncode == wanted, (
                f"{block.place}: exit code {answer.returncode}, not {wanted}\n$ {command}\n{answer.stdout}"
            )
            assert is_expected, (
                f"{block.place}: prints another output\n$ {command}\n{answer.stdout}\n--- shown:\n{shown}"
            )

    def _run_successfully(self, command: str) -> None:
        answer = self._run(command)
        assert answer.returncode == 0, f"$ {command}\n{answer.stdout}"

    def _run(self, command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", "-eo", "pipefail", "-c", command],
            cwd=self._directory,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=_COMMAND_SECONDS,
            check=False,
        )


def install_example_plugins(directory: Path) -> Path:
    """Write the files of ``examples/plugins`` to a directory as pip would install them.

    Args:
        directory: Empty directory, which is added to the Python path.

    Returns:
        The same directory.
    """
    package = ROOT / "examples" / "plugins"
    project = tomllib.loads((package / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    points = "".join(f"{name} = {target}\n" for name, target in project["entry-points"]["bayplan.plugins"].items())
    metadata = directory / "bayplan_example_plugins-0.1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: 0.1.0\n")
    (metadata / "entry_points.txt").write_text(f"[bayplan.plugins]\n{points}")
    (directory / "bayplan_example_plugins").symlink_to(package / "bayplan_example_plugins")
    return directory
