"""VolumeBinding: the pod's claims are bound, or can be bound, to volumes that are accessible from the node.

All nodes are evaluated once per attempt, at the first call of Filter, because claims and volumes do not change during a
cycle: :mod:`.filtering`. The wait for bindings reads what the API server reports, never assumed objects, because
another cycle may assume the same objects.

Follows kube-scheduler v1.37.1, ``plugins/volumebinding/volume_binding.go`` and ``binder.go`` (``AssumePodVolumes``,
``BindPodVolumes``, ``checkBindings``), and ``k8s.io/component-helpers`` v0.37.1, ``storage/volume/pv_helpers.go``.
PreScore skips for a pod without claims to bind; kube-scheduler gives 0 to all nodes then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec
import numpy as np
from msgspec import Struct, field

from scheduler_core.config.plugin_args import VolumeBindingArgs
from scheduler_core.errors import SchedulerCoreError, StorageError, UndecidedRowsError
from scheduler_core.framework.cluster_events import Action, ClusterEvent, EventRegistration, Hint, Resource
from scheduler_core.framework.cycle_state import CycleState, StateKey
from scheduler_core.framework.extension_points import (
    Codes,
    FilterPlugin,
    PodReads,
    PreBindPlugin,
    PreFilterPlugin,
    PreFilterResult,
    PreScorePlugin,
    ReservePlugin,
    Reuse,
    ScorePlugin,
    Scores,
)
from scheduler_core.framework.handle import Handle
from scheduler_core.framework.plugin import always
from scheduler_core.framework.status import SKIP, SUCCESS, Code, Status, error, failed_write, unresolvable
from scheduler_core.model.meta import ObjectMeta
from scheduler_core.model.pod import Pod
from scheduler_core.model.pod_requests import value
from scheduler_core.model.pod_volumes import in_tree_plugin, translated_affinity
from scheduler_core.model.selectors import FieldRequirement, LabelRequirement, NodeMatcher
from scheduler_core.model.storage import (
    BOUND_BY_CONTROLLER,
    MIGRATED_PLUGINS,
    SELECTED_NODE,
    STORAGE,
    ClaimPointer,
    CsiDriver,
    CsiNode,
    CsiStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    VolumeNodeAffinity,
)
from scheduler_core.plugins.volume_binding.filtering import (
    CANNOT_BIND,
    NO_SPACE,
    NO_VOLUME,
    NONE,
    OUT_OF_REACH,
    REASONS,
    CapacityScore,
    DelayedClaim,
    NodeEvaluator,
    PodClaims,
    VolumeEvaluation,
    are_bound,
    claims_of_pod,
    rejection_of_claims,
)
from scheduler_core.ports import Clock, StorageWriter
from scheduler_core.snapshot.indexes.storage_index import StorageIndex, volume_affinity
from scheduler_core.snapshot.node_columns import NodeColumns, Rows
from scheduler_core.snapshot.pod_info import PodInfo, volumes_of

_CHANGED = Action.ADD | Action.UPDATE


def after_class_change(pod: Pod, old: object | None, new: object | None) -> Hint:
    """Queue if a class was added, or its allowed topologies changed."""
    if not isinstance(old, StorageClass) or not isinstance(new, StorageClass):
        return Hint.QUEUE
    return Hint.SKIP if old.allowed_topologies == new.allowed_topologies else Hint.QUEUE


def after_claim_change(pod: Pod, old: object | None, new: object | None) -> Hint:
    """Queue if the pod uses the claim."""
    if not isinstance(new, PersistentVolumeClaim):
        return Hint.QUEUE
    return Hint.QUEUE if new.key in {claim.key for claim in volumes_of(pod).claims} else Hint.SKIP


def after_csi_node_change(pod: Pod, old: object | None, new: object | None) -> Hint:
    """Queue if a CSINode was added, or the plugins that are migrated to its drivers changed."""
    if not isinstance(old, CsiNode) or not isinstance(new, CsiNode):
        return Hint.QUEUE
    before, after = (each.metadata.annotations.get(MIGRATED_PLUGINS, "") for each in (old, new))
    return Hint.SKIP if before == after else Hint.QUEUE


def after_driver_update(pod: Pod, old: object | None, new: object | None) -> Hint:
    """Queue if a driver of an inline volume of the pod stopped to report its capacity."""
    if not isinstance(old, CsiDriver) or not isinstance(new, CsiDriver):
        return Hint.QUEUE
    if not old.spec.storage_capacity or new.spec.storage_capacity:
        return Hint.SKIP
    inline = (volume.csi for volume in pod.spec.volumes if volume.csi is not None)
    return Hint.QUEUE if any(csi.driver == new.metadata.name for csi in inline) else Hint.SKIP


def after_capacity_change(pod: Pod, old: object | None, new: object | None) -> Hint:
    """Queue if a capacity was added, or its largest volume size grew."""
    if not isinstance(old, CsiStorageCapacity) or not isinstance(new, CsiStorageCapacity):
        return Hint.QUEUE
    before, after = old.volume_limit, new.volume_limit
    if after is None:
        return Hint.SKIP
    return Hint.QUEUE if before is None or value(after) > value(before) else Hint.SKIP


def storage_details(claims: PodClaims, nodes: NodeColumns, row: int, code: int) -> Iterator[str]:
    node, storage = nodes.nodes[row], nodes.storage
    labels, name = (dict[str, str](), "") if node is None else (node.metadata.labels, node.metadata.name)
    if code & (OUT_OF_REACH | NO_VOLUME):
        for claim in claims.bound:
            known = storage.known_volume(claim.spec.volume_name)
            if known is None:
                yield f"volume {claim.spec.volume_name} of claim {claim.key} does not exist"
            elif known.affinity is not None and not known.affinity.matches(labels, name):
                needed = _affinity_text(known.affinity)
                volume = f"volume {claim.spec.volume_name} of claim {claim.key}"
                yield f"{volume} is accessible only from nodes with {needed}"
    for delayed in claims.delayed:
        if code & NO_SPACE and _reports_capacity(storage, delayed):
            yield _missing_capacity(storage, delayed, labels)
        if code & CANNOT_BIND:
            yield _no_volume(delayed)


def _reports_capacity(storage: StorageIndex, delayed: DelayedClaim) -> bool:
    driver = storage.drivers.get(delayed.storage_class.provisioner)
    return driver is not None and bool(driver.spec.storage_capacity)


def _missing_capacity(storage: StorageIndex, delayed: DelayedClaim, labels: Mapping[str, str]) -> str:
    name = delayed.storage_class.metadata.name
    text = f"claim {delayed.claim.key} needs {_requested(delayed.claim)} of class {name}"
    capacities = storage.capacities_reaching(name, labels)
    if not capacities:
        return f"{text}; no CSIStorageCapacity of the class includes the node"
    largest = capacities[0]
    key = f"{largest.metadata.namespace}/{largest.metadata.name}"
    return f"{text}; CSIStorageCapacity {key} of the node has {largest.volume_limit}"


def _no_volume(delayed: DelayedClaim) -> str:
    name = delayed.storage_class.metadata.name
    text = f"claim {delayed.claim.key} needs {_requested(delayed.claim)} of class {name}"
    if not delayed.storage_class.provisions:
        return f"{text}; no free PersistentVolume of the class and size is accessible, and the class provisions none"
    return f"{text}; no free PersistentVolume suits it, and the class does not provision volumes for the node"


def _requested(claim: PersistentVolumeClaim) -> str:
    return str(claim.spec.resources.requests.get(STORAGE, "storage"))


def _affinity_text(affinity: NodeMatcher) -> str:
    terms = [
        " and ".join([*map(_condition_text, term.labels), *map(_condition_text, term.fields)])
        for term in affinity.terms
    ]
    return " or ".join(filter(None, terms)) or "one that matches no node"


def _condition_text(condition: LabelRequirement | FieldRequirement) -> str:
    if isinstance(condition, FieldRequirement):
        return f"{condition.key} {'not in' if condition.negated else 'in'} ({condition.value})"
    if condition.values:
        return f"{condition.key} {condition.operator} ({', '.join(condition.values)})"
    return f"{condition.key} {condition.operator}"


_DEFAULT_ARGS = VolumeBindingArgs()


class _Attempt(Struct):
    """State of one attempt.

    Attributes:
        evaluation: Result for all nodes; None before Filter.
        reserved: Volumes and claims assumed for the chosen node; None if there are none.
    """

    claims: PodClaims | None = None
    evaluation: VolumeEvaluation | None = None
    reserved: NodeVolumes | None = None
    is_all_bound: bool = False


_ATTEMPT: StateKey[_Attempt] = StateKey("VolumeBinding/attempt")


class VolumeBinding(PreFilterPlugin, FilterPlugin, PreScorePlugin, ScorePlugin, ReservePlugin, PreBindPlugin):
    """Rules out nodes from which the pod's volumes are not accessible, and binds its claims before the pod."""

    name = "VolumeBinding"
    handles_resizes = False
    reuse = Reuse(pod=PodReads.NOTHING)
    args_model = VolumeBindingArgs
    events = (
        EventRegistration(ClusterEvent(Resource.STORAGE_CLASS, _CHANGED), after_class_change),
        EventRegistration(ClusterEvent(Resource.PERSISTENT_VOLUME_CLAIM, _CHANGED), after_claim_change),
        EventRegistration(ClusterEvent(Resource.PERSISTENT_VOLUME, _CHANGED)),
        EventRegistration(ClusterEvent(Resource.NODE, Action.ADD | Action.UPDATE_NODE_LABEL)),
        EventRegistration(ClusterEvent(Resource.CSI_NODE, _CHANGED), after_csi_node_change),
        EventRegistration(ClusterEvent(Resource.CSI_DRIVER, Action.UPDATE), after_driver_update),
        EventRegistration(ClusterEvent(Resource.CSI_STORAGE_CAPACITY, _CHANGED), after_capacity_change),
    )

    def __init__(self, args: Any, handle: Handle) -> None:
        super().__init__(args, handle)
        self._args: VolumeBindingArgs = args if args is not None else _DEFAULT_ARGS
        self._evaluator = NodeEvaluator(handle.nodes)
        self._score = CapacityScore(self._args.scoring_shape())

    def reuse_check(self, pod: PodInfo, nodes: NodeColumns) -> Callable[[], bool] | None:
        """Return a check that always holds for a pod without claims, None for any other."""
        return None if pod.volumes.claims else always

    # -- filtering ----------------------------------------------------------------------------------------------

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: NodeColumns) -> PreFilterResult:
        """Look up the claims; reject the pod if one is missing, being deleted, or unexpectedly unbound."""
        if not pod.volumes.claims:
            state.write(_ATTEMPT, _Attempt())
            return PreFilterResult(SKIP)
        problem = rejection_of_claims(pod, nodes.storage)
        if problem:
            return PreFilterResult(unresolvable(problem))
        try:
            claims = claims_of_pod(pod, nodes.storage)
        except SchedulerCoreError as fault:
            return PreFilterResult(error(str(fault)))
        if claims.immediate:
            return PreFilterResult(unresolvable("pod has unbound immediate PersistentVolumeClaims"))
        state.write(_ATTEMPT, _Attempt(claims))
        return PreFilterResult()

    def filter(self, state: CycleState, pod: PodInfo, nodes: NodeColumns, rows: Rows) -> Codes | None:
        """Reject rows where a bound volume is not accessible, or no volume is available for an unbound claim.

        Raises:
            UndecidedRowsError: A volume cannot be translated for its CSI driver on some of the rows.
            SelectorError: The selector of a claim is invalid.
        """
        attempt = state.read(_ATTEMPT)
        if attempt.claims is None:
            return None
        evaluation = attempt.evaluation
        if evaluation is None:
            evaluation = attempt.evaluation = self._evaluator.evaluate(attempt.claims)
        codes = evaluation.codes[rows]
        if evaluation.problems:
            raise UndecidedRowsError(self.name, codes, evaluation.problems)
        return codes

    def decode(self, state: CycleState, pod: PodInfo, code: int) -> Status:
        return unresolvable(*(reason for bit, reason in REASONS if code & bit))

    def details(self, state: CycleState, pod: PodInfo, nodes: NodeColumns, row: int) -> tuple[str, ...]:
        """Return amounts, the storage capacities of the node, and the topology of bound volumes."""
        attempt = state.get(_ATTEMPT)
        if attempt is None or attempt.claims is None or attempt.evaluation is None:
            return ()
        return tuple(storage_details(attempt.claims, nodes, row, int(attempt.evaluation.codes[row])))

    # -- scoring ------------------------------------------------------------------------------------------------

    def pre_score(self, state: CycleState, pod: PodInfo, nodes: NodeColumns, rows: Rows) -> Status:
        """Return Skip unless claims are to be bound with the pod."""
        claims = state.read(_ATTEMPT).claims
        return SUCCESS if claims is not None and claims.delayed else SKIP

    def score(self, state: CycleState, pod: PodInfo, nodes: NodeColumns, rows: Rows) -> Scores:
        """Return int64 per row, 0 to 100: by default the higher, the more storage remains free."""
        evaluation = state.read(_ATTEMPT).evaluation
        if evaluation is None:
            return np.zeros(len(nodes.alive[rows]), dtype=np.int64)
        return self._score.scores(evaluation, rows)

    # -- holding and binding ------------------------------------------------------------------------------------

    def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        """Assume the volumes and claims in their future state, so that other pods do not get them."""
        attempt, nodes = state.read(_ATTEMPT), self.handle.nodes
        evaluation = attempt.evaluation
        if evaluation is None:
            attempt.is_all_bound = True
            return SUCCESS
        row = nodes.row_of(node_name)
        if row < 0 or evaluation.codes[row] or are_bound(pod, nodes.storage):
            attempt.is_all_bound = True
            return SUCCESS
        decided = decided_volumes(evaluation, row)
        try:
            attempt.reserved = assume(nodes.storage, decided, node_name)
        except SchedulerCoreError as fault:
            return error(str(fault))
        return SUCCESS

    def unreserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        attempt = state.get(_ATTEMPT)
        if attempt is not None and attempt.reserved is not None:
            restore(self.handle.nodes.storage, attempt.reserved)

    def pre_bind_pre_flight(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        """Return Skip if all claims are bound already."""
        attempt = state.read(_ATTEMPT)
        if attempt.is_all_bound:
            return SKIP
        return SUCCESS if attempt.reserved is not None else _nothing_reserved(node_name)

    async def pre_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        """Write the volumes and claims, and wait until the claims are bound or the timeout expires."""
        attempt = state.read(_ATTEMPT)
        if attempt.is_all_bound:
            return SUCCESS
        if attempt.reserved is None:
            return _nothing_reserved(node_name)
        writer = self.handle.storage_writer
        if writer is None:
            return Status(
                Code.ERROR, ("volumes cannot be written; run the scheduler with write access to persistent volumes",)
            )
        binder = VolumeBinder(self.handle.nodes, self.handle.clock, writer, self._args.bind_timeout_seconds)
        try:
            await binder.bind(pod, node_name, attempt.reserved)
        except SchedulerCoreError as fault:
            return failed_write(fault)
        return SUCCESS


def _nothing_reserved(node_name: str) -> Status:
    return error(f'no pod volume found for node "{node_name}"')


# -- assuming volumes, writing, and waiting --------------------------------------------------------------------------


class StaticBinding(Struct):
    """A claim with its existing volume, as it was last assumed or written."""

    claim: PersistentVolumeClaim
    volume: PersistentVolume


class NodeVolumes(Struct):
    """What has to be done for a pod's claims on one node.

    Attributes:
        provisions: Claims that get new volumes, as last assumed or written.
    """

    bindings: list[StaticBinding] = field(default_factory=list)
    provisions: list[PersistentVolumeClaim] = field(default_factory=list)


def decided_volumes(evaluation: VolumeEvaluation, row: int) -> NodeVolumes:
    decided = NodeVolumes(provisions=list(evaluation.preselected))
    for claim, assigned in zip(evaluation.matched, evaluation.assigned, strict=True):
        number = int(assigned[row])
        if number == NONE:
            decided.provisions.append(claim)
        else:
            decided.bindings.append(StaticBinding(claim, evaluation.volumes[number].volume))
    return decided


def assume(storage: StorageIndex, decided: NodeVolumes, node_name: str) -> NodeVolumes:
    """Assume all volumes and claims in the state in which they will be written.

    Raises:
        StorageError: One of them does not exist or has changed; nothing remains assumed.
    """
    assumed = NodeVolumes()
    try:
        for binding in decided.bindings:
            volume = bound_volume(binding.volume, binding.claim)
            if volume is not binding.volume:
                storage.assume_volume(volume)
            assumed.bindings.append(StaticBinding(binding.claim, volume))
        for claim in decided.provisions:
            annotations = claim.metadata.annotations | {SELECTED_NODE: node_name}
            metadata = msgspec.structs.replace(claim.metadata, annotations=annotations)
            selected = msgspec.structs.replace(claim, metadata=metadata)
            storage.assume_claim(selected)
            assumed.provisions.append(selected)
    except StorageError:
        restore(storage, assumed)
        raise
    return assumed


def restore(storage: StorageIndex, held: NodeVolumes) -> None:
    """Restore objects that are still assumed; objects written since have another version and do not change."""
    for binding in held.bindings:
        storage.restore_volume(binding.volume)
    for claim in held.provisions:
        storage.restore_claim(claim)


def bound_volume(volume: PersistentVolume, claim: PersistentVolumeClaim) -> PersistentVolume:
    """Return the volume bound to the claim; the same object if it is bound already."""
    changed = volume
    metadata = claim.metadata
    pointer = ClaimPointer(metadata.namespace, metadata.name, metadata.uid)
    if volume.spec.claim_ref != pointer:
        changed = msgspec.structs.replace(changed, spec=msgspec.structs.replace(volume.spec, claim_ref=pointer))
    # The annotation allows the controller to undo the binding; it must not undo one that a user made.
    if not volume.is_reserved_for(claim) and BOUND_BY_CONTROLLER not in volume.metadata.annotations:
        annotations = volume.metadata.annotations | {BOUND_BY_CONTROLLER: "yes"}
        changed = msgspec.structs.replace(
            changed, metadata=msgspec.structs.replace(volume.metadata, annotations=annotations)
        )
    return changed


_POLL_SECONDS = 1.0


class VolumeBinder(Struct, frozen=True):
    """Binds the volumes of a pod."""

    nodes: NodeColumns
    clock: Clock
    writer: StorageWriter
    timeout_seconds: float

    async def bind(self, pod: PodInfo, node_name: str, held: NodeVolumes) -> None:
        """Write everything and wait until the pod's claims are fully bound.

        Raises:
            ClusterWriteError: A write failed; objects that were not written are no longer assumed.
            StorageError: A binding was lost, or the timeout expired.
        """
        await self._write(held)
        deadline = self.clock.now() + self.timeout_seconds
        while (left := deadline - self.clock.now()) > 0:
            await self.clock.sleep(min(_POLL_SECONDS, left))
            try:
                if self.clock.now() < deadline and self._is_bound(pod, node_name, held):
                    return
            except StorageError as problem:
                raise StorageError(f"binding volumes: {problem}") from problem
        raise StorageError("binding volumes: context deadline exceeded")

    async def _write(self, held: NodeVolumes) -> None:
        volumes = claims = 0
        try:
            for binding in held.bindings:
                binding.volume = await self.writer.bind_volume(binding.volume)
                volumes += 1
            for position, claim in enumerate(held.provisions):
                held.provisions[position] = await self.writer.select_node(claim)
                claims += 1
        finally:
            restore(self.nodes.storage, NodeVolumes(held.bindings[volumes:], held.provisions[claims:]))

    def _is_bound(self, pod: PodInfo, node_name: str, held: NodeVolumes) -> bool:
        """Return whether all claims are bound; False while that may still happen."""
        row = self.nodes.row_of(node_name)
        if row < 0:
            raise StorageError(f'failed to get node "{node_name}": node "{node_name}" not found')
        if pod.uid not in self.nodes.pods[row]:
            raise StorageError(f'pod does not exist any more: pod "{pod.pod.metadata.name}" not found')
        return all(self._is_static_bound(binding, row) for binding in held.bindings) and all(
            self._is_provisioned(claim, row) for claim in held.provisions
        )

    def _is_static_bound(self, binding: StaticBinding, row: int) -> bool:
        storage = self.nodes.storage
        name = binding.volume.metadata.name
        volume = storage.volumes.get(name)
        if volume is None:
            raise StorageError(f'failed to check binding: persistentvolumes "{name}" not found')
        claim = storage.claims.get(binding.claim.key)
        if claim is None:
            raise StorageError(f'failed to check binding: persistentvolumeclaims "{binding.claim.key}" not found')
        if _is_older(volume.metadata, binding.volume.metadata):
            return False
        self._check_reach(volume, row)
        pointer = volume.spec.claim_ref
        if pointer is None or not pointer.uid:
            raise StorageError(f'ClaimRef got reset for pv "{name}"')
        return claim.is_fully_bound

    def _is_provisioned(self, written: PersistentVolumeClaim, row: int) -> bool:
        storage = self.nodes.storage
        claim = storage.claims.get(written.key)
        if claim is None:
            raise StorageError(f'failed to check provisioning pvc: persistentvolumeclaims "{written.key}" not found')
        if _is_older(claim.metadata, written.metadata):
            return False
        name = claim.metadata.name
        if not claim.metadata.annotations:
            raise StorageError(f'selectedNode annotation reset for PVC "{name}"')
        if claim.metadata.annotations.get(SELECTED_NODE) != self.nodes.names[row]:
            # A provisioner resets the annotation to report that it cannot create the volume on this node.
            raise StorageError(f'provisioning failed for PVC "{name}"')
        if claim.spec.volume_name:
            volume = storage.volumes.get(claim.spec.volume_name)
            if volume is None:
                return False
            self._check_reach(volume, row)
        return claim.is_fully_bound

    def _check_reach(self, volume: PersistentVolume, row: int) -> None:
        node = self.nodes.nodes[row]
        if node is None:
            return
        matcher = volume_affinity(self._affinity_on(volume, node.metadata.name))
        if matcher is not None and not matcher.matches(node.metadata.labels, ""):
            name = volume.metadata.name
            raise StorageError(
                f'pv "{name}" node affinity doesn\'t match node "{node.metadata.name}": no matching NodeSelectorTerms'
            )

    def _affinity_on(self, volume: PersistentVolume, node_name: str) -> VolumeNodeAffinity | None:
        """Return a volume's affinity, translated if the node uses a CSI driver for its in-tree plugin."""
        plugin = in_tree_plugin(volume)
        csi_node = self.nodes.storage.csi_nodes.get(node_name)
        if plugin is None or not plugin.is_migrated or csi_node is None:
            return volume.spec.node_affinity
        if plugin.name not in csi_node.migrated_plugins:
            return volume.spec.node_affinity
        try:
            return translated_affinity(volume, plugin)
        except StorageError as problem:
            raise StorageError(f"failed to translate pv to csi: could not translate pv: {problem}") from problem


def _is_older(shown: ObjectMeta, written: ObjectMeta) -> bool:
    """Return whether the object that was read is older than the write, if the versions are comparable."""
    return _version(shown) < _version(written)


def _version(metadata: ObjectMeta) -> int:
    text = metadata.resource_version
    return int(text) if text.isdecimal() else 0
