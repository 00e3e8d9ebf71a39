"""Trees of groups: CompositePodGroups with the gangs below them, which the queue schedules as one unit.

::

    CompositePodGroup (root) ── CompositePodGroup ── PodGroup, a gang
                            └── PodGroup, a gang

Children are linked by the name of their parent, whether or not the parent exists. The gangs below a root form a
:class:`GangTree`; a gang whose chain of parents is broken has no tree, and its members are gated.

Follows kube-scheduler v1.37.1 (``backend/queue/workload_forest.go``, ``plugins/gangscheduling``).
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Iterator, Mapping, MutableSet, Sequence
from itertools import chain

from scheduler_core.framework.queued_pod import QueuedPod
from scheduler_core.model.pod import Pod
from scheduler_core.model.pod_group import CompositePodGroup, GroupKey, GroupTopology
from scheduler_core.queueing.gang_members import Gang


class _Uids(MutableSet[str]):
    """UIDs of all gangs of a tree; they are added to and removed from the sets of the gangs."""

    def __init__(self) -> None:
        self.sets: list[MutableSet[str]] = []

    def __contains__(self, uid: object) -> bool:
        return any(uid in each for each in self.sets)

    def __iter__(self) -> Iterator[str]:
        return chain.from_iterable(self.sets)

    def __len__(self) -> int:
        return sum(map(len, self.sets))

    def add(self, value: str) -> None:
        raise TypeError(f"{value}: a member belongs to a gang of the tree")

    def discard(self, value: str) -> None:
        for each in self.sets:
            each.discard(value)


class GangTree(Gang):
    """A root CompositePodGroup with all gangs below it: their members are scheduled in one cycle.

    The members are views of those of the gangs. ``group`` has the priority, the policies and the topology of the root.

    Attributes:
        leaves: The gangs, by key.
        forest: All CompositePodGroups.
    """

    __slots__ = ("forest", "leaves")

    def __init__(self, root: CompositePodGroup, forest: GroupForest, now: float) -> None:
        super().__init__(root.key, now)
        self.forest = forest
        self.leaves: dict[GroupKey, Gang] = {}
        self.set_root(root, now)

    def set_root(self, root: CompositePodGroup, now: float) -> None:
        """Take over the root as it is now; a recreated root does not inherit the record of attempts."""
        if self.group_uid not in ("", root.uid):
            self.begin(now)
        self.group, self.group_uid = root.as_unit, root.uid

    def attach(self, leaf: Gang) -> None:
        """Add a gang."""
        self.leaves[leaf.key] = leaf
        leaf.tree = self
        self._join()

    def detach(self, leaf: Gang) -> None:
        """Remove a gang."""
        self.leaves.pop(leaf.key, None)
        leaf.tree = None
        self._join()

    def _join(self) -> None:
        leaves = self.leaves.values()
        self.pods = ChainMap[str, Pod](*(leaf.pods for leaf in leaves))
        self.waiting = ChainMap[str, QueuedPod](*(leaf.waiting for leaf in leaves))
        if self.entry is not None:
            self.entry.members = self.waiting
        for name in ("placed", "succeeded", "gates"):
            joined = _Uids()
            joined.sets = [getattr(leaf, name) for leaf in leaves]
            setattr(self, name, joined)

    # -- quorum -------------------------------------------------------------------------------------------------

    @property
    def is_tree(self) -> bool:
        """True."""
        return True

    @property
    def is_held(self) -> bool:
        """Whether a gated member of any gang holds all waiting members back."""
        return bool(self.gates)

    @property
    def parts(self) -> tuple[Gang, ...]:
        """The gangs."""
        return tuple(self.leaves.values())

    @property
    def needed(self) -> int:
        """Number of waiting members of the gangs of :meth:`quorum`; 1 if these need none and others wait."""
        return max(1, sum(leaf.needed for leaf in self.quorum() or ()))

    @property
    def is_one_by_one(self) -> bool:
        """False: the gangs decide for their members."""
        return False

    @property
    def has_quorum(self) -> bool:
        """Whether the tree can meet its quorum with the members that wait, some do, and none is gated."""
        return bool(self.waiting) and not self.is_held and self.quorum() is not None

    def quorum(self) -> list[Gang] | None:
        """Return the gangs with which the quorum of the root can be met, those first that need the fewest members.

        Returns:
            The gangs; None if too few groups have enough members.
        """
        return self._quorum_of(self.key)

    def _quorum_of(self, key: GroupKey) -> list[Gang] | None:
        leaf = self.leaves.get(key)
        if leaf is not None:
            return [leaf] if leaf.group is not None and len(leaf.waiting) >= leaf.needed else None
        composite = self.forest.get(key)
        if composite is None:
            return None
        found = [gangs for child in self.forest.children(key) if (gangs := self._quorum_of(child)) is not None]
        if len(found) < composite.min_groups:
            return None
        found.sort(key=lambda gangs: sum(leaf.needed for leaf in gangs))
        return [leaf for gangs in found[: composite.min_groups] for leaf in gangs]

    def needed_below(self, key: GroupKey) -> int:
        """Return how many waiting members all gangs of a group need together."""
        leaf = self.leaves.get(key)
        return sum(gang.needed for gang in (self.forest.leaves_below(key) if leaf is None else [leaf]))

    def is_met(self, key: GroupKey, is_leaf_met: Callable[[Gang], bool]) -> bool:
        """Return whether a group meets its quorum, if a test decides for the gangs."""
        leaf = self.leaves.get(key)
        if leaf is not None:
            return is_leaf_met(leaf)
        composite = self.forest.get(key)
        if composite is None:
            return False
        met = sum(self.is_met(child, is_leaf_met) for child in self.forest.children(key))
        return met >= composite.min_groups

    def settles(self, leaf: Gang) -> bool:
        """Return whether all groups above a gang meet their quorum with the members that have a node."""
        return all(self.is_met(each.key, lambda gang: not gang.needed) for each in self.forest.above(leaf))

    def topologies_of(self, leaf: Gang) -> list[tuple[GroupTopology, list[Gang]]]:
        """Return the topology constraints of the groups above a gang, each with the gangs that share its domain."""
        above = [each for each in self.forest.above(leaf) if each.topology is not None]
        return [(each.topology, self.forest.leaves_below(each.key)) for each in above if each.topology is not None]

    @property
    def topologies(self) -> list[tuple[GroupTopology, list[Gang]]]:
        """Topology constraints of all groups, each with the gangs that share its domain."""
        above = {each.key: each.topology for leaf in self.parts for each in self.forest.above(leaf)}
        shared = [(topology, self.forest.leaves_below(key)) for key, topology in above.items() if topology is not None]
        return [*shared, *(each for leaf in self.parts for each in leaf.topologies)]

    @property
    def domain_labels(self) -> set[str]:
        """Node labels of the topology constraints of all groups of the tree."""
        return {label for topology, _ in self.topologies for label in (topology.key, *topology.levels)}

    @property
    def lacks_quorum(self) -> str:
        """Why no member is scheduled although no group is missing, in the words of kube-scheduler v1.37.1."""
        return f'waiting for composite pod group "{self.key.name}" tree to meet quorum'


class GroupForest:
    """All CompositePodGroups, and the trees of those that have gangs below them.

    Args:
        gangs: The gangs by key.
        now: Returns the clock's seconds.

    Attributes:
        trees: Trees by the key of the root.
        on_detached: Called with a tree from which a gang was removed; it may have no gang any more.
    """

    def __init__(self, gangs: Mapping[GroupKey, Gang], now: Callable[[], float]) -> None:
        self._gangs = gangs
        self._now = now
        self._composites: dict[GroupKey, CompositePodGroup] = {}
        self._children: dict[GroupKey, dict[GroupKey, None]] = {}
        self._parent_of: dict[GroupKey, GroupKey] = {}
        self.trees: dict[GroupKey, GangTree] = {}
        self.on_detached: list[Callable[[GangTree], None]] = []

    def get(self, key: GroupKey) -> CompositePodGroup | None:
        """Return a CompositePodGroup; None for none."""
        return self._composites.get(key)

    def children(self, key: GroupKey) -> Sequence[GroupKey]:
        """Return the keys of the groups that name a CompositePodGroup as their parent, as they were first seen."""
        return tuple(self._children.get(key, ()))

    def above(self, leaf: Gang) -> list[CompositePodGroup]:
        """Return the CompositePodGroups above a gang of a tree, the parent first."""
        found: list[CompositePodGroup] = []
        key = self._parent_of.get(leaf.key)
        while key is not None and (composite := self._composites.get(key)) is not None and composite not in found:
            found.append(composite)
            key = composite.parent_key
        return found

    def broken_above(self, parent: GroupKey) -> tuple[GroupKey, bool] | None:
        """Return the first group of a chain of parents that is missing, or that is its own ancestor; None for neither.

        Args:
            parent: The key with which the chain begins.

        Returns:
            The key of the group, and whether it exists and is its own ancestor.
        """
        seen: set[GroupKey] = set()
        key: GroupKey | None = parent
        while key is not None:
            composite = self._composites.get(key)
            if composite is None or key in seen:
                return key, composite is not None
            seen.add(key)
            key = composite.parent_key
        return None

    def leaves_below(self, key: GroupKey) -> list[Gang]:
        """Return the known gangs below a CompositePodGroup."""
        found: list[Gang] = []
        seen: set[GroupKey] = set()
        left = [key]
        while left:
            current = left.pop()
            if current in seen:
                continue
            seen.add(current)
            gang = self._gangs.get(current)
            if gang is not None:
                found.append(gang)
            left += self._children.get(current, ())
        return found

    # -- changes ------------------------------------------------------------------------------------------------

    def gang_changed(self, gang: Gang) -> None:
        """Link a gang whose PodGroup was created, changed or deleted to its parent and its tree."""
        self._link(gang.key, None if gang.group is None else gang.group.parent_key)
        self._place(gang)

    def composite_changed(self, composite: CompositePodGroup) -> list[Gang]:
        """Record a created or updated CompositePodGroup; return the gangs below it."""
        key = composite.key
        self._composites[key] = composite
        self._link(key, composite.parent_key)
        tree = self.trees.get(key)
        if tree is not None:
            tree.set_root(composite, self._now())
        return self._place_below(key)

    def composite_deleted(self, key: GroupKey) -> list[Gang]:
        """Remove a CompositePodGroup; return the gangs below it."""
        self._composites.pop(key, None)
        self._link(key, None)
        return self._place_below(key)

    def _link(self, child: GroupKey, parent: GroupKey | None) -> None:
        former = self._parent_of.get(child)
        if former == parent:
            return
        if former is not None:
            del self._parent_of[child]
            self._children[former].pop(child, None)
            if not self._children[former]:
                del self._children[former]
        if parent is not None:
            self._parent_of[child] = parent
            self._children.setdefault(parent, {})[child] = None

    def _place_below(self, key: GroupKey) -> list[Gang]:
        below = self.leaves_below(key)
        for gang in below:
            self._place(gang)
        return below

    def _place(self, gang: Gang) -> None:
        """Put a gang into the tree of its root, if the chain of its parents is complete."""
        parent = self._parent_of.get(gang.key)
        root: CompositePodGroup | None = None
        if parent is not None and self.broken_above(parent) is None:
            root = self.above(gang)[-1]
        tree = gang.tree
        if tree is not None and (root is None or tree.key != root.key):
            tree.detach(gang)
            if not tree.leaves:
                del self.trees[tree.key]
            for callback in self.on_detached:
                callback(tree)
        if root is not None and gang.tree is None:
            tree = self.trees.get(root.key)
            if tree is None:
                tree = self.trees[root.key] = GangTree(root, self, self._now())
            tree.attach(gang)
