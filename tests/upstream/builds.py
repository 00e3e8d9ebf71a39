"""Build kube-scheduler's integration tests so that they run another scheduler.

The module k8s.io/kubernetes is copied from the Go module cache, because Go allows no changes in its cache. The copy
gets one more file (``external.go.txt``), two changes in ``pkg/scheduler/scheduler.go``, and a wait after each place
where a test starts a scheduler. Unchanged packages come from Go's build cache, which ``hack.controlplane`` has filled.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from hack.controlplane.binaries import KUBERNETES_RELEASES, UnsupportedRelease, selected_minor

RELEASES = ("1.37", "1.36")
"""Minor versions whose tests are built, newest first; each has a Go module in ``kubernetes-<minor version>``."""

TESTS = Path("test", "integration", "scheduler")
"""Folder of the packages in the module, except those of devices."""

DEVICES = "dra/"
"""Beginning of the names of packages in test/integration/dra, whose subtests share one scheduler."""

PERFORMANCE = "scheduler_perf/"
"""Beginning of the names of packages in test/integration/scheduler_perf."""

_MODULE = "k8s.io/kubernetes"
_HERE = Path(__file__).resolve().parent
_MODULE_FILES = ("go.mod", "go.sum", "tools.go")
_SCHEDULER = Path("pkg", "scheduler", "scheduler.go")
_RUN = "func (sched *Scheduler) Run(ctx context.Context) {\n"
_NEW, _NEW_RETURN = "func New(ctx context.Context", "\treturn sched, nil\n"
_DEVICE_TESTS = TESTS.parent / "dra"
_PERFORMANCE_TESTS = TESTS.parent / "scheduler_perf"
_SETUPS = (Path("test", "integration", "util"), TESTS, _DEVICE_TESTS)
_STARTED = re.compile(
    r"^(\t+)go (?:(sched|\w+\.Scheduler)\.Run\(.*\)|func\(\) \{\n\t+(sched)\.Run\(.*\)\n\t+close\(done\)\n\t+\}\(\))\n",
    re.MULTILINE,
)
_SHARED = "\tscheduler.usageCount++\n"
_SHARED_USE = '\tfmt.Printf("EXTERNAL used by %s\\n", tCtx.Name())\n'
_EXTERNAL_RUN = "\tif len(externalCommand) > 0 {\n\t\tsched.runExternal(ctx)\n\t\treturn\n\t}\n"
_EXTERNAL_NEW = "\tif err := prepareExternal(sched, options); err != nil {\n\t\treturn nil, err\n\t}\n"
_SOURCES = "src"
# HTTP endpoints of kube-scheduler's own program, and the API server.
_OTHER_PROGRAMS = {"serving", "podgroup/admission", "dra/api"}
# The flags of hack.controlplane, so that both share compiled packages.
_FLAGS = ("-trimpath", "-ldflags=-s -w")


@dataclass(frozen=True, slots=True)
class TestBinary:
    """A test binary.

    Args:
        sources: Folder of its sources, where it runs as with ``go test``: some tests read files there.
    """

    path: Path
    sources: Path


class BuildError(Exception):
    """The tests cannot be built; the message gives the reason."""


def default_directory(minor: str) -> Path:
    """Return the directory of the module's copy and of the binaries of a minor version."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base, "bayplan", f"upstream-{KUBERNETES_RELEASES[minor]}")


def build(packages: Sequence[str], minor: str, directory: Path) -> dict[str, TestBinary]:
    """Build test binaries, except those that the same recipe has built before.

    Args:
        packages: Packages below ``test/integration/scheduler``, ``.`` for that package itself, ``dra/...`` and
            ``scheduler_perf/...``.
        minor: Minor version of Kubernetes.
        directory: Directory for the module's copy and the binaries.

    Returns:
        The binary of each package.

    Raises:
        BuildError: Go is missing or fails, or the sources are not those of the pinned version.
    """
    directory.mkdir(parents=True, exist_ok=True)
    recipe = _digest(minor)
    binaries = {package: directory / "bin" / _file_name(package) for package in packages}
    with _locked(directory / ".lock"):
        stale = {package: binary for package, binary in binaries.items() if not _is_built(binary, recipe)}
        if stale:
            _prepare(minor, directory)
        for position, (package, binary) in enumerate(stale.items(), start=1):
            sys.stderr.write(f"upstream: go test -c {package} ({position}/{len(stale)})\n")
            path = f"{_MODULE}/{_folder_of(package)}"
            _go(directory, "test", "-c", "-vet=off", *_FLAGS, "-o", str(binary), path)
            _stamp(binary).write_text(recipe, encoding="utf-8")
    copy = directory / "gen" / "kubernetes"
    return {package: TestBinary(binary, copy / _folder_of(package)) for package, binary in binaries.items()}


def environment(directory: Path) -> dict[str, str]:
    """Return environment variables by which tests find files of the module, since ``-trimpath`` removes its path."""
    return {"TEST_SRCDIR": str(directory), "TEST_WORKSPACE": _SOURCES}


def selected_release() -> str:
    """Return the minor version that the environment variable K8S selects; the newest by default.

    Raises:
        UnsupportedRelease: The tests of that version are not built.
    """
    minor = selected_minor()
    if minor not in RELEASES:
        supported = ", ".join(f'"{supported}"' for supported in RELEASES)
        raise UnsupportedRelease(f'K8S: unsupported value "{minor}": supported values: {supported}')
    return minor


def packages_of(minor: str) -> list[str]:
    """Return the packages with tests of the scheduler, sorted, except those of other programs.

    Those of devices and of scheduler_perf are built for the newest release only: an older one has fewer of them.

    Raises:
        BuildError: Go is missing or cannot download the module.
    """
    source = _source(minor)
    found = {str(file.parent.relative_to(source / TESTS)) for file in (source / TESTS).rglob("*_test.go")}
    if minor == RELEASES[0]:
        files = (*(source / _DEVICE_TESTS).glob("*/*_test.go"), *(source / _PERFORMANCE_TESTS).glob("*/**/*_test.go"))
        found |= {str(file.parent.relative_to(source / TESTS.parent)) for file in files}
    return sorted(found - _OTHER_PROGRAMS)


def patched(text: str) -> str:
    """Return scheduler.go with calls of the added file in ``New`` and ``Run``.

    Raises:
        BuildError: The file has another form than in the pinned versions.
    """
    begin = text.find(_NEW)
    end = text.find(_NEW_RETURN, begin)
    if begin < 0 or end < 0 or text.count(_RUN) != 1:
        raise BuildError(f"{_SCHEDULER} has no New or Run in a known form; adapt tests/upstream/builds.py")
    return (text[:end] + _EXTERNAL_NEW + text[end:]).replace(_RUN, _RUN + _EXTERNAL_RUN)


def patched_setup(text: str) -> str:
    """Return a file of the tests with a wait for the external scheduler after each start of a scheduler.

    Tests that share one scheduler print that they use it.
    """
    text = _STARTED.sub(r"\g<0>\1\2\3.AwaitExternal()\n", text)
    return text.replace(_SHARED, _SHARED + _SHARED_USE)


def _prepare(minor: str, directory: Path) -> None:
    """Write the Go module, and the module's copy with its changes."""
    for name in _MODULE_FILES:
        _write(directory / name, (_HERE / f"kubernetes-{minor}" / name).read_text(encoding="utf-8"))
    source, copy = _source(minor), directory / "gen" / "kubernetes"
    if not copy.is_dir():
        unfinished = copy.with_name(f"{copy.name}.unfinished")
        shutil.rmtree(unfinished, ignore_errors=True)
        shutil.copytree(source, unfinished)
        for path in (unfinished, *unfinished.rglob("*")):
            path.chmod(path.stat().st_mode | stat.S_IWUSR)
        unfinished.rename(copy)
    _link(directory / _SOURCES / f"{_MODULE}@{KUBERNETES_RELEASES[minor]}", copy)
    _write(copy / _SCHEDULER, patched((source / _SCHEDULER).read_text(encoding="utf-8")))
    for folder in _SETUPS:
        for file in (source / folder).rglob("*.go"):
            _write(copy / file.relative_to(source), patched_setup(file.read_text(encoding="utf-8")))
    _write(copy / _SCHEDULER.with_name("external.go"), (_HERE / "external.go.txt").read_text(encoding="utf-8"))


def _source(minor: str) -> Path:
    """Return the module in the Go module cache; download it if it is missing."""
    module = _HERE / f"kubernetes-{minor}"
    source = Path(_go(module, "env", "GOMODCACHE").strip(), f"{_MODULE}@{KUBERNETES_RELEASES[minor]}")
    if not source.is_dir():
        _go(Path("/"), "mod", "download", f"{_MODULE}@{KUBERNETES_RELEASES[minor]}")
    return source


def _digest(minor: str) -> str:
    digest = hashlib.sha256()
    files = (_HERE / f"kubernetes-{minor}" / name for name in _MODULE_FILES)
    for file in (*files, _HERE / "external.go.txt"):
        digest.update(file.read_bytes())
    digest.update("\0".join((_STARTED.pattern, _SHARED_USE, _EXTERNAL_RUN, _EXTERNAL_NEW, *_FLAGS)).encode())
    return digest.hexdigest()


def _folder_of(package: str) -> Path:
    """Return the folder of a package in the module."""
    return (TESTS.parent if package.startswith((DEVICES, PERFORMANCE)) else TESTS) / package


def _file_name(package: str) -> str:
    return package.replace("/", "-") if package != "." else "scheduler"


def _stamp(binary: Path) -> Path:
    """Return the file that stores the digest of the recipe that built a binary."""
    return binary.with_name(f"{binary.name}.recipe")


def _is_built(binary: Path, recipe: str) -> bool:
    stamp = _stamp(binary)
    return binary.exists() and stamp.exists() and stamp.read_text(encoding="utf-8") == recipe


def _write(path: Path, text: str) -> None:
    """Write a file if its text differs, so that Go does not build it again."""
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")


def _link(path: Path, target: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.is_symlink():
        path.symlink_to(target)


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold an exclusive lock on a file; the kernel releases it if the process dies."""
    with path.open("a") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _go(directory: Path, *arguments: str) -> str:
    if shutil.which("go") is None:
        raise BuildError("go is not on PATH; install the Go version that tests/upstream/kubernetes-1.37/go.mod names")
    # GOWORK and GOFLAGS of the user's projects must not affect a pinned build.
    env = os.environ | {"CGO_ENABLED": "0", "GOFLAGS": "-mod=readonly", "GOWORK": "off"}
    outcome = subprocess.run(["go", *arguments], cwd=directory, env=env, capture_output=True, text=True, check=False)
    if outcome.returncode:
        raise BuildError(f"go {' '.join(arguments)} failed:\n{outcome.stderr.strip()}")
    return outcome.stdout
