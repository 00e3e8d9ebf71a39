"""Upgrades during a drain: the API server to the newest release and back, and Bayplan's CRDs to the current ones."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from hack.controlplane.accounts import overcommitted
from hack.controlplane.binaries import NEWEST
from hack.controlplane.launcher import ControlPlane
from hack.controlplane.schedulers import install_crds
from hack.controlplane.servers import Options
from hack.controlplane.volume_controller import VolumeController
from tests.support.drain import PODS, Drain
from tests.support.live_gangs import LiveGangs, live_gangs
from tests.support.mixed_drain import MixedDrain
from tests.support.operator_process import OperatorProcess

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]
EARLIER_CRDS = Path(__file__).parent / "earlier-crds.yaml"
BEFORE = "1.36"
SETTLED_SECONDS = 90.0
MEMBERS, GANGS = 6, 4
_NAMES = tuple(f"gang-{number}" for number in range(GANGS))


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Return the path of the operator's log."""
    return tmp_path / "operator.log"


@pytest.fixture
def old_plane() -> Iterator[ControlPlane]:
    """Start a control plane of the release before the newest one."""
    with ControlPlane(Options(audit=True, kubernetes=BEFORE)) as plane:
        install_crds(plane)
        yield plane


@pytest.fixture
def plane() -> Iterator[ControlPlane]:
    """Start a control plane with the earlier CRDs."""
    with ControlPlane(Options(audit=True)) as plane:
        install_crds(plane, EARLIER_CRDS)
        yield plane


@pytest.mark.nightly
def test_drains_survive_an_upgrade_and_downgrade_of_the_api_server(old_plane: ControlPlane, log: Path) -> None:
    """No pod is lost or bound twice, no node overcommitted and no gang bound in part, on the same etcd throughout."""
    with OperatorProcess(old_plane.kubeconfig, log) as operator:
        operator.start()
        with gangs(old_plane, operator) as world:
            for release, names in ((NEWEST, _NAMES[:2]), (BEFORE, _NAMES[2:])):
                with closing(Drain(old_plane, operator)) as drain:
                    drain.begin()
                    drain.until_bound(PODS // 5)
                    submit(world, *names)
                    assert drain.bound < PODS
                    change_release(old_plane, release)
                    drain.finish()
                    assert drain.violations() == []
            assert_whole(world)
        operator.until(operator.is_alive, "the operator is alive")


def test_a_drain_survives_newer_crds(plane: ControlPlane, log: Path) -> None:
    """The operator works with the earlier CRDs, and keeps working when the current ones are applied."""
    with (
        VolumeController(plane),
        OperatorProcess(plane.kubeconfig, log, ["--leader-elect"]) as operator,
        MixedDrain(plane, operator) as drain,
    ):
        operator.start()
        drain.prepare()
        with gangs(plane, operator) as world:
            drain.begin()
            submit(world, *_NAMES[:2])
            world.until(lambda: world.bound(_NAMES[0]), "a gang is bound")
            install_crds(plane)
            submit(world, *_NAMES[2:])
            drain.burst()
            drain.settle(SETTLED_SECONDS)
            assert_whole(world)
            status = world.status(_NAMES[0])
            assert (status["scheduled"], status["members"]) == (MEMBERS, MEMBERS)
        assert drain.violations() == []
        operator.terminate()
        operator.start()
        drain.make_room(SETTLED_SECONDS)
        assert drain.violations() == []


@contextmanager
def gangs(plane: ControlPlane, operator: OperatorProcess) -> Iterator[LiveGangs]:
    """Create nodes for all gangs except a large one, of which half fits, in a separate namespace."""
    namespace = f"gangs-{uuid.uuid4().hex[:8]}"
    plane.kubectl("create", "namespace", namespace)
    with live_gangs(plane, operator, namespace) as world:
        world.profile({})
        world.nodes("a", "b", "c", cpu=str(MEMBERS * GANGS // 3))
        world.group("large", MEMBERS)
        world.job("large", MEMBERS, cpu="5")
        yield world


def change_release(plane: ControlPlane, release: str) -> None:
    """Stop the API server, and start one of another release with the same data."""
    plane.stop_apiserver()
    plane.start_apiserver(release)
    version = json.loads(plane.kubectl("get", "--raw", "/version"))
    assert f"{version['major']}.{version['minor']}" == release


def submit(world: LiveGangs, *names: str) -> None:
    """Create gangs and their members."""
    for name in names:
        world.group(name, MEMBERS)
        world.job(name, MEMBERS)


def assert_whole(world: LiveGangs) -> None:
    """Check that gangs are bound with all members, and the large one with none."""
    for name in _NAMES:
        world.until_bound(name, MEMBERS)
    assert world.bound("large") == {}
    assert overcommitted(world.api.items("/api/v1/nodes"), world.pods().values()) == []
