"""Benchmarks start Bayplan compiled, as the image has it."""

from __future__ import annotations

import subprocess
import sys

from hack.controlplane.schedulers import compile_bytecode


def test_start_reads_bytecode_only() -> None:
    """After the compilation, no module that `bayplan run` imports is read from its source."""
    compile_bytecode()
    command = [sys.executable, "-v", "-c", "import bayplan.cli.run"]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120)
    read = [line.split()[-1].strip("'") for line in done.stderr.splitlines() if line.startswith("# code object from")]
    assert any("bayplan" in file for file in read)
    assert [file for file in read if file.endswith(".py")] == []
