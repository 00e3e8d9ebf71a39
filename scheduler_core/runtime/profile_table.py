"""Live framework instances by scheduler name.

A swap is one assignment between two cycles. All live profiles must have the same QueueSort plugin and args, because
there is one active queue; a set of instances that disagree is rejected as a whole. A change that raises is undone, so
that its caller can repeat it as a whole.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from scheduler_core.config.validation import nearest_name
from scheduler_core.errors import ConfigError, Problem
from scheduler_core.runtime.framework_instance import FrameworkInstance

log = logging.getLogger(__name__)


def queue_sort_of(instance: FrameworkInstance) -> tuple[str, str]:
    """Return the name of the QueueSort plugin and its args, in comparable form."""
    plugin = instance.queue_sort
    args = plugin.args
    return plugin.name, "" if args is None else args.model_dump_json()


MOST_SERVED_BEFORE = 1_000
"""Maximum number of names that profiles had earlier; the oldest are dropped, and then mean a live profile or none."""
_MOST_MEANT = 1024
_DEFAULT_SCHEDULER = "default-scheduler"


class ProfileTable:
    """Live framework instances by scheduler name.

    Args:
        on_change: Called with every scheduler name whose instance was added, replaced or removed, after the change.
    """

    def __init__(self, on_change: Callable[[str], None]) -> None:
        self.live: dict[str, FrameworkInstance] = {}
        self._on_change = on_change
        self._claimed: frozenset[str] | None = None
        self._served_before: dict[str, None] = {}
        self._meant: dict[str, str] = {}

    def __iter__(self) -> Iterator[FrameworkInstance]:
        return iter(list(self.live.values()))

    def __contains__(self, name: str) -> bool:
        return name in self.live

    def __len__(self) -> int:
        return len(self.live)

    def get(self, name: str) -> FrameworkInstance | None:
        return self.live.get(name)

    # -- names of other schedulers ----------------------------------------------------------------------------------

    def claim(self, names: Iterable[str]) -> None:
        """Set the names that profiles claim, live or not; until the first call, every name counts as meant for them."""
        self._claimed = frozenset(names)
        self._meant.clear()

    def meant_by(self, name: str) -> str:
        """Return the name of a profile that a pod's ``schedulerName`` means, perhaps misspelt; "" for other schedulers.

        A name that a profile had earlier means that profile.
        """
        if self._claimed is None or name in self.live or name in self._claimed or name in self._served_before:
            return name
        if name not in self._meant:
            if len(self._meant) >= _MOST_MEANT:
                self._meant.clear()
            self._meant[name] = "" if name == _DEFAULT_SCHEDULER else nearest_name(name, self._claimed)
        return self._meant[name]

    def count_meant(self, pods: Mapping[str, int]) -> int:
        """Return how many pods, by ``schedulerName``, are not those of other schedulers."""
        return sum(count for name, count in pods.items() if self.meant_by(name))

    # -- changes ------------------------------------------------------------------------------------------------------

    def disagreement(self, instances: Sequence[FrameworkInstance]) -> Problem | None:
        """Return the reason why ``instances`` cannot go live together with the live ones that they do not replace."""
        after = {instance.name: instance for instance in (*self.live.values(), *instances)}
        for instance in instances:
            for other in after.values():
                if queue_sort_of(other) != queue_sort_of(instance):
                    return Problem(
                        "plugins.queueSort",
                        f"profile {other.name} uses QueueSort plugin {queue_sort_of(other)[0]}, this one "
                        f"{queue_sort_of(instance)[0]}; all profiles must use the same plugin with the same args",
                    )
        return None

    def swap(self, *instances: FrameworkInstance) -> None:
        """Make instances live; each replaces the instance of its name.

        Raises:
            ConfigError: Their QueueSort plugins or args differ; nothing was changed.
            Exception: Raised by ``on_change``; the instances of before are live again.
        """
        problem = self.disagreement(instances)
        if problem is not None:
            raise ConfigError([problem])
        replaced = {instance.name: self.live.get(instance.name) for instance in instances}
        self.live.update((instance.name, instance) for instance in instances)
        self._report(replaced)
        for instance in instances:
            self._served_before.pop(instance.name, None)
            self._served_before[instance.name] = None
        while len(self._served_before) > MOST_SERVED_BEFORE:
            del self._served_before[next(iter(self._served_before))]
        for instance in instances:
            old = replaced[instance.name]
            if old is not None and old is not instance:
                old.retire()

    def withdraw(self, name: str) -> None:
        """Remove a profile; pods in flight finish on the instance on which they started.

        Raises:
            Exception: Raised by ``on_change``; the profile is live again.
        """
        old = self.live.pop(name, None)
        if old is not None:
            self._report({name: old})
            old.retire()

    def _report(self, replaced: Mapping[str, FrameworkInstance | None]) -> None:
        """Report changed names; if that raises, undo the change, and report the names again."""
        try:
            for name in replaced:
                self._on_change(name)
        except Exception:
            # The queue or a plugin may raise anything: the last good revisions stay live; the caller repeats the swap.
            for name, old in replaced.items():
                if old is None:
                    self.live.pop(name, None)
                else:
                    self.live[name] = old
            for name in replaced:
                try:
                    self._on_change(name)
                except Exception:
                    # The other names must be reported all the same; the first exception is raised below.
                    log.exception("undoing a change of profile %s failed; the change is repeated", name)
            raise
