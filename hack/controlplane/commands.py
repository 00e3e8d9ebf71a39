"""`python -m hack.controlplane.launcher up|down`: a control plane that keeps running after the command ends.

`down` takes the directory and not pids: the record in the directory identifies the processes even after their pids
were reused.
"""

import argparse
import shutil
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from hack.controlplane import processes
from hack.controlplane.binaries import MissingBinary, UnsupportedRelease, selected_minor
from hack.controlplane.launcher import TEMPORARY_PREFIX, ControlPlane, ControlPlaneError
from hack.controlplane.native_groups import NATIVE_GROUPS
from hack.controlplane.servers import Options

_ROOT = Path(__file__).resolve().parents[2]


def main(argv: Sequence[str] | None = None) -> int:
    arguments = _parser().parse_args(argv)
    try:
        if arguments.command == "up":
            up(arguments.state_dir, audit=arguments.audit, kwok=arguments.kwok)
        else:
            down(arguments.state_dir)
    except (ControlPlaneError, MissingBinary, UnsupportedRelease) as problem:
        sys.stderr.write(f"{problem}\n")
        return 1
    return 0


def up(state_dir: Path | None, *, audit: bool = False, kwok: bool = False) -> None:
    """Start a control plane that keeps running, and print how to use and stop it.

    It serves Kubernetes' own PodGroups if the selected release has them.
    """
    options = Options(audit=audit, state_dir=state_dir)
    native = NATIVE_GROUPS.get(selected_minor())
    if native is not None:
        options = replace(options, feature_gates=native.feature_gates, runtime_config=native.runtime_config)
    with ControlPlane(options, detach=True) as plane:
        if kwok:
            plane.start_kwok()
    print(how_to_use(plane))


def how_to_use(plane: ControlPlane) -> str:
    """Return how to use a running control plane: kubeconfig, logs, and how to stop it."""
    lines = [
        f"The API server is {plane.url}. To use it:",
        f"  export KUBECONFIG={plane.kubeconfig}",
        f"  {plane.binary('kubectl')} get nodes",
        f"Logs: {plane.state_dir / 'logs'}",
        "To end it:",
        f"  cd {_ROOT} && {sys.executable} -m hack.controlplane.launcher down {plane.state_dir}",
    ]
    return "\n".join(lines)


def down(state_dir: Path) -> None:
    """Stop the processes of a control plane, the last started first, and remove a temporary state directory.

    Raises:
        ControlPlaneError: There is no record of a control plane in that directory.
    """
    if not (state_dir / processes.RECORDS_FILE).exists():
        raise ControlPlaneError(f"{state_dir} holds no control plane: give the directory that `up` printed")
    for record in reversed(processes.read_records(state_dir)):
        ended = processes.end_recorded(record)
        print(f"{record.name} (pid {record.pid}): {'ended' if ended else 'was not running'}")
    processes.write_records(state_dir, [])
    if state_dir.name.startswith(TEMPORARY_PREFIX):
        shutil.rmtree(state_dir)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m hack.controlplane.launcher",
        description="A real control plane.",
        epilog="The environment variable K8S selects its minor version: K8S=1.36.",
    )
    commands = parser.add_subparsers(dest="command", required=True)
    starting = commands.add_parser("up", help="Start a control plane that runs until `down`")
    starting.add_argument("--state-dir", type=Path, help="State directory; a temporary directory by default")
    starting.add_argument("--kwok", action="store_true", help="Start kwok, which simulates the kubelet of every node")
    starting.add_argument("--audit", action="store_true", help="Write an audit log of pod writes")
    stopping = commands.add_parser("down", help="Stop a control plane")
    stopping.add_argument("state_dir", type=Path, help="Its state directory")
    return parser
