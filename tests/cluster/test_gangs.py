"""Gangs on a real API server, with the operator as a process: all members are bound or none."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from hack.controlplane.accounts import BindingLog, overcommitted
from hack.controlplane.launcher import ControlPlane
from hack.controlplane.processes import Process
from hack.controlplane.schedulers import install_crds
from tests.cluster.test_pod_lifecycle import assumed
from tests.support.approval_plugin import install
from tests.support.live_gangs import GangHistory, LiveGangs, live_gangs
from tests.support.operator_process import OperatorProcess
from tests.support.tables import table

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]
RESERVATION_DELAY = "--gang-reservation-delay=1"
PROFILE = {"plugins": {"permit": {"enabled": [{"name": "Approval"}]}}}


@pytest.fixture(scope="module")
def operator(
    control_plane: ControlPlane, kwok: Process, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[OperatorProcess]:
    """Start the only operator of the cluster, with a Permit plugin installed beside it."""
    del kwok  # acts as the kubelet: pods run, succeed and end
    install_crds(control_plane)
    installed = install(tmp_path_factory.mktemp("installed"))
    log = tmp_path_factory.mktemp("operator") / "operator.log"
    with OperatorProcess(control_plane.kubeconfig, log, (RESERVATION_DELAY,), installed) as operator:
        operator.start()
        yield operator


@pytest.fixture
def world(control_plane: ControlPlane, operator: OperatorProcess, namespace: str) -> Iterator[LiveGangs]:
    """Create a profile with the Permit plugin, and no nodes."""
    with live_gangs(control_plane, operator, namespace) as world:
        world.profile(PROFILE)
        yield world


@pytest.fixture
def history(control_plane: ControlPlane, namespace: str) -> Iterator[GangHistory]:
    """Record all changes of the test's pods in order."""
    with GangHistory(control_plane, namespace) as history:
        yield history
        assert history.violations == []


@pytest.mark.parametrize("parallelism", [4, 16, 64])
def test_all_members_of_a_job_are_bound(world: LiveGangs, control_plane: ControlPlane, parallelism: int) -> None:
    """Each pod is bound once, no node is overcommitted, and the status counts running and succeeded members."""
    log = BindingLog(control_plane.audit_log)
    world.nodes("a", "b", cpu=str(parallelism // 2))
    world.group("train", parallelism)
    names = world.job("train", parallelism)
    world.until(lambda: world.counts("train") == (parallelism,) * 3, "the status counts all members as running")
    assert overcommitted(world.api.items("/api/v1/nodes"), world.pods().values()) == []
    world.complete("train")
    world.until(lambda: world.status("train").get("phase") == "Finished", "the group is finished")
    status = world.status("train")
    assert (status["succeeded"], status["failed"], world.reason("train")) == (parallelism, 0, "Finished")
    log.read()
    assert {name: log.counts[f"{world.namespace}/{name}"] for name in names} == dict.fromkeys(names, 1)
    world.until(lambda: world.event_notes("train", "Scheduled"), "an event is recorded")
    assert len(world.event_notes("train", "Scheduled")) == 1


def test_two_gangs_with_room_for_one(world: LiveGangs, history: GangHistory) -> None:
    """One gang is bound and the other holds no resources; it is bound whole after the first has ended."""
    world.nodes("a", cpu="2")
    world.nodes("b", cpu="3")
    for name in ("one", "two"):
        world.group(name, 5)
    world.api.create_all([world.member(f"{job}-{number}", job) for number in range(5) for job in ("one", "two")])
    world.until(lambda: history.moments and sum(history.moments[-1].values()) == 5, "the first gang is bound")
    [first] = history.order()
    assert history.moments[-1] == {first: 5}
    second = {"one": "two", "two": "one"}[first]
    world.until(lambda: world.event_notes(second, "FailedScheduling"), "the second gang is unschedulable")
    world.complete(first)
    world.until(lambda: history.moments[-1] == {second: 5}, "the second gang is bound")
    assert history.together("one", "two") == []
    assert "placed together fit" in " ".join(world.event_notes(second, "FailedScheduling"))


@table("queueing, is_passed", ("strict", "Strict", False), ("best effort", "BestEffort", True))
def test_a_large_gang_among_small_pods(world: LiveGangs, queueing: str, is_passed: bool) -> None:
    """A large gang with queueing Strict gets a reservation and is bound before small pods that arrive later."""
    world.nodes("a", "b", "c", cpu="4")
    world.job("first", 12, group="")
    nodes = world.until_bound("first", 12)
    world.group("large", 3, queueing=queueing)
    world.job("large", 3, cpu="4")
    world.until_reason("large", "Unschedulable")
    world.job("small", 12, group="")
    if is_passed:
        # Node by node: the gang needs all three nodes and stays infeasible.
        for number, node in enumerate(sorted(set(nodes.values())), start=1):
            world.complete("first", *(name for name in nodes if nodes[name] == node))
            world.until_bound("small", 4 * number)
        assert world.bound("large") == {}
        world.complete("small")
        world.until_bound("large", 3)
    else:
        world.until(lambda: world.status("large").get("nominatedDomain"), "nodes are reserved")
        world.complete("first")
        world.until_bound("large", 3)
        assert world.bound("small") == {}


def test_a_reservation_is_reported(world: LiveGangs) -> None:
    """The status names the reserved nodes, and the message of a small pod that they reject names the gang."""
    world.nodes("a", cpu="4")
    world.job("runs", 1, group="", cpu="3")
    world.until_bound("runs", 1)
    world.group("large", 2, queueing="Strict")
    world.job("large", 2, cpu="2")
    world.until(lambda: world.status("large").get("nominatedDomain"), "nodes are reserved")
    assert f"{world.token}-a" in world.status("large")["nominatedDomain"]
    world.job("small", 1, group="")
    world.until_rejected("small-0", f"{world.namespace}/large")
    world.delete("runs-0")
    world.until_bound("large", 2)
    world.until(lambda: not world.status("large").get("nominatedDomain"), "the reservation is released")


# -- topology ----------------------------------------------------------------------------------------------------------


def test_a_required_domain_is_the_one_that_packs_best(world: LiveGangs) -> None:
    """All members share a zone; if no zone has room for all, none is bound and the message names the best zone."""
    world.nodes("a1", "a2", "a3", "a4", cpu="2", zone="a")
    world.nodes("b1", "b2", cpu="2", zone="b")
    required = {"key": "zone", "mode": "Required"}
    world.group("tight", 2, topology=required)
    world.job("tight", 2, cpu="2")
    assert zones(world, "tight") == {"b"}
    world.group("wide", 3, topology=required)
    world.job("wide", 3, cpu="2")
    assert zones(world, "wide") == {"a"}
    world.group("waits", 2, topology=required)
    world.job("waits", 2, cpu="2")
    assert "1 of the 2 members that must be placed together fit in zone=a" in world.until_reason(
        "waits", "Unschedulable"
    )
    assert world.bound("waits") == {}
    world.nodes("a5", cpu="2", zone="a")
    assert zones(world, "waits") == {"a"}


def test_a_preferred_domain_is_left_if_it_is_too_small(world: LiveGangs) -> None:
    """A group that no single zone fits is bound over several zones, and its status reports this."""
    world.nodes("a1", "a2", cpu="2", zone="a")
    world.nodes("b1", cpu="2", zone="b")
    world.group("wide", 3, topology={"key": "zone", "mode": "Preferred"})
    world.job("wide", 3, cpu="2")
    assert zones(world, "wide") == {"a", "b"}
    assert "over several domains" in world.until_reason("wide", "Scheduled")


def zones(world: LiveGangs, job: str) -> set[str]:
    """Wait until all pods of a Job are bound; return the zones of their nodes."""
    nodes = world.until_bound(job, len(world.pods(job))).values()
    return {str(world.api.get(f"/api/v1/nodes/{name}")["metadata"]["labels"]["zone"]) for name in nodes}


# -- members that are deleted ------------------------------------------------------------------------------------------


def test_a_member_deleted_before_the_quorum_is_not_counted(world: LiveGangs, history: GangHistory) -> None:
    """Three members were created, one was deleted, and the quorum of three is not reached."""
    world.nodes("a", cpu="4")
    world.group("train", 3)
    world.job("train", 2)
    world.delete("train-0")
    world.job("train", 1, first=2)
    world.until(lambda: world.counts("train") == (2, 0, 0), "two members are counted")
    assert "2 of 3 members exist; 1 more is needed." in world.until_reason("train", "MembersMissing")
    assert assumed(world) == 0
    assert history.order() == []
    world.job("train", 1, first=3)
    world.until_bound("train", 3)


def test_a_member_deleted_while_the_gang_waits_breaks_the_quorum(world: LiveGangs, history: GangHistory) -> None:
    """The other members are not bound when nodes are added; a replacement member completes the gang."""
    world.nodes("a", cpu="2")
    world.group("train", 3)
    world.job("train", 3)
    assert "2 of the 3 members" in world.until_reason("train", "Unschedulable")
    world.delete("train-1")
    world.until_reason("train", "MembersMissing")
    world.nodes("b", cpu="4")
    world.pod("other", cpu="100m")
    world.until_scheduled("other")
    world.until(lambda: history.order() == [""], "only that pod was bound")
    world.job("train", 1, first=3)
    world.until_bound("train", 3)


def test_a_member_deleted_while_the_gang_waits_at_permit(world: LiveGangs, history: GangHistory) -> None:
    """When a member is deleted while it waits at Permit, all assumed members are unreserved and none is bound."""
    world.nodes("a", cpu="4")
    world.group("train", 3)
    world.job("train", 2)
    world.job("train", 1, first=2, labels={"approval": "needed"})
    world.until(lambda: assumed(world) == 3, "all members are assumed, one waits")
    world.delete("train-0")
    world.until(lambda: assumed(world) == 0, "no member is assumed")
    world.until_reason("train", "MembersMissing")
    world.job("other", 4, group="")
    world.until_bound("other", 4)
    world.until(lambda: history.order() == ["other"], "only those pods were bound")
    world.delete(*world.pods("other"), "train-2")
    world.job("train", 2, first=3)
    world.until_bound("train", 3)


def test_a_deleted_member_of_a_running_gang_is_replaced_alone(world: LiveGangs) -> None:
    """The other members keep their nodes; the status reports the missing member until it is replaced."""
    world.nodes("a", cpu="3")
    world.group("train", 3)
    world.job("train", 3)
    world.until(lambda: world.counts("train") == (3, 3, 3), "the gang runs")
    before = world.bound("train")
    world.delete("train-1")
    world.until_reason("train", "Partial")
    assert world.status("train")["phase"] == "Pending"
    world.job("train", 1, first=3)
    after = world.until_bound("train", 3)
    assert {name: after[name] for name in ("train-0", "train-2")} == {
        name: before[name] for name in ("train-0", "train-2")
    }
    world.until(lambda: world.status("train").get("phase") == "Running", "the gang runs again")
    world.until(lambda: world.counts("train") == (3, 3, 3), "all members are counted")


def test_a_member_above_the_quorum_waits_alone(world: LiveGangs) -> None:
    """Of five pods of a group with minMember 3, four fit: the gang is reported as running while the fifth waits.

    It takes the room of a deleted member when that is no longer held for a replacement.
    """
    world.nodes("a", cpu="4")
    world.group("train", 3, healing={"holdSeconds": 1})
    world.job("train", 5)
    world.until(lambda: world.counts("train") == (5, 4, 4), "four members run")
    assert (world.status("train")["phase"], world.reason("train")) == ("Running", "Scheduled")
    (waits,) = set(world.pods("train")) - set(world.bound("train"))
    world.until_rejected(waits, "1 Insufficient cpu")
    world.delete(next(iter(world.bound("train"))))
    world.until_scheduled(waits)
    world.until(lambda: world.counts("train") == (4, 4, 4), "four of four members run")


# -- the operator is killed --------------------------------------------------------------------------------------------


def test_an_operator_that_is_killed_between_the_binds_of_a_gang(
    world: LiveGangs, control_plane: ControlPlane, history: GangHistory
) -> None:
    """A restarted operator completes the gang: of 64 members none is bound twice, and the status counts all."""
    log = BindingLog(control_plane.audit_log)
    world.nodes("a", "b", cpu="32")
    world.operator.kill()
    world.operator.start("--bind-concurrency=1", "--client-qps=50", "--client-burst=1")
    world.group("train", 64)
    world.job("train", 64)
    world.until(lambda: history.moments and history.moments[-1].get("train", 0) >= 8, "some members are bound")
    world.operator.kill()
    bound = len(world.bound("train"))
    assert 8 <= bound < 64
    world.operator.start()
    world.until(lambda: world.counts("train") == (64, 64, 64), "the status counts all members as running")
    log.read()
    assert log.twice() == []
    # For the one bind in progress when the process was killed, the audit log may have no success.
    assert sum(log.counts[f"{world.namespace}/{name}"] for name in world.pods("train")) >= 63
    assert world.reason("train") == "Scheduled"


def test_a_podgroup_that_a_second_job_uses(world: LiveGangs, operator: OperatorProcess) -> None:
    """Succeeded pods of the first Job do not count for the second one; those of the second do, also after a restart."""
    world.nodes("a", cpu="4")
    world.group("train", 4)
    world.job("first", 4, group="train")
    world.until(lambda: len(world.bound("first")) == 4, "the first Job runs")
    world.complete("first")
    world.until(lambda: world.status("train").get("phase") == "Finished", "the first run is finished")
    world.job("other", 2, group="")
    world.until(lambda: len(world.bound("other")) == 2, "other pods leave room for two")
    world.job("second", 4, group="train")
    world.until(lambda: world.reason("train") == "Unschedulable", "the second Job does not fit")
    assert world.bound("second") == {}
    world.delete(*world.pods("other"))
    world.until(lambda: len(world.bound("second")) == 4, "the second Job is bound as a whole")
    world.complete("second", "second-0", "second-1")
    world.until(lambda: world.status("train").get("run", {}).get("succeeded") == 2, "the run is recorded")
    operator.kill()
    world.delete("second-0", "second-2")
    operator.start()
    world.job("second", 1, first=4, group="train")
    world.until(lambda: "second-4" in world.bound("second"), "the deleted member is replaced")
    assert world.status("train")["run"]["controllers"] == ["Job.batch/uid-of-second"]


def test_room_of_a_lost_member_is_held_after_the_operator_is_killed(world: LiveGangs) -> None:
    """The replacement gets the node; a pod that waits for longer does not, and an invalid member stops nothing."""
    world.nodes("a", "b", cpu="1")
    world.group("train", 2, healing={"holdSeconds": 300})
    world.job("train", 2)
    before = world.until_bound("train", 2)
    world.job("invalid", 1, group="train", spec={"nodeSelector": {f"k{number}": "v" for number in range(501)}})
    world.delete("train-0")
    world.until(lambda: any("until" in each for each in world.status("train").get("lost", ())), "the hold has an end")
    world.operator.kill()
    world.operator.start()
    world.pod("other", requests={"cpu": "1"})
    world.until_rejected("other", "node(s) were reserved for Pod")
    world.job("train", 1)
    assert world.until_bound("train", 2) == before
