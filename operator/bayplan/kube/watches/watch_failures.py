"""Log lines about failed watches, with a remedy, and one line for an outage that affects many watches.

The API server's own message names the user and the resource, but not both verbs that a watch needs, nor where to grant
them. The outage is shared by all watches: a server that becomes unreachable ends all of them for one reason.

    all open --one fails: a line with its reason--> outage --others fail: counted--> outage
       ^                                               |
       +---- the last of them is open again: a line ---+
"""

from __future__ import annotations

import logging

from bayplan.kube.http.api_errors import InvalidRequestError, ResourceExpiredError, UnauthorizedError
from scheduler_core.errors import ForbiddenError, NotFoundError, SchedulerCoreError
from scheduler_core.ports import Clock

_logger = logging.getLogger(__name__)


class WatchOutages:
    """Log of the watches that fail."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._broken: set[str] = set()
        self._affected: set[str] = set()
        self._reasons: dict[str, str] = {}
        self._tries = 0
        self._began = 0.0

    def broke(self, path: str, error: SchedulerCoreError) -> None:
        """Record that a watch ended, or could not be opened.

        An expired version is no failure: the watch starts over with a list, which the metric of relists counts.
        """
        if isinstance(error, ResourceExpiredError):
            _logger.debug("Watch of %s starts over: %s", path, error)
            return
        text = watch_failure(path, error)
        if needs_user_action(error):
            if self._reasons.get(path) != text:
                _logger.error("Watch of %s failed, retrying: %s", path, text)
            self._reasons[path] = text
            return
        if not self._affected:
            self._began, self._tries = self._clock.now(), 0
            _logger.warning("Watch of %s failed, retrying: %s", path, text)
        self._tries += 1
        self._affected.add(path)
        self._broken.add(path)

    def opened(self, path: str) -> None:
        """Record that a watch is open."""
        self._reasons.pop(path, None)
        self._broken.discard(path)
        if self._affected and not self._broken:
            seconds = self._clock.now() - self._began
            _logger.info(
                "Watches that had failed: %d. All are open again after %.1f s, %d attempts",
                len(self._affected),
                seconds,
                self._tries,
            )
            self._affected.clear()


def watch_failure(path: str, error: SchedulerCoreError) -> str:
    """Describe why a watch failed.

    Args:
        path: Path of the collection, such as ``/apis/storage.k8s.io/v1/csinodes``.

    Returns:
        The error's own text, with a remedy if a user has to act.
    """
    advice = _advice(path, error)
    return f"{error}; {advice}" if advice else str(error)


def needs_user_action(error: SchedulerCoreError) -> bool:
    """Return whether retries fail until a user changes the cluster."""
    return bool(_advice("", error))


def _advice(path: str, error: SchedulerCoreError) -> str:
    if isinstance(error, InvalidRequestError):
        return ""
    if isinstance(error, UnauthorizedError):
        return "the API server rejects the credentials of this process: renew its token or kubeconfig"
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
