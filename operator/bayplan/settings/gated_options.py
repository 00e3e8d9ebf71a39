"""Options of the scheduler that feature gates set; the gates of PodGroup APIs are read where their objects are."""

from __future__ import annotations

from msgspec.structs import replace

from bayplan.settings.feature_gates import (
    DEFERRED_RESIZE_PREEMPTION,
    DRA_DERIVED_ATTRIBUTES,
    DRA_DEVICE_COMPATIBILITY_GROUPS,
    DRA_LIST_TYPE_ATTRIBUTES,
    DRA_OPTIONAL_NODE_OPERATIONS,
    DRA_WORKLOAD_RESOURCE_CLAIMS,
    GANG_DEVICE_BACKTRACKING,
    GANG_PREEMPTION,
    RESULT_CACHE,
    FeatureGates,
)
from scheduler_core.devices.records import DeviceFeatures
from scheduler_core.scheduler_options import SchedulerOptions


def with_gates(options: SchedulerOptions, gates: FeatureGates) -> SchedulerOptions:
    """Return options with the features whose gates are on."""
    return replace(
        options,
        reuses_results=gates.is_on(RESULT_CACHE),
        gangs_preempt=gates.is_on(GANG_PREEMPTION),
        group_claims=gates.is_on(DRA_WORKLOAD_RESOURCE_CLAIMS),
        gangs_backtrack=gates.is_on(GANG_DEVICE_BACKTRACKING),
        deferred_resizes=gates.is_on(DEFERRED_RESIZE_PREEMPTION),
        device_features=device_features(gates),
    )


def device_features(gates: FeatureGates) -> DeviceFeatures:
    """Return the features of devices whose gates are on."""
    return DeviceFeatures(
        compatibility_groups=gates.is_on(DRA_DEVICE_COMPATIBILITY_GROUPS),
        derived_attributes=gates.is_on(DRA_DERIVED_ATTRIBUTES),
        list_type_attributes=gates.is_on(DRA_LIST_TYPE_ATTRIBUTES),
        optional_node_operations=gates.is_on(DRA_OPTIONAL_NODE_OPERATIONS),
    )
