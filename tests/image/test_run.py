"""The image on a real API server, run as by the chart's Deployment.

The tests share one container because they do not affect each other; the test of its end comes last.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from hack.controlplane.installed_operator import Account, expanded_arguments
from hack.controlplane.launcher import ControlPlane
from hack.controlplane.probes import LOOPBACK, free_port
from hack.controlplane.schedulers import await_definitions
from hack.image.engines import ImageError
from hack.image.image_build import ROOT, provenance
from tests.charts.conftest import Helm
from tests.image.conftest import BuiltImage
from tests.image.container import Container, container_flags
from tests.image.pod_mounts import PodMounts
from tests.support.namespaces import new_namespace
from tests.support.tables import table

pytestmark = pytest.mark.in_order

_PODS = ("one", "two", "three")
_ANYWHERE = "0.0.0.0"  # noqa: S104 - the chart's address; the test replaces it by loopback


@pytest.fixture(scope="module")
def cluster_name(control_plane: ControlPlane) -> Iterator[str]:
    """Create a namespace on a control plane with the CRDs; cluster-scoped objects of the tests have the same name."""
    definitions = str(ROOT / "crds")
    control_plane.kubectl("apply", "--server-side", "--force-conflicts", f"--filename={definitions}")
    await_definitions(control_plane)
    with new_namespace(control_plane, f"image-{free_port()}") as name:
        yield name
    control_plane.kubectl("delete", "--ignore-not-found", f"schedulerprofile/{name}", f"node/{name}")


@pytest.fixture(scope="module")
def manifests(helm: Helm, control_plane: ControlPlane, cluster_name: str) -> Iterator[dict[str, dict[str, Any]]]:
    """Render and apply the chart; return its objects by kind."""
    values = {
        "fullnameOverride": cluster_name,
        "settings": {"serveAddress": f"{_ANYWHERE}:{free_port()}", "localAddress": f"{LOOPBACK}:{free_port()}"},
        "defaultProfile": {"name": cluster_name},
    }
    stream = helm.template(values, cluster_name)
    documents = {one["kind"]: one for one in yaml.safe_load_all(stream) if one["metadata"]["name"] == cluster_name}
    documents |= {one["kind"]: one for one in yaml.safe_load_all(stream) if one["kind"] not in documents}
    control_plane.kubectl("apply", "--filename=-", input=stream)
    yield documents
    control_plane.kubectl("delete", "--ignore-not-found", "--filename=-", input=stream)


@pytest.fixture(scope="module")
def operator(
    image: BuiltImage,
    manifests: dict[str, dict[str, Any]],
    control_plane: ControlPlane,
    cluster_name: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Container]:
    """Start the container of the Deployment's pod with its restrictions and the chart's service account."""
    pod = manifests["Deployment"]["spec"]["template"]["spec"]
    container, account = pod["containers"][0], Account(control_plane, cluster_name, pod["serviceAccountName"])
    account.wait_until_granted()
    config = dict(manifests["ConfigMap"]["data"])
    # The container shares the host's network, where tests listen on loopback only.
    config["settings.yaml"] = config["settings.yaml"].replace(_ANYWHERE, LOOPBACK)
    mounts = PodMounts(tmp_path_factory.mktemp("pod"))
    mounts.add_config_map(manifests["ConfigMap"]["metadata"]["name"], config)
    authority = (control_plane.state_dir / "certs" / "apiserver.crt").read_text()
    mounts.add_service_account(account.token, authority, cluster_name)
    audience = ("create", "token", account.name, f"--namespace={cluster_name}", "--audience=bayplan.dev")
    mounts.add_projected_token("token", control_plane.kubectl(*audience).strip())
    environment = {
        "KUBERNETES_SERVICE_HOST": LOOPBACK,
        "KUBERNETES_SERVICE_PORT": control_plane.url.rpartition(":")[2],
        "HEALTHCHECK_URL": _probe_url(container, "livenessProbe"),
        "HOSTNAME": cluster_name,
    }
    flags = [*container_flags(pod), *mounts.flags(pod), *(f"--env={key}={one}" for key, one in environment.items())]
    with Container(
        image.engine, image.tag, flags, expanded_arguments(container), _probe_url(container, "readinessProbe")
    ) as running:
        running.until_ready()
        yield running


def test_it_binds_pods(operator: Container, control_plane: ControlPlane, cluster_name: str) -> None:
    """The operator binds pods with the chart's rights and default profile, without a writable file system."""
    objects = [_node(cluster_name), *(_pod(name, cluster_name) for name in _PODS)]
    listed = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
    control_plane.kubectl("apply", f"--namespace={cluster_name}", "--filename=-", input=listed)
    for name in _PODS:
        node = f"--for=jsonpath={{.spec.nodeName}}={cluster_name}"
        control_plane.kubectl("wait", f"pod/{name}", node, f"--namespace={cluster_name}", "--timeout=60s")


def test_it_runs_without_privileges(operator: Container) -> None:
    """The process has a numeric user, no capability, no way to gain one, and a seccomp filter."""
    fields = dict(line.split(":", 1) for line in operator.execute(_READ, "/proc/1/status").splitlines() if line)
    found = {name: fields[name].split()[0] for name in ("Uid", "CapEff", "CapBnd", "CapPrm", "NoNewPrivs", "Seccomp")}
    none = "0" * 16
    assert found == {"Uid": "65532", "CapEff": none, "CapBnd": none, "CapPrm": none, "NoNewPrivs": "1", "Seccomp": "2"}


@pytest.mark.parametrize("directory", ["/", "/opt/bayplan", "/etc", "/etc/bayplan", "/var/run/secrets"])
def test_it_cannot_write(operator: Container, directory: str) -> None:
    """The root file system and the mounts are read-only."""
    output = operator.execute(_WRITE, f"{directory}/new")
    assert output.strip() in {"EROFS", "EACCES"}


def test_it_can_write_temporary_files(operator: Container) -> None:
    """Plugins can write temporary files."""
    assert operator.execute(_WRITE, "/tmp/new").strip() == "written"  # noqa: S108 - a container's own


def test_its_health_check_succeeds(operator: Container) -> None:
    """The engine reports the running container as healthy."""
    assert operator.health() == "healthy"


def test_its_health_check_fails(operator: Container) -> None:
    """The health check fails with the reason if no server responds."""
    output = operator.execute(_CHECK, f"http://{LOOPBACK}:{free_port()}/livez")
    assert output.startswith("1 ")
    assert "Connection refused" in output


def test_no_request_was_forbidden(operator: Container) -> None:
    """The log has no forbidden request."""
    assert [line for line in operator.log().splitlines() if "HTTP 403" in line or "forbidden" in line.lower()] == []


def test_it_ends_in_its_grace_period(operator: Container, manifests: dict[str, dict[str, Any]]) -> None:
    """SIGTERM ends the container with exit code 0 within the chart's grace period."""
    grace = manifests["Deployment"]["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
    began = time.monotonic()
    assert operator.terminate(grace) == 0
    assert time.monotonic() - began < grace


@table(
    "arguments, output",
    ("version", ["version"], f"Bayplan {provenance().version}"),
    ("help", ["--help"], "Usage: bayplan"),
    ("help of run", ["run", "--help"], "--settings"),
)
def test_its_commands_run(image: BuiltImage, arguments: list[str], output: str) -> None:
    """The image also runs the commands of the CLI."""
    with Container(image.engine, image.tag, container_flags({}), arguments) as container:
        assert container.wait() == 0
        assert output in container.log()


def test_a_missing_cluster_is_an_error(image: BuiltImage) -> None:
    """A container without a cluster exits with an error instead of hanging."""
    with Container(image.engine, image.tag, container_flags({}), ["run"]) as container:
        assert container.wait() != 0
        assert "kubeconfig" in container.log().lower()


def test_there_is_no_shell(image: BuiltImage) -> None:
    """The image has no shell to start."""
    container = Container(image.engine, image.tag, [*container_flags({}), "--entrypoint=/bin/sh"], ["-c", "true"])
    with pytest.raises(ImageError, match=r"no such file or directory|not found"), container:
        pass


_READ = "import sys; print(open(sys.argv[1]).read())"
_WRITE = """
import errno, sys
try:
    open(sys.argv[1], "w").close()
    print("written")
except OSError as problem:
    print(errno.errorcode[problem.errno])
"""
_CHECK = """
import os, subprocess, sys
given = os.environ | {"HEALTHCHECK_URL": sys.argv[1]}
result = subprocess.run(["python3", "/opt/bayplan/healthcheck.py"], env=given, capture_output=True, text=True)
print(result.returncode, result.stderr)
"""


def _probe_url(container: dict[str, Any], name: str) -> str:
    """Return the URL of a kubelet's probe; the container shares the host's network, so the host is loopback."""
    probe = container[name]["httpGet"]
    (port,) = [one["containerPort"] for one in container["ports"] if one["name"] == probe["port"]]
    return f"{probe.get('scheme', 'HTTP').lower()}://{LOOPBACK}:{port}{probe['path']}"


def _node(name: str) -> dict[str, Any]:
    resources = {"cpu": "4", "memory": "8Gi", "pods": "110"}
    labels = {"kubernetes.io/hostname": name}
    status = {"capacity": resources, "allocatable": resources}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}, "status": status}


def _pod(name: str, node: str) -> dict[str, Any]:
    container = {"name": "main", "image": "example/none", "resources": {"requests": {"cpu": "1"}}}
    # The node selector excludes nodes of other tests.
    spec = {"schedulerName": node, "nodeSelector": {"kubernetes.io/hostname": node}, "containers": [container]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
