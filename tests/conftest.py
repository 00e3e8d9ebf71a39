"""Fixtures of the shared control plane, the order of tests, and the handling of missing server binaries.

Binaries are found or built between collection and the first test, because a build takes longer than a test's time
limit. Under pytest-xdist, every worker has its own control plane.
"""

import gc
import logging
import os
import random
import sys
import time
import uuid
from collections.abc import Generator, Iterator
from http import HTTPStatus

import hypothesis
import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling

from hack.controlplane import binaries
from hack.controlplane.api_client import ApiClient, ApiRefusalError, Manifest
from hack.controlplane.launcher import ControlPlane
from hack.controlplane.native_groups import native_groups
from hack.controlplane.processes import Process
from hack.controlplane.servers import Options
from tests.selection.changed_paths import Selection, select
from tests.support.namespaces import new_namespace
from tests.upstream import builds as upstream

_EXAMPLES = 60
_NIGHTLY_EXAMPLES = 300

_BINARIES_BY_MARKER = {
    "cluster": ("etcd", "kube-apiserver", "kubectl"),
    "kwok": ("kwok",),
    "kube_scheduler": ("kube-scheduler",),
    "controllers": ("kube-controller-manager",),
    "prometheus": ("prometheus", "promtool"),
    "kueue": ("kueue", "helm"),
    "jobset": ("jobset", "helm"),
    "lws": ("lws", "helm"),
    "karpenter": ("karpenter",),
    "descheduler": ("descheduler",),
}
_FIRST = ("cluster", "upstream")
_LONG = ("tests/simulation/", "tests/laws/", "tests/parity/")
_YIELDING = 10
"""Niceness of workers that have come to in-process tests."""
_YOUNG_OBJECTS = 3000
"""New objects from which garbage is collected; the memory of more of them is no longer in the processor's cache."""
_IMAGE_TESTS = "tests/image/"
_MARKERS_BY_FIXTURE = {"control_plane": "cluster", "_native_plane": "cluster", "kwok": "kwok"}
_MISSING = pytest.StashKey[dict[str, str]]()
_SELECTION = pytest.StashKey[Selection]()
_PLANE = pytest.StashKey[ControlPlane]()
_CUSTOM = "/apis/bayplan.dev/v1alpha1"
_READ_SECONDS = 60.0
_IN_A_NAMESPACE_OF_A_TEST = "podgroups"
"""Groups of namespaces that no later test uses."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options that `make nightly` and CI use."""
    parser.addoption("--nightly", action="store_true", help="also run the tests marked nightly")
    parser.addoption("--upstream", action="store_true", help="also run the selection of kube-scheduler's own tests")
    parser.addoption("--order", metavar="SEED", type=int, help="run modules, and the tests of each, in a random order")
    parser.addoption(
        "--changed-from",
        metavar="COMMIT",
        help="leave out tests of images, charts, docs, the page and benchmarks if nothing that they test has changed "
        "since the merge base with COMMIT (tests/selection/changed_paths.toml); all run if that is unknown",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Set the default number of Hypothesis examples, without a deadline, since the tests also run on slow machines."""
    hypothesis.settings.register_profile(
        "bayplan",
        max_examples=_NIGHTLY_EXAMPLES if config.getoption("--nightly") else _EXAMPLES,
        deadline=None,
        suppress_health_check=[hypothesis.HealthCheck.too_slow],
    )
    hypothesis.settings.load_profile("bayplan")
    base = config.getoption("--changed-from")
    if base and not config.getoption("--nightly"):
        config.stash[_SELECTION] = select(base)


def pytest_report_header(config: pytest.Config) -> str | None:
    """Show which tests run if that depends on what changed."""
    return f"tests: {config.stash[_SELECTION].reason}" if _SELECTION in config.stash else None


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Turn garbage collection off while tests are collected, and exempt from it what exists then: modules and tests.

    It would take a third of the time of the collection of all tests, and a tenth of that of tests in one process.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(_YOUNG_OBJECTS)
        gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark tests by the servers that their fixtures start, deselect some, and move tests with servers first.

    Deselected are nightly tests, kube-scheduler's own tests, tests of unchanged parts (``--changed-from``) and, on an
    older release, tests that expect the behaviour of the newest kube-scheduler.
    Tests with servers take longest; they run first. Kube-scheduler's own tests have limits of time; they come next, so
    that they run beside in-process tests, whose workers give way. Short modules fill all workers at the end.
    """
    for item in items:
        for fixture in getattr(item, "fixturenames", ()):
            if fixture in _MARKERS_BY_FIXTURE:
                item.add_marker(_MARKERS_BY_FIXTURE[fixture])
    deselected_markers = {marker for marker in ("nightly", "upstream") if not config.getoption(f"--{marker}")}
    if os.environ.get("K8S", binaries.NEWEST) != binaries.NEWEST:
        deselected_markers.add("reference")
    left_out = config.stash[_SELECTION].left_out if _SELECTION in config.stash else ()
    run: list[pytest.Item] = []
    deselected: list[pytest.Item] = []
    for item in items:
        unwanted = item.nodeid.startswith(left_out) or any(map(item.get_closest_marker, deselected_markers))
        (deselected if unwanted else run).append(item)
    if deselected:
        config.hook.pytest_deselected(items=deselected)
        items[:] = run
    seed = config.getoption("--order")
    if seed is not None:
        _shuffle(items, seed)
    items.sort(key=_part)


def _part(item: pytest.Item) -> int:
    """Return the position of the part of a test: with servers, kube-scheduler's own, long, short."""
    short = len(_FIRST) + (not item.nodeid.startswith(_LONG))
    return next((number for number, marker in enumerate(_FIRST) if item.get_closest_marker(marker)), short)


def _shuffle(items: list[pytest.Item], seed: int) -> None:
    """Shuffle modules, and the tests of each module that is not marked in_order."""
    places = {item: place for place, item in enumerate(items)}
    random.Random(seed).shuffle(items)
    modules = {path: position for position, path in enumerate(dict.fromkeys(item.path for item in items))}
    items.sort(key=lambda item: (modules[item.path], places[item] if item.get_closest_marker("in_order") else 0))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadFileScheduling:
    """Schedule all tests of a module on one worker, because they share fixtures, and all image tests on one worker."""
    return _ModuleScheduling(config, log)


class _ModuleScheduling(LoadFileScheduling):
    """Distribution of modules to workers; one worker runs all image tests, so that the image is built once."""

    def _split_scope(self, nodeid: str) -> str:
        return _IMAGE_TESTS if nodeid.startswith(_IMAGE_TESTS) else super()._split_scope(nodeid)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Find or build the binaries that the collected tests need, and record the missing ones."""
    missing: dict[str, str] = {}
    session.config.stash[_MISSING] = missing
    if session.config.option.collectonly:
        return
    capture = session.config.pluginmanager.getplugin("capturemanager")
    packages = [
        str(item.callspec.params["package"])
        for item in session.items
        if isinstance(item, pytest.Function) and item.get_closest_marker("upstream")
    ]
    if packages:
        try:
            with capture.global_and_fixture_disabled():
                upstream.build(packages, upstream.RELEASES[0], upstream.default_directory(upstream.RELEASES[0]))
        except upstream.BuildError as problem:
            missing["upstream"] = str(problem)
    for marker, names in _BINARIES_BY_MARKER.items():
        if not any(item.get_closest_marker(marker) for item in session.items):
            continue
        try:
            with capture.global_and_fixture_disabled():
                binaries.resolve(names)
        except binaries.UnsupportedRelease as problem:
            raise pytest.UsageError(str(problem)) from problem
        except binaries.MissingBinary as problem:
            missing[marker] = str(problem)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test whose server binary is missing; in CI, fail it.

    In-process tests give way to kube-scheduler's own, which another worker runs.
    """
    if os.environ.get("PYTEST_XDIST_WORKER") and item.config.getoption("--upstream") and _part(item) >= len(_FIRST):
        os.setpriority(os.PRIO_PROCESS, 0, _YIELDING)
    for marker, problem in item.config.stash[_MISSING].items():
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
    """Run etcd and kube-apiserver with an audit log, once for the session."""
    with ControlPlane(Options(audit=True)) as plane:
        request.config.stash[_PLANE] = plane
        yield plane
        del request.config.stash[_PLANE]
        # A test's failure raises nothing here, so the servers' logs are kept explicitly.
        plane.keep = request.session.testsfailed > 0
        if plane.keep:
            # An xdist worker has no terminal reporter, only its standard error.
            with request.config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
                print(f"\nthe control plane's logs are in {plane.state_dir / 'logs'}", file=sys.stderr)  # noqa: T201


@pytest.fixture(scope="module", autouse=True)
def _no_custom_resources_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail the last test of a module that leaves a custom resource, which the operators of later tests would use."""
    before = _custom_resources(request.config.stash.get(_PLANE, None))
    yield
    left = _custom_resources(request.config.stash.get(_PLANE, None)) - before
    assert not left, f"the module leaves custom resources on the control plane that all modules share: {sorted(left)}"


def _custom_resources(plane: ControlPlane | None) -> set[str]:
    """Return kind, namespace and name of the custom resources on the control plane of the session, if it runs."""
    if plane is None:
        return set()
    with ApiClient(plane) as api:
        served = any(each["name"] == "bayplan.dev" for each in api.get("/apis")["groups"])
        names = [each["name"] for each in api.get(_CUSTOM)["resources"]] if served else []
        kinds = [each for each in names if "/" not in each and each != _IN_A_NAMESPACE_OF_A_TEST]
        return {
            f"{kind} {each['metadata'].get('namespace', '')}/{each['metadata']['name']}"
            for kind in kinds
            for each in _listed(api, f"{_CUSTOM}/{kind}")
            if "deletionTimestamp" not in each["metadata"]
        }


def _listed(api: ApiClient, path: str) -> list[Manifest]:
    """Return the objects of a path; after a restart of the API server, wait until it has read them."""
    end = time.monotonic() + _READ_SECONDS
    while True:
        try:
            return api.items(path)
        except ApiRefusalError as error:
            if error.status != HTTPStatus.TOO_MANY_REQUESTS or time.monotonic() > end:
                raise
            time.sleep(1)


@pytest.fixture(scope="module")
def empty_plane(control_plane: ControlPlane) -> Iterator[ControlPlane]:
    """Return the session's control plane, without objects of other modules but Bayplan's definitions."""
    control_plane.reset()
    yield control_plane
    control_plane.reset()


@pytest.fixture(scope="session")
def _native_plane(request: pytest.FixtureRequest) -> Iterator[ControlPlane]:
    """Start a control plane that serves Kubernetes' PodGroups."""
    with ControlPlane(native_groups().options) as plane:
        yield plane
        plane.keep = request.session.testsfailed > 0


@pytest.fixture(scope="module")
def empty_native_plane(_native_plane: ControlPlane) -> Iterator[ControlPlane]:
    """Return the session's control plane that serves Kubernetes' PodGroups, without objects of other modules.

    It is frozen between modules: idle, it uses a hundredth of a processor.
    """
    for process in (_native_plane.etcd, _native_plane.apiserver):
        process.resume()
    _native_plane.reset()
    yield _native_plane
    _native_plane.reset()
    for process in (_native_plane.apiserver, _native_plane.etcd):
        process.pause()


@pytest.fixture(scope="module")
def kwok(control_plane: ControlPlane) -> Iterator[Process]:
    """Run kwok, which acts as the kubelet of every node of the session's control plane."""
    process = control_plane.start_kwok()
    yield process
    process.stop()


@pytest.fixture
def namespace(control_plane: ControlPlane) -> Iterator[str]:
    """Create a namespace for one test; delete its pods at the end."""
    with new_namespace(control_plane, f"test-{uuid.uuid4().hex[:10]}") as name:
        yield name
