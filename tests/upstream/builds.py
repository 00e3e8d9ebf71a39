"""Builds kube-scheduler's integration tests so that they run another scheduler.

The module k8s.io/kubernetes is copied from the Go module cache, because Go allows no changes in its cache. The copy
gets one more file (``external.go.txt``), two changes in ``pkg/scheduler/scheduler.go``, and one in the tests' setup.
"""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
from pathlib import Path

KUBERNETES_VERSION = "v1.36.3"
_MODULE = "k8s.io/kubernetes"
_HERE = Path(__file__).resolve().parent
_SCHEDULER = Path("pkg", "scheduler", "scheduler.go")
_RUN = "func (sched *Scheduler) Run(ctx context.Context) {\n"
_NEW, _NEW_RETURN = "func New(ctx context.Context", "\treturn sched, nil\n"
_SETUP = Path("test", "integration", "util", "util.go")
_STARTED = "\tgo testCtx.Scheduler.Run(testCtx.SchedulerCtx)\n"
_AWAITED = "\ttestCtx.Scheduler.AwaitExternal()\n"
_EXTERNAL_RUN = "\tif len(externalCommand) > 0 {\n\t\tsched.runExternal(ctx)\n\t\treturn\n\t}\n"
_EXTERNAL_NEW = "\tif err := prepareExternal(sched, options); err != nil {\n\t\treturn nil, err\n\t}\n"


class BuildError(Exception):
    """The tests cannot be built; the message says why."""


def default_directory() -> Path:
    """Return the directory of the module's copy and of the binaries."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base, "bayplan", f"upstream-{KUBERNETES_VERSION}")


def build(packages: list[str], directory: Path) -> dict[str, Path]:
    """Build test binaries; Go's cache makes a repeated build quick.

    Args:
        packages: Packages below ``test/integration/scheduler``; ``.`` for that package itself.
        directory: Where the module's copy and the binaries go.

    Returns:
        The binary of each package.

    Raises:
        BuildError: Go is missing or fails, or the sources are not those of the pinned version.
    """
    if shutil.which("go") is None:
        raise BuildError("go is not on PATH; install the Go version that tests/upstream/go.mod names")
    directory.mkdir(parents=True, exist_ok=True)
    for name in ("go.mod", "go.sum", "tools.go"):
        _write(directory / name, (_HERE / name).read_text(encoding="utf-8"))
    _copy_module(directory / "gen" / "kubernetes")
    binaries = {}
    for package in packages:
        binary = directory / "bin" / (package.replace("/", "-") if package != "." else "scheduler")
        _go(
            directory,
            "test",
            "-c",
            "-vet=off",
            "-o",
            str(binary),
            f"{_MODULE}/test/integration/scheduler/{package}".rstrip("/."),
        )
        binaries[package] = binary
    return binaries


def _copy_module(copy: Path) -> None:
    source = Path(_go(Path("/"), "env", "GOMODCACHE").strip(), f"{_MODULE}@{KUBERNETES_VERSION}")
    if not source.is_dir():
        _go(Path("/"), "mod", "download", f"{_MODULE}@{KUBERNETES_VERSION}")
    if not copy.is_dir():
        unfinished = copy.with_name(f"{copy.name}.unfinished")
        shutil.rmtree(unfinished, ignore_errors=True)
        shutil.copytree(source, unfinished)
        for path in (unfinished, *unfinished.rglob("*")):
            path.chmod(path.stat().st_mode | stat.S_IWUSR)
        unfinished.rename(copy)
    _write(copy / _SCHEDULER, patched((source / _SCHEDULER).read_text(encoding="utf-8")))
    _write(copy / _SETUP, patched_setup((source / _SETUP).read_text(encoding="utf-8")))
    _write(copy / _SCHEDULER.with_name("external.go"), (_HERE / "external.go.txt").read_text(encoding="utf-8"))


def patched(text: str) -> str:
    """Return scheduler.go with calls of the added file in ``New`` and ``Run``.

    Raises:
        BuildError: The file has another form than in the pinned version.
    """
    begin = text.find(_NEW)
    end = text.find(_NEW_RETURN, begin)
    if begin < 0 or end < 0 or text.count(_RUN) != 1:
        raise BuildError(
            f"{_SCHEDULER} has no New or Run in the form of {KUBERNETES_VERSION}; adapt tests/upstream/builds.py"
        )
    return (text[:end] + _EXTERNAL_NEW + text[end:]).replace(_RUN, _RUN + _EXTERNAL_RUN)


def patched_setup(text: str) -> str:
    """Return the setup of the tests with a wait for the external scheduler after each start of a scheduler.

    Raises:
        BuildError: The file has another form than in the pinned version.
    """
    if _STARTED not in text:
        raise BuildError(f"{_SETUP} has another form than in {KUBERNETES_VERSION}; adapt tests/upstream/builds.py")
    return text.replace(_STARTED, _STARTED + _AWAITED)


def _write(path: Path, text: str) -> None:
    """Write a file if its text differs, so that Go does not build it again."""
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")


def _go(directory: Path, *arguments: str) -> str:
    env = os.environ | {"GOFLAGS": "", "GOWORK": "off"}
    outcome = subprocess.run(["go", *arguments], cwd=directory, env=env, capture_output=True, text=True, check=False)
    if outcome.returncode:
        raise BuildError(f"go {' '.join(arguments)} failed:\n{outcome.stderr.strip()}")
    return outcome.stdout
