"""Live framework instances by scheduler name.

A swap is one assignment between two cycles. All live profiles must have the same QueueSort plugin and args, because
there is one active queue; a set of instances that disagree is rejected as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from scheduler_core.errors import ConfigError, Problem
from scheduler_core.runtime.framework_instance import FrameworkInstance


def queue_sort_of(instance: FrameworkInstance) -> tuple[str, str]:
    """Return the name of the QueueSort plugin and its args, in comparable form."""
    plugin = instance.queue_sort
    args = plugin.args
    return plugin.name, "" if args is None else args.model_dump_json()


class ProfileTable:
    """Live framework instances by scheduler name.

    Args:
        on_change: Called with every scheduler name whose instance was added, replaced or removed, after the change.
    """

    def __init__(self, on_change: Callable[[str], None]) -> None:
        self.live: dict[str, FrameworkInstance] = {}
        self._on_change = on_change

    def __iter__(self) -> Iterator[FrameworkInstance]:
        return iter(list(self.live.values()))

    def __contains__(self, name: str) -> bool:
        return name in self.live

    def __len__(self) -> int:
        return len(self.live)

    def get(self, name: str) -> FrameworkInstance | None:
        """Return the live instance of a scheduler name, None if there is none."""
        return self.live.get(name)

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
        """
        problem = self.disagreement(instances)
        if problem is not None:
            raise ConfigError([problem])
        replaced = [self.live.get(instance.name) for instance in instances]
        self.live.update((instance.name, instance) for instance in instances)
        for instance in instances:
            self._on_change(instance.name)
        for old in replaced:
            if old is not None:
                old.retire()

    def withdraw(self, name: str) -> None:
        """Remove a profile; pods in flight finish on the instance on which they started."""
        old = self.live.pop(name, None)
        if old is not None:
            self._on_change(name)
            old.retire()
