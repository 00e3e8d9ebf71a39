"""Why a kind cannot be watched, in words that say what to do, and told once however many watches it strikes.

Owns the advice and the account of an outage. It must not know who watches. Why it is not left to the API server's own
message: that names the user and the resource but not both verbs that a watch takes, nor where the right belongs. Why
one account for all watches: a server that goes away ends every one of them, for one reason.

    all open --one breaks: a line with its reason--> outage --others break: counted--> outage
       ^                                               |
       +---- the last of them is open again: a line ---+
"""

from __future__ import annotations

import logging

from bayplan.kube.api_errors import InvalidRequestError, ResourceExpiredError, UnauthorizedError
from scheduler_core.errors import ForbiddenError, NotFoundError, SchedulerCoreError
from scheduler_core.ports import Clock

_logger = logging.getLogger(__name__)


class WatchOutages:
    """What is told of watches that break.

    Args:
        clock: Time.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._broken: set[str] = set()
        self._struck: set[str] = set()
        self._reasons: dict[str, str] = {}
        self._tries = 0
        self._began = 0.0

    def broke(self, path: str, error: SchedulerCoreError) -> None:
        """Take note that a watch ended, or could not be opened.

        A version that has expired is no trouble: the watch starts over with a list, which the metric of relists counts.

        Args:
            path: Its collection.
            error: How it ended.
        """
        if isinstance(error, ResourceExpiredError):
            _logger.debug("Watch of %s starts over: %s", path, error)
            return
        text = watch_trouble(path, error)
        if needs_a_person(error):
            if self._reasons.get(path) != text:
                _logger.error("Watch of %s is opened again: %s", path, text)
            self._reasons[path] = text
            return
        if not self._struck:
            self._began, self._tries = self._clock.now(), 0
            _logger.warning("Watch of %s is opened again: %s", path, text)
        self._tries += 1
        self._struck.add(path)
        self._broken.add(path)

    def opened(self, path: str) -> None:
        """Take note that a watch is open.

        Args:
            path: Its collection.
        """
        self._reasons.pop(path, None)
        self._broken.discard(path)
        if self._struck and not self._broken:
            seconds = self._clock.now() - self._began
            _logger.info(
                "Watches that had broken: %d. All are open again after %.1f s, %d tries",
                len(self._struck),
                seconds,
                self._tries,
            )
            self._struck.clear()


def watch_trouble(path: str, error: SchedulerCoreError) -> str:
    """Say what came between a watch and its events.

    Args:
        path: The collection, such as ``/apis/storage.k8s.io/v1/csinodes``.
        error: How the request ended.

    Returns:
        The error's own text, with a remedy where only a person can bring it about.
    """
    advice = _advice(path, error)
    return f"{error}; {advice}" if advice else str(error)


def needs_a_person(error: SchedulerCoreError) -> bool:
    """Whether trying again does not help until somebody changes the cluster."""
    return bool(_advice("", error))


def _advice(path: str, error: SchedulerCoreError) -> str:
    if isinstance(error, InvalidRequestError):
        return ""
    if isinstance(error, UnauthorizedError):
        return "the API server does not know this process: renew its token or kubeconfig"
    *_, group, version, resource = ("", *path.split("/")) if path else ("", "", "")
    if isinstance(error, ForbiddenError):
        return (
            f'grant this process\'s account the verbs list and watch on resource "{resource}" of API group '
            f'"{"" if group == "api" else group}" in a ClusterRole'
        )
    if isinstance(error, NotFoundError):
        return (
            f"the API server does not serve {resource} of version {version}: upgrade it, or enable the API "
            "(--runtime-config)"
        )
    return ""
