"""The answers of the admission check to Workloads, and what is held for them, without an API server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Any

import msgspec
import pytest
from bayplan.fit.room_search import FitDryRun
from bayplan.kueue import fit_checks
from bayplan.kueue.fit_checks import HOLD_SECONDS, FitChecks, StateWrite
from bayplan.kueue.workloads import AdmissionCheck, ResourceFlavor, Workload, labels_of
from bayplan.process.copies import BackgroundDocuments

from scheduler_core.config.gang_owners import GangSettings
from scheduler_core.config.profile_config import ProfileConfig
from scheduler_core.config.validation import validate
from scheduler_core.errors import ClusterWriteError, ConflictError, ForbiddenError
from scheduler_core.gangs.held_room import HeldPod, HeldRoom, Holder, OwnPods
from scheduler_core.model.meta import OwnerReference
from scheduler_core.model.pod_group import PodGroup
from tests.support.builders import pod
from tests.support.gang_preemption import running_pod, small_node, terminating_pod
from tests.support.gangs import group
from tests.support.presence import present
from tests.support.scheduling import DEFAULT_NAME, Rig, gang_rig
from tests.support.tables import table


class Kueue:
    """Workloads as the watch delivers them, after each state that the controller writes.

    Attributes:
        written: States in their order, as ``workload: state``.
        conflicts: Number of next writes that are rejected because the Workload has changed.
        active_failures: Number of next writes of the condition of an AdmissionCheck that are forbidden.
        failed_lists: Number of next lists of PriorityClasses that fail.
    """

    def __init__(self, made: Rig) -> None:
        self.rig = made
        self.written: list[str] = []
        self.writes: list[StateWrite] = []
        self.active: list[str] = []
        self.conflicts = 0
        self.active_failures = self.failed_lists = 0
        self.version = "v1beta2"
        self.checks = self.controller()
        self._bodies: dict[str, dict[str, Any]] = {}
        self._version = 0

    def controller(self) -> FitChecks:
        """Return a controller that has received nothing."""
        documents = BackgroundDocuments(self.rig.context, None)
        self.checks = FitChecks(self.rig.scheduler, FitDryRun(self.rig.scheduler, documents), self, self.rig.clock)
        return self.checks

    async def restart(self, name: str) -> None:
        """Let a new process hold the room of a Workload again, before its first cycle."""
        self.rig.scheduler.reservations.held.end(f"uid-of-{name}")
        restarted = self.controller()
        self.check()
        self.checks.workload_changed(self.workload(name))
        async with self.running():
            await restarted.settle()
            assert self.held == [name]

    async def write_state(self, write: StateWrite) -> None:
        if self.conflicts:
            self.conflicts -= 1
            raise ConflictError("the object has been modified")
        name = write.workload.metadata.name
        self.written.append(f"{name}: {write.state}")
        self.writes.append(write)
        evicted = () if write.evicted is None else ("Evicted",)
        self.change(
            name, write.state, write.since, *evicted, message=write.message, checks=write.checks,
            requeueAfterSeconds=write.requeue_after_seconds, retryCount=write.retry_count,
        )  # fmt: skip

    async def write_active(self, check: AdmissionCheck, message: str, since: datetime) -> None:
        del message, since
        if self.active_failures:
            self.active_failures -= 1
            raise ForbiddenError("no permission")
        self.active.append(check.metadata.name)

    async def priority_classes(self) -> Sequence[dict[str, Any]]:
        if self.failed_lists:
            self.failed_lists -= 1
            raise ClusterWriteError("the API server does not respond")
        return ()

    async def claim_templates(self, namespace: str, names: Collection[str]) -> Sequence[dict[str, Any]]:
        del namespace, names
        return ()

    def check(self) -> None:
        """Deliver the AdmissionCheck."""
        body = {"metadata": {"name": "fit"}, "spec": {"controllerName": "bayplan.dev/fit"}}
        self.checks.check_changed(msgspec.convert(body, AdmissionCheck))

    def add(
        self,
        name: str,
        count: int,
        cpu: int = 1,
        *,
        others: Sequence[dict[str, Any]] = (),
        labels: dict[str, str] | None = None,
        owner: str = "",
        elastic: str = "",
        **fields: Any,
    ) -> None:
        """Create a Workload whose quota is reserved; *owner* is the kind of its owner, *elastic* names an elastic Job.

        As with Kueue, a Job is its controller; a LeaderWorkerSet and the pods of a group are not.
        """
        container = {"name": "main", "image": "example.com/main", "resources": {"requests": {"cpu": str(cpu)}}}
        spec = {"containers": [container], **fields}
        owner = "Job" if elastic else owner
        of_job = {"apiVersion": "batch/v1", "controller": True} if owner == "Job" else {}
        self._bodies[name] = {
            "metadata": {
                "name": name,
                "namespace": "default",
                "uid": f"uid-of-{name}",
                "annotations": {"kueue.x-k8s.io/elastic-job": "true"} if elastic else {},
                "ownerReferences": [
                    {"kind": owner, "apiVersion": "v1", "name": elastic or name, "uid": f"owner-{elastic or name}"}
                    | of_job
                ]
                if owner
                else [],
            },
            "spec": {"podSets": [{"count": count, "template": {"metadata": {"labels": labels or {}}, "spec": spec}}]},
            "status": {
                "conditions": [{"type": "QuotaReserved", "status": "True"}],
                "admission": {"podSetAssignments": [{"name": "main"}]},
                "admissionChecks": [{"name": "fit", "state": "Pending"}, *others],
            },
        }
        self.deliver(name)

    def change(
        self,
        name: str,
        state: str,
        since: datetime,
        *conditions: str,
        message: str = "",
        checks: Collection[str] = ("fit",),
        **fields: int | None,
    ) -> None:
        """Set the state of the check, and conditions that are True in addition to QuotaReserved."""
        status = self._bodies[name]["status"]
        for each in status["admissionChecks"]:
            if each["name"] in checks:
                each |= {"state": state, "lastTransitionTime": since, "message": message, **fields}
        status["conditions"] = [{"type": each, "status": "True"} for each in ("QuotaReserved", *conditions)]
        self.deliver(name)

    def release(self, name: str, requeue_at: datetime | None, *, is_active: bool = True) -> None:
        """Release the quota of an evicted Workload, as the controller of its owner does."""
        body = self._bodies[name]
        body["status"] |= {"conditions": [{"type": "Evicted", "status": "True"}], "admission": None}
        body["status"]["requeueState"] = {"requeueAt": requeue_at}
        body["spec"]["active"] = is_active
        self.deliver(name)

    def resize(self, name: str, count: int) -> None:
        """Change the number of pods of a Workload, as Kueue does for an elastic Job that shrinks."""
        self._bodies[name]["spec"]["podSets"][0]["count"] = count
        self.deliver(name)

    def assign(self, name: str, flavor: str) -> None:
        """Assign a flavor to a Workload."""
        self._bodies[name]["status"]["admission"]["podSetAssignments"][0]["flavors"] = {"cpu": flavor}
        self.deliver(name)

    def add_check(self, name: str, check: str) -> None:
        """Add a check to a Workload, as Kueue does when its queue gets one."""
        self._bodies[name]["status"]["admissionChecks"].append({"name": check, "state": "Pending"})
        self.deliver(name)

    def deliver(self, name: str) -> None:
        """Deliver the present version."""
        self._version += 1
        self._bodies[name]["metadata"]["resourceVersion"] = str(self._version)
        self.checks.workload_changed(self.workload(name))

    def workload(self, name: str) -> Workload:
        """Return the present version."""
        return msgspec.convert(self._bodies[name], Workload)

    @property
    def held(self) -> list[str]:
        """Names of the Workloads for which room is held."""
        return sorted(room.holder.name for room in self.rig.scheduler.reservations.held)

    def pods(self, name: str, count: int, first: int = 0, labels: dict[str, str] | None = None) -> None:
        """Create pods of a Workload."""
        labels = {**labels_of(self.workload(name), "main"), **(labels or {})}
        names = (f"{name}-{number}" for number in range(first, first + count))
        self.rig.add(*(pod(each, requests={"cpu": "1"}, labels=labels) for each in names))

    async def schedule(self) -> None:
        """Schedule all active pods."""
        cycles = self.rig.scheduler.cycles
        while (queued := self.rig.queue.pop()) is not None:
            attempt = cycles.pods.schedule(queued)
            if attempt is not None:
                await cycles.binding.bind(attempt)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run the controller inside the block."""
        task = asyncio.get_running_loop().create_task(self.checks.run(asyncio.sleep(0)))
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Run the controller until a condition holds."""
        async with self.running():
            await self.wait(condition)

    async def wait(self, condition: Callable[[], bool]) -> None:
        """Wait until a condition holds, while the controller runs."""
        for _ in range(1000):
            if condition():
                return
            await asyncio.sleep(0.01)
        raise AssertionError(f"the condition does not hold; written: {self.written}, held: {self.held}")


@pytest.fixture(autouse=True)
def _frequent_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fit_checks, "_LOOK_SECONDS", 0.05)


@pytest.fixture
def kueue() -> Kueue:
    """Return Kueue beside a scheduler with two nodes of two CPUs."""
    made = gang_rig(small_node("a"), small_node("b"))
    found = Kueue(made)
    found.check()
    return found


async def test_a_workload_that_fits(kueue: Kueue) -> None:
    """It is Ready, its pods get labels, and its room is held until all of them have nodes."""
    kueue.add("job", 4)
    await kueue.until(lambda: kueue.written == ["job: Ready"])
    assert kueue.active[0] == "fit"
    assert kueue.writes[0].pod_set_updates == [{"name": "main", "labels": labels_of(kueue.workload("job"), "main")}]
    assert kueue.held == ["job"]
    kueue.rig.add(pod("rival", requests={"cpu": "1"}))
    await kueue.schedule()
    assert "rival" not in kueue.rig.bound
    kueue.pods("job", 4)
    await kueue.schedule()
    assert len(kueue.rig.bound) == 4
    await kueue.until(lambda: not kueue.held)
    assert kueue.written == ["job: Ready"]


async def test_room_of_others_is_left_alone(kueue: Kueue) -> None:
    """Room that is held for something else needs no answer, and the controller does not look at it all the time."""
    nodes, reservations = kueue.rig.context.cache.columns, kueue.rig.scheduler.reservations
    slot = HeldPod(nodes.compile_pod(pod("train", requests={"cpu": "1"})), "", "a")
    other = Holder("NodeReservation", "default", "train", "uid", OwnPods("default", (("app", "train"),)))
    assert reservations.hold(HeldRoom(other, [slot], nodes))
    settle, looks = reservations.held.settle, 0

    def counted() -> list[Holder]:
        nonlocal looks
        looks += 1
        if looks == 10:
            raise RuntimeError("the controller does not wait between two looks")
        return settle()

    reservations.held.settle = counted  # type: ignore[method-assign]
    kueue.add("job", 3)
    await kueue.until(lambda: kueue.written == ["job: Ready"])
    async with kueue.running():
        await asyncio.sleep(0.1)
    assert (kueue.held, looks < 10) == (["job", "train"], True)


async def test_a_workload_that_does_not_fit(kueue: Kueue) -> None:
    """It is tried again later, with the nearest miss as the message, and nothing is held."""
    kueue.rig.add(running_pod("one", "a"), running_pod("two", "b"))
    kueue.add("job", 1, cpu=2)
    await kueue.until(lambda: kueue.written == ["job: Retry"])
    write = kueue.writes[0]
    assert "0 of 1 pods fit now; default/job-main-0: 0/2 nodes are available: 2 Insufficient cpu" in write.message
    (event,) = kueue.rig.writer.events
    assert (event.regarding.kind, event.regarding.name, event.reason) == ("Workload", "job", "AdmissionCheckRetry")
    assert event.note == write.message
    assert write.requeue_after_seconds == 3
    assert write.evicted == write.message
    assert kueue.held == []


async def test_a_check_that_is_added_while_the_quota_is_released(kueue: Kueue) -> None:
    """The state is Pending afterwards all the same: Kueue has not evicted the Workload, and leaves Retry alone."""
    kueue.add("job", 9)
    async with kueue.running():
        await kueue.wait(lambda: kueue.written == ["job: Retry"])
        kueue.add_check("job", "provisioning")
        kueue.release("job", kueue.writes[0].since + timedelta(seconds=3))
        await kueue.wait(lambda: kueue.written == ["job: Retry", "job: Pending"])
    assert kueue.writes[1].checks == ("fit",)


@table("cpu, answer", ("it fits", 1, "job: Ready"), ("it does not fit", 2, "job: Retry"))
async def test_pods_of_an_earlier_admission_that_terminate(kueue: Kueue, cpu: int, answer: str) -> None:
    """They need no room and are no reason to keep the quota: the Workload gets room for all of its pods, or a Retry."""
    kueue.add("job", 2, cpu=cpu)
    labels = labels_of(kueue.workload("job"), "main")
    kueue.rig.add(*(terminating_pod(running_pod(f"job-{node}", node, labels=labels)) for node in "ab"))
    await kueue.until(lambda: kueue.written == [answer])
    assert kueue.held == (["job"] if cpu == 1 else [])


@table(
    "recorded, later, is_active",
    ("Kueue records the end", 3, 0, True),
    ("Kueue does not record the end", None, 3, True),
    ("a user deactivates the Workload", None, 0, False),
)
async def test_a_workload_that_is_queued_again(
    kueue: Kueue, recorded: int | None, later: int, *, is_active: bool
) -> None:
    """Its state is Pending when its quota is released and Kueue has, or never will have, recorded the delay's end."""
    kueue.add("job", 9)
    async with kueue.running():
        await kueue.wait(lambda: kueue.written == ["job: Retry"])
        since = kueue.writes[0].since
        kueue.release("job", None if recorded is None else since + timedelta(seconds=recorded), is_active=is_active)
        if later:
            await asyncio.sleep(0.05)
            assert kueue.written == ["job: Retry"]
            kueue.rig.clock.advance(later)
        await kueue.wait(lambda: kueue.written == ["job: Retry", "job: Pending"])
    retry, pending = kueue.writes
    assert (pending.retry_count, pending.requeue_after_seconds) == (1, None)
    assert (pending.message, pending.evicted) == (retry.message, retry.message)


@table(
    "others, conditions",
    ("other checks", [{"name": "nodes", "state": "Ready"}], ()),
    ("admitted", [], ("Admitted",)),
)
async def test_evictions_that_are_left_to_kueue(
    kueue: Kueue, others: list[dict[str, Any]], conditions: tuple[str, ...]
) -> None:
    """Kueue evicts Workloads with other checks, whose states it resets, and those that are admitted."""
    kueue.add("job", 4, others=others)
    await kueue.until(lambda: kueue.written == ["job: Ready"])
    kueue.change("job", "Ready", kueue.writes[0].since, *conditions)
    for name in "ab":
        kueue.rig.scheduler.feed.node_deleted(small_node(name))
    await kueue.until(lambda: kueue.written == ["job: Ready", "job: Retry"])
    assert kueue.writes[1].evicted is None


async def test_two_workloads_for_the_same_room(kueue: Kueue) -> None:
    """Only one of two Workloads that have quota becomes Ready."""
    kueue.add("first", 3)
    kueue.add("second", 3)
    await kueue.until(lambda: len(kueue.written) == 2)
    assert sorted(each.split(": ")[1] for each in kueue.written) == ["Ready", "Retry"]
    assert len(kueue.held) == 1


@table(
    "change, held",
    ("deleted", lambda kueue: kueue.checks.workload_deleted(kueue.workload("job")), []),
    ("evicted", lambda kueue: kueue.change("job", "Ready", kueue.rig.clock.wall(), "Evicted"), []),
    ("finished", lambda kueue: kueue.change("job", "Ready", kueue.rig.clock.wall(), "Finished"), []),
    ("admitted", lambda kueue: kueue.change("job", "Ready", kueue.rig.clock.wall(), "Admitted"), ["job"]),
)
async def test_the_end_of_a_workload(kueue: Kueue, change: Callable[[Kueue], None], held: list[str]) -> None:
    """Room is freed when the Workload is deleted, evicted or finished."""
    kueue.add("job", 3)
    await kueue.until(lambda: kueue.held == ["job"])
    change(kueue)
    kueue.add("next", 1, cpu=3)
    await kueue.until(lambda: "next: Retry" in kueue.written)
    assert kueue.held == held


async def test_other_checks_come_first(kueue: Kueue) -> None:
    """While another check is not Ready, nothing is held, because it may bring nodes."""
    kueue.add("job", 1, others=[{"name": "nodes", "state": "Pending"}])
    await kueue.until(lambda: kueue.written == ["job: Pending"])
    assert kueue.writes[0].message == "Waits until admission check nodes is Ready"
    assert kueue.held == []


async def test_a_conflict(kueue: Kueue) -> None:
    """If the Workload has changed meanwhile, the room is freed, and the Workload is answered again."""
    kueue.conflicts = 1
    kueue.add("job", 2)
    async with kueue.running():
        await kueue.wait(lambda: not kueue.conflicts)
        assert kueue.held == []
        kueue.deliver("job")
        await kueue.wait(lambda: kueue.written == ["job: Ready"])
    assert kueue.held == ["job"]


async def test_after_a_restart(kueue: Kueue) -> None:
    """The room of a Workload that became Ready a short time ago is held again, before the first cycle."""
    kueue.add("job", 4)
    await kueue.until(lambda: kueue.held == ["job"])
    await kueue.restart("job")
    assert kueue.written == ["job: Ready"]


async def test_a_running_workload_after_a_restart(kueue: Kueue) -> None:
    """Nothing is held for a Workload that has been Ready for long, and it is not evicted."""
    kueue.add("job", 9)
    kueue.change("job", "Ready", kueue.rig.clock.wall() - timedelta(seconds=HOLD_SECONDS), "Admitted")
    async with kueue.running():
        await kueue.checks.settle()
    assert kueue.held == []
    assert kueue.written == []


async def test_lost_room(kueue: Kueue) -> None:
    """Room on a node that is cordoned is replaced by other room; if there is none, the Workload is queued again."""
    kueue.add("job", 2)
    await kueue.until(lambda: kueue.held == ["job"])
    (room,) = kueue.rig.scheduler.reservations.held
    name = room.reservation.plan.node_names[0]
    cordoned = msgspec.structs.replace(
        small_node(name), spec=msgspec.structs.replace(small_node(name).spec, unschedulable=True)
    )
    kueue.rig.scheduler.feed.node_updated(small_node(name), cordoned)

    def is_elsewhere() -> bool:
        return all(name not in each.reservation.plan.node_names for each in kueue.rig.scheduler.reservations.held)

    await kueue.until(lambda: kueue.held == ["job"] and is_elsewhere())
    assert kueue.written == ["job: Ready"]
    (other,) = {"a", "b"} - {name}
    kueue.rig.scheduler.feed.node_deleted(small_node(other))
    await kueue.until(lambda: kueue.written == ["job: Ready", "job: Retry"])
    assert "The room that was held is lost" in kueue.writes[1].message


@table(
    "kind, owner",
    ("job", "Job", "Job"),
    ("replica", "LeaderWorkerSet", "LeaderWorkerSet"),
    ("pod-group", "KueuePodGroup", "Pod"),
)
async def test_a_gang_of_its_owner(kind: str, owner: str) -> None:
    """The topology counts of the gang that the pods of an owner will be."""
    made = gang_rig(small_node("a", zone="x"), small_node("b", zone="y"))
    rows = [{"kind": kind, "topology": {"key": "zone"}}]
    made.serve(ProfileConfig(scheduler_name=DEFAULT_NAME, gangs=validate(GangSettings, {"fromOwners": rows})))
    kueue = Kueue(made)
    kueue.check()
    kueue.add("job", 3, owner=owner)
    await kueue.until(lambda: kueue.written == ["job: Retry"])
    kueue.add("fits", 2, owner=owner)
    await kueue.until(lambda: kueue.held == ["fits"])
    (room,) = made.scheduler.reservations.held
    assert len(room.reservation.plan.node_names) == 1


async def test_the_size_of_an_earlier_admission() -> None:
    """The PodGroup of a Job that was admitted with more pods before does not prevent a smaller admission."""
    made = gang_rig(small_node("a"), small_node("b"))
    gangs = validate(GangSettings, {"fromOwners": [{"kind": "Job"}]})
    made.serve(ProfileConfig(scheduler_name=DEFAULT_NAME, gangs=gangs))
    owner = OwnerReference(kind="Job", name="job", uid="owner-job", api_version="batch/v1", controller=True)
    key = present(made.queue.gangs.key_of(pod("job-0", owners=(owner,))))
    made.scheduler.group_feed.group_changed(PodGroup(key, "uid-of-group", 4))
    kueue = Kueue(made)
    kueue.check()
    kueue.add("job", 3, owner="Job")
    await kueue.until(lambda: bool(kueue.written))
    assert kueue.written == ["job: Ready"]


async def test_members_that_wait_after_a_restart(kueue: Kueue) -> None:
    """The room of a gang is held again although its pods exist already."""
    kueue.rig.scheduler.group_feed.group_changed(group(min_member=4))
    labels = {"bayplan.dev/pod-group": "train"}
    kueue.add("job", 4, labels=labels)
    await kueue.until(lambda: kueue.held == ["job"])
    kueue.pods("job", 4, labels=labels)
    await kueue.restart("job")
    assert kueue.written == ["job: Ready"]


async def test_pods_that_do_not_come(kueue: Kueue) -> None:
    """After the maximum time without a scheduled pod, the room is freed and the Workload is queued again."""
    kueue.add("job", 2)
    await kueue.until(lambda: kueue.held == ["job"])
    kueue.rig.clock.advance(HOLD_SECONDS)
    await kueue.until(lambda: kueue.written == ["job: Ready", "job: Retry"])
    assert kueue.held == []


@table("is_late", ("no pod came", True), ("room is lost", False))
async def test_a_retry_that_cannot_be_written(kueue: Kueue, *, is_late: bool) -> None:
    """It is written again although no room is held any more and the Workload does not change."""
    kueue.add("job", 2)
    await kueue.until(lambda: kueue.held == ["job"])
    kueue.conflicts = 2
    if is_late:
        kueue.rig.clock.advance(HOLD_SECONDS)
    else:
        for name in "ab":
            kueue.rig.scheduler.feed.node_deleted(small_node(name))
    async with kueue.running():
        for left in (1, 0):
            await kueue.wait(lambda left=left: kueue.conflicts == left)  # type: ignore[misc]
            kueue.rig.clock.advance(2)
        await kueue.wait(lambda: kueue.written == ["job: Ready", "job: Retry"])
    assert kueue.held == []


async def test_room_that_cannot_be_searched_again_after_a_restart(kueue: Kueue) -> None:
    """The search is tried again."""
    kueue.add("job", 4)
    await kueue.until(lambda: kueue.held == ["job"])
    kueue.rig.scheduler.reservations.held.end("uid-of-job")
    kueue.failed_lists = 1
    kueue.controller()
    kueue.check()
    kueue.checks.workload_changed(kueue.workload("job"))
    async with kueue.running():
        await kueue.wait(lambda: not kueue.failed_lists)
        await asyncio.sleep(0.05)
        assert kueue.held == []
        kueue.rig.clock.advance(1)
        await kueue.wait(lambda: kueue.held == ["job"])
    assert kueue.written == ["job: Ready"]


async def test_two_checks_of_one_workload(kueue: Kueue) -> None:
    """A Workload with two checks of Bayplan gets one answer for both, and room is held once."""
    body = {"metadata": {"name": "also-fit"}, "spec": {"controllerName": "bayplan.dev/fit"}}
    kueue.checks.check_changed(msgspec.convert(body, AdmissionCheck))
    kueue.add("job", 3, others=[{"name": "also-fit", "state": "Pending"}])
    await kueue.until(lambda: kueue.written == ["job: Ready"])
    assert kueue.writes[0].checks == ("fit", "also-fit")
    assert kueue.held == ["job"]


async def test_a_second_check_that_is_added_later(kueue: Kueue) -> None:
    """A check of Bayplan that a queue gets later is answered, too."""
    kueue.add("job", 3)
    await kueue.until(lambda: kueue.written == ["job: Ready"])
    body = {"metadata": {"name": "also-fit"}, "spec": {"controllerName": "bayplan.dev/fit"}}
    kueue.checks.check_changed(msgspec.convert(body, AdmissionCheck))
    kueue.add_check("job", "also-fit")
    await kueue.until(lambda: kueue.written == ["job: Ready"] * 2)
    assert kueue.writes[1].checks == ("fit", "also-fit")
    assert kueue.held == ["job"]


@table(
    "part",
    ("look at held room", "_needs_answer"),
    ("nodes of held room", "_states_of"),
)
async def test_a_bug_in_one_workload(
    kueue: Kueue, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, part: str
) -> None:
    """A bug in what is done for one Workload does not prevent the answers to the others."""
    kueue.add("broken", 1)
    await kueue.until(lambda: kueue.held == ["broken"])

    def fail(*_: object) -> None:
        raise ZeroDivisionError("planted")

    monkeypatch.setattr(kueue.checks, part, fail)
    async with kueue.running():
        await kueue.wait(lambda: "planted" in caplog.text)
        kueue.rig.add(running_pod("one", "a"), running_pod("two", "b"))
        kueue.add("next", 1, cpu=2)
        await kueue.wait(lambda: "next: Retry" in kueue.written)


async def test_a_bug_in_the_look_at_all_rooms(
    kueue: Kueue, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """If held room cannot be settled, Workloads are answered, and the log has one line for each try."""
    kueue.add("job", 1)
    await kueue.until(lambda: kueue.held == ["job"])

    def fail() -> list[Holder]:
        raise ZeroDivisionError("planted")

    monkeypatch.setattr(kueue.rig.scheduler.reservations.held, "settle", fail)
    async with kueue.running():
        for number in range(3):
            kueue.add(f"job-{number}", 1)
            await kueue.wait(lambda number=number: f"job-{number}: Ready" in kueue.written)  # type: ignore[misc]
    assert caplog.text.count("please report it") == 1


async def test_a_check_that_cannot_be_written(kueue: Kueue) -> None:
    """The condition of an AdmissionCheck is tried again after a delay that grows, however often Workloads change."""
    kueue.active_failures = 99
    async with kueue.running():
        for number in range(5):
            kueue.add(f"job-{number}", 9)
            await kueue.wait(lambda number=number: f"job-{number}: Retry" in kueue.written)  # type: ignore[misc]
        assert kueue.active_failures == 98
        for left, too_early, later in ((97, 0.2, 0.4), (96, 0.4, 0.7), (95, 0.9, 1.2)):
            kueue.rig.clock.advance(too_early)
            await asyncio.sleep(0.05)
            assert kueue.active_failures == left + 1
            kueue.rig.clock.advance(later)
            await kueue.wait(lambda left=left: kueue.active_failures == left)  # type: ignore[misc]
        kueue.active_failures = 0
        kueue.rig.clock.advance(4)
        await kueue.wait(lambda: kueue.active == ["fit"])


async def test_a_flavor_that_comes_late(kueue: Kueue) -> None:
    """A Workload whose flavor is not known yet is answered when the flavor is, although the Workload is unchanged."""
    kueue.add("job", 1)
    kueue.assign("job", "spot")
    await kueue.until(lambda: kueue.written == ["job: Pending"])
    async with kueue.running():
        await asyncio.sleep(0.05)
        kueue.checks.flavor_changed(msgspec.convert({"metadata": {"name": "spot"}}, ResourceFlavor))
        await kueue.wait(lambda: kueue.written == ["job: Pending", "job: Ready"])


async def test_an_elastic_job_that_grows(kueue: Kueue) -> None:
    """The Workload that replaces another one gets room for the new pods only, and these may use it."""
    kueue.add("small", 2, elastic="train")
    await kueue.until(lambda: kueue.held == ["small"])
    kueue.pods("small", 2)
    await kueue.schedule()
    await kueue.until(lambda: not kueue.held)
    kueue.change("small", "Ready", kueue.writes[0].since, "Finished")
    kueue.add("large", 4, elastic="train")
    await kueue.until(lambda: kueue.held == ["large"])
    kueue.deliver("small")
    kueue.pods("small", 2, first=2)
    await kueue.schedule()
    assert len(kueue.rig.bound) == 4
    await kueue.until(lambda: not kueue.held)
    assert kueue.written == ["small: Ready", "large: Ready"]


async def test_an_elastic_job_whose_new_pods_do_not_fit(kueue: Kueue) -> None:
    """Its pods run on, and the new ones are searched for again; with the state Retry Kueue would stop the Job."""
    kueue.add("small", 2, elastic="train")
    await kueue.until(lambda: kueue.held == ["small"])
    kueue.pods("small", 2)
    await kueue.schedule()
    kueue.change("small", "Ready", kueue.writes[0].since, "Finished")
    kueue.add("large", 5, elastic="train")
    async with kueue.running():
        await kueue.wait(lambda: kueue.written == ["small: Ready", "large: Pending"])
        assert kueue.writes[1].message.startswith("2 pods run, and the others wait for room: 2 of 3 pods fit now")
        kueue.rig.add(small_node("c"))
        kueue.rig.clock.advance(5)
        await kueue.wait(lambda: kueue.written == ["small: Ready", "large: Pending", "large: Ready"])
    assert kueue.held == ["large"]


async def test_an_elastic_job_that_shrinks(kueue: Kueue) -> None:
    """The room of the pods that will not come is freed."""
    kueue.add("job", 4, elastic="train")
    await kueue.until(lambda: kueue.held == ["job"])
    kueue.pods("job", 2)
    await kueue.schedule()
    kueue.resize("job", 2)
    await kueue.until(lambda: not kueue.held)
    assert kueue.written == ["job: Ready"]
