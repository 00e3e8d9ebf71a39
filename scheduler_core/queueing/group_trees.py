"""Trees of groups: CompositePodGroups with the gangs below them, which the queue schedules as one unit.

::

    CompositePodGroup (root) ── CompositePodGroup ── PodGroup, a gang
                            └── PodGroup, a gang

Children are linked by the name of their parent, whether or not the parent exists. The gangs below a root form a
:class:`GangTree`; a gang whose chain of parents is broken has no tree, and its members are gated.

Follows kube-scheduler v1.37.1 (``backend/queue/workload_forest.go``, ``plugins/gangscheduling``).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, MutableMapping, MutableSet, Sequence
from itertools import chain, islice
from math import inf
from typing import Any, Generic, TypeVar, overload

from msgspec import Struct

from scheduler_core.framework.queued_pod import QueuedPod
from scheduler_core.model.pod import Pod
from scheduler_core.model.pod_group import CompositePodGroup, GroupKey, GroupTopology
from scheduler_core.queueing.gang_members import Gang

_MISSING, _CYCLE = "missing", "cycle"

V = TypeVar("V")
D = TypeVar("D")


class _TrackedDict(dict[str, V]):
    """Dict of a gang that calls a function after each change."""

    __slots__ = ("_touched",)

    def __init__(self, known: Mapping[str, V], touched: Callable[[], None]) -> None:
        super().__init__(known)
        self._touched = touched

    def __setitem__(self, key: str, value: V) -> None:
        super().__setitem__(key, value)
        self._touched()

    def __delitem__(self, key: str) -> None:
        super().__delitem__(key)
        self._touched()

    def clear(self) -> None:
        super().clear()
        self._touched()

    @overload
    def pop(self, key: str, /) -> V: ...
    @overload
    def pop(self, key: str, default: D, /) -> V | D: ...
    def pop(self, key: str, /, *default: Any) -> Any:
        found = super().pop(key, *default)
        self._touched()
        return found


class _TrackedSet(set[str]):
    __slots__ = ("_touched",)

    def __init__(self, known: Iterable[str], touched: Callable[[], None]) -> None:
        super().__init__(known)
        self._touched = touched

    def add(self, value: str) -> None:
        super().add(value)
        self._touched()

    def discard(self, value: object) -> None:
        super().discard(value)
        self._touched()

    def clear(self) -> None:
        super().clear()
        self._touched()


C = TypeVar("C", bound=Collection[str])


class _View(Generic[C]):
    """What all gangs of a tree have under one name; changes are made in the collections of the gangs."""

    __slots__ = ("_name", "_tree")

    def __init__(self, tree: GangTree, name: str) -> None:
        self._tree = tree
        self._name = name

    def _parts(self) -> Iterator[C]:
        return (getattr(leaf, self._name) for leaf in self._tree.leaves.values())

    def _part_of(self, uid: object) -> C | None:
        """Return the collection of the gang that a pod is a member of; None for none."""
        leaf = self._tree.leaf_of(uid)
        return None if leaf is None else getattr(leaf, self._name)

    def __contains__(self, uid: object) -> bool:
        part = self._part_of(uid)
        return part is not None and uid in part

    def __iter__(self) -> Iterator[str]:
        return chain.from_iterable(self._parts())

    def __len__(self) -> int:
        return sum(map(len, self._parts()))

    def __bool__(self) -> bool:
        return any(self._parts())


class _Uids(_View[MutableSet[str]], MutableSet[str]):
    """UIDs of the members of all gangs of a tree."""

    __slots__ = ()

    def add(self, value: str) -> None:
        raise TypeError(f"{value}: a member belongs to a gang of the tree")

    def discard(self, value: str) -> None:
        part = self._part_of(value)
        if part is not None:
            part.discard(value)


class _Members(_View[dict[str, V]], MutableMapping[str, V]):
    """Members of all gangs of a tree by UID."""

    __slots__ = ()

    def __getitem__(self, uid: str) -> V:
        return (self._part_of(uid) or {})[uid]

    def __setitem__(self, uid: str, value: V) -> None:
        raise TypeError(f"{uid}: a member belongs to a gang of the tree")

    def __delitem__(self, uid: str) -> None:
        del (self._part_of(uid) or {})[uid]

    def clear(self) -> None:
        for each in self._parts():
            each.clear()

    # The mixins look up each member by itself.
    def values(self) -> list[V]:  # type: ignore[override] # a list, as the callers iterate over it
        return [value for each in self._parts() for value in each.values()]

    def items(self) -> list[tuple[str, V]]:  # type: ignore[override] # as above
        return [item for each in self._parts() for item in each.items()]


class _LeafState(Struct, frozen=True):
    """What a gang contributes to its tree.

    Attributes:
        parent: The group above it.
        is_met: Whether it needs no more members.
        is_able: Whether enough members wait.
    """

    parent: GroupKey | None
    is_met: bool
    is_able: bool
    is_waiting: bool
    is_gated: bool


class _Children(Struct):
    """How many children of a group meet their quorum, and how many can meet it."""

    met: int = 0
    able: int = 0


class GangTree(Gang):
    """A root CompositePodGroup with all gangs below it: their members are scheduled in one cycle.

    The members are views of those of the gangs. ``group`` has the priority, the policies and the topology of the root.
    What the quorums depend on is counted for each group, and brought up to date before it is read: for the gangs that
    changed, or for the whole tree after :meth:`restructured`.
    """

    __slots__ = (
        "_changed", "_children", "_gated", "_is_stale", "_labels", "_of_uid", "_settled", "_states", "_to_review",
        "_waiting", "forest", "leaves",
    )  # fmt: skip

    def __init__(
        self, root: CompositePodGroup, forest: GroupForest, now: float, of_uid: Callable[[str], Gang | None]
    ) -> None:
        super().__init__(root.key, now)
        self.forest = forest
        self.leaves: dict[GroupKey, Gang] = {}
        self._of_uid = of_uid
        self._changed: dict[GroupKey, None] = {}
        """Gangs whose state is to be read again."""
        self._to_review: dict[GroupKey, None] = {}
        """Gangs whose members may be scheduled one by one since the last review, or not any more."""
        self._is_stale = True
        self._states: dict[GroupKey, _LeafState] = {}
        self._children: dict[GroupKey, _Children] = {}
        self._settled: set[GroupKey] = set()
        """CompositePodGroups that meet their quorums, with all groups above them."""
        self._waiting = self._gated = 0
        self._labels: set[str] | None = None
        self.pods: MutableMapping[str, Pod] = _Members(self, "pods")
        self.waiting: MutableMapping[str, QueuedPod] = _Members(self, "waiting")
        self.placed, self.gates = (_Uids(self, name) for name in ("placed", "gates"))
        self.set_root(root, now)

    def set_root(self, root: CompositePodGroup, now: float) -> None:
        """Take over the root as it is now; a recreated root does not inherit the record of attempts."""
        if self.group_uid not in ("", root.uid):
            self.begin(now)
        self.group, self.group_uid = root.as_unit, root.uid

    def attach(self, leaf: Gang) -> None:
        key = leaf.key
        self.leaves[key] = leaf
        leaf.tree = self
        self.was_rejected |= leaf.was_rejected

        def touched() -> None:
            self.member_changed(key)

        # The gang changes them itself, and the counts of the tree must follow.
        leaf.waiting = _TrackedDict(leaf.waiting, touched)
        leaf.placed, leaf.gates = (_TrackedSet(uids, touched) for uids in (leaf.placed, leaf.gates))
        if leaf.entry is not None:
            leaf.entry.members = leaf.waiting
        self.leaf_changed(leaf)

    def detach(self, leaf: Gang) -> None:
        self.leaves.pop(leaf.key, None)
        leaf.tree = None
        leaf.was_rejected = self.was_rejected
        leaf.waiting = dict(leaf.waiting)
        leaf.placed, leaf.gates = set(leaf.placed), set(leaf.gates)
        if leaf.entry is not None:
            leaf.entry.members = leaf.waiting
        self.leaf_changed(leaf)

    def leaf_of(self, uid: object) -> Gang | None:
        """Return the gang of the tree that a pod is a member of; None for none."""
        gang = self._of_uid(uid) if isinstance(uid, str) else None
        return gang if gang is not None and gang.tree is self else None

    # -- what has changed ---------------------------------------------------------------------------------------

    def member_changed(self, key: GroupKey) -> None:
        """Read the state of a gang again: a member has changed, which may begin another run."""
        self._changed[key] = None

    def leaf_changed(self, leaf: Gang) -> None:
        """Read the state of a gang again: it was added or removed, or its PodGroup has changed."""
        self._changed[leaf.key] = self._to_review[leaf.key] = None
        self._labels = None

    def restructured(self) -> None:
        """Read the whole tree again: a CompositePodGroup of it has changed."""
        self._is_stale = True
        self._labels = None

    def take_unreviewed(self) -> list[Gang]:
        """Return the gangs whose :attr:`Gang.is_one_by_one` or members may have changed since the last call."""
        self._refresh()
        found = [leaf for key in self._to_review if (leaf := self.leaves.get(key)) is not None]
        self._to_review.clear()
        return found

    def review_again(self, leaves: Iterable[Gang]) -> None:
        """Return gangs from the next :meth:`take_unreviewed` again, because their review was interrupted."""
        self._to_review.update((leaf.key, None) for leaf in leaves)

    def _refresh(self) -> None:
        try:
            self._count_changes()
        except Exception:
            # A gang may be counted in some groups above it only.
            self._is_stale = True
            raise

    def _count_changes(self) -> None:
        if self._is_stale:
            self._is_stale = False
            self._states.clear()
            self._children.clear()
            self._settled.clear()
            self._waiting = self._gated = 0
            for key in self.leaves:
                self._changed[key] = self._to_review[key] = None
        if not self._changed:
            return
        was_held = self._gated > 0
        flipped: list[GroupKey] = []
        for key in self._changed:
            self._to_review[key] = None
            self._count(key, flipped)
        self._changed.clear()
        # One gated member holds back the members of all gangs of the tree.
        if was_held is not (self._gated > 0):
            self._to_review.update(dict.fromkeys(self.leaves))
        for composite in flipped:
            self._settle_below(composite)

    def _state_of(self, key: GroupKey) -> _LeafState | None:
        leaf = self.leaves.get(key)
        if leaf is None:
            return None
        needed, waiting = leaf.needed, len(leaf.waiting)
        is_able = leaf.group is not None and waiting >= needed
        return _LeafState(self.forest.parent_of(key), not needed, is_able, waiting > 0, bool(leaf.gates))

    def _count(self, key: GroupKey, flipped: list[GroupKey]) -> None:
        """Count the state of one gang, and note the groups above that begin or cease to meet their quorum."""
        before, after = self._states.get(key), self._state_of(key)
        if before == after:
            return
        for sign, state in ((-1, before), (1, after)):
            if state is not None:
                self._waiting += sign * state.is_waiting
                self._gated += sign * state.is_gated
                self._count_above(state.parent, sign * state.is_met, sign * state.is_able, flipped)
        if after is None:
            del self._states[key]
        else:
            self._states[key] = after

    def _count_above(self, key: GroupKey | None, met: int, able: int, flipped: list[GroupKey]) -> None:
        # Users choose the depth and the width of a tree, so nothing here is recursive, and a change costs no more than
        # the path from its gang to the root, unless groups above begin or cease to meet their quorums.
        while key is not None and (met or able) and (composite := self.forest.get(key)) is not None:
            children, least = self._children.setdefault(key, _Children()), composite.min_groups
            was_met, was_able = children.met >= least, children.able >= least
            children.met += met
            children.able += able
            met, able = (children.met >= least) - was_met, (children.able >= least) - was_able
            if met:
                flipped.append(key)
            key = self.forest.parent_of(key)

    def _settle_below(self, key: GroupKey) -> None:
        """Update which groups are settled, from one on whose quorum is met now or is not any more."""
        composite = self.forest.get(key)
        if composite is None:
            return
        above = self.forest.parent_of(key)
        left = [key] if above is None or above in self._settled else []
        while left:
            current = left.pop()
            if current in self.leaves:
                self._to_review[current] = None
                continue
            composite, children = self.forest.get(current), self._children.get(current)
            above = self.forest.parent_of(current)
            is_settled = (
                composite is not None
                and children is not None
                and children.met >= composite.min_groups
                and (above is None or above in self._settled)
            )
            if is_settled is (current in self._settled):
                continue
            if is_settled:
                self._settled.add(current)
            else:
                self._settled.discard(current)
            left += self.forest.children(current)

    # -- quorum -------------------------------------------------------------------------------------------------

    @property
    def is_tree(self) -> bool:
        return True

    @property
    def is_held(self) -> bool:
        """Whether a gated member of any gang holds all waiting members back."""
        self._refresh()
        return self._gated > 0

    @property
    def parts(self) -> tuple[Gang, ...]:
        return tuple(self.leaves.values())

    @property
    def needed(self) -> int:
        """Number of waiting members of the gangs of :meth:`quorum`; 1 if these need none and others wait."""
        return max(1, sum(leaf.needed for leaf in self.quorum() or ()))

    @property
    def succeeded(self) -> int:
        return sum(leaf.succeeded for leaf in self.leaves.values())

    @property
    def is_one_by_one(self) -> bool:
        """False: the gangs decide for their members."""
        return False

    @property
    def has_quorum(self) -> bool:
        """Whether the tree can meet its quorum with the members that wait, some do, and none is gated."""
        self._refresh()
        root, children = self.forest.get(self.key), self._children.get(self.key)
        is_able = root is not None and children is not None and children.able >= root.min_groups
        return is_able and self._waiting > 0 and not self._gated

    def quorum(self) -> list[Gang] | None:
        """Return the gangs with which the root meets its quorum, those first that need the fewest members, or None."""
        sums: dict[GroupKey, int] = {}
        """Members that a group needs, for the groups that can meet their quorum."""
        chosen: dict[GroupKey, list[GroupKey]] = {}
        for key in reversed(self.from_above()):
            leaf = self.leaves.get(key)
            if leaf is not None:
                if leaf.group is not None and len(leaf.waiting) >= leaf.needed:
                    sums[key] = leaf.needed
                continue
            composite = self.forest.get(key)
            able = [child for child in self.forest.children(key) if child in sums]
            if composite is not None and len(able) >= composite.min_groups:
                chosen[key] = sorted(able, key=sums.__getitem__)[: composite.min_groups]
                sums[key] = sum(sums[child] for child in chosen[key])
        if self.key not in sums:
            return None
        found: list[Gang] = []
        left = [self.key]
        while left:
            current = left.pop()
            leaf = self.leaves.get(current)
            if leaf is not None:
                found.append(leaf)
            else:
                left += reversed(chosen[current])
        return found

    def from_above(self) -> list[GroupKey]:
        found = [self.key]
        for key in found:
            if key not in self.leaves:
                found += self.forest.children(key)
        return found

    def needed_below(self) -> dict[GroupKey, int]:
        """Return how many waiting members all gangs of each group need together."""
        sums: dict[GroupKey, int] = {}
        for key in reversed(self.from_above()):
            leaf = self.leaves.get(key)
            below = self.forest.children(key) if leaf is None else ()
            sums[key] = sum(sums[child] for child in below) if leaf is None else leaf.needed
        return sums

    def settles(self, leaf: Gang) -> bool:
        """Return whether all groups above a gang meet their quorum with the members that have a node."""
        self._refresh()
        parent = self.forest.parent_of(leaf.key)
        return parent is not None and parent in self._settled

    def is_met_by(self, leaf: Gang, has_quorum: Callable[[Gang], bool]) -> bool:
        """Return whether a gang and all groups above it meet their quorums with the gangs that have theirs."""
        met: set[GroupKey] = set()
        for key in reversed(self.from_above()):
            gang, composite = self.leaves.get(key), self.forest.get(key)
            if gang is not None:
                is_met = has_quorum(gang)
            else:
                least = inf if composite is None else composite.min_groups
                is_met = sum(child in met for child in self.forest.children(key)) >= least
            if is_met:
                met.add(key)
        above: GroupKey | None = leaf.key
        while above in met:
            above = self.forest.parent_of(above)
        return above is None

    def topologies_of(self, leaf: Gang) -> list[tuple[GroupTopology, list[Gang]]]:
        """Return the topology constraints of the groups above a gang, each with the gangs that share its domain."""
        above = [each for each in self.forest.above(leaf) if each.topology is not None]
        return [(each.topology, self.forest.leaves_below(each.key)) for each in above if each.topology is not None]

    @property
    def topologies(self) -> list[tuple[GroupTopology, list[Gang]]]:
        """Topology constraints of all groups, each with the gangs that share its domain."""
        above = ((each.key, each.topology) for each in self._constrained())
        shared = [(topology, self.forest.leaves_below(key)) for key, topology in above if topology is not None]
        return [*shared, *(each for leaf in self.parts for each in leaf.topologies)]

    def _constrained(self) -> Iterator[CompositePodGroup]:
        """Yield the CompositePodGroups with a topology constraint that have a gang below them."""
        above: set[GroupKey] = set()
        for leaf in self.leaves:
            key = self.forest.parent_of(leaf)
            while key is not None and key not in above and (composite := self.forest.get(key)) is not None:
                above.add(key)
                if composite.topology is not None:
                    yield composite
                key = self.forest.parent_of(key)

    @property
    def domain_labels(self) -> set[str]:
        if self._labels is None:
            groups = [each.topology for each in self._constrained()]
            groups += [leaf.group.topology for leaf in self.leaves.values() if leaf.group is not None]
            used = [topology for topology in groups if topology is not None]
            self._labels = {label for topology in used for label in (topology.key, *topology.levels)}
        return self._labels

    @property
    def lacks_quorum(self) -> str:
        """Why no member is scheduled although no group is missing, in the words of kube-scheduler v1.37.1."""
        return f'waiting for composite pod group "{self.key.name}" tree to meet quorum'


class GroupForest:
    """All CompositePodGroups, and the trees of those that have gangs below them.

    Attributes:
        trees: Trees by the key of the root.
        on_detached: Called with a tree from which a gang was removed; it may have no gang any more.
    """

    def __init__(
        self, gangs: Mapping[GroupKey, Gang], now: Callable[[], float], of_uid: Callable[[str], Gang | None]
    ) -> None:
        self._gangs = gangs
        self._now = now
        self._of_uid = of_uid
        self._composites: dict[GroupKey, CompositePodGroup] = {}
        self._children: dict[GroupKey, dict[GroupKey, None]] = {}
        self._parent_of: dict[GroupKey, GroupKey] = {}
        self._chains: dict[GroupKey, tuple[GroupKey, str]] = {}
        """End of the chain of parents by the key with which it begins; see :meth:`_chain_from`."""
        self.trees: dict[GroupKey, GangTree] = {}
        self.on_detached: list[Callable[[GangTree], None]] = []

    def get(self, key: GroupKey) -> CompositePodGroup | None:
        return self._composites.get(key)

    def children(self, key: GroupKey) -> Sequence[GroupKey]:
        """Return the keys of the groups that name a CompositePodGroup as their parent, as they were first seen."""
        return tuple(self._children.get(key, ()))

    def parent_of(self, key: GroupKey) -> GroupKey | None:
        """Return the key of the parent that a group names; None for none."""
        return self._parent_of.get(key)

    def path_up(self, key: GroupKey) -> Iterator[GroupKey]:
        """Yield a key and those of the groups above it, to the one that names no parent, or a group below itself."""
        seen: set[GroupKey] = set()
        current: GroupKey | None = key
        while current is not None and current not in seen:
            yield current
            seen.add(current)
            current = self._parent_of.get(current)

    def above(self, leaf: Gang) -> list[CompositePodGroup]:
        found: list[CompositePodGroup] = []
        for key in islice(self.path_up(leaf.key), 1, None):
            composite = self._composites.get(key)
            if composite is None:
                break
            found.append(composite)
        return found

    def highest_disrupted_whole(self) -> Callable[[Gang], CompositePodGroup | None]:
        """Return a function that returns the highest group above a gang that is disrupted as a whole; None for none."""
        known: dict[GroupKey, CompositePodGroup | None] = {}

        def of(gang: Gang) -> CompositePodGroup | None:
            path: dict[GroupKey, CompositePodGroup] = {}
            key = self._parent_of.get(gang.key)
            while key is not None and key not in known and key not in path:
                composite = self._composites.get(key)
                if composite is None:
                    break
                path[key] = composite
                key = self._parent_of.get(key)
            highest = None if key is None else known.get(key)
            for key, composite in reversed(path.items()):
                if highest is None and composite.disrupts_whole:
                    highest = composite
                known[key] = highest
            return highest

        return of

    def broken_above(self, parent: GroupKey) -> tuple[GroupKey, bool] | None:
        """Return the first group above that is missing, or is its own ancestor (then with True); None for neither."""
        key, problem = self._chain_from(parent)
        return (key, problem == _CYCLE) if problem else None

    def _chain_from(self, parent: GroupKey) -> tuple[GroupKey, str]:
        """Return the root at the end of a chain of parents and "", or else the group that breaks it and the problem."""
        chains = self._chains
        path: dict[GroupKey, None] = {}
        key = parent
        while (end := chains.get(key)) is None:
            composite = self._composites.get(key)
            if composite is None:
                end = key, _MISSING
            elif key in path:
                end = key, _CYCLE
                # Each group of the cycle is its own ancestor; the groups below name the first one of it.
                cycle = list(path)
                chains.update((each, (each, _CYCLE)) for each in cycle[cycle.index(key) :])
            elif (above := self._parent_of.get(key)) is None:
                end = chains[key] = key, ""
            else:
                path[key] = None
                key = above
                continue
            break
        for each in path:
            chains.setdefault(each, end)
        return end

    def leaves_below(self, key: GroupKey) -> list[Gang]:
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
        parent = None if gang.group is None else gang.group.parent_key
        self._link(gang.key, parent)
        if gang.tree is not None:
            gang.tree.leaf_changed(gang)
        key, problem = (None, "") if parent is None else self._chain_from(parent)
        self._report_detached(self._place(gang, None if problem else key))

    def composite_changed(self, composite: CompositePodGroup) -> list[Gang]:
        key = composite.key
        self._composites[key] = composite
        self._link(key, composite.parent_key)
        tree = self.trees.get(key)
        if tree is not None:
            tree.set_root(composite, self._now())
        return self._place_below(key)

    def composite_deleted(self, key: GroupKey) -> list[Gang]:
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
        """Put all gangs below a changed CompositePodGroup into the trees of their roots."""
        if key in self._children or key in self._chains:
            # Chains through this group end elsewhere now, and those are not indexed by what they pass.
            self._chains.clear()
        below = self.leaves_below(key)
        detached: dict[GangTree, None] = {}
        for gang in below:
            if gang.tree is not None:
                gang.tree.restructured()
            parent = self._parent_of.get(gang.key)
            root, problem = (None, "") if parent is None else self._chain_from(parent)
            detached.update(dict.fromkeys(self._place(gang, None if problem else root)))
            if gang.tree is not None:
                gang.tree.restructured()
        self._report_detached(detached)
        return below

    def _place(self, gang: Gang, root: GroupKey | None) -> tuple[GangTree, ...]:
        """Put a gang into the tree of its root, None for no tree; return the tree that it was removed from, if any."""
        former = gang.tree
        if former is not None and former.key != root:
            former.detach(gang)
            if not former.leaves:
                del self.trees[former.key]
        if root is not None and gang.tree is None:
            tree = self.trees.get(root)
            if tree is None:
                tree = self.trees[root] = GangTree(self._composites[root], self, self._now(), self._of_uid)
            tree.attach(gang)
        return (former,) if former is not None and former is not gang.tree else ()

    def _report_detached(self, trees: Iterable[GangTree]) -> None:
        for tree in trees:
            for callback in self.on_detached:
                callback(tree)
