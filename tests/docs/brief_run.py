"""Run ``bayplan run`` until it is ready, then end it, as a reader does who starts an operator in a terminal.

It runs with leader election, because the tests' own operator leads and both would otherwise bind the same pods.
"""

from __future__ import annotations

import subprocess
import sys
import time

from hack.controlplane.probes import LOOPBACK, free_port, http_ok

_WAIT_SECONDS = 60.0
_POLL_SECONDS = 0.05


def main(arguments: list[str]) -> int:
    """Run the operator.

    Args:
        arguments: Arguments of ``bayplan run``.

    Returns:
        Exit code of the operator after SIGTERM; 1 if it did not become ready.
    """
    port = free_port()
    command = [sys.executable, "-m", "bayplan", "run", *arguments, f"--serve-address={LOOPBACK}:{port}"]
    if "--config" not in arguments:
        command += ["--leader-elect", "--namespace=bayplan"]
    process = subprocess.Popen(command)
    try:
        deadline = time.monotonic() + _WAIT_SECONDS
        while not http_ok(port, "/readyz"):
            if process.poll() is not None:
                return process.returncode
            if time.monotonic() > deadline:
                sys.stderr.write(f"not ready within {_WAIT_SECONDS:.0f} s\n")
                return 1
            time.sleep(_POLL_SECONDS)
        process.terminate()
        return process.wait(_WAIT_SECONDS)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
