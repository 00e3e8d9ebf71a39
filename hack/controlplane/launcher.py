"""A real control plane on loopback: etcd and kube-apiserver, and on request kwok and kube-scheduler.

It is neither envtest nor kind: the tests stop, freeze and crash the API server and etcd one by one and count bindings
in the audit log, and they run where no container starts. `python -m hack.controlplane.launcher up` starts one that
runs until `down`.

    new --start()--> running --stop()--> stopped --start()--> running
    running --reset()--> running, with the objects of the start
    running --stop_apiserver(), stop_etcd()--> degraded --start_etcd(), start_apiserver()--> running
"""

import argparse
import atexit
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import yaml

from hack.controlplane import binaries, probes, processes, servers, stored_objects
from hack.controlplane.binaries import MissingBinary, UnsupportedRelease
from hack.controlplane.credentials import User, write_kubeconfig, write_service_account_key, write_tokens
from hack.controlplane.native_groups import NATIVE_GROUPS
from hack.controlplane.processes import Command, Process
from hack.controlplane.servers import STAGES, Layout, Options

_ROOT = Path(__file__).resolve().parents[2]
_TEMPORARY_PREFIX = "bayplan-controlplane-"
_PORT_ATTEMPTS = 3
_POLL_SECONDS = 0.05


class ControlPlaneError(Exception):
    """The control plane did not start, or a command against it failed."""


class ControlPlane:
    """etcd and kube-apiserver, started and stopped together; a context manager.

    A temporary state directory is removed at the end unless there was a failure; then it remains and its path is
    printed.

    Args:
        keep: Keep a temporary state directory in any case.
        detach: Leave the processes running when the context or the interpreter ends without an error; `python -m
            hack.controlplane.launcher down STATE_DIR` stops them.
    """

    def __init__(self, options: Options | None = None, *, keep: bool = False, detach: bool = False) -> None:
        self.options = options or Options()
        self.keep = keep
        self.detach = detach
        self.admin = User("bayplan-admin", ("system:masters",))
        self._layout = Layout(Path())
        self._processes: dict[str, Process] = {}
        self._binaries: dict[str, Path] = {}
        self._etcd_ports = (0, 0)
        self._port = 0
        self._started = False
        self._first_objects: frozenset[str] = frozenset()

    # -- lifecycle ----------------------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is not None:
            self._keep_after_failure()
        if kind is not None or not self.detach:
            self.stop()

    def start(self) -> Self:
        """Start etcd and kube-apiserver and wait until both are ready.

        Raises:
            ControlPlaneError: A server did not become ready, or the state directory is in use; the message ends with
                the log.
            MissingBinary: A binary is neither found nor buildable.
        """
        self._binaries |= binaries.resolve(["etcd", "kube-apiserver", "kubectl"], self.options.kubernetes)
        self._make_state_dir()
        if not self.detach:
            atexit.register(self.stop)
        try:
            self._on_free_ports(self._start_etcd_on)
            self._on_free_ports(self._start_apiserver_on)
            self._first_objects = stored_objects.stored_keys(self._etcd_ports[0])
        except BaseException:
            self._keep_after_failure()
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """Stop every process, the last started first; remove a temporary state directory unless it must remain."""
        if not self._started:
            return
        self._started = False
        atexit.unregister(self.stop)
        for process in self._processes.values():
            # An API server whose etcd is frozen would use its whole grace period.
            process.resume()
        while self._processes:
            self._processes.popitem()[1].stop()
        processes.write_records(self.state_dir, [])
        if self.options.state_dir is None and not self.keep:
            shutil.rmtree(self.state_dir, ignore_errors=True)

    def reset(self, *, definitions: bool = False) -> None:
        """Stop every process except etcd and kube-apiserver, and delete the objects that were not there at the start.

        Objects of the start that have been changed stay as they are. A reset takes a hundredth of the CPU time of a
        start.

        Args:
            definitions: Also delete Bayplan's CustomResourceDefinitions.
        """
        for name in [name for name in reversed(self._processes) if name not in {"etcd", "kube-apiserver"}]:
            self._processes.pop(name).stop()
        port = self._etcd_ports[0]
        added = stored_objects.stored_keys(port) - self._first_objects
        kept = frozenset() if definitions else frozenset(filter(stored_objects.is_bayplan_definition, added))
        stored_objects.delete_keys(port, added - kept)

    # -- servers ------------------------------------------------------------------------------------------------------

    @property
    def apiserver(self) -> Process:
        """The latest kube-apiserver: pause, resume, CPU time."""
        return self._processes["kube-apiserver"]

    @property
    def etcd(self) -> Process:
        """The latest etcd: pause, resume, CPU time."""
        return self._processes["etcd"]

    def start_etcd(self) -> Process:
        """Start etcd again, on the same ports and data, and wait until it is ready."""
        process = self._spawn("etcd", servers.etcd_args(self._layout, *self._etcd_ports), env=servers.RARE_COLLECTION)
        self._await(process, lambda: probes.http_ok(self._etcd_ports[0], "/health"))
        return process

    def start_apiserver(self, release: str = "") -> Process:
        """Start kube-apiserver again, on the same port and with the same certificate, and wait until it is ready.

        The minor version *release* of Kubernetes replaces that of the options.
        """
        self._binaries |= binaries.resolve(["kube-apiserver"], release or self.options.kubernetes)
        arguments = servers.apiserver_args(self._layout, self.options, self._port, self._etcd_ports[0])
        process = self._spawn("kube-apiserver", arguments, env=servers.RARE_COLLECTION)
        # /readyz does not cover the namespaces that the API server creates when it starts.
        for path in ("/readyz", "/api/v1/namespaces/default", "/api/v1/namespaces/kube-system"):
            self._await(process, partial(self._apiserver_answers, path))
        return process

    def stop_etcd(self, *, crash: bool = False) -> None:
        """Stop etcd, by SIGKILL for a crash; the API server keeps running and answers with errors."""
        self._end(self.etcd, crash=crash)

    def stop_apiserver(self, *, crash: bool = False) -> None:
        """Stop kube-apiserver, by SIGKILL for a crash; etcd keeps running."""
        self._end(self.apiserver, crash=crash)

    def start_kwok(self, stages: Sequence[Path] = (STAGES,), port: int = 0) -> Process:
        """Start kwok over all nodes and wait until it serves, on a free port unless one is given."""
        self._binaries |= binaries.resolve(["kwok"])

        def start() -> Process:
            chosen = port or probes.free_port()
            arguments = servers.kwok_args(self._layout, stages, chosen)
            process = self._spawn("kwok", arguments, env={"KWOK_WORKDIR": str(self.state_dir / "kwok")})
            self._await(process, lambda: probes.http_ok(chosen, "/readyz"))
            return process

        return self._on_free_ports(start)

    def start_kube_controller_manager(self, extra_args: Sequence[str] = ()) -> Process:
        """Start kube-controller-manager: Deployments, Jobs, garbage collection and namespace deletion become real.

        No control plane starts it by itself: its controllers would delete what most tests set up by hand, such as pods
        on nodes that do not exist.
        """
        arguments = [*servers.kube_controller_manager_args(self._layout), *extra_args]
        return self._start_kubernetes_server("kube-controller-manager", arguments, "/healthz")

    def start_kube_scheduler(
        self, config: Path | None = None, extra_args: Sequence[str] = (), name: str = "kube-scheduler"
    ) -> Process:
        """Start the reference scheduler as administrator, without leader election, and wait until it is ready.

        Args:
            config: A KubeSchedulerConfiguration; its kubeconfig and leader election are set here.
            name: The process's name; a second process needs another one.
        """
        document: dict[str, Any] = yaml.safe_load(config.read_text()) if config else {}
        document.setdefault("apiVersion", "kubescheduler.config.k8s.io/v1")
        document.setdefault("kind", "KubeSchedulerConfiguration")
        document.setdefault("clientConnection", {})["kubeconfig"] = str(self.kubeconfig)
        document.setdefault("leaderElection", {})["leaderElect"] = False
        completed = self.state_dir / f"{name}.yaml"
        completed.write_text(yaml.safe_dump(document))
        return self._start_kubernetes_server("kube-scheduler", [f"--config={completed}", *extra_args], "/readyz", name)

    def _start_kubernetes_server(self, program: str, arguments: Sequence[str], probe: str, name: str = "") -> Process:
        """Start a server that serves HTTPS with a certificate of its own, as administrator, on a free port."""
        name = name or program
        self._binaries[name] = binaries.resolve([program], self.options.kubernetes)[program]
        certificates = self._layout.certificates / name

        def start() -> Process:
            port = probes.free_port()
            own = servers.secure_args(self._layout, certificates, port)
            process = self._spawn(name, [*own, *arguments])
            self._await(process, lambda: probes.https_ok(port, probe, certificates / f"{program}.crt"))
            return process

        return self._on_free_ports(start)

    def start_program(
        self, name: str, command: Sequence[str], ready: Callable[[], bool], env: Mapping[str, str] | None = None
    ) -> Process:
        """Start a program that works with this control plane; it is stopped and recorded as the servers are.

        Args:
            ready: Returns whether it is ready; called until it returns true.
            env: Further environment variables.

        Raises:
            ControlPlaneError: It ended or was not ready in time; the message ends with its log.
        """
        self._binaries[name] = Path(command[0])
        process = self._spawn(name, command[1:], env)
        self._await(process, ready)
        return process

    # -- clients ------------------------------------------------------------------------------------------------------

    @property
    def state_dir(self) -> Path:
        """Directory with data, certificates, kubeconfigs and logs."""
        return self._layout.root

    @property
    def url(self) -> str:
        """URL of the API server; the same after a restart."""
        return f"https://{probes.LOOPBACK}:{self._port}"

    @property
    def kubeconfig(self) -> Path:
        return self._layout.kubeconfig

    @property
    def audit_log(self) -> Path:
        """File with one JSON audit event a line, if the options enable it."""
        return self._layout.audit_log

    def binary(self, name: str) -> Path:
        """Return the path of a binary that this control plane uses, such as "kubectl"."""
        return self._binaries[name]

    def kubeconfig_for(self, name: str) -> Path:
        """Write the kubeconfig of one of the `users` of the options.

        Raises:
            ControlPlaneError: The options have no such user.
        """
        for user in self.options.users:
            if user.name == name:
                path = self.state_dir / f"kubeconfig-{name.replace('/', '_').replace(':', '_')}"
                write_kubeconfig(path, self.url, self._layout.apiserver_certificate.read_text(), user)
                return path
        known = ", ".join(user.name for user in self.options.users) or "no users"
        raise ControlPlaneError(f"no user {name!r}: add it to Options.users, which names {known}")

    def audit_events(self) -> list[dict[str, Any]]:
        """Return the audit events written so far, ordered by completion.

        The API server writes an event moments after the answer; an incomplete last line is left out.
        """
        if not self.audit_log.exists():
            return []
        return [json.loads(line) for line in self.audit_log.read_text().split("\n")[:-1]]

    def kubectl(self, *args: str, input: str | None = None, timeout: float = 120.0) -> str:  # noqa: A002 - subprocess' word
        """Run kubectl as administrator.

        Raises:
            ControlPlaneError: It failed; the message holds its standard error.
        """
        files = (f"--kubeconfig={self.kubeconfig}", f"--cache-dir={self.state_dir / 'kubectl'}")
        command = [str(self.binary("kubectl")), *files, *args]
        environment = {**os.environ, "GOGC": "1000"}  # garbage collection costs more than it saves in a short process
        try:
            outcome = subprocess.run(
                command, input=input, capture_output=True, text=True, timeout=timeout, check=False, env=environment
            )
        except subprocess.TimeoutExpired as problem:
            raise ControlPlaneError(f"`kubectl {' '.join(args)}` took over {timeout:.0f} s") from problem
        if outcome.returncode:
            raise ControlPlaneError(f"`kubectl {' '.join(args)}` failed: {outcome.stderr.strip()}")
        return outcome.stdout

    # -- internals ----------------------------------------------------------------------------------------------------

    def _make_state_dir(self) -> None:
        if self.options.state_dir is None:
            root = Path(tempfile.mkdtemp(prefix=_TEMPORARY_PREFIX))
        else:
            root = self.options.state_dir.resolve()
            running = [record.name for record in processes.read_records(root) if record.is_running()]
            if running:
                raise ControlPlaneError(
                    f"{root} belongs to a control plane that runs ({', '.join(running)}): choose another directory, "
                    f"or end it with `{sys.executable} -m hack.controlplane.launcher down {root}`"
                )
        self._layout = layout = Layout(root)
        self._started = True
        layout.certificates.mkdir(mode=0o700, parents=True, exist_ok=True)
        layout.logs.mkdir(exist_ok=True)
        write_tokens(layout.tokens, [self.admin, *self.options.users])
        if not layout.service_account_key.exists():
            write_service_account_key(layout.service_account_key)

    def _start_etcd_on(self) -> Process:
        self._etcd_ports = (probes.free_port(), probes.free_port())
        return self.start_etcd()

    def _start_apiserver_on(self) -> Process:
        self._port = probes.free_port()
        process = self.start_apiserver()
        write_kubeconfig(self.kubeconfig, self.url, self._layout.apiserver_certificate.read_text(), self.admin)
        return process

    def _apiserver_answers(self, path: str) -> bool:
        return probes.https_ok(self._port, path, self._layout.apiserver_certificate, self.admin.token)

    def _on_free_ports(self, start: Callable[[], Process]) -> Process:
        """Retry with other ports if another process took a port between its choice and its use."""
        for attempt in range(1, _PORT_ATTEMPTS + 1):
            try:
                return start()
            except ControlPlaneError as problem:
                if attempt == _PORT_ATTEMPTS or "address already in use" not in str(problem):
                    raise
        raise AssertionError("the last attempt returns or raises")

    def _spawn(self, name: str, arguments: Sequence[str], env: Mapping[str, str] | None = None) -> Process:
        previous = self._processes.pop(name, None)
        if previous is not None and previous.alive:
            self._processes[name] = previous
            raise ControlPlaneError(f"{name} runs already (pid {previous.pid}): stop it first")
        program = str(self.binary(name))
        log = self._layout.logs / f"{name}.log"
        process = processes.start(Command(name, (program, *arguments), log, env or {}, detached=self.detach))
        self._processes[name] = process
        processes.write_records(self.state_dir, [process.record for process in self._processes.values()])
        return process

    def _await(self, process: Process, ready: Callable[[], bool]) -> None:
        limit = self.options.ready_seconds
        deadline = time.monotonic() + limit
        while not ready():
            if not process.alive:
                what = f"{process.name} ended with status {process.returncode} while it started"
            elif time.monotonic() > deadline:
                what = f"{process.name} was not ready after {limit:.0f} s"
                process.stop()
            else:
                time.sleep(_POLL_SECONDS)
                continue
            raise ControlPlaneError(f"{what}; the end of its log, {process.log}:\n{process.tail()}")

    def _end(self, process: Process, *, crash: bool) -> None:
        if crash:
            process.kill()
        else:
            process.stop()

    def _keep_after_failure(self) -> None:
        self.keep = True
        sys.stderr.write(f"control plane: logs are in {self._layout.logs}\n")


# -- command ----------------------------------------------------------------------------------------------------------


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
    native = NATIVE_GROUPS.get(binaries.selected_minor())
    if native is not None:
        options = replace(options, feature_gates=native.feature_gates, runtime_config=native.runtime_config)
    with ControlPlane(options, detach=True) as plane:
        if kwok:
            plane.start_kwok()
        link = plane.state_dir / "bin" / "kubectl"
        link.parent.mkdir(exist_ok=True)
        for program in (plane.binary("kubectl"), binaries.cache_dir("helm") / "helm"):
            if program.exists():
                (link.parent / program.name).unlink(missing_ok=True)
                (link.parent / program.name).symlink_to(program)
    print(how_to_use(plane, kubectl=link, end_command=end_command))


def how_to_use(plane: ControlPlane, *, kubectl: Path | None = None, end_command: str = "") -> str:
    """Return how to use a running control plane: kubeconfig, logs, and how to stop it.

    Args:
        kubectl: Path to print instead of that of the binary.
        end_command: Command that stops it, in the root of the repository; "" for that of :func:`main`.
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

    It takes the directory and not pids: the record in the directory identifies the processes even after their pids were
    reused.

    Raises:
        ControlPlaneError: There is no record of a control plane in that directory.
    """
    if not (state_dir / processes.RECORDS_FILE).exists():
        raise ControlPlaneError(f"{state_dir} holds no control plane: give the directory that `up` printed")
    for record in reversed(processes.read_records(state_dir)):
        ended = processes.end_recorded(record)
        print(f"{record.name} (pid {record.pid}): {'ended' if ended else 'was not running'}")
    processes.write_records(state_dir, [])
    if state_dir.name.startswith(_TEMPORARY_PREFIX):
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


if __name__ == "__main__":
    sys.exit(main())
