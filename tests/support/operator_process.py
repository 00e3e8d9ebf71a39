"""``bayplan run`` as a process of its own.

Owns its start, the wait until it is ready, and its end by its pid. It must not know what is tested. Why a process and
not the operator in the test's loop: signals, crashes and what survives them are what is tested.
"""

from __future__ import annotations

import http.client
import os
import signal
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from prometheus_client.parser import text_string_to_metric_families

from hack.controlplane.probes import LOOPBACK, free_port

_WAIT_SECONDS = 90.0
_END_SECONDS = 60.0
_ANSWER_SECONDS = 30.0
_POLL_SECONDS = 0.02
_SOURCES = Path(__file__).resolve().parents[2]


class OperatorProcess:
    """An operator, once it is started; a context manager that ends it.

    Args:
        kubeconfig: Of the cluster that it serves.
        log: File that takes what it writes.
        flags: Further flags of ``bayplan run``.
        installed: A directory whose packages count as installed, with the entry points of their metadata.
        secure: Whether it serves HTTPS.
        host: Host of the address that it serves; it is asked on loopback.
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
    ) -> None:
        self._host = host
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
        """Directory of its records, beside its log: a failing test leaves them."""
        return self._log.with_name(f"{self._log.name}.records")

    @property
    def port(self) -> int:
        """Port of its server."""
        return self._port

    @property
    def log(self) -> str:
        """What it has written so far, over all its starts."""
        return self._log.read_text()

    def start(self, *flags: str, wait: bool = True, is_same_port: bool = False) -> None:
        """Start it on a free port or its last one, with further flags, and wait until it is ready, if not disabled."""
        if not is_same_port:
            self._port = free_port()
        command = [sys.executable, "-m", "bayplan", "run", f"--kubeconfig={self._kubeconfig}"]
        command += [f"--serve-address={self._host}:{self._port}", f"--record={self.records}", "--record-mebibytes=64"]
        command += [*self._flags, *flags]
        with self._log.open("ab") as output:
            self._process = subprocess.Popen(
                command, stdout=output, stderr=output, cwd=_SOURCES / "operator", env=_environment(self._installed)
            )
        if wait:
            self.wait_until_ready()

    def wait_until_ready(self) -> None:
        """Wait until ``/readyz`` says so."""
        self.until(lambda: self.get("/readyz")[0] == 200, "it is ready")

    def is_alive(self) -> bool:
        """Whether ``/livez`` says so."""
        return self.get("/livez")[0] == 200

    def until(self, condition: Callable[[], bool], what: str) -> None:
        """Look again and again until a condition holds while the process runs."""
        deadline = time.monotonic() + _WAIT_SECONDS
        while not condition():
            assert self._process is not None
            if self._process.poll() is not None:
                raise AssertionError(f"the operator ended with {self._process.returncode}:\n{self.log[-4000:]}")
            if time.monotonic() > deadline:
                raise AssertionError(f"not within {_WAIT_SECONDS:.0f} s: {what}\n{self.log[-4000:]}")
            time.sleep(_POLL_SECONDS)

    def metric(self, name: str, **labels: str) -> float:
        """A sample of its metrics; 0 when there is none. A process that does not answer is asked again."""
        answer = (0, "")

        def is_answered() -> bool:
            nonlocal answer
            answer = self.get("/metrics")
            return answer[0] == 200

        self.until(is_answered, "it shows its metrics")
        # Most of the time to parse hundreds of families would be for those that are not asked for.
        lines = [line for line in answer[1].splitlines() if line.startswith((f"{name}{{", f"{name} "))]
        for family in text_string_to_metric_families("\n".join([*lines, ""])):
            for sample in family.samples:
                if sample.name == name and sample.labels == labels:
                    return sample.value
        return 0.0

    def get(self, path: str) -> tuple[int, str]:
        """Ask it over HTTP; status 0 when it does not answer."""
        connection = self._connection()
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        except (OSError, http.client.HTTPException) as error:
            return 0, str(error)
        finally:
            connection.close()

    def _connection(self) -> http.client.HTTPConnection:
        if not self._secure:
            return http.client.HTTPConnection(LOOPBACK, self._port, timeout=_ANSWER_SECONDS)
        # The certificate that it makes for itself is signed by nobody.
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        return http.client.HTTPSConnection(LOOPBACK, self._port, timeout=_ANSWER_SECONDS, context=context)

    @property
    def url(self) -> str:
        """Where it serves, for commands' ``--server``."""
        return f"{'https' if self._secure else 'http'}://{LOOPBACK}:{self._port}"

    def send(self, number: signal.Signals) -> None:
        """Send a signal that does not end it."""
        assert self._process is not None
        self._process.send_signal(number)

    def kill(self) -> None:
        """End it as a crash does."""
        self._signal(signal.SIGKILL)

    def wait(self) -> int:
        """Wait until it has ended by itself; its exit code."""
        assert self._process is not None
        return self._process.wait(_WAIT_SECONDS)

    def terminate(self) -> tuple[int, float]:
        """End it as the kubelet does.

        Returns:
            Its exit code, and how many seconds it took.
        """
        began = time.monotonic()
        return self._signal(signal.SIGTERM), time.monotonic() - began

    def _signal(self, number: signal.Signals) -> int:
        assert self._process is not None
        self._process.send_signal(number)
        return self._process.wait(_END_SECONDS)


def _environment(installed: Path | None) -> dict[str, str]:
    """Of a process that finds both packages in the sources, and no kubeconfig but the one it is given."""
    path = str(_SOURCES) if installed is None else f"{_SOURCES}{os.pathsep}{installed}"
    return {"PYTHONPATH": path, "HOME": "/nonexistent", "PYTHONUNBUFFERED": "1"}
