"""Status that a plugin returns.

A pod that does not fit is a status, never an exception; an exception from a plugin is a bug in the plugin. Follows
``k8s.io/kube-scheduler`` v0.37.1, ``framework/interface.go``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum

from scheduler_core.errors import ClusterWriteError, DeviceError, SchedulerCoreError, StatusError, StorageError

GANG_SCHEDULING = "GangScheduling"
"""Plugin of the statuses with which the scheduler itself rejects a pod because of a gang, as in kube-scheduler."""


class Code(IntEnum):
    """Status codes, numbered as in kube-scheduler."""

    SUCCESS = 0
    ERROR = 1
    UNSCHEDULABLE = 2
    """The pod does not fit here now; preempting pods may help."""
    UNSCHEDULABLE_AND_UNRESOLVABLE = 3
    """The pod does not fit here, and preemption does not help."""
    WAIT = 4
    """Permit only: delay the binding until the pod is allowed or rejected, or the wait times out."""
    SKIP = 5
    """PreFilter and PreScore: skip this plugin's Filter or Score; Bind: call the next plugin."""
    PENDING = 6
    """Reserve, Permit, PreBind, PreEnqueue: wait for an event, then retry without backoff."""

    # The hash of an Enum is computed by a Python function, which is slower.
    __hash__ = int.__hash__


_NAMES = {code: code.name.title().replace("_", "") for code in Code}


@dataclass(frozen=True, slots=True)
class Status:
    """A status code with its reasons and the plugin that returned it.

    Attributes:
        reasons: Messages for users; the message of a failed attempt counts the nodes of each reason.
        plugin: The plugin that returned the status; set by the runtime.
        is_of_cluster: Whether a write to the cluster failed, or a volume or device did not become ready: an error, but
            not one of the plugin or the profile.

    Raises:
        StatusError: The code is not a Code, or the reasons are not a tuple of str. The constructor raises it because
            the plugin that made the mistake is still running then and can be named.
    """

    code: Code = Code.SUCCESS
    reasons: tuple[str, ...] = ()
    plugin: str = ""
    is_of_cluster: bool = field(default=False, repr=False, compare=False)
    # Fields, because every call of a plugin reads them, and a property is a function call.
    is_success: bool = field(init=False, repr=False, compare=False)
    is_skip: bool = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Reject wrong types that type hints do not prevent, in particular one str as reasons; derive the fields."""
        code: object = self.code
        reasons: object = self.reasons
        if not isinstance(code, Code):
            raise StatusError(f"{code!r} is not a status code; use a member of Code")
        if not isinstance(reasons, tuple) or not all(isinstance(reason, str) for reason in reasons):
            raise StatusError(f"{reasons!r} are not valid reasons; use a tuple of str")
        object.__setattr__(self, "is_success", code is Code.SUCCESS)
        object.__setattr__(self, "is_skip", code is Code.SKIP)

    @property
    def is_rejected(self) -> bool:
        """Whether the pod is rejected without an error."""
        return self.code in (Code.UNSCHEDULABLE, Code.UNSCHEDULABLE_AND_UNRESOLVABLE, Code.PENDING)

    @property
    def code_name(self) -> str:
        """Name of the code in the framework, such as UnschedulableAndUnresolvable."""
        return _NAMES[self.code]

    @property
    def message(self) -> str:
        """The reasons, joined by commas."""
        return ", ".join(self.reasons)

    def of(self, plugin: str) -> Status:
        """Return this status with ``plugin`` set, unless it has a plugin already."""
        return self if self.plugin else Status(self.code, self.reasons, plugin, self.is_of_cluster)


SUCCESS = Status()
SKIP = Status(Code.SKIP)


def error(reason: str) -> Status:
    """Return a status for a plugin that cannot decide."""
    return Status(Code.ERROR, (reason,))


_OF_CLUSTER = (ClusterWriteError, StorageError, DeviceError)


def failed_write(fault: SchedulerCoreError) -> Status:
    """Return an error for an exception of a plugin's write, or of the wait for what a controller or driver does then.

    It is of the cluster if the API server failed the write, or if a volume or device was not ready in time.
    """
    return Status(Code.ERROR, (str(fault),), is_of_cluster=isinstance(fault, _OF_CLUSTER))


def unschedulable(*reasons: str) -> Status:
    """Return a status for a pod that does not fit now; preempting pods may help."""
    return Status(Code.UNSCHEDULABLE, reasons)


def unresolvable(*reasons: str) -> Status:
    """Return a status for a pod that does not fit, where preemption does not help."""
    return Status(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, reasons)
