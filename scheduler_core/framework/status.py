"""What a plugin answers.

Owns the status codes of the framework. A pod that does not fit is a status and never an exception; an exception out of
a plugin is a fault of the plugin. Follows ``k8s.io/kube-scheduler`` v0.36.3, ``framework/interface.go``.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from scheduler_core.errors import StatusError


class Code(IntEnum):
    """Status codes, numbered as in kube-scheduler."""

    SUCCESS = 0
    ERROR = 1
    UNSCHEDULABLE = 2
    """Not here as things are; removing pods may help."""
    UNSCHEDULABLE_AND_UNRESOLVABLE = 3
    """Not here, and preemption cannot change it."""
    WAIT = 4
    """Permit only: hold the pod until it is allowed, rejected or its time is up."""
    SKIP = 5
    """PreFilter and PreScore: leave out this plugin's Filter or Score; Bind: let the next plugin bind."""
    PENDING = 6
    """Reserve, Permit, PreBind, PreEnqueue: not yet; retried without backoff once an event helps."""

    # That of an enum is a function in Python.
    __hash__ = int.__hash__


_NAMES = {
    Code.SUCCESS: "Success",
    Code.ERROR: "Error",
    Code.UNSCHEDULABLE: "Unschedulable",
    Code.UNSCHEDULABLE_AND_UNRESOLVABLE: "UnschedulableAndUnresolvable",
    Code.WAIT: "Wait",
    Code.SKIP: "Skip",
    Code.PENDING: "Pending",
}


@dataclass(frozen=True, slots=True)
class Status:
    """A code, why, and from whom.

    Attributes:
        code: The code.
        reasons: Sentences for people; they are counted over nodes in the message of a failed attempt.
        plugin: The plugin that answered; filled in by the runtime.

    Raises:
        StatusError: The code is none, or the reasons are no tuple of texts. Refused here and not where it is read,
            since here the plugin that made it is still running and gets named.
    """

    code: Code = Code.SUCCESS
    reasons: tuple[str, ...] = ()
    plugin: str = ""

    def __post_init__(self) -> None:
        """Refuse what type hints do not stop, above all one text in the place of several."""
        code: object = self.code
        reasons: object = self.reasons
        if not isinstance(code, Code):
            raise StatusError(f"{code!r} is no status code; take a Code")
        if not isinstance(reasons, tuple) or not all(isinstance(reason, str) for reason in reasons):
            raise StatusError(f"{reasons!r} are no reasons; give a tuple of texts")

    @property
    def is_success(self) -> bool:
        """Whether the code is SUCCESS."""
        return self.code is Code.SUCCESS

    @property
    def is_skip(self) -> bool:
        """Whether the code is SKIP."""
        return self.code is Code.SKIP

    @property
    def is_rejected(self) -> bool:
        """Whether the pod is turned away without an error."""
        return self.code in (Code.UNSCHEDULABLE, Code.UNSCHEDULABLE_AND_UNRESOLVABLE, Code.PENDING)

    @property
    def code_name(self) -> str:
        """The framework's name of the code, such as UnschedulableAndUnresolvable."""
        return _NAMES[self.code]

    @property
    def message(self) -> str:
        """The reasons in one line."""
        return ", ".join(self.reasons)

    def of(self, plugin: str) -> Status:
        """The same, from ``plugin``, unless it names one already."""
        return self if self.plugin else Status(self.code, self.reasons, plugin)


SUCCESS = Status()
SKIP = Status(Code.SKIP)


def error(reason: str) -> Status:
    """The plugin could not decide."""
    return Status(Code.ERROR, (reason,))


def unschedulable(*reasons: str) -> Status:
    """Not here as things are; removing pods may help."""
    return Status(Code.UNSCHEDULABLE, reasons)


def unresolvable(*reasons: str) -> Status:
    """Not here, and removing pods will not help."""
    return Status(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, reasons)
