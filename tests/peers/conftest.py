"""Fixtures of tests beside real controllers; each module starts a control plane of its own with its peers."""

from __future__ import annotations

from tests.support.live_servers import operator

__all__ = ["operator"]
