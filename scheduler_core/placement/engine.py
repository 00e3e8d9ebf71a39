"""The search for the nodes of a gang or a tree of gangs: one loop over groups and subsets, and one over members.

::

    root, in each of its subsets ─▶ child, in each of its subsets within ─▶ ... ─▶ a gang's members, assumed
         │ too few children succeed                                                  │ no quorum
         └────────────── everything below is undone ◀────────────────────────────────┘

The world decides how one member gets a node, and what an undo restores; the policy decides the order of the subsets and
what is accepted. Members beyond a quorum, and groups beyond the quorum of their parent, are placed too if they fit.
Groups of ``scheduling.k8s.io`` use the subset that scores best with the members that fit there: by their number and the
allocated share of CPU and memory. Of equal subsets the first is used.

Follows kube-scheduler v1.37.1, ``schedule_one_podgroup.go``, which chooses randomly among equal domains.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Generator, Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from types import GeneratorType
from typing import Any, ClassVar, TypeAlias, TypeVar

from scheduler_core.cycle.assume_and_reserve import AssumedPods
from scheduler_core.cycle.attempt import Attempt
from scheduler_core.cycle.failure_handler import Failure
from scheduler_core.cycle.filter_and_score import Feasible
from scheduler_core.cycle.gang_constraints import ANYWHERE, Where
from scheduler_core.errors import AttemptLimitError, SchedulerCoreError
from scheduler_core.framework.queued_pod import QueuedPod
from scheduler_core.model.pod_group import CompositePodGroup, GroupKey, GroupSource
from scheduler_core.placement.requests import Placement, PlacementRequest, Rejection
from scheduler_core.placement.subsets import (
    DomainScreen,
    Group,
    allocated_share,
    exempted_resources,
    gang_subsets,
    member_orders,
    placement_score,
    tree_subsets,
)
from scheduler_core.queueing.gang_members import Gang
from scheduler_core.queueing.group_trees import GangTree
from scheduler_core.runtime.equivalence import filter_class
from scheduler_core.runtime.framework_instance import FrameworkInstance
from scheduler_core.snapshot.cluster_cache import ClusterCache
from scheduler_core.snapshot.node_columns import NodeColumns

T = TypeVar("T")
Steps: TypeAlias = Generator[Any, Any, T]
"""A part of a search: yields what must be awaited, and receives the result; only extender calls are awaited."""
Subsets = Callable[[ClusterCache, Group], Iterable[tuple[Where, int]]]
"""Returns the subsets in which a group is tried, in this order, each with the room in it."""


class Verdict(Enum):
    """What becomes of a placement that meets the quorum.

    Attributes:
        TAKEN: It is the result.
        STORED: The policy has recorded it; it is undone, and the next subset is tried.
        REFUSED: It is undone, and the next order of the members is tried.
    """

    TAKEN = auto()
    STORED = auto()
    REFUSED = auto()


def as_given(members: Sequence[QueuedPod]) -> Sequence[Sequence[QueuedPod]]:
    """Return the only order in which members are tried."""
    return [members]


@dataclass(frozen=True, slots=True)
class Policy:
    """What is tried, and what is accepted.

    Attributes:
        accept: Evaluates a placement whose members are assumed.
        subsets: The subsets of each group; None for those of a live cycle.
        orders: The orders in which the members of a gang are tried in each subset.
        unscreened: How many subsets are tried before any is ruled out without a try.
    """

    accept: Callable[[Placement], Verdict] = lambda _: Verdict.TAKEN
    subsets: Subsets | None = None
    orders: Callable[[Sequence[QueuedPod]], Sequence[Sequence[QueuedPod]]] = member_orders
    unscreened: int = 0


@dataclass(eq=False)
class World(ABC):
    """The nodes as a search sees them, and how one member is assumed on one of them."""

    cache: ClusterCache
    assumed: AssumedPods
    nodes: NodeColumns = field(init=False)

    is_minimal: ClassVar[bool] = False
    """Whether only the needed number of members is placed, and none that was rejected is tried again."""

    def __post_init__(self) -> None:
        # A property would add a call to each of the many reads.
        self.nodes = self.cache.columns

    @abstractmethod
    def begin(self, instance: FrameworkInstance, queued: QueuedPod, where: Where, position: int = 0) -> Attempt:
        """Return an attempt for a member, which is the *position*-th of its pass."""

    @abstractmethod
    def seat(self, attempt: Attempt) -> Steps[Failure | None]:
        """Assume and reserve a member on its best node; return why it is infeasible, None if it is assumed."""

    def feasible(self, instance: FrameworkInstance, queued: QueuedPod) -> Feasible | None:
        """Return where a member is feasible in any domain; None if that is not decided, so that all are tried."""
        del instance, queued
        return None

    def fill(
        self, instance: FrameworkInstance, found: Placement, members: Sequence[QueuedPod], needed: int
    ) -> Steps[None]:
        """Assume one member after the other, until the quorum cannot be reached.

        Args:
            found: Receives the members; feasible ones stay assumed.
            members: The members, in the order in which they are tried.
            needed: How many must be feasible; further members are optional.
        """
        left = list(members)
        while left:
            # Failures by pod class: no other member of the class is tried on the same columns.
            refused: dict[object, Failure] = {}
            failed: list[tuple[Attempt, Failure]] = []
            is_final = True
            for position, queued in enumerate(left):
                missing = needed - len(found.placed)
                if self.is_minimal and missing <= 0:
                    break
                # While a further pass may follow, a member that was refused can still be feasible.
                if missing > len(left) - position and (self.is_minimal or (refused and is_final)):
                    found.untried = left[position:]
                    break
                # Each member has an attempt, also one that is not tried: its failure is reported with it.
                attempt = self.begin(instance, queued, found.where, position)
                failure = refused.get(filter_class(instance, queued.info)) if refused else None
                if failure is None:
                    failure = yield from self.seat(attempt)
                    if failure is None:
                        found.placed.append(attempt)
                        if refused and not self.is_minimal:
                            # The columns changed, and a refused member may need this one beside it: one more pass.
                            refused.clear()
                            is_final = False
                        continue
                    if not failure.is_error:
                        refused[filter_class(instance, queued.info)] = failure
                failed.append((attempt, failure))
            is_over = is_final or len(found.placed) >= needed
            found.failed += failed if is_over else ()
            left = [] if is_over else [attempt.queued for attempt, _ in failed]

    def undo(self, attempts: Sequence[Attempt]) -> None:
        """Release members, the last one first."""
        for attempt in reversed(attempts):
            self.assumed.release(attempt)


class Observer:
    """Sees each placement that fails, or is stored, while its members are assumed; this one records nothing."""

    def failed(
        self, request: PlacementRequest, found: Placement, order: Sequence[QueuedPod], tries: Sequence[Placement]
    ) -> None:
        """Observe a placement of a gang without a quorum, with the order of the members; *tries* failed before."""

    def stored(self, found: Placement, order: Sequence[QueuedPod]) -> None:
        """Observe a placement of a gang that meets the quorum and is compared with others."""


def place(
    request: PlacementRequest, world: World, policy: Policy | None = None, observer: Observer | None = None
) -> Steps[tuple[Placement | None, Rejection]]:
    """Search the nodes of a gang or a tree.

    Args:
        policy: What is tried and accepted; None for the policy of live cycles without Permit.

    Returns:
        The placement, whose members are assumed, None for none; and what failed before. Whatever is raised, nothing
        stays assumed.
    """
    search = _Search(request, world, policy or Policy(), observer or Observer())
    # By position, because a caller may have assumed members or changed nodes before.
    begun = world.assumed.mark()
    try:
        found = yield from _run(search.run())
    except AttemptLimitError as limit:
        world.assumed.undo(*begun)
        search.rejection.limit = limit
        return None, search.rejection
    except BaseException:
        world.assumed.undo(*begun)
        raise
    return search.found if found else None, search.rejection


async def awaited(steps: Steps[T]) -> T:
    """Run a search to its end; awaits only if the profile has extenders."""
    result: Any = None
    error: BaseException | None = None
    while True:
        try:
            step: Awaitable[Any] = steps.send(result) if error is None else steps.throw(error)
        except StopIteration as end:
            found: T = end.value
            return found
        result = error = None
        try:
            result = await step
        except BaseException as raised:
            # Raised where the search awaits, so that the search undoes what it has assumed.
            error = raised


def at_once(steps: Steps[T]) -> T:
    """Run a search that does not await to its end."""
    try:
        step = next(steps)
    except StopIteration as end:
        found: T = end.value
        return found
    # The request was never sent; the end of the search undoes what it has assumed.
    step.close()
    steps.close()
    raise SchedulerCoreError("members cannot be placed in a dry run: the profile awaits; please report it")


def _run(first: Steps[bool]) -> Steps[bool]:
    """Run a part of a search with all parts that it yields, each from the same depth of Python's stack."""
    # Users choose the depth of trees, which would be the depth of the recursion.
    running = [first]
    result: Any = None
    error: BaseException | None = None
    while True:
        try:
            step = running[-1].send(result) if error is None else running[-1].throw(error)
        except StopIteration as end:
            running.pop()
            if not running:
                return bool(end.value)
            result, error = end.value, None
            continue
        except BaseException as raised:
            running.pop()
            if not running:
                raise
            error = raised
            continue
        result = error = None
        # Anything else is an extender's call, which only the caller can await.
        if type(step) is GeneratorType:
            running.append(step)
            continue
        try:
            result = yield step
        except BaseException as raised:
            error = raised


@dataclass(frozen=True, slots=True)
class _Compared:
    """Members of a group that fit in one subset, and are not assumed.

    Attributes:
        found: The placement of a gang or, without members, of a tree.
        order: The order in which the members of a gang were tried.
        members: Attempts with the nodes of the members, in the order in which they were assumed.
        lacks: What each group of the tree lacks, for groups that failed.
        count: Number of members with a node, those that had one before included.
        share: Allocated share of the subset with these members.
    """

    found: Placement
    order: Sequence[QueuedPod]
    members: list[tuple[Attempt, str]]
    lacks: dict[GroupKey, str]
    count: int
    share: int


class _Search:
    """One search.

    Attributes:
        found: The placement; its members are those of all gangs that are assumed now.
    """

    def __init__(self, request: PlacementRequest, world: World, policy: Policy, observer: Observer) -> None:
        gang = request.gang
        self.found = Placement(ANYWHERE)
        self.rejection = Rejection()
        self._request = request
        self._world = world
        self._policy = policy
        self._observer = observer
        self._tree = gang if isinstance(gang, GangTree) else None
        self._subsets = policy.subsets or (tree_subsets if self._tree else gang_subsets)
        self._needed = request.needed_of
        self._members: dict[GroupKey, Sequence[QueuedPod]] = {gang.key: request.members}
        if self._tree is not None:
            by_gang: dict[GroupKey | None, list[QueuedPod]] = {}
            for pod in request.members:
                by_gang.setdefault(pod.group, []).append(pod)
            self._members = {key: members for key, members in by_gang.items() if key is not None}
        self._orders: dict[GroupKey, Sequence[Sequence[QueuedPod]]] = {}
        self._screens: dict[GroupKey, DomainScreen] = {}
        self._needed_below: dict[GroupKey, int] = {}
        self._is_minimal = False
        """Whether only the members and groups that the quorums of a tree need are placed."""
        self._is_broken = False
        """Whether a member met an error."""
        self._compares = False
        """Whether the subsets of a group are compared."""
        self._index = 0
        self._order: Sequence[QueuedPod] = ()
        """Number of the subset that is tried, and order of the members there."""

    def run(self) -> Steps[bool]:
        """Place the request; return whether it is placed, with nothing assumed otherwise."""
        tree = self._tree
        if tree is None:
            if (yield from self._leaf(self._request.gang, ANYWHERE)):
                return True
        else:
            if (yield from self._tree_is_met(tree)):
                return self._accepts_tree()
            lacks, self._is_minimal, self._needed_below = self.rejection.lacks, True, tree.needed_below()
            # Members and groups beyond the quorums may have taken the room of those that they need.
            if not self._is_broken and (yield from self._tree_is_met(tree)):
                return self._accepts_tree()
            self.rejection.lacks = lacks
            self._note_inherited_lacks(tree)
            self.rejection.tries.append(self.found)
        for screen in self._screens.values():
            self.rejection.add(screen)
        return False

    # -- trees --------------------------------------------------------------------------------------------------

    def _tree_is_met(self, tree: GangTree) -> Steps[bool]:
        """Return whether the root meets its quorum and a member is assumed; otherwise nothing is assumed."""
        self.rejection.lacks = {}
        if (yield self._group(tree, tree.key, ANYWHERE)) and self.found.placed:
            return True
        self._undo(0)
        return False

    def _accepts_tree(self) -> bool:
        if self._policy.accept(self.found) is Verdict.TAKEN:
            return True
        self._undo(0)
        self.rejection.tries.append(self.found)
        return False

    def _note_inherited_lacks(self, tree: GangTree) -> None:
        """Note what the tree lacks, and for each gang what the nearest group above it lacks."""
        lacks = self.rejection.lacks
        key = tree.key if tree.key in lacks else next(iter(lacks), tree.key)
        kind = "composite pod group" if key.source is GroupSource.COMPOSITE else "pod group"
        self.rejection.lack = f'{kind} "{key.name}": {lacks.get(key, "no member waits")}'
        # From the root down: the members of a gang that was not tried report what a group above it lacks.
        inherited: dict[GroupKey, str] = {}
        for each in tree.from_above():
            above = tree.forest.parent_of(each)
            inherited[each] = lacks.get(each) or ("" if above is None else inherited.get(above, ""))
        for leaf in tree.parts:
            lacks.setdefault(leaf.key, inherited.get(leaf.key, ""))

    def _group(self, tree: GangTree, key: GroupKey, within: Where) -> Steps[bool]:
        """Place one group on some nodes; return whether it meets its quorum, with nothing of it assumed otherwise."""
        leaf, composite = tree.leaves.get(key), tree.forest.get(key)
        self.rejection.lacks.pop(key, None)
        if leaf is not None and leaf.group is not None:
            return (yield from self._leaf(leaf, within))
        if composite is None:
            return False
        if composite.topology is None:
            return (yield from self._children(tree, composite, within))
        below = [leaf for leaf in tree.forest.leaves_below(key) if leaf.key in self._needed]
        infos = [pod.info for gang in below for pod in self._members.get(gang.key, ())]
        # A group of several gangs may meet its quorum without some of them.
        needed = max(1, self._needed[below[0].key]) if len(below) == 1 else 1
        exempts = exempted_resources(self._request.instance)
        group = Group(key, composite.topology, below, infos, needed, within, exempts)
        return (yield from self._in_subsets(group, lambda where: self._children(tree, composite, where)))

    def _children(self, tree: GangTree, composite: CompositePodGroup, where: Where) -> Steps[bool]:
        children = tree.forest.children(composite.key)
        begun, met, remaining = len(self.found.placed), 0, len(children)
        # Without members to spare, the children that need the fewest come first: a large one could take their room.
        for child in sorted(children, key=self._needed_below.__getitem__) if self._is_minimal else children:
            if met + remaining < composite.min_groups or (self._is_minimal and met >= composite.min_groups):
                break
            met += yield self._group(tree, child, where)
            remaining -= 1
            if self._is_broken:
                break
        if met >= composite.min_groups and not self._is_broken:
            return True
        self._undo(begun)
        lack = f"minCount ({composite.min_groups}) cannot be satisfied: {met} scheduled, {remaining} remaining"
        self.rejection.lacks[composite.key] = lack
        return False

    # -- subsets ------------------------------------------------------------------------------------------------

    def _in_subsets(self, group: Group, place_in: Callable[[Where], Steps[bool]]) -> Steps[bool]:
        """Place one group in the first subset that is accepted, or in the one that scores best."""
        rejection, begun, is_gang = self.rejection, len(self.found.placed), self._tree is None
        lacks, first_lacks = rejection.lacks, None
        compared: list[_Compared] = []
        subsets = self._subsets(self._world.cache, group)
        topology = group.topology
        if self._policy.subsets is None and topology is not None and (not is_gang or topology.prefers_allocated):
            subsets = list(subsets)
            self._compares = not is_gang or sum(where.subset is not None for where, _ in subsets) > 1
        tried = 0
        for where, room in subsets:
            self._index, tried = tried, tried + 1
            rejection.lacks = dict(lacks)
            if compared and room < group.needed:
                # Tried only if no other subset is feasible: such a subset never is, but its failure is a reason.
                rejection.has_untried_domains = True
                continue
            if (yield from place_in(where)):
                if not self._compares:
                    return True
                if is_gang and not compared and len(self.found.placed) == len(self._request.members):
                    # Subsets are ordered by the scores that they have if all members with room fit: none is better.
                    if self._evaluate(self.found) is Verdict.TAKEN:
                        return True
                else:
                    compared.append(self._taken_back(group, where, begun))
                continue
            if self._is_broken:
                return False
            first_lacks = rejection.lacks if first_lacks is None else first_lacks
        most = max((each.count for each in compared), default=0)
        # Stable: of subsets with equal scores the first one is used, where kube-scheduler chooses randomly.
        for each in sorted(compared, key=lambda each: -placement_score(each.count, most, each.share)):
            if self._assume_again(each) and (not is_gang or self._evaluate(self.found) is Verdict.TAKEN):
                return True
        if not is_gang:
            rejection.lacks = lacks if first_lacks is None else first_lacks
            lack = rejection.lacks.get(group.key, "no node has the label of the topology constraint")
            rejection.lacks[group.key] = f"0/{tried} placements are available, first placement status: {lack}"
        return False

    def _taken_back(self, group: Group, where: Where, begun: int) -> _Compared:
        """Score the subset in which a group is assumed, and undo."""
        found, rows = self.found, where.rows
        members = [(attempt, attempt.node_name) for attempt in found.placed[begun:]]
        # The members that are assumed are among those with a node.
        count = sum(len(gang.placed) for gang in group.gangs)
        has_share = rows is not None and (group.exempts is None or not group.exempts.shares)
        share = allocated_share(self._world.nodes, rows) if rows is not None and has_share else 0
        if self._tree is None:
            self._observer.stored(found, self._order)
        self._undo(begun)
        return _Compared(found, self._order, members, self.rejection.lacks, count, share)

    def _assume_again(self, placement: _Compared) -> bool:
        self.found, self._order = placement.found, placement.order
        found, begun = self.found, len(self.found.placed)
        for attempt, node_name in placement.members:
            failure = self._world.assumed.reserve_or_release(attempt, node_name)
            if failure is not None:
                found.failed.append((attempt, failure))
                if self._tree is None:
                    self._fail(found)
                self._undo(begun)
                return False
            found.placed.append(attempt)
        self.rejection.lacks = placement.lacks
        return True

    # -- members ------------------------------------------------------------------------------------------------

    def _leaf(self, leaf: Gang, within: Where) -> Steps[bool]:
        assert leaf.group is not None
        topology, needed, members = leaf.group.topology, self._needed[leaf.key], self._members.get(leaf.key, [])
        if self._tree is not None:
            if not members and not needed:
                return True
            if len(members) < needed:
                self._note_lack(leaf, 0, len(members))
                return False
        if topology is None and self._policy.subsets is None:
            return (yield from self._gang(leaf, within))
        exempts = exempted_resources(self._request.instance)
        group = Group(leaf.key, topology, [leaf], [pod.info for pod in members], max(1, needed), within, exempts)
        return (yield from self._in_subsets(group, lambda where: self._gang(leaf, where)))

    def _gang(self, leaf: Gang, where: Where) -> Steps[bool]:
        """Place the members of one gang on some nodes."""
        needed, key, total = self._needed[leaf.key], leaf.key, self.found
        if key not in self._orders:
            self._orders[key] = self._policy.orders(self._members.get(key, []))
        screen = None
        if needed and where.subset is not None and not total.placed:
            if key not in self._screens:
                self._screens[key] = DomainScreen(self._request.instance, needed, self._world.feasible)
            screen = self._screens[key]
        for order in self._orders[key]:
            if screen is not None and self._index >= self._policy.unscreened and screen.rules_out(where, order):
                self._note_lack(leaf, 0, needed - 1)
                continue
            part = Placement(where)
            yield from self._world.fill(self._request.instance, part, order, needed)
            is_met = len(part.placed) >= needed
            if self._tree is None:
                self._order = order
                if is_met:
                    self.found = part
                    verdict = Verdict.TAKEN if self._compares else self._evaluate(part)
                    if verdict is not Verdict.REFUSED:
                        return verdict is Verdict.TAKEN
                else:
                    self._fail(part)
            else:
                total.reached = max(total.reached, len(total.placed) + len(part.placed))
                total.failed += part.failed
                # An error ends a tree even if the quorum is met: its other groups would meet the same error.
                if is_met and not part.is_error:
                    total.placed += part.placed
                    if self._is_minimal:
                        self._undo(len(total.placed) - len(part.placed) + needed)
                    return True
                self._note_lack(leaf, len(part.placed), len(part.untried))
            if part.is_error:
                self._is_broken = True
                self._world.undo(part.placed)
                return False
            # Not before the undo of a gang: the screen filters all nodes as they are without this part.
            if screen is not None and not (part.placed or part.undone):
                screen.none_feasible(order)
            self._world.undo(part.placed)
        return False

    def _evaluate(self, found: Placement) -> Verdict:
        """Return whether the placement of a gang is accepted; it is undone otherwise."""
        verdict = self._policy.accept(found)
        if verdict is Verdict.STORED:
            self._observer.stored(found, self._order)
            self._undo(0)
        elif verdict is Verdict.REFUSED:
            self._fail(found)
        return verdict

    def _fail(self, found: Placement) -> None:
        """Record a placement of a gang without a quorum, and undo it."""
        found.reached = len(found.placed)
        self._observer.failed(self._request, found, self._order, self.rejection.tries)
        self._world.undo(found.placed)
        found.undone += found.placed
        found.placed.clear()
        self.rejection.tries.append(found)
        self._is_broken = found.is_error

    def _undo(self, begun: int) -> None:
        found = self.found
        self._world.undo(found.placed[begun:])
        found.undone += found.placed[begun:]
        del found.placed[begun:]

    def _note_lack(self, leaf: Gang, fitting: int, remaining: int) -> None:
        assert leaf.group is not None
        least, needed = leaf.group.min_member, self._needed[leaf.key]
        scheduled = least - needed + fitting
        lack = f"minCount ({least}) cannot be satisfied: {scheduled} scheduled, {remaining} remaining"
        self.rejection.lacks[leaf.key] = lack
