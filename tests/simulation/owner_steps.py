"""Steps that act on workloads whose pods are gangs by owner, and on the PodGroups that the operator creates for them.

Most steps for gangs also act on their pods.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING

from scheduler_core.model.pod_group import GroupKey, GroupSource
from tests.simulation.api_server import NAMESPACE
from tests.simulation.cluster_objects import happens, one_of
from tests.simulation.gang_jobs import generate_job
from tests.simulation.owned_groups import OwnedGroups
from tests.simulation.owners import KINDS, PATHS, Owners, Workload
from tests.simulation.pod_groups import PodGroups

if TYPE_CHECKING:
    from tests.simulation.cluster_steps import StepContext

StepAction = Callable[[random.Random, int], None]
_WRITE_FAULTS = ("error before", "error after", "request lost", "response lost", "no response", "conflict")
_NAMES = ("a", "b", "c")
_RUNS, _RUN_SECONDS = 3, 12.0


class OwnerSteps:
    """Performs the steps.

    Attributes:
        owners: Controllers of the workloads.
        owned: API of the PodGroups.
    """

    def __init__(self, context: StepContext, groups: PodGroups) -> None:
        self._network = context.network
        self._server = context.server
        self._supervisor = context.supervisor
        self._counts = context.counts
        self._groups = groups
        self.owned = OwnedGroups(context.network, groups, context.seed)
        self.owners = Owners(context.network, groups, self.owned, context.seed)
        self._kills = 0
        self.actions: dict[str, StepAction] = {
            "create an owner": self._create,
            "create a CronJob": self._create_cron_job,
            "scale an owner": self._scale,
            "suspend or resume an owner": self._suspend,
            "delete an owner": self._delete,
            "recreate an owner": self._recreate,
            "delete a PodGroup of an owner": self._delete_group,
            "edit a PodGroup of an owner": self._edit_group,
            "fail writes of PodGroups": self._fail_writes,
            "kill the operator after a PodGroup": self._arm_kill,
            "stall a watch of owners": lambda rng, _: self._network.stall(self._path(rng), 12.0 * rng.random() ** 2),
            "drop a watch of owners": lambda rng, _: self._network.drop(self._path(rng), graceful=happens(rng, 0.5)),
            "expire a watch of owners": lambda rng, _: self._network.expire(self._path(rng)),
        }

    def begin(self) -> None:
        """Serve the API of these PodGroups."""
        self._groups.are_owned = True
        self._server.on_group_request = self.owned.respond
        self._server.annotations = self.owned.annotations
        self.owned.on_created = self._created
        self.owners.begin()

    def heal(self) -> None:
        """Disarm all faults, and resume what is suspended."""
        self._kills = 0

    def _path(self, rng: random.Random) -> str:
        return one_of(rng, tuple(PATHS.values()))

    def _some(self, rng: random.Random, kinds: tuple[str, ...] = KINDS) -> Workload | None:
        found = [each for each in self.owners.workloads.values() if each.kind in kinds]
        return one_of(rng, found) if found else None

    # -- workloads ----------------------------------------------------------------------------------------------

    def _create(self, rng: random.Random, number: int) -> None:
        kind = one_of(rng, KINDS)
        free = [f"{kind.lower()}-{name}" for name in _NAMES if f"{kind.lower()}-{name}" not in self.owners.workloads]
        # Pods of a deleted workload of the same name may still exist, but not in its slots.
        free = [name for name in free if not self._is_in_use(name)]
        if free:
            self.owners.put(self._workload(rng, kind, one_of(rng, free), number))

    def _is_in_use(self, name: str) -> bool:
        return any(pod.metadata.name.startswith(f"{name}-") for pod in self._server.pods())

    def _workload(self, rng: random.Random, kind: str, name: str, number: int) -> Workload:
        pods = one_of(rng, (1, 2, 3, 4, 6) if kind == "Job" else (1, 2, 2, 3))
        replicas = 1 if kind == "Job" else one_of(rng, (1, 1, 2))
        template = generate_job(rng, f"w{number}", GroupKey(GroupSource.BAYPLAN, NAMESPACE, name), pods * replicas)
        completions = pods + one_of(rng, (-1, 0, 2)) if kind == "Job" and happens(rng, 0.3) else None
        is_suspended = kind in ("Job", "JobSet") and happens(rng, 0.15)
        uid = self._server.new_uid(name)
        return Workload(
            kind,
            name,
            uid,
            template,
            pods,
            None if completions is None else max(1, completions),
            replicas,
            is_suspended,
            recreates_unit=happens(rng, 0.5),
        )

    def _create_cron_job(self, rng: random.Random, number: int) -> None:
        """Create a CronJob: some Jobs one after the other, each of which replaces the one before the last."""
        seed = rng.random()
        for run in range(_RUNS):
            self._network.loop.call_later(_RUN_SECONDS * run, self._begin_run, f"{seed}", number, run)

    def _begin_run(self, seed: str, number: int, run: int) -> None:
        old = self.owners.workloads.get(f"cron-{number}-{run - 2}")
        if old is not None:
            self.owners.delete(old)
        name = f"cron-{number}-{run}"
        self.owners.put(self._workload(random.Random(seed), "Job", name, number))

    def _scale(self, rng: random.Random, number: int) -> None:
        """Change the parallelism of a Job, or replicas or size of a LeaderWorkerSet, whose pods are then recreated.

        Some changes are received after the changes of the pods.
        """
        workload = self._some(rng, ("Job", "LeaderWorkerSet"))
        if workload is None:
            return
        change = one_of(rng, (-1, 1, 2))
        if happens(rng, 0.5):
            self._network.stall(PATHS[workload.kind], 12.0)
        self._counts.add("owner scaled")
        if workload.kind == "LeaderWorkerSet" and happens(rng, 0.6):
            workload.replicas = max(0, workload.replicas + change)
            self.owners.put(workload)
            return
        workload.pods = max(1, workload.pods + change)
        self.owners.put(workload)
        if workload.kind == "LeaderWorkerSet":
            self.owners.recreate_units(workload)

    def _suspend(self, rng: random.Random, number: int) -> None:
        workload = self._some(rng, ("Job", "JobSet"))
        if workload is not None:
            self._counts.add("owner suspended or resumed")
            workload.is_suspended = not workload.is_suspended
            if workload.kind == "Job" and not workload.is_suspended and happens(rng, 0.5):
                # Partial admission by Kueue: fewer pods than before.
                workload.pods = max(1, workload.pods - 1)
            self.owners.put(workload)

    def _delete(self, rng: random.Random, number: int) -> None:
        workload = self._some(rng)
        if workload is not None:
            self._counts.add("owner deleted")
            self.owners.delete(workload, orphans=workload.kind == "Job" and happens(rng, 0.25))

    def _recreate(self, rng: random.Random, number: int) -> None:
        """Delete a workload, and create one of the same name, whose pods wait for the names of the old ones."""
        workload = self._some(rng)
        if workload is not None:
            self._counts.add("owner deleted")
            self.owners.delete(workload)
            successor = self._workload(rng, workload.kind, workload.name, number)
            self._network.loop.call_later(4.0 * rng.random() ** 2, self._return, successor)

    def _return(self, workload: Workload) -> None:
        if workload.name not in self.owners.workloads:
            self.owners.put(workload)

    # -- PodGroups ----------------------------------------------------------------------------------------------

    def _group(self, rng: random.Random) -> GroupKey | None:
        keys = list(self._groups.bodies)
        return one_of(rng, keys) if keys else None

    def _delete_group(self, rng: random.Random, number: int) -> None:
        key = self._group(rng)
        if key is not None:
            self._counts.add("PodGroup of an owner deleted")
            self.owned.delete(key)

    def _edit_group(self, rng: random.Random, number: int) -> None:
        """Change minMember, which the operator reverts unless the label was removed first."""
        key = self._group(rng)
        if key is None:
            return
        if happens(rng, 0.3):
            self.owned.take_over(key)
        size = self._groups.bodies[key]["spec"]["minMember"]
        self._counts.add("PodGroup of an owner edited")
        self.owned.edit(key, {"minMember": max(1, size + one_of(rng, (-1, 1)))})

    def _fail_writes(self, rng: random.Random, number: int) -> None:
        self._network.arm("group", one_of(rng, _WRITE_FAULTS), rng.randrange(1, 3))

    def _arm_kill(self, rng: random.Random, number: int) -> None:
        self._kills = 1

    def _created(self) -> None:
        if self._kills:
            self._kills -= 1
            self._counts.add("operator killed after a PodGroup")
            self._network.loop.call_soon(self._supervisor.kill)
