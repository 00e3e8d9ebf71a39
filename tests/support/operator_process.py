"""``bayplan run`` as a separate process, for tests of signals, crashes and restarts."""

from __future__ import annotations

import http.client
import json
import os
import signal
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Self

from prometheus_client.parser import text_string_to_metric_families

from hack.controlplane.probes import LOOPBACK, free_port

_WAIT_SECONDS = 90.0
_EXIT_SECONDS = 60.0
_RESPONSE_SECONDS = 30.0
_POLL_SECONDS = 0.02
_MAX_POLL_SECONDS = 0.1
"""Longest pause between two requests: the later a condition holds, the less the requests that wait for it cost."""
SOURCES = Path(__file__).resolve().parents[2]
"""The repository: the version under test."""

_WITH_HOST_NAME = 'echo "$0" >/proc/sys/kernel/hostname && exec "$@"'


class OperatorProcess:
    """Operator process; a context manager that kills it at the end.

    Args:
        log: File for its output.
        flags: Further flags of ``bayplan run``.
        installed: Directory with further installed packages, with the entry points of their metadata.
        secure: Whether it serves HTTPS.
        host: Host of its serving address; requests go to loopback.
        host_name: Host name of the process, as that of a pod is the pod's name; None for the machine's.
        sources: Directory with the folders ``operator`` and ``scheduler_core`` of the version to run.
    """

    def __init__(
        self,
        kubeconfig: Path,
        log: Path,
        flags: Sequence[str] = (),
        installed: Path | None = None,
        *,
        secure: bool = False,
        host: str = LOOPBACK,
        host_name: str | None = None,
        sources: Path = SOURCES,
    ) -> None:
        self._sources = sources
        self._host = host
        self._prefix = () if host_name is None else ("unshare", "--uts", "sh", "-c", _WITH_HOST_NAME, host_name)
        self._kubeconfig = kubeconfig
        self._log = log
        self._flags = tuple(flags)
        self._installed = installed
        self._secure = secure
        self._process: subprocess.Popen[bytes] | None = None
        self._port = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._process is not None and self._process.poll() is None:
            self.kill()

    @property
    def records(self) -> Path:
        """Directory of its records, next to its log, where they can be read after a failure."""
        return self._log.with_name(f"{self._log.name}.records")

    @property
    def log_file(self) -> Path:
        """File with its output."""
        return self._log

    @property
    def port(self) -> int:
        """Port of its HTTP server."""
        return self._port

    @property
    def log(self) -> str:
        """Output of all its starts so far."""
        return self._log.read_text()

    def start(self, *flags: str, wait: bool = True, is_same_port: bool = False) -> None:
        """Start it with further flags, on a free port or on its last one, and wait until it is ready by default."""
        if not is_same_port:
            self._port = free_port()
        command = [*self._prefix, sys.executable, "-m", "bayplan", "run", f"--kubeconfig={self._kubeconfig}"]
        command += [f"--serve-address={self._host}:{self._port}", f"--record={self.records}", "--record-mebibytes=64"]
        # Of the chart's settings, this address is the same for all tests.
        command += ["--local-address=", *self._flags, *flags]
        with self._log.open("ab") as output:
            self._process = subprocess.Popen(
                command,
                stdout=output,
                stderr=output,
                cwd=self._sources / "operator",
                env=_environment(self._sources, self._installed),
            )
        if wait:
            self.wait_until_ready()

    def wait_until_ready(self) -> None:
        """Wait until ``/readyz`` returns 200."""
        self.until(lambda: self.get("/readyz")[0] == 200, "the operator is ready")

    def is_alive(self) -> bool:
        """Return whether ``/livez`` returns 200."""
        return self.get("/livez")[0] == 200

    def until(self, condition: Callable[[], bool], what: str) -> None:
        """Wait until a condition holds; fail if the process ends."""
        deadline, pause = time.monotonic() + _WAIT_SECONDS, _POLL_SECONDS
        while not condition():
            assert self._process is not None
            if self._process.poll() is not None:
                raise AssertionError(f"the operator ended with {self._process.returncode}:\n{self.log[-4000:]}")
            if time.monotonic() > deadline:
                raise AssertionError(f"not within {_WAIT_SECONDS:.0f} s: {what}\n{self.log[-4000:]}")
            time.sleep(pause)
            pause = min(1.2 * pause, _MAX_POLL_SECONDS)

    def metric(self, name: str, **labels: str) -> float:
        """Return a sample of its metrics, 0 if it does not exist; repeat the request until the process responds."""
        response = (0, "")

        def has_response() -> bool:
            nonlocal response
            response = self.get("/metrics")
            return response[0] == 200

        self.until(has_response, "the operator returns its metrics")
        # Parsing all families would take long.
        lines = [line for line in response[1].splitlines() if line.startswith((f"{name}{{", f"{name} "))]
        for family in text_string_to_metric_families("\n".join([*lines, ""])):
            for sample in family.samples:
                if sample.name == name and sample.labels == labels:
                    return sample.value
        return 0.0

    def get(self, path: str) -> tuple[int, str]:
        """Return status and body of a GET request; status 0 without a response."""
        return self._response("GET", path)

    def post(self, path: str, body: object) -> tuple[int, str]:
        """Return status and body of a POST request with JSON; status 0 without a response."""
        return self._response("POST", path, json.dumps(body), {"Content-Type": "application/json"})

    def _response(
        self, method: str, path: str, body: str | None = None, headers: Mapping[str, str] = MappingProxyType({})
    ) -> tuple[int, str]:
        connection = self._connection()
        try:
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            return response.status, response.read().decode()
        except (OSError, http.client.HTTPException) as error:
            return 0, str(error)
        finally:
            connection.close()

    def _connection(self) -> http.client.HTTPConnection:
        if not self._secure:
            return http.client.HTTPConnection(LOOPBACK, self._port, timeout=_RESPONSE_SECONDS)
        # The operator generates a self-signed certificate.
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        return http.client.HTTPSConnection(LOOPBACK, self._port, timeout=_RESPONSE_SECONDS, context=context)

    @property
    def url(self) -> str:
        """Base URL, for the flag ``--server`` of commands."""
        return f"{'https' if self._secure else 'http'}://{LOOPBACK}:{self._port}"

    def send(self, number: signal.Signals) -> None:
        """Send a signal that does not end it."""
        assert self._process is not None
        self._process.send_signal(number)

    def kill(self) -> None:
        """Kill it, as a crash does."""
        self._signal(signal.SIGKILL)

    def wait(self) -> int:
        """Wait until it exits by itself; return its exit code."""
        assert self._process is not None
        return self._process.wait(_WAIT_SECONDS)

    def terminate(self) -> tuple[int, float]:
        """Terminate it, as the kubelet does.

        Returns:
            Its exit code, and the seconds until it exited.
        """
        began = time.monotonic()
        return self._signal(signal.SIGTERM), time.monotonic() - began

    def _signal(self, number: signal.Signals) -> int:
        assert self._process is not None
        self._process.send_signal(number)
        return self._process.wait(_EXIT_SECONDS)


def _environment(sources: Path, installed: Path | None) -> dict[str, str]:
    """Return an environment with both packages in the import path, and without another kubeconfig."""
    path = str(sources) if installed is None else f"{sources}{os.pathsep}{installed}"
    return {"PYTHONPATH": path, "HOME": "/nonexistent", "PYTHONUNBUFFERED": "1"}
