"""A process's part in leader election: which Lease, what is fenced by it, and what its loss means for the end.

Owns the wiring between the settings, the election and whatever writes. It must not know how a Lease is held
(:mod:`bayplan.kube.leader_election`), nor what a leader does.
"""

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
"""Longest that the end takes once the lease is lost: nothing may be written any more, and a standby is wanted back."""


def candidate(
    settings: Settings,
    connection: ApiConnection,
    extenders: ExtenderClients,
    clock: Clock,
    endpoint: Callable[[], LeaderEndpoint | None],
) -> LeaderElection | None:
    """Make this process a candidate, when it is to be one; nothing is written then by who does not hold the Lease.

    Args:
        settings: Of the operator.
        connection: Whose writes are fenced.
        extenders: Whose binds are fenced.
        clock: Time.
        endpoint: Returns where this process serves; None if it announces nothing.

    Returns:
        The election, which somebody has to run; None when there is none.
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
    """Return who leads, for commands that ask a standby.

    Args:
        election: Of this process; None without leader election.
    """
    if election is None or election.leading.is_set():
        return LeaderState(is_standby=False)
    return LeaderState(True, election.lease, election.holder, election.leader_endpoint)
