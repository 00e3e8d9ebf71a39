"""The live profiles, and how one revision takes another's place.

Owns the map from scheduler name to framework instance. A swap is one assignment between two cycles: nobody sees half of
it, pods in flight end on the instance that they began with. Must not know where profiles are configured.

All live profiles share one QueueSort plugin and its args, since there is one active queue; a set of instances that
disagree is refused whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from scheduler_core.errors import ConfigError, Problem
from scheduler_core.runtime.framework_instance import FrameworkInstance


def queue_sort_of(instance: FrameworkInstance) -> tuple[str, str]:
    """The QueueSort plugin's name and its args, in a form that can be compared."""
    plugin = instance.queue_sort
    args = plugin.args
    return plugin.name, "" if args is None else args.model_dump_json()


class ProfileTable:
    """Live framework instances by scheduler name.

    Args:
        on_change: Told of every scheduler name whose instance came, changed or went, after it did.
    """

    def __init__(self, on_change: Callable[[str], None]) -> None:
        self._live: dict[str, FrameworkInstance] = {}
        self._on_change = on_change

    def __iter__(self) -> Iterator[FrameworkInstance]:
        return iter(list(self._live.values()))

    def __contains__(self, name: str) -> bool:
        return name in self._live

    def __len__(self) -> int:
        return len(self._live)

    def get(self, name: str) -> FrameworkInstance | None:
        """The live instance that serves a scheduler name, None if there is none."""
        return self._live.get(name)

    def disagreement(self, instances: Sequence[FrameworkInstance]) -> Problem | None:
        """What keeps ``instances`` from going live together, beside the live ones that they do not replace."""
        after = {instance.name: instance for instance in (*self._live.values(), *instances)}
        for instance in instances:
            for other in after.values():
                if queue_sort_of(other) != queue_sort_of(instance):
                    return Problem(
                        "plugins.queueSort",
                        f"profile {other.name} orders the queue by {queue_sort_of(other)[0]}, this one by "
                        f"{queue_sort_of(instance)[0]}; all live profiles must name the same plugin with the same args",
                    )
        return None

    def swap(self, *instances: FrameworkInstance) -> None:
        """Make instances live, each in the place of the one that served its name.

        Raises:
            ConfigError: They do not order the queue alike; nothing was changed.
        """
        problem = self.disagreement(instances)
        if problem is not None:
            raise ConfigError([problem])
        replaced = [self._live.get(instance.name) for instance in instances]
        self._live.update((instance.name, instance) for instance in instances)
        for instance in instances:
            self._on_change(instance.name)
        for old in replaced:
            if old is not None:
                old.retire()

    def withdraw(self, name: str) -> None:
        """Stop serving a scheduler name; pods in flight end on the instance that they began with."""
        old = self._live.pop(name, None)
        if old is not None:
            self._on_change(name)
            old.retire()
