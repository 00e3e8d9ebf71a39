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
from hack.controlplane.binaries import MissingBinary, UnsupportedRelease, cache_dir, selected_minor
from hack.controlplane.launcher import TEMPORARY_PREFIX, ControlPlane, ControlPlaneError
from hack.controlplane.native_groups import NATIVE_GROUPS
from hack.controlplane.servers import Options

_ROOT = Path(__file__).resolve().parents[2]


def main(argv: Sequence[str] | None = None) -> int:
    arguments = _parser().parse_args(argv)
    try:
        if arguments.command == "up":
            up(arguments.state_dir, audit=arguments.audit, kwok=arguments.kwok, end_command=arguments.end_command)
        else:
            down(arguments.state_dir)
    except (ControlPlaneError, MissingBinary, UnsupportedRelease) as problem:
        sys.stderr.write(f"{problem}\n")
        return 1
    return 0


def up(state_dir: Path | None, *, audit: bool = False, kwok: bool = False, end_command: str = "") -> None:
    """Start a control plane that keeps running, and print how to use and stop it.

    It serves Kubernetes' own PodGroups if the selected release has them. Its state directory has links to
    kubectl, and to Helm if that was built, in ``bin``.
    """
    options = Options(audit=audit, state_dir=state_dir)
    native = NATIVE_GROUPS.get(selected_minor())
    if native is not None:
        options = replace(options, feature_gates=native.feature_gates, runtime_config=native.runtime_config)
    with ControlPlane(options, detach=True) as plane:
        if kwok:
            plane.start_kwok()
        link = plane.state_dir / "bin" / "kubectl"
        link.parent.mkdir(exist_ok=True)
        for program in (plane.binary("kubectl"), cache_dir("helm") / "helm"):
            if program.exists():
                (link.parent / program.name).unlink(missing_ok=True)
                (link.parent / program.name).symlink_to(program)
    print(how_to_use(plane, kubectl=link, end_command=end_command))


def how_to_use(plane: ControlPlane, *, kubectl: Path | None = None, end_command: str = "") -> str:
    """Return how to use a running control plane: kubeconfig, logs, and how to stop it.

    Args:
        kubectl: Path to print instead of that of the binary.
        end_command: Command that stops it, in the root of the repository; "" for that of the launcher.
    """
    down = end_command or f"{sys.executable} -m hack.controlplane.launcher down {plane.state_dir}"
    lines = [
        f"The API server is {plane.url}. To use it:",
        f"  export KUBECONFIG={plane.kubeconfig}",
        f"  {kubectl or plane.binary('kubectl')} get nodes",
        f"Logs: {plane.state_dir / 'logs'}",
        "To end it:",
        f"  cd {_ROOT} && {down}",
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
    starting.add_argument("--end-command", default="", help="Command to print that stops it; that of `down` by default")
    starting.add_argument("--audit", action="store_true", help="Write an audit log of pod writes")
    stopping = commands.add_parser("down", help="Stop a control plane")
    stopping.add_argument("state_dir", type=Path, help="Its state directory")
    return parser
