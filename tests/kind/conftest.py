"""A kind cluster with the image of this checkout, and the chart installed as a user does.

kind needs a container engine and its node image from a registry, so `make e2e-kind` runs these tests and `make test`
leaves them out (``norecursedirs`` in pyproject.toml).
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from pytest_kind import KindCluster

from hack.controlplane import binaries
from hack.image import image_build
from hack.image.engines import choose
from tests.charts.conftest import CHART

NAMESPACE = "bayplan-system"
RELEASE = "bayplan"
_CLUSTER = "bayplan-e2e"
_REPOSITORY = "localhost/bayplan"
_ROLLOUT = "--timeout=180s"
_HERE = Path(__file__).resolve().parent


@dataclass(frozen=True, slots=True)
class Release:
    """The chart, installed in the kind cluster.

    Args:
        programs: kubectl and helm, by name.
        tag: Tag of the image in the cluster.
    """

    cluster: KindCluster
    programs: dict[str, Path]
    tag: str

    def kubectl(self, *args: str, input: str | None = None) -> str:  # noqa: A002 - subprocess' word
        """Run kubectl as administrator and return its output."""
        return self._run(self.programs["kubectl"], *args, given=input)

    def helm(self, *args: str) -> str:
        """Run Helm in the release's namespace and return its output."""
        return self._run(self.programs["helm"], *args, f"--namespace={NAMESPACE}")

    def upgrade(self, *flags: str) -> None:
        """Install the chart or upgrade the release with other values, and wait until all replicas run."""
        image = [f"--set=image.repository={_REPOSITORY}", f"--set=image.tag={self.tag}", "--set=image.pullPolicy=Never"]
        self.helm("upgrade", "--install", RELEASE, str(CHART), "--create-namespace", *image, *flags)
        self.kubectl("rollout", "status", f"deployment/{RELEASE}", f"--namespace={NAMESPACE}", _ROLLOUT)

    def leader(self) -> str:
        """Return the name of the pod that holds the Lease."""
        path = "--output=jsonpath={.spec.holderIdentity}"
        holder = self.kubectl("get", "lease/bayplan", f"--namespace={NAMESPACE}", path).strip()
        pods = self.kubectl("get", "pods", f"--namespace={NAMESPACE}", "--output=name").split()
        # The identity in the Lease is the host name, which is the pod's name, and a random suffix.
        (leading,) = [pod for pod in (one.removeprefix("pod/") for one in pods) if holder.startswith(pod)]
        return leading

    def _run(self, program: Path, *args: str, given: str | None = None) -> str:
        command = [str(program), f"--kubeconfig={self.cluster.kubeconfig_path}", *args]
        outcome = subprocess.run(command, input=given, capture_output=True, text=True, timeout=240, check=False)
        assert outcome.returncode == 0, f"{' '.join(command)}\n{outcome.stderr}"
        return outcome.stdout


@pytest.fixture(scope="session")
def programs() -> dict[str, Path]:
    """Return kubectl and helm, built as for the other tests."""
    return binaries.resolve(["kubectl", "helm"])


@pytest.fixture(scope="session")
def kind(request: pytest.FixtureRequest, programs: dict[str, Path]) -> Iterator[KindCluster]:
    """Start the cluster with the kind on PATH, if any; delete it at the end unless `--keep-cluster` is set."""
    given = request.config.getoption("kind_bin") or shutil.which("kind")
    cluster = KindCluster(
        _CLUSTER,
        image=request.config.getoption("kind_image"),
        kind_path=Path(given) if given else None,
        kubectl_path=programs["kubectl"],
    )
    cluster.create(_HERE / "kind.yaml")
    yield cluster
    if not request.config.getoption("keep_cluster"):
        cluster.delete()


@pytest.fixture(scope="session")
def image_tag(kind: KindCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Load the image of this checkout into every node and return its tag."""
    engine, origin = choose(), image_build.provenance()
    name = f"{_REPOSITORY}:{origin.version}"
    archive = tmp_path_factory.mktemp("image") / "image.tar"
    image_build.build(engine, name, origin)
    engine.save(name, archive)
    command = [str(kind.kind_path), "load", "image-archive", str(archive), f"--name={kind.name}"]
    subprocess.run(command, check=True, timeout=300)
    yield origin.version
    archive.unlink()


@pytest.fixture(scope="session")
def release(kind: KindCluster, programs: dict[str, Path], image_tag: str) -> Release:
    """Install the chart with its default values except for the image, and wait for the rollout."""
    installed = Release(kind, programs, image_tag)
    installed.upgrade()
    return installed
