"""Pods as decoded from the API server: only the fields that scheduling reads.

Data that is computed once per pod (requests, compiled selectors) is in
:class:`scheduler_core.snapshot.pod_info.PodInfo`.
"""

from __future__ import annotations

from datetime import datetime

from msgspec import Struct, field
from msgspec.structs import replace

from scheduler_core.model.affinity import Affinity, LabelSelector
from scheduler_core.model.meta import Condition, ObjectMeta
from scheduler_core.model.taints import Toleration

DEFAULT_SCHEDULER_NAME = "default-scheduler"
TERMINAL_PHASES = ("Succeeded", "Failed")

# A quantity as decoded: a string, or a number in hand-written YAML.
Quantities = dict[str, str | int | float]


class ResourceRequirements(Struct, gc=False, frozen=True, omit_defaults=True, rename="camel"):
    """``resources`` of a container, a pod or a container's status."""

    requests: Quantities = {}
    limits: Quantities = {}


class ContainerPort(Struct, gc=False, frozen=True, omit_defaults=True, rename="camel"):
    """A container port; ``host_port`` 0 means none."""

    container_port: int = 0
    host_port: int = 0
    protocol: str = "TCP"
    host_ip: str = field(default="", name="hostIP")


class ContainerRestartRule(Struct, gc=False, frozen=True, omit_defaults=True, rename="camel"):
    """An entry of ``restartPolicyRules``: the action on certain exit codes."""

    action: str = ""


class Container(Struct, gc=False, frozen=True, omit_defaults=True, rename="camel"):
    """A container or init container; an init container with ``restart_policy`` Always is a sidecar."""

    name: str = ""
    image: str = ""
    resources: ResourceRequirements = ResourceRequirements()
    ports: tuple[ContainerPort, ...] = ()
    restart_policy: str = ""
    restart_policy_rules: tuple[ContainerRestartRule, ...] = ()


class ClaimVolumeSource(Struct, gc=False, frozen=True, omit_defaults=True, rename="camel"):
    """A volume from a PersistentVolumeClaim in the pod's namespace."""

    claim_name: str
    read_only: bool = False


class EphemeralVolumeSource(Struct, gc=False, frozen=True, omit_defaults=True, rename="camel"):
    """A volume from a claim ``<pod>-<volume>`` that is created for the pod."""


class GcePersistentDisk(Struct, gc=False, frozen=True, omit_defaults=True, rename="camel"):
    pd_name: str
    read_only: bool = False


class AwsElasticBlockStore(Struct, gc=False, frozen=True, omit_defaults=True, rename="camel"):
    volume_id: str = field(name="volumeID")
    read_only: bool = False


class IscsiVolume(Struct, gc=False, frozen=True, omit_defaults=True, rename="camel"):
    target_portal: str = ""
    iqn: str = ""
    lun: int = 0
    read_only: bool = False


class RbdVolume(Struct, gc=False, frozen=True, omit_defaults=True, rename="camel"):
    """A Ceph block device: monitors, pool and image."""

    monitors: tuple[str, ...] = ()
    image: str = ""
    pool: str = "rbd"
    read_only: bool = False


class AzureDisk(Struct, gc=False, frozen=True, omit_defaults=True, rename="camel"):
    """An Azure disk by name and URI; ``kind`` is Managed, Dedicated or Shared."""

    disk_name: str = ""
    disk_uri: str = field(default="", name="diskURI")
    kind: str | None = None


class CinderVolume(Struct, gc=False, frozen=True, omit_defaults=True, rename="camel"):
    volume_id: str = field(default="", name="volumeID")


class PortworxVolume(Struct, gc=False, frozen=True, omit_defaults=True, rename="camel"):
    volume_id: str = field(default="", name="volumeID")


class VsphereVolume(Struct, gc=False, frozen=True, omit_defaults=True, rename="camel"):
    volume_path: str = ""


class AzureFile(Struct, gc=False, frozen=True, omit_defaults=True, rename="camel"):
    """An Azure file share, of which nothing is read."""


class InlineCsi(Struct, gc=False, frozen=True, omit_defaults=True, rename="camel"):
    driver: str = ""


class ImageVolumeSource(Struct, gc=False, frozen=True, omit_defaults=True, rename="camel"):
    reference: str = ""


class Volume(Struct, gc=False, frozen=True, omit_defaults=True, rename="camel"):
    """A volume; all fields are None for sources that no plugin reads."""

    name: str = ""
    claim: ClaimVolumeSource | None = field(default=None, name="persistentVolumeClaim")
    ephemeral: EphemeralVolumeSource | None = None
    gce: GcePersistentDisk | None = field(default=None, name="gcePersistentDisk")
    aws: AwsElasticBlockStore | None = field(default=None, name="awsElasticBlockStore")
    iscsi: IscsiVolume | None = None
    rbd: RbdVolume | None = None
    azure_disk: AzureDisk | None = None
    azure_file: AzureFile | None = None
    cinder: CinderVolume | None = None
    portworx: PortworxVolume | None = field(default=None, name="portworxVolume")
    vsphere: VsphereVolume | None = field(default=None, name="vsphereVolume")
    csi: InlineCsi | None = None
    image: ImageVolumeSource | None = None


class TopologySpreadConstraint(Struct, gc=False, frozen=True, omit_defaults=True, rename="camel"):
    """An entry of ``spec.topologySpreadConstraints``."""

    max_skew: int = 1
    topology_key: str = ""
    when_unsatisfiable: str = "DoNotSchedule"
    label_selector: LabelSelector | None = None
    min_domains: int | None = None
    node_affinity_policy: str | None = None
    node_taints_policy: str | None = None
    match_label_keys: tuple[str, ...] = ()


class SchedulingGate(Struct, gc=False, frozen=True, omit_defaults=True, rename="camel"):
    """A gate that must be removed before the pod is scheduled."""

    name: str


class ResourceClaimReference(Struct, gc=False, frozen=True, omit_defaults=True, rename="camel"):
    """An entry of ``spec.resourceClaims``: a ResourceClaim by name, or the template from which one is created."""

    name: str = ""
    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None


class PodResourceClaimStatus(Struct, gc=False, frozen=True, omit_defaults=True, rename="camel"):
    """An entry of ``status.resourceClaimStatuses``: the claim that was created for an entry; None if none is needed."""

    name: str = ""
    resource_claim_name: str | None = None


class ExtendedResourceRequest(Struct, gc=False, frozen=True, omit_defaults=True, rename="camel"):
    """A container's extended resource and the device request that provides it."""

    container_name: str = ""
    resource_name: str = ""
    request_name: str = ""


class ExtendedResourceClaimStatus(Struct, gc=False, frozen=True, omit_defaults=True, rename="camel"):
    """``status.extendedResourceClaimStatus``: the claim that the scheduler created for extended resources."""

    request_mappings: tuple[ExtendedResourceRequest, ...] = ()
    resource_claim_name: str = ""


class SchedulingGroup(Struct, gc=False, frozen=True, omit_defaults=True, rename="camel"):
    """``spec.schedulingGroup`` of the native PodGroup API."""

    pod_group_name: str = ""


class PodSpec(Struct, gc=False, frozen=True, omit_defaults=True, rename="camel"):
    """``spec`` of a pod; ``priority`` None counts as 0."""

    node_name: str = ""
    scheduler_name: str = DEFAULT_SCHEDULER_NAME
    priority: int | None = None
    priority_class_name: str = ""
    preemption_policy: str = ""
    node_selector: dict[str, str] = {}
    affinity: Affinity | None = None
    tolerations: tuple[Toleration, ...] = ()
    topology_spread_constraints: tuple[TopologySpreadConstraint, ...] = ()
    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    overhead: Quantities = {}
    resources: ResourceRequirements | None = None
    volumes: tuple[Volume, ...] = ()
    scheduling_gates: tuple[SchedulingGate, ...] = ()
    resource_claims: tuple[ResourceClaimReference, ...] = ()
    scheduling_group: SchedulingGroup | None = None
    host_network: bool = False
    host_users: bool | None = None
    restart_policy: str = "Always"


class PodCondition(Condition, gc=False, frozen=True, omit_defaults=True, rename="camel"):
    def has_same_content(self, other: PodCondition) -> bool:
        """Return whether both are equal except for the generation, so that no patch is needed.

        Follows kube-scheduler v1.37.1, ``pkg/api/v1/pod/util.go`` (``UpdatePodCondition``).
        """
        return replace(self, observed_generation=other.observed_generation) == other


class ContainerStatus(Struct, gc=False, frozen=True, omit_defaults=True, rename="camel"):
    """Status of a container: ``allocated_resources`` are granted, ``resources`` in effect."""

    name: str = ""
    allocated_resources: Quantities = {}
    resources: ResourceRequirements | None = None


class PodStatus(Struct, gc=False, frozen=True, omit_defaults=True, rename="camel"):
    phase: str = "Pending"
    nominated_node_name: str = ""
    conditions: tuple[PodCondition, ...] = ()
    container_statuses: tuple[ContainerStatus, ...] = ()
    init_container_statuses: tuple[ContainerStatus, ...] = ()
    allocated_resources: Quantities = {}
    resources: ResourceRequirements | None = None
    start_time: datetime | None = None
    resource_claim_statuses: tuple[PodResourceClaimStatus, ...] = ()
    extended_resource_claim_status: ExtendedResourceClaimStatus | None = None


class Pod(Struct, gc=False, frozen=True, omit_defaults=True, rename="camel"):
    metadata: ObjectMeta
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def key(self) -> str:
        return f"{self.metadata.namespace}/{self.metadata.name}"

    @property
    def unscheduled_reason(self) -> str:
        """Reason of the condition PodScheduled if it is False; "" otherwise."""
        found = (each for each in self.status.conditions if each.type == "PodScheduled" and each.status == "False")
        return next((each.reason for each in found), "")

    @property
    def is_terminal(self) -> bool:
        """Whether the pod has finished; the scheduler ignores such a pod."""
        return self.status.phase in TERMINAL_PHASES

    @property
    def has_deferred_resize(self) -> bool:
        """Whether it runs on a node where its resize has to wait for room, as the kubelet reports.

        Follows ``k8s.io/component-helpers`` v0.37.1 ``resource/helpers.go`` (``IsPodResizeDeferred``).
        """
        if not self.spec.node_name:
            return False
        pending = (condition for condition in self.status.conditions if condition.type == "PodResizePending")
        return next((condition.reason for condition in pending), "") == "Deferred"
