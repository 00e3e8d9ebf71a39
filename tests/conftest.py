"""The real control plane for the tests that use it, the order of tests, and what happens when a binary is missing.

The binaries are looked for between collection and the first test: building them takes minutes, and a test's time limit
does not cover that. Under pytest-xdist every worker has a control plane of its own.
"""

import logging
import os
import sys
import uuid
from collections.abc import Iterator

import hypothesis
import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling

from hack.controlplane import binaries
from hack.controlplane.launcher import ControlPlane
from hack.controlplane.processes import Process
from hack.controlplane.servers import Options
from tests.support.namespaces import new_namespace

_EXAMPLES = 60
_EXAMPLES_AT_NIGHT = 300

_BINARIES_BY_MARKER = {
    "cluster": ("etcd", "kube-apiserver", "kubectl"),
    "kwok": ("kwok",),
    "kube_scheduler": ("kube-scheduler",),
    "controllers": ("kube-controller-manager",),
}
_IMAGE_TESTS = "tests/image/"
_MARKERS_BY_FIXTURE = {"control_plane": "cluster", "kwok": "kwok"}

_LACKING = pytest.StashKey[dict[str, str]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option of `make nightly`."""
    parser.addoption("--nightly", action="store_true", help="run the tests marked nightly too")


def pytest_configure(config: pytest.Config) -> None:
    """Set how many examples Hypothesis draws for a test that does not say; a slow machine is no defect of one."""
    hypothesis.settings.register_profile(
        "bayplan",
        max_examples=_EXAMPLES_AT_NIGHT if config.getoption("--nightly") else _EXAMPLES,
        deadline=None,
        suppress_health_check=[hypothesis.HealthCheck.too_slow],
    )
    hypothesis.settings.load_profile("bayplan")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark tests by the servers that their fixtures start, deselect some, and move tests with servers first.

    Deselected are nightly ones, and on an older release those that expect what the newest kube-scheduler does.

    Tests with servers take the longest; at the end of a run, short modules fill all workers.
    """
    for item in items:
        for fixture in getattr(item, "fixturenames", ()):
            if fixture in _MARKERS_BY_FIXTURE:
                item.add_marker(_MARKERS_BY_FIXTURE[fixture])
    left_out = set() if config.getoption("--nightly") else {"nightly"}
    if os.environ.get("K8S", binaries.NEWEST) != binaries.NEWEST:
        left_out.add("reference")
    run: list[pytest.Item] = []
    deselected: list[pytest.Item] = []
    for item in items:
        (deselected if any(map(item.get_closest_marker, left_out)) else run).append(item)
    if deselected:
        config.hook.pytest_deselected(items=deselected)
        items[:] = run
    items.sort(key=lambda item: item.get_closest_marker("cluster") is None)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadFileScheduling:
    """Give a worker whole modules, because the tests of a module share fixtures, and all tests of the image."""
    return _ModuleScheduling(config, log)


class _ModuleScheduling(LoadFileScheduling):
    """Distribution of modules to workers; one worker builds the image."""

    def _split_scope(self, nodeid: str) -> str:
        return _IMAGE_TESTS if nodeid.startswith(_IMAGE_TESTS) else super()._split_scope(nodeid)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Find or build the binaries that the collected tests need, and record the missing ones."""
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
        except binaries.UnsupportedRelease as problem:
            raise pytest.UsageError(str(problem)) from problem
        except binaries.MissingBinary as problem:
            lacking[marker] = str(problem)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test that lacks a binary; in CI that is a failure."""
    for marker, problem in item.config.stash[_LACKING].items():
        if item.get_closest_marker(marker):
            if os.environ.get("CI"):
                pytest.fail(problem, pytrace=False)
            pytest.skip(problem)


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown() -> None:
    """Fail a test that leaves logging disabled: later tests in the same process would see no log."""
    left = logging.root.manager.disable
    logging.disable(logging.NOTSET)
    assert left == logging.NOTSET, f"logging is still disabled up to level {left}"


@pytest.fixture(scope="session")
def control_plane(request: pytest.FixtureRequest) -> Iterator[ControlPlane]:
    """A running etcd and kube-apiserver with an audit log, one for the session."""
    with ControlPlane(Options(audit=True)) as plane:
        yield plane
        # A test's failure does not pass through here; the servers' logs may explain it.
        plane.keep = request.session.testsfailed > 0
        if plane.keep:
            # A worker has no terminal reporter, only its standard error.
            with request.config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
                print(f"\nthe control plane's logs are in {plane.state_dir / 'logs'}", file=sys.stderr)  # noqa: T201


@pytest.fixture(scope="session")
def kwok(control_plane: ControlPlane) -> Process:
    """Kwok in the kubelet's place on every node of the session's control plane."""
    return control_plane.start_kwok()


@pytest.fixture
def namespace(control_plane: ControlPlane) -> Iterator[str]:
    """A namespace for one test; its pods are removed at the end."""
    with new_namespace(control_plane, f"test-{uuid.uuid4().hex[:10]}") as name:
        yield name
