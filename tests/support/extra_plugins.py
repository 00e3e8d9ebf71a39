"""Plugins for tests of profiles: another queue order, and a plugin that counts its instances."""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import model_validator

from scheduler_core.config.config_model import ConfigModel
from scheduler_core.framework.extension_points import QueueSortPlugin, ReservePlugin
from scheduler_core.framework.queued_pod import QueuedPod
from scheduler_core.framework.registry import Registry
from scheduler_core.framework.status import SUCCESS, Status
from scheduler_core.in_tree import in_tree_registry


class FairSort(QueueSortPlugin):
    """QueueSort plugin with another order than PrioritySort."""

    name = "FairSort"

    def sort_key(self, pod: QueuedPod) -> Any:
        return pod.sequence


class CountedArgs(ConfigModel):
    """Args that count validations of non-empty input."""

    validations: ClassVar[int] = 0

    size: int = 0

    @model_validator(mode="before")
    @classmethod
    def _count(cls, data: Any) -> Any:
        CountedArgs.validations += bool(data)
        return data


class Counted(ReservePlugin):
    """Plugin that counts created and closed instances; its creation fails while ``broken`` is set."""

    name = "Counted"
    args_model = CountedArgs
    made: ClassVar[int] = 0
    closed: ClassVar[int] = 0
    broken: ClassVar[bool] = False

    def __init__(self, args: Any, handle: Any) -> None:
        super().__init__(args, handle)
        if Counted.broken:
            raise OSError("no licence")
        self.size: int = args.size
        Counted.made += 1

    def reserve(self, *_: Any) -> Status:
        return SUCCESS

    def unreserve(self, *_: Any) -> None:
        """Do nothing."""

    def close(self) -> None:
        Counted.closed += 1


def registry_with_extra_plugins() -> Registry:
    """Return a registry with the in-tree plugins and these plugins."""
    plugins = in_tree_registry()
    plugins.register(FairSort)
    plugins.register(Counted)
    return plugins
