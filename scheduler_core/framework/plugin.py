"""What all plugins have, whatever extension points they serve.

Owns the base class and how a plugin says what its answers depend on. It must not know the points themselves.
"""

from __future__ import annotations

from abc import ABC
from collections.abc import Callable, Hashable, Sequence
from enum import Enum, IntEnum, auto
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import BaseModel

from scheduler_core.framework.cluster_events import EVERY_EVENT, EventRegistration
from scheduler_core.framework.object_reads import NO_MORE, ObjectReads
from scheduler_core.snapshot.node_columns import NodeColumns
from scheduler_core.snapshot.pod_info import PodInfo

if TYPE_CHECKING:
    from scheduler_core.framework.handle import Handle


class Reads(IntEnum):
    """What a plugin's answer for one row depends on, besides the pod: how long it may be remembered."""

    STATIC = 1
    """The Node object."""
    ROW = 2
    """Also the pods on that node."""
    NODES = 3
    """Also the Node objects of others."""
    DOMAIN = 4
    """Counts over topology domains."""
    OPAQUE = 5
    """Anything; never remembered."""


class Normalization(Enum):
    """How raw scores over all feasible nodes become 0 to 100."""

    NONE = auto()
    """They are within 0 to 100 already."""
    MAX = auto()
    """Scaled so that the highest is 100."""
    REVERSE_MAX = auto()
    """Scaled like MAX, then taken from 100."""
    OWN = auto()
    """By the plugin's ``normalize``."""


def always() -> bool:
    """What holds whatever happens."""
    return True


class Plugin(ABC):
    """What all plugins have.

    Attributes:
        name: The name by which profiles enable it; unique in a registry.
        args_model: The pydantic model of its args, None if it takes none.
        reads: What it reads of the cluster beyond what is decoded anyway.
        reads_identity: Whether ``signature`` may tell pods apart that differ in name, UID and age alone; False spares
            the question.
        reads_resources: Whether its answers may depend on what the pod's containers ask for; False spares asking it
            about pods that differ in nothing else.
    """

    name: ClassVar[str]
    args_model: ClassVar[type[BaseModel] | None] = None
    reads: ClassVar[ObjectReads] = NO_MORE
    reads_identity: ClassVar[bool] = True
    reads_resources: ClassVar[bool] = True

    def __init__(self, args: Any, handle: Handle) -> None:
        """Keep what the plugin works with.

        Args:
            args: An instance of ``args_model``, validated and with defaults; None if the plugin takes no args.
            handle: The rest of the scheduler.
        """
        self.args = args
        self.handle = handle

    def signature(self, pod: PodInfo) -> Hashable | None:
        """All that this plugin reads of ``pod`` at Filter and Score, in one hashable value.

        Two pods of equal signatures get equal answers. None (the default) says that the answer must not be reused.
        """
        del pod
        return None

    def preparation_check(self, pod: PodInfo, nodes: NodeColumns) -> Callable[[], bool] | None:
        """How long what PreFilter and PreScore have just answered and prepared holds for pods of this signature.

        Args:
            pod: The pod that they were asked about.
            nodes: The columns.

        Returns:
            A check that is quick and true for as long as they would answer and prepare the same, :func:`always` where
            that follows from the signature; None (the default) if it cannot be told, and they are asked every time.
        """
        del pod, nodes
        return None

    def events_to_register(self) -> Sequence[EventRegistration]:
        """The events that may make a pod schedulable which this plugin rejected; by default every event."""
        return (EventRegistration(EVERY_EVENT),)

    def close(self) -> None:  # noqa: B027 - most plugins hold nothing
        """Release what the plugin holds; called after its last pod in flight."""
