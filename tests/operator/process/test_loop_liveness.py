"""Tests that a stalled event loop ends its process and a running one does not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from bayplan.process.loop_liveness import STALLED_EXIT_CODE

from tests.support.tables import table

_OPERATOR = Path(__file__).resolve().parents[2] / "operator"

_PROGRAM = """
import asyncio, re, time
from bayplan.process.loop_liveness import LoopLiveness

def stand_still():
    {stall}

async def main():
    liveness = LoopLiveness({limit})
    liveness.start()
    await asyncio.sleep(0.01)
    stand_still()
    for _ in range(60):
        await asyncio.sleep({limit} / 50)
    liveness.stop()
    time.sleep({limit} * 1.6)

asyncio.run(main())
print("done")
"""


def _run(stall: str, limit: float = 0.3) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", _PROGRAM.format(stall=stall, limit=limit)],
        cwd=_OPERATOR,
        env={"PYTHONPATH": str(_OPERATOR.parent)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_a_running_loop_does_not_end_the_process() -> None:
    """A process with a running loop is not ended, neither during the watch nor after it."""
    # The limit is a pause that a busy machine does not make.
    ended = _run("pass", 1.5)
    assert (ended.returncode, ended.stdout.strip(), ended.stderr) == (0, "done", "")


@table("stall", ("blocking call", "time.sleep(60)"), ("endless loop", "while True: pass"))
def test_a_stalled_loop_ends_the_process(stall: str) -> None:
    """After the limit a stalled process writes its stacks and exits with its own exit code."""
    ended = _run(stall)
    assert ended.returncode == STALLED_EXIT_CODE
    assert "The event loop has been stalled for 0.3 s" in ended.stderr
    assert "in stand_still" in ended.stderr


def test_c_code_that_holds_the_interpreter_ends_the_process() -> None:
    """If no Python thread can run, faulthandler ends the process."""
    ended = _run('re.match(r"(a+)+$", "a" * 60 + "b")')
    assert ended.returncode == 1
    assert "in stand_still" in ended.stderr
