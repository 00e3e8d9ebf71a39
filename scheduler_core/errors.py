"""Exceptions of Bayplan, in one tree.

A boundary such as a reconcile or a command catches ``SchedulerCoreError``, whose messages are written for users and
name the remedy. A pod that does not fit is a ``Status``, never an exception.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    # For annotations only: commands that import errors should start without NumPy.
    import numpy as np
    from numpy.typing import NDArray


class SchedulerCoreError(Exception):
    """Base class of all errors that Bayplan raises on purpose."""


def error_message(error: BaseException) -> str:
    """Return the message of an exception for users; one that is not raised on purpose is a bug to report."""
    if isinstance(error, SchedulerCoreError):
        return str(error)
    return f"internal error: {type(error).__name__}: {error}; please report it"


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem in a configuration.

    Attributes:
        path: The field path, such as ``profiles[0].plugins.score.enabled[2].name``; empty for the whole document.
        message: What is wrong and what to do, without the path.
    """

    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message


class ConfigError(SchedulerCoreError):
    """A configuration is invalid; contains all problems, not only the first."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems: tuple[Problem, ...] = tuple(problems)
        super().__init__(self.problems)

    def __str__(self) -> str:
        # Indent continuation lines, so that a multi-line message does not look like several problems.
        texts = [str(problem).replace("\n", "\n    ") for problem in self.problems]
        if len(texts) == 1:
            return texts[0]
        lines = "\n".join(f"  {text}" for text in texts)
        return f"{len(self.problems)} problems:\n{lines}"


class RegistryError(SchedulerCoreError):
    """The set of plugins is not usable: a duplicate name, or an entry point that cannot be loaded."""


_WHERE_IT_FAILED = {
    "preFilter": 'running PreFilter plugin "{}"',
    "preFilterAddPod": 'running AddPod on PreFilter plugin "{}"',
    "preFilterRemovePod": 'running RemovePod on PreFilter plugin "{}"',
    "filter": 'running "{}" filter plugin',
    "preScore": 'running PreScore plugin "{}"',
    "score": 'running Score plugins: plugin "{}" failed with',
    "normalizeScore": 'running Normalize on Score plugins: plugin "{}" failed with',
    "reserve": 'running Reserve plugin "{}"',
    "permit": 'running Permit plugin "{}"',
    "preBindPreFlight": 'running PreBindPreFlight "{}"',
    "preBind": 'running PreBind plugin "{}"',
    "bind": 'running Bind plugin "{}"',
}
"""Wording of kube-scheduler v1.37.1 (``framework/runtime/framework.go``), so that searches for its messages match."""


class PluginError(SchedulerCoreError):
    """A plugin raised, or returned a value that its extension point does not allow.

    Args:
        point: The extension point as in the configuration (``filter``, ``score``).
    """

    def __init__(self, plugin: str, point: str, message: str) -> None:
        self.plugin = plugin
        self.point = point
        self.message = message
        super().__init__(plugin, point, message)

    def __str__(self) -> str:
        where = _WHERE_IT_FAILED.get(self.point, f'plugin "{{}}" failed at {self.point}').format(self.plugin)
        return f"{where}: {self.message}"


class UndecidedRowsError(PluginError):
    """A Filter plugin cannot decide on some rows; the attempt fails only if no earlier plugin rejects all of them.

    Args:
        codes: The plugin's result, int16 per requested row, with own codes for the undecided rows.
        problems: What is wrong, by those codes.
    """

    def __init__(self, plugin: str, codes: NDArray[np.int16], problems: Mapping[int, str]) -> None:
        super().__init__(plugin, "filter", "; ".join(problems.values()))
        self.codes = codes
        self.problems = problems


class StatusError(SchedulerCoreError):
    """A plugin built a status from something that is not a Code or not a tuple of reasons."""


class QuantityError(SchedulerCoreError):
    """A resource quantity cannot be parsed."""


class PodTooDemandingError(SchedulerCoreError):
    """A pod exceeds the number of constraints that the scheduler evaluates."""


class SelectorError(SchedulerCoreError):
    """A label or field selector is invalid."""


class SelectorTooLargeError(SelectorError):
    """A label selector lists more than is evaluated."""


class StorageError(SchedulerCoreError):
    """A volume or claim is in an unexpected state: a source cannot be translated, or a binding was lost."""


class AllocationError(SchedulerCoreError):
    """A claim, class or slice is invalid: the scheduling attempt ends, not only the evaluation of the node."""


class AllocationTimeoutError(SchedulerCoreError):
    """The search for devices on a node exceeded its time or its number of steps.

    Args:
        steps: Steps of the search until it ended.
    """

    def __init__(self, steps: int) -> None:
        self.steps = steps
        super().__init__(f"gave up the search for devices after {steps} steps")


class AttemptLimitError(PluginError):
    """An attempt to schedule a pod or a gang, or its dry run, took more steps than it may: it ends, and only it fails.

    Args:
        steps: The limit.
        is_dry: Whether it is the limit of a dry run, which attempts exceed.
    """

    def __init__(self, steps: int, *, is_dry: bool = False) -> None:
        self.steps = steps
        self.is_dry = is_dry
        super().__init__("", "", "")

    def __str__(self) -> str:
        where = f" by plugin {self.plugin}" if self.plugin else ""
        if self.is_dry:
            return (
                f"dry run given up after {self.steps} steps of the search{where}, during which no pod is scheduled; "
                "attempts take more: see the conditions of the pods and their PodGroup, or save the objects and run "
                "bayplan explain -f, which has no such limit"
            )
        return (
            f"given up after {self.steps} steps of the search{where}, the limit of one attempt; use fewer or simpler "
            "requests, selectors and constraints"
        )


class StepLimitError(SchedulerCoreError):
    """A search over the members of a gang took all the steps that it may take."""

    def __init__(self, steps: int) -> None:
        self.steps = steps
        super().__init__(f"gave up after {steps} steps")


class InvalidPoolsError(SchedulerCoreError):
    """A node has no devices for the claims, but it has invalid pools that could have provided them."""


class DeviceError(SchedulerCoreError):
    """A resource claim cannot be used or bound as it is now, or its devices failed to become ready."""


class DeviceBindingFailedError(DeviceError):
    """A driver reports that it failed to prepare a device."""


class DeviceBindingTimeoutError(DeviceError):
    """Drivers did not prepare the devices of a pod in time."""


class CacheError(SchedulerCoreError):
    """An operation that the state of the cluster cache does not allow."""


class ClusterWriteError(SchedulerCoreError):
    """A write to the cluster was rejected, or its outcome is unknown.

    Args:
        reason: The message of the API server, or what was observed.
    """

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


class ConflictError(ClusterWriteError):
    """The object has changed, or another client made the change already (HTTP 409)."""


class BoundElsewhereError(ConflictError):
    """A pod to be bound is already bound to another node.

    Args:
        reason: What was observed.
    """

    def __init__(self, reason: str, node_name: str) -> None:
        self.node_name = node_name
        super().__init__(reason)


class NotFoundError(ClusterWriteError):
    """The object does not exist (HTTP 404)."""


class ForbiddenError(ClusterWriteError):
    """The write is forbidden or invalid, and a retry does not help (HTTP 401, 403, 422)."""


class WriteTimeoutError(ClusterWriteError):
    """No response arrived in time; read the object to find out whether the write happened."""


class ServerUnavailableError(ClusterWriteError):
    """The API server is unreachable or overloaded (connection refused, HTTP 429, 5xx); retry later."""


class ExtenderError(SchedulerCoreError):
    """An extender is unreachable, timed out, or returned an error or an invalid response.

    Args:
        url: The extender's ``urlPrefix``.
    """

    def __init__(self, url: str, reason: str) -> None:
        self.url = url
        self.reason = reason
        super().__init__(url, reason)

    def __str__(self) -> str:
        return f"extender {self.url}: {self.reason}"
