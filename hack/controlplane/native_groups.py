"""How an API server is made to serve Kubernetes' own PodGroups, which are behind feature gates in every release.

Every gate that changes the allowed fields of a PodGroup is on, so that a test can create PodGroups that Bayplan has to
reject.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hack.controlplane.binaries import NEWEST, selected_minor
from hack.controlplane.servers import Options


@dataclass(frozen=True, slots=True)
class NativeGroups:
    """PodGroups of one minor version of Kubernetes.

    Attributes:
        condition: Type of the condition that reports whether a group is scheduled.
        needed_by: Admission plugins that wait without limit if the gates are on and the version is not enabled.
        composite_version: API group and version of CompositePodGroups; "" if the release has none.
    """

    kubernetes: str
    api_version: str
    condition: str
    feature_gates: Mapping[str, bool]
    scheduler_gates: str
    needed_by: tuple[str, ...] = ()
    composite_version: str = ""

    @property
    def runtime_config(self) -> Mapping[str, str]:
        """API versions to enable in kube-apiserver."""
        return dict.fromkeys(filter(None, (self.api_version, self.composite_version)), "true")

    @property
    def options(self) -> Options:
        return Options(kubernetes=self.kubernetes, feature_gates=self.feature_gates, runtime_config=self.runtime_config)


NATIVE_GROUPS: Mapping[str, NativeGroups] = {
    each.kubernetes: each
    for each in (
        NativeGroups(
            "1.37",
            "scheduling.k8s.io/v1beta1",
            "PodGroupInitiallyScheduled",
            dict.fromkeys(
                (
                    "GenericWorkload",
                    "TopologyAwareWorkloadScheduling",
                    "PodGroupPreemptionPolicy",
                    "CompositePodGroup",
                    "DRAWorkloadResourceClaims",
                ),
                True,
            ),
            "GenericWorkload=true",
            composite_version="scheduling.k8s.io/v1alpha3",
        ),
        NativeGroups(
            "1.36",
            "scheduling.k8s.io/v1alpha2",
            "PodGroupScheduled",
            dict.fromkeys(
                ("GenericWorkload", "TopologyAwareWorkloadScheduling", "WorkloadAwarePreemption", "GangScheduling"),
                True,
            ),
            "GenericWorkload=true,GangScheduling=true",
            ("JobValidation", "PodGroupWorkloadExists"),
        ),
    )
}
"""The releases that have them, by minor version."""


def native_groups() -> NativeGroups:
    """Return the PodGroups of the selected release, or of the newest one if the selected one has none."""
    return NATIVE_GROUPS.get(selected_minor(), NATIVE_GROUPS[NEWEST])
