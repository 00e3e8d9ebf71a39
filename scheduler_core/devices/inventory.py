"""Inventory of devices: all slices of the cluster, by pool and by node, with the taints of rules.

Which pools a node sees is computed once and stored until a slice of these pools, or the labels of the node, change.
Slices without a node name can target any node, so their changes make the stored pools of all nodes stale.

Order follows kube-scheduler v1.37.1: pools by driver and name, those with binding conditions last; slices by name. If
the slices of a pool state different counts, the first by name decides; there, the first in the order of a hash map.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import chain, count
from weakref import WeakValueDictionary

from scheduler_core.change_log import ChangeLog
from scheduler_core.devices.pools import (
    DeviceNames,
    NodeTarget,
    PooledSlice,
    PoolKey,
    PoolShape,
    PoolView,
    Targeting,
    joined_devices,
    joined_targets,
    pool_counters,
)
from scheduler_core.devices.records import DeviceFeatures, DeviceRecord, RecordInterner
from scheduler_core.model.devices import (
    OPTIONAL_NODE_OPERATIONS,
    DeviceTaintRule,
    DeviceTaintSelector,
    ResourceSlice,
    ResourceSliceSpec,
)
from scheduler_core.step_counter import StepCounter

_NO_NAMES = DeviceNames(())
_MAX_NODE_VIEWS = 65_536
_SLICES_PER_STEP = 8
_DEVICES_PER_STEP = 16
_CHANGES = 4096
_UNSUPPORTED = "unsupported"
"""Part of the key of a view for nodes that cannot skip operations."""


@dataclass(slots=True, eq=False)
class _Pool:
    """All slices of a pool, and its views by the slices that target the node."""

    slices: dict[str, PooledSlice] = field(default_factory=dict)
    views: dict[Hashable, PoolView | None] = field(default_factory=dict)
    has_network_slices: bool = False

    def change(self, name: str, replacement: PooledSlice | None) -> None:
        if replacement is None:
            self.slices.pop(name, None)
        else:
            self.slices[name] = replacement
        self.views.clear()
        self.has_network_slices = any(not one.target.node_name for one in self.slices.values())

    @property
    def is_local(self) -> bool:
        """Whether all devices belong to one node."""
        return not self.has_network_slices and len({one.target.node_name for one in self.slices.values()}) == 1


@dataclass(slots=True, eq=False)
class NodePools:
    """The pools that a node sees, in the order of the search."""

    pools: tuple[PoolView, ...]
    labels: Mapping[str, str]
    network_revision: int
    skips_operations: bool


class DeviceInventory:
    """Slices of the cluster and the taint rules over them.

    Attributes:
        changed: Names of nodes whose devices, or devices in use, changed.
        shared_changes: Number of changes of the use of devices that several nodes reach; these are not in the log.
        spread: Keys of pools whose devices do not all belong to one node.
    """

    def __init__(self, features: DeviceFeatures, steps: StepCounter | None = None) -> None:
        self.features = features
        self._steps = StepCounter() if steps is None else steps
        self.changed: ChangeLog[str] = ChangeLog(_CHANGES)
        self.shared_changes = 0
        self.spread: set[PoolKey] = set()
        self.revision = 0
        """Number of changes; results computed at a revision are valid until it changes."""
        self._interner = RecordInterner(features)
        self._rules: dict[str, DeviceTaintRule] = {}
        self._held: dict[str, tuple[DeviceTaintSelector, ...]] = {}
        self._slices: dict[str, PooledSlice] = {}
        self._pools: dict[PoolKey, _Pool] = {}
        self._by_node: dict[str, dict[str, PooledSlice]] = {}
        self._network: dict[str, PooledSlice] = {}
        self._network_revision = 0
        self._skipping: set[str] = set()
        self._views: dict[str, NodePools] = {}
        self._names: WeakValueDictionary[tuple[str, ...], DeviceNames] = WeakValueDictionary()
        self._shapes: WeakValueDictionary[Hashable, PoolShape] = WeakValueDictionary()
        self._shape_numbers = count()

    def put_slice(self, resource_slice: ResourceSlice) -> None:
        self._replace(resource_slice.metadata.name, self._pooled(resource_slice))

    def remove_slice(self, name: str) -> None:
        """Remove a slice; unknown names are ignored."""
        if name in self._slices:
            self._replace(name, None)

    def copy_slices(self, node_name: str, new_name: str) -> list[str]:
        """Add copies of the slices of a node for a new one, each in a pool of its own; return their names.

        A slice with devices of several nodes is not copied, and the copy of a pool that has slices of other nodes, too,
        is incomplete, so that none of its devices is allocated.
        """
        target, made = NodeTarget(new_name, None, all_nodes=False), list[str]()
        for pooled in list(self._by_node.get(node_name, {}).values()):
            if pooled.device_targets is None:
                (driver, pool), name = pooled.pool_key, f"{pooled.name}/{new_name}"
                copied = replace(
                    pooled,
                    name=name,
                    pool_key=(driver, f"{pool}/{new_name}"),
                    target=target,
                    records=pooled.own_records,
                    is_stale=bool(self._rules),
                )
                self._replace(name, copied)
                made.append(name)
        return made

    def put_taint_rule(self, rule: DeviceTaintRule) -> None:
        if self.features.device_taint_rules:
            previous = self._rules.get(rule.metadata.name)
            self._rules[rule.metadata.name] = rule
            with self._repaired():
                self._apply(rule.spec.device_selector, previous.spec.device_selector if previous is not None else None)

    def remove_taint_rule(self, name: str) -> None:
        """Remove a taint rule; unknown names are ignored."""
        previous = self._rules.pop(name, None)
        if previous is not None:
            with self._repaired():
                self._apply(previous.spec.device_selector)

    def hold(self, source: str, selectors: tuple[DeviceTaintSelector, ...]) -> None:
        """Show no device of the pools that selectors match; without selectors, end this for the source."""
        before = self._held.pop(source, ())
        if selectors:
            self._held[source] = selectors
        if before != selectors:
            with self._repaired():
                self._apply(*before, *selectors)

    def remove_node(self, name: str) -> None:
        """Release what is stored for a deleted node; its slices stay until they are removed."""
        self._views.pop(name, None)

    def pools(
        self, name: str, labels: Mapping[str, str], declared_features: Collection[str] = ()
    ) -> tuple[PoolView, ...]:
        """Return the pools that a node sees, in the order of the search.

        Raises:
            AllocationError: A slice has an invalid node selector.
        """
        stored = self._views.get(name)
        skips_operations = not self._skipping or OPTIONAL_NODE_OPERATIONS in declared_features
        if (
            stored is not None
            and stored.skips_operations == skips_operations
            and stored.network_revision == self._network_revision
            and (not self._network or stored.labels is labels or stored.labels == labels)
        ):
            return stored.pools
        pools = self._gather(name, labels, skips_operations=skips_operations)
        if len(self._views) >= _MAX_NODE_VIEWS:
            self._views.clear()
        self._views[name] = NodePools(pools, labels, self._network_revision, skips_operations=skips_operations)
        return pools

    def pool_changed(self, key: PoolKey) -> None:
        """Record that the use of a pool's devices changed, for the nodes that reach them."""
        pool = self._pools.get(key)
        if pool is None:
            return
        if pool.has_network_slices:
            self.shared_changes += 1
            return
        for node in self.nodes_of(key):
            self.changed.append(node)

    def nodes_of(self, key: PoolKey) -> set[str]:
        """Return the names of the nodes to which slices of a pool belong."""
        pool = self._pools.get(key)
        slices = () if pool is None else pool.slices.values()
        return {one.target.node_name for one in slices if one.target.node_name is not None}

    def slice_key(self, name: str) -> PoolKey | None:
        """Return the pool of a slice; None for an unknown name."""
        found = self._slices.get(name)
        return None if found is None else found.pool_key

    def slices(self) -> tuple[PooledSlice, ...]:
        return tuple(self._slices.values())

    def targeting(self, name: str, labels: Mapping[str, str], *, only_understood: bool = False) -> Iterator[Targeting]:
        """Yield the slices that target a node, obsolete ones included.

        Args:
            only_understood: Whether to leave out slices that count as missing or target no node, by their fields.

        Raises:
            AllocationError: A slice has an invalid node selector.
        """
        self._steps.upkeep(1 + len(self._network) // _SLICES_PER_STEP)
        for pooled in chain(self._by_node.get(name, {}).values(), self._network.values()):
            if only_understood and (pooled.is_missing or pooled.is_hidden):
                continue
            targeted = pooled.targeted_devices(name, labels)
            if targeted is not False:
                yield pooled, targeted

    def _pooled(self, resource_slice: ResourceSlice) -> PooledSlice:
        spec = resource_slice.spec
        own = tuple(self._interner.intern(spec.driver, device, spec.skip_node_operations) for device in spec.devices)
        names = tuple(device.name for device in spec.devices)
        target = NodeTarget(spec.node_name, spec.node_selector, all_nodes=bool(spec.all_nodes))
        device_targets = None
        if spec.per_device_node_selection:
            device_targets = tuple(
                NodeTarget(device.node_name, device.node_selector, all_nodes=bool(device.all_nodes))
                for device in spec.devices
            )
        return PooledSlice(
            name=resource_slice.metadata.name,
            pool_key=resource_slice.pool_key,
            generation=spec.pool.generation,
            slice_count=spec.pool.resource_slice_count,
            target=target,
            device_targets=device_targets,
            names=names,
            own_records=own,
            records=own,
            is_stale=bool(self._rules),
            counter_sets=spec.shared_counters if self.features.partitionable_devices else (),
            is_missing=not self._is_understood(spec),
            is_hidden=not self.features.partitionable_devices
            and (spec.per_device_node_selection is not None or bool(spec.shared_counters)),
            consumes_counters=any(record.counter_sets or record.counters for record in own),
            has_binding_conditions=any(record.binding_conditions for record in own),
            has_compatibility_groups=self.features.compatibility_groups
            and any(record.has_compatibility_groups for record in own),
            skips_operations=self.features.optional_node_operations and bool(spec.skip_node_operations),
        )

    def _is_understood(self, spec: ResourceSliceSpec) -> bool:
        """Return whether a slice and its devices have no field set whose feature is missing or off."""
        if spec.skip_node_operations and not self.features.optional_node_operations:
            return False
        allows_groups = self.features.compatibility_groups
        for device in spec.devices:
            if device.node_allocatable_resources:
                return False
            if device.consumes_counters and not allows_groups and device.has_compatibility_groups:
                return False
        return True

    def _tainted(self, key: PoolKey, names: tuple[str, ...], own: tuple[DeviceRecord, ...]) -> tuple[DeviceRecord, ...]:
        rules = [rule for _, rule in sorted(self._rules.items()) if _covers_pool(rule.spec.device_selector, key)]
        if not rules or not self.features.device_taints:
            return own
        return tuple(
            self._interner.tainted(record, tuple(rule.spec.taint for rule in rules if rule.matches(*key, name)))
            for name, record in zip(names, own, strict=True)
        )

    def _apply(self, *changed: DeviceTaintSelector | None) -> None:
        """Make the pools stale that selectors match; their records are computed when a node sees them next."""
        for key, pool in self._pools.items():
            if not any(_covers_pool(selector, key) for selector in changed):
                continue
            for pooled in pool.slices.values():
                pooled.is_stale = True
            pool.views.clear()
            self._invalidate(key)
        self.revision += 1

    @contextmanager
    def _repaired(self) -> Iterator[None]:
        """Compute the indexes again from the slices if an exception interrupts a change of them."""
        try:
            yield
        except Exception:
            for index in (self._pools, self._by_node, self._network, self._views, self.spread):
                index.clear()
            self._skipping = {name for name, pooled in self._slices.items() if pooled.skips_operations}
            for pooled in self._slices.values():
                pooled.is_stale = True
                self._change(pooled, pooled)
            self._network_revision += 1
            self.shared_changes += 1
            self.revision += 1
            self.changed.append_all()
            raise

    def _refresh(self, pooled: PooledSlice) -> None:
        if pooled.is_stale:
            self._steps.upkeep(1 + len(pooled.names) // _DEVICES_PER_STEP)
            pooled.records = self._tainted(pooled.pool_key, pooled.names, pooled.own_records)
            pooled.is_stale = False

    def _replace(self, name: str, replacement: PooledSlice | None) -> None:
        previous = self._slices.pop(name, None)
        if replacement is not None:
            self._slices[name] = replacement
        with self._repaired():
            if replacement is not None and replacement.skips_operations:
                self._skipping.add(name)
            elif name in self._skipping:
                self._skipping.remove(name)
            for one in (previous, replacement):
                if one is not None:
                    self._change(one, None if one is previous else one)
        self.revision += 1

    def _change(self, pooled: PooledSlice, replacement: PooledSlice | None) -> None:
        """Remove a slice (None) or put it into the indexes."""
        pool = self._pools.setdefault(pooled.pool_key, _Pool())
        pool.change(pooled.name, replacement)
        index = self._by_node.setdefault(pooled.target.node_name, {}) if pooled.target.node_name else self._network
        if replacement is None:
            index.pop(pooled.name, None)
            if pooled.target.node_name and not index:
                del self._by_node[pooled.target.node_name]
        else:
            index[pooled.name] = pooled
        self._invalidate(pooled.pool_key, pooled)
        if not pool.slices:
            del self._pools[pooled.pool_key]
        if pool.slices and not pool.is_local:
            self.spread.add(pooled.pool_key)
        else:
            self.spread.discard(pooled.pool_key)

    def _invalidate(self, key: PoolKey, changed: PooledSlice | None = None) -> None:
        pool = self._pools[key]
        target = None if changed is None else changed.target.node_name
        if pool.has_network_slices or (changed is not None and not target):
            self._network_revision += 1
            self.changed.append_all()
            return
        if target is not None:
            self.changed.append(target)
        self.pool_changed(key)
        for node in {target, *(one.target.node_name for one in pool.slices.values())}:
            if node is not None:
                self._views.pop(node, None)

    def _gather(self, name: str, labels: Mapping[str, str], *, skips_operations: bool) -> tuple[PoolView, ...]:
        found: dict[PoolKey, list[Targeting]] = {}
        for pooled, targeted in self.targeting(name, labels, only_understood=True):
            others = found.setdefault(pooled.pool_key, [])
            if others and pooled.generation != others[0][0].generation:
                if pooled.generation < others[0][0].generation:
                    continue
                others.clear()
            others.append((pooled, targeted))
        pools = [
            view
            for key in sorted(found)
            if (view := self._view(key, found[key], skips_operations=skips_operations)) is not None
        ]
        # A stable sort: within each half, pools stay ordered by driver and name.
        return tuple(sorted(pools, key=lambda view: view.has_binding_conditions))

    def _view(self, key: PoolKey, targeting: list[Targeting], *, skips_operations: bool) -> PoolView | None:
        """Return a pool; None if its slices are obsolete."""
        targeting.sort(key=lambda one: one[0].name)
        if any(_covers_pool(selector, key) for selectors in self._held.values() for selector in selectors):
            return self._without_devices(key, is_incomplete=True)
        pool = self._pools[key]
        identity: Hashable = tuple((one.name, targeted) for one, targeted in targeting)
        for one, _ in targeting:
            self._refresh(one)
        if not skips_operations and any(one.skips_operations for one, _ in targeting):
            identity = (_UNSUPPORTED, identity)
            targeting = [(self._unsupported(one), targeted) for one, targeted in targeting]
        if identity not in pool.views:
            pool.views[identity] = self._build(key, pool, targeting)
        return pool.views[identity]

    def _unsupported(self, one: PooledSlice) -> PooledSlice:
        """Return a slice as a node sees it that cannot skip operations."""
        return replace(one, records=tuple(map(self._interner.unsupported, one.records)))

    def _build(self, key: PoolKey, pool: _Pool, targeting: list[Targeting]) -> PoolView | None:
        first = targeting[0][0]
        others: list[PooledSlice] = []
        if len(targeting) != first.slice_count:
            if any(one.generation > first.generation for one in pool.slices.values()):
                return None
            here = {one.name for one, _ in targeting}
            others = [
                one
                for one in pool.slices.values()
                if one.name not in here and one.generation == first.generation and not one.is_missing
            ]
            for one in others:
                self._refresh(one)
            if len(targeting) + len(others) != first.slice_count:
                return self._without_devices(key, is_incomplete=True)
        self._steps.upkeep(
            1 + sum(len(one.names) for one in chain(others, (each for each, _ in targeting))) // _DEVICES_PER_STEP
        )
        validates = self.features.partitionable_devices
        counters = pool_counters([one for one, _ in targeting], others, validates_counters=validates)
        if counters is None:
            return self._without_devices(key, is_incomplete=False)
        with_devices = [each for each in targeting if not each[0].counter_sets]
        slices = tuple([one for one, _ in with_devices])
        elsewhere = tuple(one for one in others if not one.counter_sets)
        names, records, starts = joined_devices(slices)
        targeted = joined_targets(with_devices)
        # Devices elsewhere consume counters of the pool, so such a pool equals itself only.
        owner = key if counters and elsewhere else None
        identity = (owner, tuple(sorted(counters.items())), targeted, tuple([record.number for record in records]))
        return PoolView(
            key=key,
            is_incomplete=False,
            is_invalid=False,
            names=self._interned_names(names),
            records=records,
            targeted=targeted,
            slices=slices,
            starts=starts,
            counters=counters,
            others=elsewhere,
            shape=self._interned_shape(identity),
            is_shared=pool.has_network_slices,
            has_compatibility_groups=self.features.compatibility_groups
            and any(one.has_compatibility_groups for one in (*slices, *elsewhere)),
        )

    def _without_devices(self, key: PoolKey, *, is_incomplete: bool) -> PoolView:
        shape = self._interned_shape((is_incomplete,))
        return PoolView(
            key, is_incomplete, not is_incomplete, _NO_NAMES, (), None, (), (), counters={}, others=(), shape=shape
        )

    def _interned_names(self, names: tuple[str, ...]) -> DeviceNames:
        found = self._names.get(names)
        if found is None:
            found = self._names[names] = DeviceNames(names)
        return found

    def _interned_shape(self, identity: Hashable) -> PoolShape:
        found = self._shapes.get(identity)
        if found is None:
            found = self._shapes[identity] = PoolShape(next(self._shape_numbers))
        return found


def _covers_pool(selector: DeviceTaintSelector | None, key: PoolKey) -> bool:
    return selector is not None and selector.driver in (None, key[0]) and selector.pool in (None, key[1])
