"""Bounds of everything that one pod's cycle caches for the next.

One struct, so that a test can set all bounds to a handful and evict in every run.
"""

from __future__ import annotations

from msgspec import Struct


class ReuseLimits(Struct, frozen=True):
    """Bounds, per profile revision; that of the change log is one of the snapshot.

    Attributes:
        max_signatures: Distinct plugin signatures that have a number.
        max_seen: Signatures that came once and have no cache entry yet.
        max_entries: Cache entries; each holds the filter verdicts or the scores of one signature.
        max_bytes: Bytes of all cache entries.
        max_classes: Pod classes.
        max_classes_beside_resources: Pod classes whose pods may differ in resource requests.
    """

    max_signatures: int = 1024
    max_seen: int = 1024
    max_entries: int = 2048
    max_bytes: int = 32 * 1024 * 1024
    max_classes: int = 8
    max_classes_beside_resources: int = 8


DEFAULT_LIMITS = ReuseLimits()
