"""One pod or gang: its explanation, as ``bayplan explain`` returns it, and its last attempts."""

from __future__ import annotations

from collections.abc import Hashable

from msgspec import Struct

from bayplan.explanation.documents import Explanation, GangExplanation
from bayplan.page.page_sources import PageSources
from bayplan.page.waiting_gangs import explain_gang_command, explain_pod_command
from scheduler_core.model.pod import Pod
from scheduler_core.model.pod_group import GroupKey, GroupSource


class ShownAttempt(Struct, frozen=True, rename="camel"):
    """An ended attempt.

    Attributes:
        seconds_ago: Time since its end.
        profile: Scheduler name of the profile.
        result: ``scheduled``, ``unschedulable`` or ``error``; of a gang the reason of its condition.
        node: The chosen node, "" for none.
        message: Why it failed.
    """

    seconds_ago: float
    profile: str
    result: str
    node: str
    message: str


class Work(Struct, frozen=True, rename="camel"):
    """A pod or a gang.

    Attributes:
        kind: ``pod`` or ``gang``.
        attempts: Last attempts since the process started, newest first; of a member with those of its gang.
        command: Command that returns the explanation.
    """

    kind: str
    explanation: Explanation | GangExplanation
    attempts: tuple[ShownAttempt, ...]
    command: str


class WorkReader:
    """Reads one pod or gang on request.

    Args:
        sources: Parts of the operator.
    """

    def __init__(self, sources: PageSources) -> None:
        self._sources = sources

    def pod(self, namespace: str, name: str) -> Work | None:
        """Return a pod; None if it does not exist.

        Raises:
            SchedulerCoreError: It cannot be explained.
        """
        pod, explanation = self._sources.find_pod(f"{namespace}/{name}"), self._sources.explain_pod(namespace, name)
        return None if pod is None or explanation is None else self.of_pod(pod, explanation)

    def of_pod(self, pod: Pod, explanation: Explanation) -> Work:
        """Return a pod with its explanation."""
        gang = self._sources.scheduler.context.queue.gangs.key_of(pod)
        attempts = self._attempts(pod.metadata.uid, *(() if gang is None else (gang,)))
        return Work("pod", explanation, attempts, explain_pod_command(pod.metadata.namespace, pod.metadata.name))

    def gang(self, namespace: str, name: str, source: GroupSource | None) -> Work | None:
        """Return a gang; None if it does not exist.

        Raises:
            SchedulerCoreError: It cannot be explained.
        """
        explanation = self._sources.explain_gang(namespace, name, source)
        if explanation is None:
            return None
        attempts = self._attempts(GroupKey(GroupSource(explanation.api), namespace, name))
        return Work("gang", explanation, attempts, explain_gang_command(namespace, name))

    def _attempts(self, *subjects: Hashable) -> tuple[ShownAttempt, ...]:
        now = self._sources.clock.now()
        found = [attempt for subject in subjects for attempt in self._sources.attempts.of(subject)]
        found.sort(key=lambda attempt: -attempt.ended)
        return tuple(
            ShownAttempt(round(now - each.ended, 1), each.profile, each.result, each.node_name, each.message)
            for each in found
        )
