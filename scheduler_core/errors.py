"""The one exception tree of Bayplan.

Owns every exception class that the core raises; the operator derives its own from the same root. It must not
know any other module: it is the lowest layer. A pod that does not fit is a ``Status`` and never an exception;
what stands here is for what cannot be carried on with, or must be answered by someone else than the caller.

Why one tree: a boundary (a reconcile, a command) catches ``SchedulerCoreError`` once and knows that the message
was written for the person who reads it. Each message says what to do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    # Names in annotations only: errors are imported by commands that should start without NumPy.
    import numpy as np
    from numpy.typing import NDArray


class SchedulerCoreError(Exception):
    """Root of all errors that Bayplan raises on purpose."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong with a configuration.

    Attributes:
        path: Where, as a field path such as ``profiles[0].plugins.score.enabled[2].name``; empty for the document
            itself.
        message: What is wrong and what to do, in plain words and without the path.
    """

    path: str
    message: str

    def __str__(self) -> str:
        """The path, a colon and the message."""
        return f"{self.path}: {self.message}" if self.path else self.message


class ConfigError(SchedulerCoreError):
    """A configuration is not valid; carries every problem, not the first one only.

    Args:
        problems: All problems, in the order of the document; at least one.
    """

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems: tuple[Problem, ...] = tuple(problems)
        super().__init__(self.problems)

    def __str__(self) -> str:
        """One problem on one line, several as a counted list."""
        # A text of others within one must not look like a problem of its own.
        texts = [str(problem).replace("\n", "\n    ") for problem in self.problems]
        if len(texts) == 1:
            return texts[0]
        lines = "\n".join(f"  {text}" for text in texts)
        return f"{len(self.problems)} problems:\n{lines}"


class RegistryError(SchedulerCoreError):
    """The set of plugins itself is not usable: a name twice, or an entry point that cannot be loaded."""


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
"""As kube-scheduler v1.36.3 words it (``framework/runtime/framework.go``): who searches events for that finds ours."""


class PluginError(SchedulerCoreError):
    """A plugin raised, or answered what its extension point does not allow.

    Args:
        plugin: The plugin's name.
        point: The extension point, as in the configuration (``filter``, ``score``).
        message: What happened.
    """

    def __init__(self, plugin: str, point: str, message: str) -> None:
        self.plugin = plugin
        self.point = point
        self.message = message
        super().__init__(plugin, point, message)

    def __str__(self) -> str:
        """Name the plugin and the point before the message."""
        where = _WHERE_IT_FAILED.get(self.point, f'plugin "{{}}" failed at {self.point}').format(self.plugin)
        return f"{where}: {self.message}"


class UndecidedRowsError(PluginError):
    """A Filter plugin cannot judge some rows; that ends the attempt only if one of them gets as far as this plugin.

    Args:
        plugin: The plugin's name.
        codes: Its answer, int16 per row asked about, with codes of its own for the rows that it cannot judge.
        problems: What is wrong, by those codes.
    """

    def __init__(self, plugin: str, codes: NDArray[np.int16], problems: Mapping[int, str]) -> None:
        super().__init__(plugin, "filter", "; ".join(problems.values()))
        self.codes = codes
        self.problems = problems


class StatusError(SchedulerCoreError):
    """A plugin's answer was made of something that is no code or no list of reasons."""


class QuantityError(SchedulerCoreError):
    """A resource quantity cannot be read."""


class PodTooDemandingError(SchedulerCoreError):
    """A pod makes more demands than are judged."""


class SelectorError(SchedulerCoreError):
    """A label or field selector cannot be compiled."""


class StorageError(SchedulerCoreError):
    """Volumes or claims are not as they have to be: a source cannot be translated, or a binding came undone."""


class QueueError(SchedulerCoreError):
    """The scheduling queue was asked for what its state does not allow."""


class CacheError(SchedulerCoreError):
    """The cluster cache was asked for what its state does not allow."""


class ClusterWriteError(SchedulerCoreError):
    """A write to the cluster was refused or its outcome is unknown.

    Args:
        reason: What the other side said, or what was observed.
    """

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


class ConflictError(ClusterWriteError):
    """The object has changed, or someone else has done it already (HTTP 409)."""


class BoundElsewhereError(ConflictError):
    """A pod that was to be bound runs on another node already: someone else was faster.

    Args:
        reason: What was observed.
        node_name: Where the pod is.
    """

    def __init__(self, reason: str, node_name: str) -> None:
        self.node_name = node_name
        super().__init__(reason)


class NotFoundError(ClusterWriteError):
    """The object is gone (HTTP 404)."""


class ForbiddenError(ClusterWriteError):
    """The write is not allowed or not valid and will not be by repeating it (HTTP 401, 403, 422)."""


class WriteTimeoutError(ClusterWriteError):
    """No answer came in time: the write may or may not have happened, so the object must be read."""


class ServerUnavailableError(ClusterWriteError):
    """The API server is away or overloaded (connection refused, HTTP 429, 5xx): try again later."""


class ExtenderError(SchedulerCoreError):
    """An extender is away, too late, or answered an error or what cannot be read.

    Args:
        url: The extender's ``urlPrefix``.
        reason: What happened, in its words where it gave any.
    """

    def __init__(self, url: str, reason: str) -> None:
        self.url = url
        self.reason = reason
        super().__init__(url, reason)

    def __str__(self) -> str:
        """Name the extender before the reason."""
        return f"extender {self.url}: {self.reason}"
