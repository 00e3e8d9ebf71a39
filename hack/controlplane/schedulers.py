"""Starts the two schedulers that benchmarks compare, each with default settings or the same profile.

Their API clients have no rate limit: a benchmark would otherwise measure the limit and not the scheduler.
"""

from __future__ import annotations

import compileall
import json
import sys
import sysconfig
import time
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any
from weakref import WeakKeyDictionary

from hack.controlplane.api_client import ApiClient
from hack.controlplane.launcher import ControlPlane, ControlPlaneError
from hack.controlplane.probes import LOOPBACK, free_port, http_ok
from hack.controlplane.processes import Process

BAYPLAN, KUBE_SCHEDULER = "bayplan", "kube-scheduler"

_SERVED_SECONDS = 120.0
_POLL_SECONDS = 0.1
_ROOT = Path(__file__).resolve().parents[2]
_installed: WeakKeyDictionary[ControlPlane, tuple[Path, dict[str, tuple[str, int]]]] = WeakKeyDictionary()
"""Definitions that were applied last, and what the API server made of them."""


def start_scheduler(
    plane: ControlPlane, scheduler: str, name: str, profile: Mapping[str, Any] = MappingProxyType({})
) -> Process:
    """Start a scheduler.

    Args:
        profile: ``plugins`` and ``pluginConfig``; the default profile if it is empty.
    """
    if scheduler == BAYPLAN:
        return start_bayplan(plane, name, free_port(), profile=profile)
    return start_kube_scheduler(plane, name, profile=profile)


def start_kube_scheduler(
    plane: ControlPlane,
    name: str,
    flags: Sequence[str] = (),
    *,
    program: str = KUBE_SCHEDULER,
    profile: Mapping[str, Any] = MappingProxyType({}),
) -> Process:
    """Start kube-scheduler; for ``program`` see :func:`start_bayplan`."""
    config = plane.state_dir / f"{program}-profile.yaml"
    profiles = [{"schedulerName": name, **profile}]
    document = {"clientConnection": {"qps": 50_000, "burst": 100_000}, "profiles": profiles}
    config.write_text(json.dumps(document))
    return plane.start_kube_scheduler(config, flags, program)


def start_bayplan(
    plane: ControlPlane,
    name: str,
    port: int,
    profile_to: Path | None = None,
    *,
    flags: Sequence[str] = (),
    program: str = BAYPLAN,
    profile: Mapping[str, Any] = MappingProxyType({}),
) -> Process:
    """Start Bayplan with one SchedulerProfile, of default settings unless its spec is given.

    Args:
        program: The process's name; a second process needs another one.
    """
    compile_bytecode()
    install_crds(plane)
    document = {
        "apiVersion": "bayplan.dev/v1alpha1",
        "kind": "SchedulerProfile",
        "metadata": {"name": name},
        "spec": dict(profile),
    }
    plane.kubectl("apply", "-f", "-", input=json.dumps(document))
    command = [sys.executable]
    if profile_to is not None:
        command += ["-m", "cProfile", "-o", str(profile_to)]
    arguments = ["--kubeconfig", str(plane.kubeconfig), "--serve-address", f"{LOOPBACK}:{port}", *flags]
    return plane.start_program(
        program, [*command, "-m", "bayplan", "run", *arguments], lambda: http_ok(port, "/readyz")
    )


@cache
def compile_bytecode() -> None:
    """Compile Bayplan and the installed packages, as pip and the image do; files that did not change are skipped.

    Otherwise a start includes Python's compiler, for more CPU time than all imports take together: with
    PYTHONDONTWRITEBYTECODE in the environment no import ever writes bytecode.
    """
    for folder in (_ROOT / "operator", _ROOT / "scheduler_core", Path(sysconfig.get_paths()["purelib"])):
        # Errors are not printed: packages contain templates for other versions of Python.
        compileall.compile_dir(folder, maxlevels=20, quiet=2)


def install_crds(plane: ControlPlane, definitions: Path = _ROOT / "crds") -> None:
    """Apply Bayplan's CRDs and wait until they are served, unless they are unchanged since the last call.

    Raises:
        ControlPlaneError: They are not in time.
    """
    last = _installed.get(plane)
    if last is not None and last == (definitions, _generations(plane)):
        return
    plane.kubectl("apply", "-f", str(definitions))
    await_definitions(plane)
    _installed[plane] = definitions, _generations(plane)


def _generations(plane: ControlPlane) -> dict[str, tuple[str, int]]:
    """Return UID and generation of Bayplan's definitions; the generation changes with the spec."""
    with ApiClient(plane) as api:
        stored = [each["metadata"] for each in api.items("/apis/apiextensions.k8s.io/v1/customresourcedefinitions")]
    own = (each for each in stored if each["name"].endswith(".bayplan.dev"))
    return {each["name"]: (each["uid"], each["generation"]) for each in own}


def await_definitions(plane: ControlPlane) -> None:
    """Wait until all CustomResourceDefinitions are served, and kubectl finds their resources.

    The API server lists a resource in its discovery a moment after the definition is established.

    Raises:
        ControlPlaneError: They are not in time.
    """
    deadline = time.monotonic() + _SERVED_SECONDS
    while True:
        try:
            plane.kubectl("wait", "--for=condition=Established", "crd", "--all")
            found = plane.kubectl("get", "crd", "--output=jsonpath={.items[*].metadata.name}").split()
            plane.kubectl("get", ",".join(found), "--all-namespaces", "--output=name")
        except ControlPlaneError:
            # kubectl fails on an object that has no conditions yet.
            if time.monotonic() > deadline:
                raise
            time.sleep(_POLL_SECONDS)
        else:
            return
