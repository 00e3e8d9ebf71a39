"""A process's part in leader election: the Lease, the writes that it fences, and the time left after its loss."""

from __future__ import annotations

import logging
from collections.abc import Callable

from bayplan.extending.clients import ExtenderClients
from bayplan.kube.connection import ApiConnection
from bayplan.kube.leader_election import LeaderElection
from bayplan.kube.leader_endpoint import LeaderEndpoint, LeaderState
from bayplan.settings import Settings, revision_namespace
from scheduler_core.ports import Clock

log = logging.getLogger(__name__)

LOST_STOP_SECONDS = 2.0
"""Maximum shutdown time after the Lease is lost: nothing may be written any more, and a standby should return soon."""


def candidate(
    settings: Settings,
    connection: ApiConnection,
    extenders: ExtenderClients,
    clock: Clock,
    endpoint: Callable[[], LeaderEndpoint | None],
) -> LeaderElection | None:
    """Make this process a candidate for the Lease if leader election is on; its writes are fenced by the Lease.

    Args:
        settings: Settings of the operator.
        connection: Connection whose writes are fenced.
        extenders: Extender clients whose binds are fenced.
        clock: Clock.
        endpoint: Returns the endpoint of this process; None if it announces none.

    Returns:
        The election, which the caller must run; None without leader election.
    """
    selection = settings.selection
    if selection is not None:
        log.info("Serving the SchedulerProfiles that match %s", selection.text)
    if not settings.leader_election.leader_elect:
        return None
    options = settings.leader_election.options(revision_namespace(settings), selection)
    election = LeaderElection(connection, options, clock, endpoint=endpoint)
    connection.write_fence = extenders.write_fence = election.check
    return election


def leader_state(election: LeaderElection | None) -> LeaderState:
    """Return the leader, for commands that reach a standby.

    Args:
        election: The election of this process; None without leader election.
    """
    if election is None or election.leading.is_set():
        return LeaderState(is_standby=False)
    return LeaderState(True, election.lease, election.holder, election.leader_endpoint)
