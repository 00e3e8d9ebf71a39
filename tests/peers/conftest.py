"""Fixtures of tests beside real controllers; each module starts its peers on an empty control plane."""

from __future__ import annotations

from tests.support.live_servers import operator

__all__ = ["operator"]
