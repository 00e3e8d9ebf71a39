"""Why a kind cannot be watched, in words that say what to do.

Owns the advice. It must not know who watches. Why it is not left to the API server's own message: that names the user
and the resource but not both verbs that a watch takes, nor where the right belongs.
"""

from __future__ import annotations

from bayplan.kube.api_errors import InvalidRequestError, UnauthorizedError
from scheduler_core.errors import ForbiddenError, NotFoundError, SchedulerCoreError


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
