"""Bounds of the snapshot's tables, in one place so that tests can set them to small values.

A bound decides how often something is recomputed, never a scheduling decision. The exception is ``resources``:
resources of nodes beyond it are not available to any pod.
"""

from __future__ import annotations

from msgspec import Struct


class SnapshotBounds(Struct, frozen=True):
    """Maximum size of each table.

    Attributes:
        changes: Rows in the change log.
        resources: Columns of resources that nodes offer, besides CPU, memory and ephemeral storage.
        label_columns: Columns of node label keys.
        taint_lists: Entries in the log of new taint lists.
        queries: Queries whose pods are counted.
        query_bytes: Memory for these counts.
        idle_checks: Pods that are compared with a query after its last use before its counts are dropped. If there are
            more pods on nodes, their number applies, because recounting costs as much.
        default_selectors: Default selectors of pods.
        toleration_tables: Lists of tolerations, each compared with all taint lists.
        selector_tables: Conditions on node labels, each evaluated for all values.
        volume_affinities: Node affinities of volumes, each with its rows.
    """

    changes: int = 65_536
    resources: int = 1024
    label_columns: int = 1024
    taint_lists: int = 4096
    queries: int = 4096
    query_bytes: int = 64 << 20
    idle_checks: int = 256
    default_selectors: int = 4096
    toleration_tables: int = 1024
    selector_tables: int = 512
    volume_affinities: int = 16_384


DEFAULT_BOUNDS = SnapshotBounds()
