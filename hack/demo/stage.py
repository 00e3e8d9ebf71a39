"""Environment of a demo: a control plane, the operator on it, and commands as a user would type them.

A state that is not reached ends the demo with a non-zero exit code.
"""

import argparse
import json
import os
import subprocess
import sys
import time
import urllib.request
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from rich.console import Console
from rich.markup import escape

from hack.browser import Browser, MissingBrowser
from hack.controlplane import binaries
from hack.controlplane.api_client import ApiClient, condition_of, status_of
from hack.controlplane.binaries import MissingBinary
from hack.controlplane.device_driver import DeviceDriver
from hack.controlplane.installed_operator import InstalledOperator, any_certificate, start_operator
from hack.controlplane.launcher import ControlPlane, ControlPlaneError, how_to_use
from hack.controlplane.servers import Options
from hack.demo import manifests


class Screen:
    def __init__(self) -> None:
        self._console = Console(highlight=False, soft_wrap=True)
        self._step = 0

    def step(self, title: str) -> None:
        self._step += 1
        self._console.print(f"\n[bold cyan]{self._step}. {escape(title)}[/]")

    def show(self, text: str) -> None:
        self._console.print(f"   {escape(text)}")

    def command(self, *words: str) -> None:
        self._console.print(f"   [bold]$ {escape(' '.join(words))}[/]")

    def output(self, text: str, limit: int = 0) -> None:
        """Print the output of a command, or its first lines if it is long."""
        lines = text.rstrip().split("\n")
        shown: Iterable[str] = lines if not limit or len(lines) <= limit else lines[:limit]
        for line in shown:
            self._console.print(f"   {escape(line)}")
        if limit and len(lines) > limit:
            self._console.print(f"   [dim]... {len(lines) - limit} more lines[/]")

    def summary(self, text: str) -> None:
        self._console.print(f"\n[bold green]{escape(text)}[/]")


ROOT = Path(__file__).resolve().parents[2]
PROFILES = ROOT / "examples" / "profiles"
POD_GROUPS = "podgroups.bayplan.dev"
POD_COLUMNS = "custom-columns=POD:.metadata.name,STATUS:.status.phase,NODE:.spec.nodeName"
RELEASE, NAMESPACE = "bayplan", "bayplan-system"
_BAYPLAN = str(Path(sys.executable).parent / "bayplan")
_NO_LOCAL_ADDRESS = ("--local-address", "")
# The cluster reaches each awaited state and stays there, so the limit is for failures alone. It is far beyond what
# a busy machine needs.
_WAIT_SECONDS = 300.0
_POLL_SECONDS = 0.1


class DemoFailed(Exception):  # noqa: N818 - names the event
    """The demo did not reach an expected state."""


class Stage:
    """Control plane and operator of a demo.

    Args:
        has_kwok: Whether pods run; without kwok they are only bound.

    Attributes:
        server: URL of the operator's server; "" before it is started.
    """

    def __init__(self, plane: ControlPlane, screen: Screen, *, has_kwok: bool) -> None:
        self.plane = plane
        self.screen = screen
        self.has_kwok = has_kwok
        self.server = ""

    def start_operator(self, *flags: str) -> None:
        """Install the CRDs and start the operator with some flags."""
        self.show("apply", "-f", str(ROOT / "crds"), shown="crds/")
        self.screen.command("bayplan", "run", *flags)
        command = [_BAYPLAN, "run", *flags]
        _, self.server = start_operator(self.plane, self.plane.kubeconfig, command, _NO_LOCAL_ADDRESS)
        self.screen.show("ready: watching profiles, nodes and pods")

    def install(self, *flags: str) -> None:
        """Install the chart by Helm, and start the process that the kubelet would start for its Deployment.

        If Helm is neither found nor buildable, the operator is started without it.

        Raises:
            DemoFailed: Helm fails.
        """
        try:
            helm = binaries.resolve(["helm"])["helm"]
        except MissingBinary as missing:
            self.screen.show(f"installed without Helm: {missing}")
            self.start_operator()
            return
        shown = ("install", RELEASE, "charts/bayplan", "--namespace", NAMESPACE, "--create-namespace", "--wait=false")
        self.screen.command("helm", *shown, *flags)
        environment = {"KUBECONFIG": str(self.plane.kubeconfig), "HOME": str(self.plane.state_dir), "PATH": os.defpath}
        command = [str(helm), *shown, *flags]
        outcome = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, env=environment)
        if outcome.returncode:
            raise DemoFailed(f"helm install failed: {outcome.stderr.strip()}")
        self.screen.output(outcome.stdout[outcome.stdout.index("NOTES:") :], limit=8)
        self.show("get", "deployment,poddisruptionbudget,serviceaccount,role", "--namespace", NAMESPACE)
        self.screen.show("there is no kubelet: the demo runs the command of the Deployment with its service account")
        installed = InstalledOperator(self.plane, NAMESPACE, RELEASE)
        _, self.server = installed.start([_BAYPLAN], self.plane.state_dir / "operator", _NO_LOCAL_ADDRESS)
        self.screen.show("ready: watching profiles, nodes and pods")

    def bayplan(self, *arguments: str, limit: int = 0, unshown: Sequence[str] = (), codes: Sequence[int] = (0,)) -> str:
        """Run `bayplan` as the administrator, print the command and its output, and return the output."""
        self.screen.command("bayplan", *arguments)
        output = self.read(*arguments, *unshown, codes=codes)
        self.screen.output(output, limit)
        return output

    def read(self, *arguments: str, codes: Sequence[int] = (0,)) -> str:
        command = [_BAYPLAN, *arguments]
        environment = {**os.environ, "KUBECONFIG": str(self.plane.kubeconfig)}
        outcome = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, env=environment)
        if outcome.returncode not in codes:
            raise DemoFailed(f"`bayplan {' '.join(arguments)}` failed: {outcome.stderr.strip()}")
        return outcome.stdout

    def show(self, *arguments: str, shown: str = "", limit: int = 0) -> None:
        """Run kubectl, and print the command and its output; ``shown`` replaces the last argument in the print."""
        words = [*arguments[:-1], shown] if shown else list(arguments)
        self.screen.command("kubectl", *words)
        self.screen.output(self.plane.kubectl(*arguments), limit)

    def explain(self, what: str, limit: int = 0) -> str:
        """Run ``bayplan explain``, print the command and its output, and return the output."""
        return self.bayplan("explain", what, limit=limit, unshown=["--server", self.server])

    def status(self) -> str:
        return self.bayplan("status", unshown=["--server", self.server])

    def shadow(self, name: str, limit: int = 0) -> str:
        return self.bayplan("status", "--shadow", name, limit=limit, unshown=["--server", self.server])

    def picture(self, file: Path, texts: Mapping[str, str]) -> None:
        """Write a screenshot of the page once its panels show these texts; without Chromium, print what is missing."""
        try:
            browser = Browser(self.plane.state_dir / "browser")
        except MissingBrowser as missing:
            self.screen.show(f"without a picture of the page: {missing}")
            return
        try:
            browser.open(f"{self.server}/page/")
            for panel, text in texts.items():
                browser.shows(f"#{panel}", text)
            browser.screenshot(file)
        finally:
            browser.close()
        self.screen.show(f"picture of the page: {file.relative_to(ROOT)}")

    def fetch(self, path: str) -> bytes:
        """Return what the operator's server sends for a path."""
        request = urllib.request.Request(f"{self.server}{path}")  # noqa: S310 - the server of the demo's operator
        with urllib.request.urlopen(request, timeout=_WAIT_SECONDS, context=any_certificate()) as answer:  # noqa: S310
            body: bytes = answer.read()
            return body

    def create(self, documents: str) -> None:
        self.plane.kubectl("create", "-f", "-", input=documents)

    def get(self, *arguments: str) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(self.plane.kubectl("get", *arguments, "-o", "json"))
        return document

    def until(self, what: str, holds: Callable[[], bool]) -> None:
        """Wait until a condition is true; only for conditions that stay true.

        Raises:
            DemoFailed: It is still false after five minutes.
        """
        deadline = time.monotonic() + _WAIT_SECONDS
        while not holds():
            if time.monotonic() > deadline:
                raise DemoFailed(f"waited {_WAIT_SECONDS:.0f} s for a state that was not reached: {what}")
            time.sleep(_POLL_SECONDS)


class Demo(ABC):
    """Steps of a demo.

    Attributes:
        needs_kubelets: Whether pods must run, and not only be bound.
    """

    needs_kubelets: ClassVar[bool] = True

    def __init__(self, stage: Stage) -> None:
        if self.needs_kubelets and not stage.has_kwok:
            raise DemoFailed("pods must run in this demo: install Go, so that kwok can be built")
        self._stage = stage
        self._screen = stage.screen

    @abstractmethod
    def run(self) -> None:
        """Perform all steps; a state that is not reached raises DemoFailed."""

    @cached_property
    def _driver(self) -> DeviceDriver:
        return DeviceDriver(ApiClient(self._stage.plane), manifests.DRIVER)

    def _apply(self, *examples: str) -> None:
        for name in examples:
            self._stage.show("apply", "-f", str(ROOT / "examples" / f"{name}.yaml"), shown=f"examples/{name}.yaml")

    def _submit_claimants(self, workload: manifests.Workload) -> None:
        self._screen.command("kubectl", "apply", "-f", f"{workload.name}.yaml")
        self._screen.output(self._stage.plane.kubectl("apply", "-f", "-", input=manifests.as_list(workload.documents)))

    def _items(self, selector: str) -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = self._stage.get("pods", "-l", selector)["items"]
        return items

    def _nodes(self, selector: str, prefix: str = "") -> dict[str, str]:
        """Return the node of each pod whose name has a prefix, by the pod's name; "" for a pod that is not bound."""
        nodes = {each["metadata"]["name"]: each["spec"].get("nodeName", "") for each in self._items(selector)}
        return {name: node for name, node in nodes.items() if name.startswith(prefix)}

    def _show_pods(self, selector: str, *flags: str, columns: str = POD_COLUMNS) -> None:
        self._stage.show("get", "pods", "-l", selector, *flags, "-o", columns)

    def _status(self, kind: str, name: str) -> dict[str, Any]:
        status: dict[str, Any] = status_of(self._stage.get(kind, name))
        return status

    def _condition(self, kind: str, name: str, condition: str) -> dict[str, str]:
        """Return a condition of an object; empty if it has none of this type."""
        return condition_of(self._stage.get(kind, name), condition)

    def _is_true(self, kind: str, name: str, condition: str) -> bool:
        return self._condition(kind, name, condition).get("status") == "True"

    def _until_condition(self, kind: str, name: str, condition: str, reason: str) -> None:
        self._stage.until(f"{name} is {reason}", lambda: self._condition(kind, name, condition).get("reason") == reason)

    def _until_message(self, pod: str) -> None:
        self._stage.until(
            "the pod has a condition", lambda: bool(self._condition("pod", pod, "PodScheduled").get("message"))
        )


def perform(name: str, about: str | None, demo: type[Demo], to_try: str) -> int:
    """Run a demo on its own control plane, which is removed at the end."""
    parser = argparse.ArgumentParser(prog=name, description=about)
    parser.add_argument("--keep", action="store_true", help="Leave everything running and print how to use it")
    keep = parser.parse_args().keep
    screen = Screen()
    screen.show("Starting etcd and kube-apiserver (the first time they are built from source: about five minutes)")
    try:
        with ControlPlane(Options(ready_seconds=_WAIT_SECONDS), detach=keep) as plane:
            demo(Stage(plane, screen, has_kwok=_start_kwok(plane, screen))).run()
            if keep:
                screen.output("\n" + how_to_use(plane))
                screen.output("What to try:\n" + to_try)
    except (ControlPlaneError, MissingBinary, DemoFailed) as problem:
        sys.stderr.write(f"demo: {problem}\n")
        return 1
    return 0


def _start_kwok(plane: ControlPlane, screen: Screen) -> bool:
    try:
        plane.start_kwok()
    except MissingBinary as missing:
        screen.show(f"without kwok pods are bound but do not run: {missing}")
        return False
    return True
