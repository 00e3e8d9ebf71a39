"""Finds or builds the control plane's binaries: etcd, Kubernetes' own, and kwok; Helm, Prometheus, and Bayplan's peers.

Peers are the controllers that Bayplan works beside, such as Kueue; `peers.py` starts them. This module needs only the
standard library and stores what it builds in a per-user cache. The binaries are built from Go modules because a module
proxy and `go.sum` are the only things that a machine behind a firewall reliably has, and one pinned recipe gives the
same API server to the tests, the demo and the benchmarks. The other sources (`KUBEBUILDER_ASSETS`, setup-envtest) serve
machines without Go.

Sources, first hit wins, for each binary separately:
  1. the directory named by `KUBEBUILDER_ASSETS`;
  2. the cache, `$XDG_CACHE_HOME/bayplan/controlplane/<key>`, where the key covers the recipe and the module;
  3. `go build` into that cache;
  4. `setup-envtest`, when it is on PATH (etcd, kube-apiserver and kubectl only);
  5. any kubectl on PATH (kubectl only).

The environment variable `K8S` selects the minor version of Kubernetes' own binaries, such as `K8S=1.36`.
"""

import contextlib
import fcntl
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hack.controlplane.module_sources import ModuleSourceError, SourceEdit, go_environment, prepare_edited

KUBERNETES_RELEASES: Mapping[str, str] = {"1.37": "v1.37.1", "1.36": "v1.36.3", "1.35": "v1.35.4"}
"""Supported releases by minor version, newest first. Each has a Go module in `kubernetes-<minor version>`."""

NEWEST = next(iter(KUBERNETES_RELEASES))
"""Minor version of the control plane unless the environment variable K8S names another, and of the reference."""

_HERE = Path(__file__).resolve().parent
_KUBERNETES_MODULE = "kubernetes-{minor}"
# What k8s.io/client-go is there: the Kubernetes version that Helm renders for unless a cluster reports another.
_HELM3_STAMPS = tuple(
    f"helm.sh/helm/v3/pkg/{package}.k8sVersion{part}={number}"
    for package in ("chartutil", "lint/rules")
    for part, number in (("Major", 1), ("Minor", 37))
)
_ENVTEST_NAMES = frozenset({"etcd", "kube-apiserver", "kubectl"})
_STAMPED_PACKAGES = ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")


class UnsupportedRelease(ValueError):  # noqa: N818 - names the problem, as MissingBinary does
    """The environment variable K8S names no supported minor version."""


class MissingBinary(Exception):  # noqa: N818 - names the problem, as FileNotFoundError does
    """A binary can neither be found nor built here.

    Attributes:
        names: The missing binaries, in the requested order.
    """

    def __init__(self, names: Sequence[str], reasons: Sequence[str], remedy: str) -> None:
        self.names = tuple(names)
        lines = [f"the control plane lacks {', '.join(names)}.", *(f"  - {reason}" for reason in reasons), remedy]
        super().__init__("\n".join(lines))


@dataclass(frozen=True, slots=True)
class _Recipe:
    """How one binary is built.

    Args:
        module: Directory of the Go module that requires the package, relative to this file; `{minor}` stands for the
            minor version of the control plane.
        stamps: Variables that its own release build sets, as `package.name=value`.
        tags: Build tags, separated by commas.
        edited: Path of the module whose source is changed by `edits` for the build; "" for none.
    """

    module: str
    package: str
    stamps: tuple[str, ...] = ()
    tags: str = ""
    edited: str = ""
    edits: tuple[SourceEdit, ...] = ()

    def built_for(self, minor: str = "") -> str:
        """Return the minor version that the binary is built from or for; ``minor`` replaces the selected one."""
        return (minor or selected_minor()) if "{minor}" in self.module else NEWEST

    def directory(self, minor: str = "") -> Path:
        return _HERE / self.module.format(minor=self.built_for(minor))


# One module for each binary but Kubernetes' own: a new Helm must not rebuild the API server.
RECIPES: Mapping[str, _Recipe] = {
    "etcd": _Recipe(_KUBERNETES_MODULE, "go.etcd.io/etcd/server/v3"),
    "kube-apiserver": _Recipe(_KUBERNETES_MODULE, "k8s.io/kubernetes/cmd/kube-apiserver"),
    "kubectl": _Recipe(_KUBERNETES_MODULE, "k8s.io/kubernetes/cmd/kubectl"),
    "kube-scheduler": _Recipe(_KUBERNETES_MODULE, "k8s.io/kubernetes/cmd/kube-scheduler"),
    "kube-controller-manager": _Recipe(_KUBERNETES_MODULE, "k8s.io/kubernetes/cmd/kube-controller-manager"),
    "kwok": _Recipe("kwok", "sigs.k8s.io/kwok/cmd/kwok"),
    "helm": _Recipe("helm", "helm.sh/helm/v4/cmd/helm"),
    # The previous release line: charts have to work with both, and they share neither package nor dependencies.
    # Without the stamps it assumes Kubernetes v1.20, and rejects charts for newer ones.
    "helm3": _Recipe("helm3", "helm.sh/helm/v3/cmd/helm", _HELM3_STAMPS),
    # Without the discovery of targets at clouds, which the tests do not use and which doubles the build.
    "prometheus": _Recipe("prometheus", "github.com/prometheus/prometheus/cmd/prometheus", tags="remove_all_sd"),
    "promtool": _Recipe("prometheus", "github.com/prometheus/prometheus/cmd/promtool", tags="remove_all_sd"),
    # It reads a certificate of its metrics from a directory that only root can create.
    "kueue": _Recipe(
        "kueue",
        "sigs.k8s.io/kueue/cmd/kueue",
        edited="sigs.k8s.io/kueue",
        edits=(SourceEdit("cmd/kueue/main.go", '"/etc/kueue/metrics/certs"', "cfg.Webhook.CertDir"),),
    ),
    "jobset": _Recipe("jobset", "sigs.k8s.io/jobset"),
    "lws": _Recipe("lws", "sigs.k8s.io/lws/cmd"),
    "descheduler": _Recipe("descheduler", "sigs.k8s.io/descheduler/cmd/descheduler"),
    # With its provider of kwok nodes. It listens on all interfaces, which no flag changes.
    "karpenter": _Recipe(
        "karpenter",
        "sigs.k8s.io/karpenter/kwok",
        edited="sigs.k8s.io/karpenter",
        edits=(SourceEdit("pkg/operator/operator.go", '":%d"', '"127.0.0.1:%d"', 2),),
    ),
    # The parity tests' kube-scheduler framework.
    "oracle": _Recipe("../../tests/parity/oracle", "."),
    # The parity tests' evaluation of CEL selectors, a package of the same module.
    "selectors": _Recipe("../../tests/parity/oracle", "./selectors"),
    # kube-scheduler's end-to-end tests.
    "e2e": _Recipe("../../tests/e2e/suite", "."),
}

PEERS = ("kueue", "jobset", "lws", "descheduler", "karpenter")
"""Controllers that Bayplan works beside."""

CONTROL_PLANE = tuple(
    name for name in RECIPES if name not in {"prometheus", "promtool", "oracle", "selectors", "e2e", *PEERS}
)
"""Binaries to build by default; the others are built on request (`make test`, `make parity`, `make e2e`)."""


def selected_minor() -> str:
    """Return the minor version of the control plane: that of the environment variable K8S, else the newest.

    Raises:
        UnsupportedRelease: K8S names another version.
    """
    minor = os.environ.get("K8S") or NEWEST
    if minor not in KUBERNETES_RELEASES:
        supported = ", ".join(f'"{supported}"' for supported in KUBERNETES_RELEASES)
        raise UnsupportedRelease(f'K8S: unsupported value "{minor}": supported values: {supported}')
    return minor


def resolve(names: Sequence[str] = CONTROL_PLANE, minor: str = "") -> dict[str, Path]:
    """Find binaries of `RECIPES`, and build those that do not exist yet; return their absolute paths by name.

    Args:
        minor: Minor version of Kubernetes; by default the selected one.

    Raises:
        MissingBinary: At least one can neither be found nor built.
        UnsupportedRelease: The environment variable K8S names no supported minor version.
        ValueError: A name is no key of `RECIPES`.
    """
    unknown = [name for name in names if name not in RECIPES]
    if unknown:
        raise ValueError(f"no recipe for {', '.join(unknown)}: use one of {', '.join(RECIPES)}")
    found = _from_directories(names, minor)
    reasons: list[str] = []
    lacking = [name for name in names if name not in found]
    if lacking and shutil.which("go"):
        found |= _build(lacking, reasons, minor)
    elif lacking:
        reasons.append("go is not on PATH")
    lacking = [name for name in names if name not in found]
    if _ENVTEST_NAMES.intersection(lacking):
        found |= _from_setup_envtest(lacking, reasons, minor)
        kubectl = shutil.which("kubectl")
        if "kubectl" in lacking and "kubectl" not in found and kubectl:
            found["kubectl"] = Path(kubectl)
    lacking = [name for name in names if name not in found]
    if lacking:
        raise MissingBinary(lacking, reasons, _remedy(lacking))
    return {name: found[name] for name in names}


def cache_dir(name: str = "kube-apiserver", minor: str = "") -> Path:
    """Return the directory for the binaries that this version of the recipe and its module builds.

    It may not exist yet. Kubernetes' own binaries and etcd share one directory.
    """
    digest = hashlib.sha256()
    recipe = RECIPES[name]
    directory = recipe.directory(minor)
    for file in ("go.mod", "go.sum", *sorted(source.name for source in directory.glob("*.go"))):
        digest.update((directory / file).read_bytes())
    if recipe.package.startswith("./"):
        for source in sorted((directory / recipe.package).glob("*.go")):
            digest.update(source.read_bytes())
    edits = [recipe.edited, repr(recipe.edits)] if recipe.edits else []
    digest.update(" ".join([*_go_flags(recipe, minor), *edits, platform.system(), platform.machine()]).encode())
    is_kubernetes = recipe.module == _KUBERNETES_MODULE
    prefix = KUBERNETES_RELEASES[recipe.built_for(minor)] if is_kubernetes else directory.name
    return user_cache() / "controlplane" / f"{prefix}-{digest.hexdigest()[:12]}"


def user_cache() -> Path:
    """Return the project's folder of the user's cache."""
    return Path(os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")) / "bayplan"


def _from_directories(names: Sequence[str], minor: str) -> dict[str, Path]:
    given: list[Path] = []
    assets = os.environ.get("KUBEBUILDER_ASSETS")
    if assets:
        if not Path(assets).is_dir():
            raise MissingBinary(
                names,
                [f"KUBEBUILDER_ASSETS names {assets}, which is not a directory"],
                "Set it to a directory that holds etcd, kube-apiserver and kubectl, or unset it.",
            )
        given.append(Path(assets).resolve())
    found: dict[str, Path] = {}
    for name in names:
        for directory in (*given, cache_dir(name, minor)):
            if os.access(directory / name, os.X_OK):
                found[name] = directory / name
                break
    return found


def _go_flags(recipe: _Recipe, minor: str) -> list[str]:
    version = KUBERNETES_RELEASES[recipe.built_for(minor)]
    major, number, _ = version.removeprefix("v").split(".")
    # A binary without these stamps reports v0.0.0.
    stamps = [
        f"-X {package}.{variable}={value}"
        for package in _STAMPED_PACKAGES
        for variable, value in (("gitVersion", version), ("gitMajor", major), ("gitMinor", number))
    ]
    stamps += [f"-X {stamp}" for stamp in recipe.stamps]
    tags = ["-tags", recipe.tags] if recipe.tags else []
    return ["-trimpath", *tags, "-ldflags", " ".join(["-s", "-w", *stamps])]


def _build(names: Sequence[str], reasons: list[str], minor: str) -> dict[str, Path]:
    """Build binaries one after the other: each `go build` already uses every core."""
    built: dict[str, Path] = {}
    for position, name in enumerate(names, start=1):
        target = cache_dir(name, minor)
        target.mkdir(parents=True, exist_ok=True)
        path = target / name
        with _locked(target / ".lock"):
            # Another process may have built it while this one waited for the lock.
            if not os.access(path, os.X_OK):
                problem = _build_one(name, path, f"{position}/{len(names)}", minor)
                if problem:
                    reasons.append(problem)
                    continue
            built[name] = path
    return built


def _build_one(name: str, path: Path, position: str, minor: str) -> str | None:
    """Build one binary and move it into the cache in one step; return the error, or None.

    Args:
        position: Shown in the progress line, "2/5".
    """
    recipe = RECIPES[name]
    with tempfile.TemporaryDirectory(prefix=".build-", dir=path.parent) as scratch:
        output, log, directory = Path(scratch) / name, Path(scratch) / "log", recipe.directory(minor)
        if recipe.edits:
            module = Path(scratch) / "module"
            module.mkdir()
            try:
                prepare_edited(recipe.edited, directory, recipe.edits, module)
            except ModuleSourceError as problem:
                return f"go build of {name} failed: {problem}"
            directory = module
        command = ["go", "build", *_go_flags(recipe, minor), "-o", str(output), recipe.package]
        with log.open("wb") as sink:
            process = subprocess.Popen(
                command, cwd=directory, env=go_environment(), stdout=sink, stderr=subprocess.STDOUT
            )
            try:
                _show_progress(process, f"controlplane: go build {name} ({position})")
            finally:
                if process.poll() is None:
                    process.kill()
                    process.wait()
        if process.returncode:
            tail = "\n      ".join(log.read_text(errors="replace").splitlines()[-15:])
            return f"go build of {name} failed with status {process.returncode}:\n      {tail}"
        output.replace(path)
    return None


def _show_progress(process: subprocess.Popen[bytes], label: str) -> None:
    """Wait for a build; show one line on stderr, updated only on a terminal."""
    ticking = sys.stderr.isatty()
    started = time.monotonic()
    sys.stderr.write(f"{label} ...")
    sys.stderr.flush()
    while process.poll() is None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=1 if ticking else None)
        if ticking:
            sys.stderr.write(f"\r{label} ... {time.monotonic() - started:.0f} s")
            sys.stderr.flush()
    prefix = f"\r{label} ..." if ticking else ""
    outcome = "" if process.returncode == 0 else ", failed"
    sys.stderr.write(f"{prefix} {time.monotonic() - started:.0f} s{outcome}\n")


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold an exclusive lock on a file; the kernel releases it if the process dies."""
    with path.open("a") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            sys.stderr.write(f"controlplane: another process is building into {path.parent}, waiting for it\n")
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _from_setup_envtest(names: Sequence[str], reasons: list[str], minor: str) -> dict[str, Path]:
    tool = shutil.which("setup-envtest")
    if tool is None:
        reasons.append("setup-envtest is not on PATH")
        return {}
    command = [tool, "use", f"{minor or selected_minor()}.x", "-p", "path"]
    sys.stderr.write(f"controlplane: {' '.join(command)}\n")
    outcome = subprocess.run(command, capture_output=True, text=True, check=False)
    if outcome.returncode:
        reasons.append(f"`{' '.join(command)}` failed: {outcome.stderr.strip()}")
        return {}
    directory = Path(outcome.stdout.strip())
    return {name: directory / name for name in names if name in _ENVTEST_NAMES and os.access(directory / name, os.X_OK)}


def _remedy(names: Sequence[str]) -> str:
    remedy = "Install Go 1.26 or newer (https://go.dev/dl) with a reachable module proxy"
    if _ENVTEST_NAMES.issuperset(names):
        remedy += (
            ", or set KUBEBUILDER_ASSETS to a directory that holds etcd, kube-apiserver and kubectl, "
            "or put setup-envtest on PATH"
        )
    else:
        remedy += f", or set KUBEBUILDER_ASSETS to a directory that also holds {', '.join(names)}"
    return f"{remedy}."


def main() -> int:
    """Find or build the named binaries, or all, and print one `name path` line each; return 1 if one is missing."""
    try:
        paths = resolve(sys.argv[1:] or CONTROL_PLANE)
    except (MissingBinary, UnsupportedRelease) as problem:
        sys.stderr.write(f"{problem}\n")
        return 1
    for name, path in paths.items():
        print(f"{name:23} {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
