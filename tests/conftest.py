"""The real control plane for every test that asks for it, and what happens where it cannot be had.

Owns the session's control plane and the skip or failure of tests that lack a binary. It must not know what is tested.

Why the binaries are looked for between collection and the first test: building them takes minutes, and a test's
time-out should not have to cover that.
"""

import os
import uuid
from collections.abc import Iterator

import pytest

from hack.controlplane import binaries
from hack.controlplane.launcher import ControlPlane
from hack.controlplane.processes import Process
from hack.controlplane.servers import Options

_BINARIES_BY_MARKER = {
    "cluster": ("etcd", "kube-apiserver", "kubectl"),
    "kwok": ("kwok",),
    "kube_scheduler": ("kube-scheduler",),
}
_MARKERS_BY_FIXTURE = {"control_plane": "cluster", "kwok": "kwok"}

_LACKING = pytest.StashKey[dict[str, str]]()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark a test by the servers that its fixtures start, so that `-m "not cluster"` is always true to its word."""
    for item in items:
        for fixture in getattr(item, "fixturenames", ()):
            if fixture in _MARKERS_BY_FIXTURE:
                item.add_marker(_MARKERS_BY_FIXTURE[fixture])


def pytest_collection_finish(session: pytest.Session) -> None:
    """Find or build what the collected tests need, and remember what is lacking."""
    lacking: dict[str, str] = {}
    session.config.stash[_LACKING] = lacking
    if session.config.option.collectonly:
        return
    capture = session.config.pluginmanager.getplugin("capturemanager")
    for marker, names in _BINARIES_BY_MARKER.items():
        if not any(item.get_closest_marker(marker) for item in session.items):
            continue
        try:
            with capture.global_and_fixture_disabled():
                binaries.resolve(names)
        except binaries.MissingBinary as problem:
            lacking[marker] = str(problem)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test that lacks a binary; in CI that is a failure."""
    for marker, problem in item.config.stash[_LACKING].items():
        if item.get_closest_marker(marker):
            if os.environ.get("CI"):
                pytest.fail(problem, pytrace=False)
            pytest.skip(problem)


@pytest.fixture(scope="session")
def control_plane(request: pytest.FixtureRequest) -> Iterator[ControlPlane]:
    """A running etcd and kube-apiserver with an audit log, one for the session."""
    with ControlPlane(Options(audit=True)) as plane:
        yield plane
        # A test's failure does not pass through here; the servers' logs may explain it.
        plane.keep = request.session.testsfailed > 0
        if plane.keep:
            reporter = request.config.pluginmanager.getplugin("terminalreporter")
            reporter.write_line(f"\nthe control plane's logs are kept in {plane.state_dir / 'logs'}")


@pytest.fixture(scope="session")
def kwok(control_plane: ControlPlane) -> Process:
    """Kwok in the kubelet's place on every node of the session's control plane."""
    return control_plane.start_kwok()


@pytest.fixture
def namespace(control_plane: ControlPlane) -> Iterator[str]:
    """A namespace for one test; its pods are removed at the end, without grace, and their finalizers with them."""
    name = f"test-{uuid.uuid4().hex[:10]}"
    control_plane.kubectl("create", "namespace", name)
    yield name
    # No namespace controller runs, so the namespace stays. One request for all pods: kubectl deletes five a second.
    pods = f"/api/v1/namespaces/{name}/pods"
    control_plane.kubectl("delete", "--raw", f"{pods}?gracePeriodSeconds=0")
    held = control_plane.kubectl("get", "pods", "--namespace", name, "--output=name").split()
    if held:
        patch = '{"metadata":{"finalizers":null}}'
        control_plane.kubectl("patch", *held, "--namespace", name, "--type=merge", f"--patch={patch}")
