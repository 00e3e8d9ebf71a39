"""A container of the image that is started, queried and removed by its id."""

from __future__ import annotations

import http.client
import shutil
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from hack.image.engines import Engine

_WAIT_SECONDS = 90.0
_POLL_SECONDS = 0.05


def container_flags(pod: Mapping[str, Any]) -> list[str]:
    """Return an engine's flags for the security contexts of a pod.

    Args:
        pod: Spec of a pod; an empty one gets the chart's restrictions.

    Returns:
        Flags of the engine's `run` command.
    """
    given = _RESTRICTED
    if pod:
        given = {**pod["securityContext"], **pod["containers"][0]["securityContext"]}
    flags = [f"--user={given['runAsUser']}:{given['runAsGroup']}"]
    flags += [f"--cap-drop={name.lower()}" for name in given["capabilities"]["drop"]]
    if given["readOnlyRootFilesystem"]:
        flags.append("--read-only")
    if not given["allowPrivilegeEscalation"]:
        flags.append("--security-opt=no-new-privileges")
    # RuntimeDefault means the engine's default seccomp profile, which needs no flag.
    assert given["seccompProfile"] == {"type": "RuntimeDefault"}
    return flags


_RESTRICTED: dict[str, Any] = {
    "runAsUser": 65532,
    "runAsGroup": 65532,
    "capabilities": {"drop": ["ALL"]},
    "readOnlyRootFilesystem": True,
    "allowPrivilegeEscalation": False,
    "seccompProfile": {"type": "RuntimeDefault"},
}


class Container:
    """A container, as a context manager that starts and removes it.

    Args:
        flags: Flags of the engine's `run` command.
        arguments: Arguments of the image's command.
        ready_url: URL that returns 200 when the container is ready; certificates are not verified, as by a kubelet.
    """

    def __init__(
        self, engine: Engine, image: str, flags: Sequence[str], arguments: Sequence[str], ready_url: str = ""
    ) -> None:
        self._engine = engine
        self._image = image
        self._flags = tuple(flags)
        self._arguments = tuple(arguments)
        self._ready_url = ready_url
        self._id = ""

    def __enter__(self) -> Self:
        # The API server is on this machine's loopback.
        command = ["--network=host", *_engine_flags(self._engine), *self._flags, self._image, *self._arguments]
        self._id = self._engine.run("create", *command).split()[-1]
        try:
            self._engine.run("start", self._id)
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._remove()

    def until_ready(self) -> None:
        """Wait until the readiness URL returns 200."""
        deadline = time.monotonic() + _WAIT_SECONDS
        while (answer := self._readiness())[0] != 200:
            assert self.state("Running") == "true", f"the container exited with {self.state('ExitCode')}:\n{self.log()}"
            assert time.monotonic() < deadline, f"{self._ready_url} returns {answer}\n{self.log()}"
            time.sleep(_POLL_SECONDS)

    def state(self, field: str) -> str:
        """Return a field of the state that the engine reports."""
        return self._engine.run("inspect", f"--format={{{{.State.{field}}}}}", self._id).strip()

    def log(self) -> str:
        """Return the output so far of both streams."""
        return self._engine.run_both("logs", self._id)

    def execute(self, program: str, *arguments: str) -> str:
        """Run a Python program in the container, and return its output."""
        return self._engine.run("exec", self._id, "python3", "-c", program, *arguments)

    def health(self) -> str:
        """Return the health that the engine reports; run the check now if the engine does not."""
        if self._engine.name == "podman":
            self._engine.run("healthcheck", "run", self._id)
            return self.state("Healthcheck.Status")
        deadline = time.monotonic() + _WAIT_SECONDS
        while self.state("Health.Status") == "starting" and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)
        return self.state("Health.Status")

    def wait(self) -> int:
        """Wait until the container has exited; return its exit code."""
        return int(self._engine.run("wait", self._id).split()[-1])

    def terminate(self, grace: int) -> int:
        """End the container as a kubelet does: SIGTERM, and SIGKILL after the grace period.

        Args:
            grace: Grace period in seconds.

        Returns:
            Exit code of the container.
        """
        self._engine.run("stop", f"--time={grace}", self._id)
        return int(self.state("ExitCode"))

    def _readiness(self) -> tuple[int, str]:
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        try:
            with urllib.request.urlopen(self._ready_url, timeout=30, context=context) as answer:  # noqa: S310 - loopback
                return answer.status, ""
        except urllib.error.HTTPError as refused:
            return refused.code, refused.read().decode()
        except (OSError, http.client.HTTPException) as problem:
            return 0, str(problem)

    def _remove(self) -> None:
        self._engine.run("rm", "--force", self._id)


def _engine_flags(engine: Engine) -> list[str]:
    """Return the flags that podman needs inside a container: runc, and limits that are not raised."""
    if engine.name != "podman":
        return []
    runtime = (
        ["--runtime=runc"] if shutil.which("runc", path="/usr/bin:/usr/sbin:/usr/local/sbin:/usr/local/bin") else []
    )
    return [*runtime, "--ulimit=nofile=1024:1024", "--ulimit=nproc=1024:1024"]
