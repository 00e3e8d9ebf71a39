"""The operator's HTTP server: health, metrics and debug endpoints.

The paths are defined here, so that commands import them without the server's modules.
"""

from __future__ import annotations

INDEX_PATH = "/debug"
STATUS_PATH = "/debug/status"
CACHE_PATH = "/debug/cache"
LEADER_PATH = "/debug/leader"
TASKS_PATH = "/debug/tasks"
PROFILE_PATH = "/debug/profile"
EXPLAIN_PATH = "/debug/explain"
FIT_PATH = "/v1/fit"

COMMAND_PATHS = frozenset({STATUS_PATH, CACHE_PATH, EXPLAIN_PATH})
"""Paths that commands in the pod of a standby request from the leader."""

PAGE_PATH = "/page"
"""Path of the page, whose handlers authorize requests for data themselves."""
