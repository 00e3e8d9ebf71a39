"""Sources of the control plane's binaries, tested with stand-ins for go and setup-envtest."""

import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from hack.controlplane import binaries
from tests.support.tables import table

_ROOT = Path(binaries.__file__).resolve().parents[2]

# Stands in for `go build ... -o FILE PACKAGE`: writes FILE and counts its runs.
_GO_THAT_BUILDS = """#!/bin/sh
PATH=/usr/bin:/bin
echo "$@" >> "{log}"
while [ "$1" != "-o" ]; do shift; done
printf '#!/bin/sh\\n' > "$2"
chmod +x "$2"
"""

# Stands in for a go that also downloads a module and edits go.mod: the built file is the source that it would compile.
_GO_WITH_SOURCES = """#!/bin/sh
PATH=/usr/bin:/bin
case "$1 $2" in
"mod download") echo '{{"Dir": "{assets}"}}' ;;
"mod edit") echo "$3" >> go.mod ;;
*)
    while [ "$1" != "-o" ]; do shift; done
    cat source/cmd/kueue/main.go go.mod > "$2"
    chmod +x "$2" ;;
esac
"""

_GO_THAT_FAILS = """#!/bin/sh
echo "dial tcp: no such host"
exit 1
"""

_SETUP_ENVTEST = """#!/bin/sh
echo "$@" >> "{log}"
printf '%s' "{assets}"
"""


class Machine:
    """A machine without binaries, with its own PATH, cache and assets.

    Args:
        root: Directory of the machine's files.
    """

    def __init__(self, root: Path) -> None:
        self.path, self.assets, self.log = root / "path", root / "assets", root / "log"
        self.path.mkdir()
        self.assets.mkdir()

    def put(self, directory: Path, name: str, text: str = "#!/bin/sh\n") -> Path:
        """Write an executable."""
        directory.mkdir(parents=True, exist_ok=True)
        file = directory / name
        file.write_text(text.format(log=self.log, assets=self.assets))
        file.chmod(file.stat().st_mode | stat.S_IXUSR)
        return file

    def runs(self) -> list[str]:
        """Return the arguments of each run of a stand-in."""
        return self.log.read_text().splitlines() if self.log.exists() else []


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """Create a machine that has only the system's own tools."""
    machine = Machine(tmp_path)
    monkeypatch.setenv("PATH", str(machine.path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    monkeypatch.delenv("K8S", raising=False)
    return machine


def test_assets_come_before_the_cache(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """KUBEBUILDER_ASSETS is searched first, and the cache supplies missing binaries."""
    machine.put(binaries.cache_dir(), "etcd")
    cached = machine.put(binaries.cache_dir("kwok"), "kwok")
    given = machine.put(machine.assets, "etcd")
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(machine.assets))
    assert binaries.resolve(["etcd", "kwok"]) == {"etcd": given, "kwok": cached}


def test_assets_must_be_a_directory(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong KUBEBUILDER_ASSETS is an error and is not ignored."""
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(machine.assets / "nowhere"))
    with pytest.raises(binaries.MissingBinary, match=r"KUBEBUILDER_ASSETS names .*nowhere, which is not a directory"):
        binaries.resolve(["etcd"])


def test_go_builds_into_the_cache(machine: Machine) -> None:
    """Missing binaries are built by go from the module that requires them, and later found in the cache."""
    machine.put(machine.path, "go", _GO_THAT_BUILDS)
    first = binaries.resolve(["etcd", "kwok"])
    assert first == {name: binaries.cache_dir(name) / name for name in ("etcd", "kwok")}
    assert binaries.resolve(["etcd", "kwok"]) == first
    assert [run.split()[-1] for run in machine.runs()] == ["go.etcd.io/etcd/server/v3", "sigs.k8s.io/kwok/cmd/kwok"]


@table(
    "selected, version, minor",
    ("the newest by default", None, "v1.37.1", "37"),
    ("the newest for an empty K8S", "", "v1.37.1", "37"),
    ("1.36", "1.36", "v1.36.3", "36"),
    ("1.35", "1.35", "v1.35.4", "35"),
)
def test_k8s_selects_the_release(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, selected: str | None, version: str, minor: str
) -> None:
    """Kubernetes' binaries are built from the module of the selected release; other binaries are not built again.

    The linker stamps the version into both packages that report one.
    """
    machine.put(machine.path, "go", _GO_THAT_BUILDS.replace("$@", "$PWD $@"))
    others = {name: binaries.cache_dir(name) for name in ("kwok", "helm", "helm3", "oracle")}
    if selected is not None:
        monkeypatch.setenv("K8S", selected)
    path = binaries.resolve(["kubectl"])["kubectl"]
    (run,) = machine.runs()
    assert path.parent.name.startswith(f"{version}-")
    assert run.split()[0].endswith(f"/kubernetes-1.{minor}")
    assert f"-X k8s.io/component-base/version.gitVersion={version}" in run
    assert f"-X k8s.io/client-go/pkg/version.gitMinor={minor}" in run
    assert {name: binaries.cache_dir(name) for name in others} == others


def test_the_caller_selects_the_release(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """The release in the call takes precedence over the environment variable."""
    machine.put(machine.path, "go", _GO_THAT_BUILDS)
    monkeypatch.setenv("K8S", "1.35")
    assert binaries.resolve(["etcd"], "1.36")["etcd"] == binaries.cache_dir(minor="1.36") / "etcd"
    assert "gitVersion=v1.36.3" in machine.runs()[0]


def test_each_release_pins_its_own_modules() -> None:
    """The Go module of each minor version requires that release, with libraries of the same release."""
    for minor, version in binaries.KUBERNETES_RELEASES.items():
        module = (_ROOT / "hack" / "controlplane" / f"kubernetes-{minor}" / "go.mod").read_text()
        assert f"k8s.io/kubernetes {version}" in module
        assert f"k8s.io/apiserver => k8s.io/apiserver v0{version.removeprefix('v1')}\n" in module


@pytest.mark.parametrize("command", ["binaries", "launcher up"])
def test_unsupported_releases_are_rejected(machine: Machine, monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    """The message names the supported values."""
    monkeypatch.setenv("K8S", "1.34")
    module, *arguments = command.split()
    outcome = subprocess.run(
        [sys.executable, "-m", f"hack.controlplane.{module}", *arguments],
        cwd=_ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert outcome.returncode == 1
    assert outcome.stderr == 'K8S: unsupported value "1.34": supported values: "1.37", "1.36", "1.35"\n'


def test_a_failed_build_leaves_no_file(machine: Machine) -> None:
    """A failed build leaves no file in the cache, and the error has its output."""
    machine.put(machine.path, "go", _GO_THAT_FAILS)
    with pytest.raises(binaries.MissingBinary, match="no such host"):
        binaries.resolve(["kwok"])
    assert [path.name for path in binaries.cache_dir("kwok").iterdir()] == [".lock"]


def test_two_processes_build_once(machine: Machine) -> None:
    """When two processes need the same binary, one builds it and the other waits."""
    machine.put(machine.path, "go", _GO_THAT_BUILDS)
    command = [sys.executable, "-c", "from hack.controlplane import binaries; binaries.resolve(['etcd'])"]
    builders = [subprocess.Popen(command, cwd=_ROOT, stderr=subprocess.DEVNULL) for _ in range(2)]
    assert [builder.wait(timeout=60) for builder in builders] == [0, 0]
    assert len(machine.runs()) == 1


def test_setup_envtest_replaces_go(machine: Machine) -> None:
    """Without Go, setup-envtest supplies the three binaries that it has."""
    machine.put(machine.path, "setup-envtest", _SETUP_ENVTEST)
    for name in ("etcd", "kube-apiserver", "kubectl"):
        machine.put(machine.assets, name)
    found = binaries.resolve(["etcd", "kube-apiserver", "kubectl"])
    assert set(found) == {"etcd", "kube-apiserver", "kubectl"}
    assert machine.runs() == ["use 1.37.x -p path"]


def test_a_kubectl_on_path_is_used(machine: Machine) -> None:
    """A kubectl on PATH is used if no other source has one."""
    kubectl = machine.put(machine.path, "kubectl")
    assert binaries.resolve(["kubectl"]) == {"kubectl": kubectl}


@table(
    "name, remedy",
    ("in setup-envtest", "etcd", "or put setup-envtest on PATH"),
    ("not in setup-envtest", "kwok", "a directory that also holds kwok"),
)
def test_missing_binaries_are_named(machine: Machine, name: str, remedy: str) -> None:
    """Without any source the error names the missing binary and every remedy for it."""
    with pytest.raises(binaries.MissingBinary) as caught:
        binaries.resolve([name])
    assert caught.value.names == (name,)
    assert "go is not on PATH" in str(caught.value)
    assert "Install Go 1.26 or newer" in str(caught.value)
    assert remedy in str(caught.value)


def test_unknown_names_are_rejected() -> None:
    """A name without a recipe is a ValueError."""
    with pytest.raises(ValueError, match="no recipe for kubelet: use one of etcd"):
        binaries.resolve(["kubelet"])


@table(
    "path, problem",
    ("what the edit replaces", "/etc/kueue/metrics/certs", ""),
    ("another source", "/etc/kueue/other", "cmd/kueue/main.go contains .* not 1 times"),
)
def test_a_changed_source_is_built(machine: Machine, path: str, problem: str) -> None:
    """A recipe with edits builds a changed copy of the module, and fails if the source is not as expected."""
    machine.put(machine.path, "go", _GO_WITH_SOURCES)
    source = machine.assets / "cmd" / "kueue" / "main.go"
    source.parent.mkdir(parents=True)
    source.write_text(f'path := "{path}"\n')
    source.chmod(0o444)
    if problem:
        with pytest.raises(binaries.MissingBinary, match=problem):
            binaries.resolve(["kueue"])
        return
    built = binaries.resolve(["kueue"])["kueue"].read_text()
    assert built.startswith("path := cfg.Webhook.CertDir\n")
    assert built.endswith("-replace=sigs.k8s.io/kueue=./source\n")
    assert source.read_text() == f'path := "{path}"\n'


@pytest.mark.parametrize("name", ["kueue", "jobset", "lws", "descheduler", "karpenter"])
def test_peers_are_built_on_request(name: str) -> None:
    """Controllers that Bayplan works beside are no part of the control plane; each has a pinned module of its own."""
    recipe = binaries.RECIPES[name]
    assert name not in binaries.CONTROL_PLANE
    assert f"tool {recipe.package}\n" in (recipe.directory() / "go.mod").read_text()
    assert binaries.cache_dir(name).name.startswith(f"{name}-")


@pytest.mark.parametrize("name", ["kube-apiserver", "kwok", "helm", "helm3"])
def test_each_module_has_its_own_cache_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """A change of go.sum changes the cache directory of that module's binaries only."""
    others = {"kube-apiserver", "kwok", "helm", "helm3"} - {name}
    for other in (*others, name):
        directory = binaries.RECIPES[other].directory()
        shutil.copytree(directory, tmp_path / directory.name)
    monkeypatch.setattr(binaries, "_HERE", tmp_path)
    before = {other: binaries.cache_dir(other) for other in (*others, name)}
    (binaries.RECIPES[name].directory() / "go.sum").write_text("other")
    assert {other for other, path in before.items() if binaries.cache_dir(other) != path} == {name}


@pytest.mark.cluster
def test_the_api_server_reports_its_version() -> None:
    """The API server in use reports the selected release."""
    program = binaries.resolve(["kube-apiserver"])["kube-apiserver"]
    reported = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout
    assert reported.startswith(f"Kubernetes v{binaries.selected_minor()}.")
