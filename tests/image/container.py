"""A container of the image, started, asked and ended by its id.

Owns the container's life. It must not know what runs in it.
"""

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
    """Say to an engine what a pod's security contexts say to a kubelet.

    Args:
        pod: A pod's spec; an empty one is restricted as the chart's is.

    Returns:
        Flags of the engine's `run`.
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
    # The engines' own filter of system calls is what RuntimeDefault means.
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
    """A container; a context manager that starts and removes it.

    Args:
        engine: What runs it.
        image: The image's name.
        flags: Flags of the engine's `run`.
        arguments: Arguments of the image's command.
        ready_url: What answers 200 when it is ready, if it serves; a certificate is not verified, as by a kubelet.
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
        """Wait until it says so."""
        deadline = time.monotonic() + _WAIT_SECONDS
        while (answer := self._readiness())[0] != 200:
            assert self.state("Running") == "true", f"it ended with {self.state('ExitCode')}:\n{self.log()}"
            assert time.monotonic() < deadline, f"{self._ready_url} says {answer}\n{self.log()}"
            time.sleep(_POLL_SECONDS)

    def state(self, field: str) -> str:
        """Return a field of the state that the engine reports."""
        return self._engine.run("inspect", f"--format={{{{.State.{field}}}}}", self._id).strip()

    def log(self) -> str:
        """What it has written so far, to both streams."""
        return self._engine.run_both("logs", self._id)

    def execute(self, program: str, *arguments: str) -> str:
        """Run a Python program in it, and return what it wrote."""
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
        """Wait until it has ended by itself; its exit code."""
        return int(self._engine.run("wait", self._id).split()[-1])

    def terminate(self, grace: int) -> int:
        """End it as a kubelet does: SIGTERM, and SIGKILL when the grace is over.

        Args:
            grace: Seconds.

        Returns:
            Its exit code.
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
    """What podman needs where it is itself in a container: the plainest runtime, and limits that are not raised."""
    if engine.name != "podman":
        return []
    runtime = (
        ["--runtime=runc"] if shutil.which("runc", path="/usr/bin:/usr/sbin:/usr/local/sbin:/usr/local/bin") else []
    )
    return [*runtime, "--ulimit=nofile=1024:1024", "--ulimit=nproc=1024:1024"]
