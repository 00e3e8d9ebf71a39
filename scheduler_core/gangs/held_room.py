"""Room that is held for pods that do not exist yet: of a workload of Kueue, a NodeReservation, a gang's lost member.

A caller constructs a :class:`HeldRoom` from slots (a pod, its slot class and node, as a dry run found them), and calls
:meth:`GangReservations.hold`, then :meth:`HeldRooms.extend` or :meth:`HeldRooms.end`; the room ends by itself when each
slot is taken or its time is over (``on_end``). Taken slots follow from the pods that nodes have now, so that
hypothetical pods take slots, too, until they are undone; then each pod has the slot that it had before. A pod of the
holder may use any node, as long as the other slots keep their room; other pods are blocked as by the reservation of a
gang of the slots' priority.
"""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import inf
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from scheduler_core.framework.nominator import NominatedPods
from scheduler_core.gangs.held_room_rows import RoomRows
from scheduler_core.model.devices import AllocationResult
from scheduler_core.model.pod import Pod
from scheduler_core.model.pod_group import GroupKey, held_key
from scheduler_core.placement.reservations import Plan, Reservation, Slot, room_beside
from scheduler_core.snapshot.cluster_cache import ClusterCache, PodState
from scheduler_core.snapshot.indexes.device_index import HeldDevices
from scheduler_core.snapshot.node_columns import NodeColumns
from scheduler_core.snapshot.overlay import ColumnsOverlay
from scheduler_core.snapshot.pod_info import NO_ROW, PodInfo

WORKLOAD_LABEL = "bayplan.dev/admitted-workload"
"""Label of the pods of an admitted workload; its value is the UID of the workload."""
POD_SET_LABEL = "bayplan.dev/admitted-pod-set"
"""Label with the name of a pod's pod set in its workload."""
SEARCHED_FOR_LABEL = "bayplan.dev/room-searched-for"
"""Label of the pods of a dry run for room that is to be held: they use no held room but that of the UID in it."""


_NO_ROWS: NDArray[np.intp] = np.empty(0, dtype=np.intp)

TakenSlot = tuple[Slot, str]
"""A slot, and the node of the pod that has taken it."""


class EndReason(StrEnum):
    """Why room has ended by itself."""

    CONSUMED = "Consumed"
    EXPIRED = "Expired"


def _only_class(pod: Pod) -> str:
    del pod
    return ""


@dataclass(frozen=True, slots=True)
class OwnPods:
    """Pods that may use held room: those in a namespace that meet every condition.

    Attributes:
        owner: Kind and name of an owner reference.
        matches: Condition beside the others. A holder that has only this one, or only an owner, is looked up by
            namespace.
        slot_class: Returns the slot class of a pod, such as its pod set or index; if no slot has it, the pod takes a
            slot of any class.
        are_new: Whether no pod that is on a node now is one of them, so that none is searched.
    """

    namespace: str
    labels: tuple[tuple[str, str], ...] = ()
    owner_uid: str = ""
    group: GroupKey | None = None
    matches: Callable[[Pod], bool] | None = None
    slot_class: Callable[[Pod], str] = _only_class
    are_new: bool = False
    owner: tuple[str, str] | None = None

    @property
    def mark(self) -> Hashable:
        """The condition by which the holder of a pod is found without a scan of all holders."""
        return self.owner_uid or self.group or (self.labels[0] if self.labels else (self.namespace,))

    def include(self, pod: Pod, group: GroupKey | None) -> bool:
        """Return whether a pod, a member of *group*, may use the room."""
        if self.matches is not None and not self.matches(pod):
            # First, because each pod of a gang is compared with all lost members.
            return False
        meta = pod.metadata
        return (
            meta.namespace == self.namespace
            and all(meta.labels.get(key) == value for key, value in self.labels)
            and (not self.owner_uid or any(owner.uid == self.owner_uid for owner in meta.owner_references))
            and (self.owner is None or any((each.kind, each.name) == self.owner for each in meta.owner_references))
            and self.group in (None, group)
        )


@dataclass(frozen=True, slots=True)
class Holder:
    """What room is held for.

    Attributes:
        kind: Kind of the object, for messages.
        uid: Unique among all holders; holding room again for this UID ends the earlier room.
    """

    kind: str
    namespace: str
    name: str
    uid: str
    pods: OwnPods

    @property
    def key(self) -> GroupKey:
        return held_key(self.kind, self.namespace, self.name)


def admitted_workload(namespace: str, name: str, uid: str, mark: str = "") -> Holder:
    """Return a workload that Kueue admits; the admission adds the labels to its pods.

    Args:
        mark: Value of the label of its pods; "" for the UID.
    """
    labels = ((WORKLOAD_LABEL, mark or uid),)
    return Holder("Workload", namespace, name, uid, OwnPods(namespace, labels, slot_class=_pod_set))


def is_of_admitted(pod: Pod) -> bool:
    """Return whether a pod belongs to a workload that another controller has admitted for certain room."""
    return bool(pod.metadata.labels.get(WORKLOAD_LABEL))


def _pod_set(pod: Pod) -> str:
    return pod.metadata.labels.get(POD_SET_LABEL, "")


def own_slot(pod: Pod) -> str:
    """Return the slot class of a pod that exists: room was searched for each of them, and a replaced one takes any."""
    return pod.metadata.uid


SLOT_CLASSES: tuple[Callable[[Pod], str], ...] = (_only_class, _pod_set, own_slot)
"""Functions of :attr:`OwnPods.slot_class`; a record has their positions."""


@dataclass(frozen=True, slots=True)
class HeldPod:
    """A pod that does not exist yet, and its node.

    Attributes:
        devices: Devices of the node for all its claims: other pods get others. Without them, other pods with claims do
            not get the node.
    """

    info: PodInfo
    slot_class: str
    node_name: str
    devices: tuple[AllocationResult, ...] = ()

    @property
    def slot(self) -> Slot:
        info = self.info
        if self.devices:
            info = copy.copy(info)
            info.pod = replace(info.pod, spec=replace(info.pod.spec, resource_claims=()))
        return Slot(info, self.slot_class, self.node_name, self.devices)


@dataclass(frozen=True, slots=True)
class Terms:
    """How room is held.

    Attributes:
        in_the_way: UIDs of the pods on these nodes that the holder evicts, or whose end it awaits.
        until: Clock time at which the room ends; None for no limit.
        prefers_slots: Whether pods of the holder try the nodes of their free slots first.
        is_admitted: Whether another controller has admitted the holder for this room: its pods and those of other
            admitted workloads are blocked from each other's room whatever their priority is. Other pods of a higher
            priority than that of the slots pass.
        follows_group: Whether the room always has the priority of the holder's group, if the group has one.
        on_end: Called between two cycles when the room has ended by itself; without it, only the caller settles it.
    """

    in_the_way: frozenset[str] = frozenset()
    until: float | None = None
    prefers_slots: bool = False
    is_admitted: bool = False
    follows_group: bool = False
    on_end: Callable[[EndReason], None] | None = None


class HeldRoom:
    """Room for the pods of one holder.

    Attributes:
        until: Clock time at which the room ends; None for no limit.
        settled: UIDs of pods that need no slot: their slots are given up for good.
        counted: UIDs of bound pods that have used the room.
        used_elsewhere: UIDs of pods of the holder that have used other room.
        assumed_before: UIDs of settled pods that were assumed when the room was held: their bind may fail.
    """

    def __init__(self, holder: Holder, pods: Sequence[HeldPod], nodes: NodeColumns, terms: Terms = Terms()) -> None:
        self.holder = holder
        self.terms = terms
        self.until = terms.until
        self.settled: set[str] = set()
        self.counted: set[str] = set()
        self.used_elsewhere: set[str] = set()
        self.assumed_before: set[str] = set()
        slots = tuple(each.slot for each in pods)
        priority = max((each.info.priority for each in pods), default=0)
        self.reservation = Reservation(holder.key, holder.uid, priority, Plan(slots, terms.in_the_way), nodes)
        self._nodes = nodes
        self._free: dict[str, dict[str, list[Slot]]] = defaultdict(lambda: defaultdict(list))
        """Slots that no pod has taken, by slot class and node."""
        self.taken: dict[str, TakenSlot] = {}
        """Slots that pods have taken and may release, by UID."""
        for slot in slots:
            self._free[str(slot.pod_class)][slot.node_name].append(slot)

    @property
    def ends_itself(self) -> bool:
        """Whether the room is settled by itself, or has a time at which it ends."""
        return self.terms.on_end is not None or self.until is not None

    @property
    def free(self) -> int:
        """Number of slots that no pod has taken."""
        return len(self.free_slots)

    @property
    def free_slots(self) -> list[Slot]:
        """The slots that no pod has taken."""
        return [slot for by_node in self._free.values() for slots in by_node.values() for slot in slots]

    def own_rows(self, pod: Pod) -> NDArray[np.intp]:
        """Return the rows with free slots for a pod of the holder, intp[k] ascending."""
        classes = self._slots_of(self.holder.pods.slot_class(pod))
        names = {name for by_node in classes for name, slots in by_node.items() if slots}
        rows = map(self._nodes.row_of, names)
        return np.array(sorted(row for row in rows if row != NO_ROW), dtype=np.intp)

    def _slots_of(self, slot_class: str) -> list[dict[str, list[Slot]]]:
        """Return the free slots of a class by node; those of all classes if no slot has this class."""
        return [self._free[slot_class]] if slot_class in self._free else list(self._free.values())

    def slots_on(self, node_name: str, pod: Pod) -> list[Slot]:
        """Return the free slots of a node that a pod of the holder may take."""
        classes = self._slots_of(self.holder.pods.slot_class(pod))
        return next((by_node[node_name] for by_node in classes if by_node.get(node_name)), [])

    @property
    def devices(self) -> list[AllocationResult]:
        """The devices of all slots of the nodes with free ones, because a pod may use those of another slot."""
        names = {slot.node_name for slot in self.free_slots}
        slots = (slot for slot in self.reservation.plan.slots if slot.devices and slot.node_name in names)
        return [allocation for slot in slots for allocation in slot.devices]

    def refused_rows(self, pod: PodInfo, nominator: NominatedPods) -> NDArray[np.intp]:
        """Return the rows where a pod of the holder would use the room of its other pods, intp[k] ascending."""
        refused = self.reservation.refused_rows(pod, nominator)
        return np.setdiff1d(refused, self.own_rows(pod.pod)) if len(refused) else refused

    def covers(self, pod: PodInfo, node_name: str) -> bool:
        """Return whether a free slot of a node has the room that a pod of the holder requests."""
        return any(_covers(slot, pod) for slot in self.slots_on(node_name, pod.pod))

    def take(self, uid: str, info: PodInfo, node_name: str, *, elsewhere: bool = True) -> bool:
        """Give a pod of the holder that got a node the slot there, or another one of its class.

        Returns:
            Whether the pod has a slot, or needs none.
        """
        if uid in self.settled or uid in self.taken:
            return True
        classes = self._slots_of(self.holder.pods.slot_class(info.pod))
        others = (slots for by_node in classes for slots in by_node.values() if slots and elsewhere)
        slots = self.slots_on(node_name, info.pod) or next(others, [])
        if not slots:
            return False
        slot = slot_for(info, slots[::-1])
        del slots[next(number for number, each in enumerate(slots) if each is slot)]
        self.taken[uid] = slot, node_name
        self.reservation.give_up(slot)
        return True

    def give_back(self, uid: str) -> None:
        """Free the slot of a pod that has lost its node."""
        slot, _ = self.taken.pop(uid, (None, ""))
        if slot is not None:
            self._free[str(slot.pod_class)][slot.node_name].append(slot)
            self.reservation.take_back(slot)

    def reset(self, taken: Mapping[str, TakenSlot]) -> bool:
        """Let the pods have the slots that they had at an earlier time; return whether any changes."""
        changed = [uid for uid, each in self.taken.items() if taken.get(uid) is not each]
        for uid in changed:
            self.give_back(uid)
        again = [(uid, each) for uid, each in taken.items() if uid not in self.taken and uid not in self.settled]
        for uid, (slot, _) in again:
            free = self._free[str(slot.pod_class)][slot.node_name]
            del free[next(number for number, each in enumerate(free) if each is slot)]
            self.taken[uid] = taken[uid]
            self.reservation.give_up(slot)
        return bool(changed or again)

    def settle(self, is_bound: Callable[[str], bool]) -> tuple[set[str], bool]:
        """Give up the slots of bound pods for good.

        Args:
            is_bound: Returns whether the pod of a UID is bound; the bind of an assumed pod may fail.

        Returns:
            UIDs of these pods, and whether one of them is on another node than its slot.
        """
        bound = {uid: taken for uid, taken in self.taken.items() if is_bound(uid)}
        for uid in bound:
            del self.taken[uid]
        self.settled.update(bound)
        self.counted.update(bound)
        return set(bound), any(slot.node_name != node_name for slot, node_name in bound.values())

    @property
    def is_complete(self) -> bool:
        """Whether the slots of all pods are given up for good."""
        return not self.taken and not self.free


def slot_for(pod: PodInfo, slots: Sequence[Slot]) -> Slot:
    """Return the slot that a pod takes: the smallest one that has the room that it requests, else the first one."""
    names = sorted(pod.requests.accounted)
    fitting = [slot for slot in slots if _covers(slot, pod)]
    return min(fitting or slots[:1], key=lambda slot: [slot.info.requests.accounted.get(name, 0) for name in names])


def _covers(slot: Slot, pod: PodInfo) -> bool:
    has = slot.info.requests.accounted
    return all(has.get(name, 0) >= amount for name, amount in pod.requests.accounted.items())


class _Assignment(NamedTuple):
    """Which pods had which slots when an overlay was entered.

    Attributes:
        depth, overlay: Number of overlays with it, and the overlay.
        taken: Slots that pods had taken, by UID of the holder.
        position, on_row: As in :class:`HeldRooms`. Pods that may use no room are compared again only if they change.
    """

    depth: int
    overlay: ColumnsOverlay
    taken: dict[str, dict[str, TakenSlot]]
    position: int
    on_row: dict[int, dict[str, tuple[str, Pod]]]


class HeldRooms:
    """Room that is held.

    Args:
        key_of: Returns the group of a pod.
        on_change: Called with a reservation that has ended or become smaller.
    """

    def __init__(
        self,
        cache: ClusterCache,
        nominator: NominatedPods,
        table: dict[GroupKey, Reservation],
        key_of: Callable[[Pod], GroupKey | None],
        on_change: Callable[[Reservation], None],
    ) -> None:
        self._cache = cache
        self._nodes = cache.columns
        self._nominator = nominator
        self._table = table
        self._key_of = key_of
        self._on_change = on_change
        self._by_uid: dict[str, HeldRoom] = {}
        self._by_mark: dict[Hashable, dict[str, HeldRoom]] = {}
        self._of_groups = 0
        """Number of rooms of groups."""
        self._preferring = 0
        """Number of rooms whose pods try the nodes of their slots first."""
        self._by_name: dict[str, dict[str, HeldRoom]] = {}
        """Rooms by node and UID of the holder."""
        self._rows: RoomRows | None = None
        """All rooms in the order of ``_by_uid``; None to make it again."""
        self._ordered: tuple[HeldRoom, ...] = ()
        self._numbers: dict[str, int] = {}
        """Position of a room in ``_rows`` by UID of its holder."""
        self._resized: set[int] = set()
        """Numbers of rooms of which slots were taken or given back."""
        self._strangers: dict[int, dict[str, Pod]] = {}
        """Pods that may use no room, by row and UID, so that each version is compared once."""
        self._position = 0
        self._on_row: dict[int, dict[str, tuple[str, Pod]]] = {}
        """Pods that have a slot, or need none, by row and UID, each with the UID of the holder."""
        self._before: list[_Assignment] = []
        """What was assigned before each overlay that is entered, the outermost one first."""

    def __len__(self) -> int:
        return len(self._by_uid)

    @property
    def node_names(self) -> Collection[str]:
        """Names of the nodes of all rooms."""
        return self._by_name.keys()

    def __iter__(self) -> Iterator[HeldRoom]:
        return iter(tuple(self._by_uid.values()))

    def of(self, uid: str) -> HeldRoom | None:
        """Return the room of the holder with this UID, as it is now."""
        if uid in self._by_uid:
            self._refresh()
        return self._by_uid.get(uid)

    def held_now(self, uid: str) -> HeldRoom | None:
        """Return the room of the holder with this UID, of which pods on nodes may not have taken their slots yet."""
        return self._by_uid.get(uid)

    def on_node(self, node_name: str) -> list[HeldRoom]:
        """Return the rooms with free slots on a node."""
        if self._by_uid:
            self._refresh()
        rooms = self._by_name.get(node_name, {}).values()
        return [room for room in rooms if room.reservation.members_on(node_name)]

    def beside(self, room: HeldRoom) -> Collection[HeldRoom]:
        """Return the other rooms on the nodes of a room."""
        names = room.reservation.plan.node_names
        found = {uid: each for name in names for uid, each in self._by_name.get(name, {}).items()}
        return [each for each in found.values() if each is not room]

    # -- beginning and end --------------------------------------------------------------------------------------

    def begin(self, room: HeldRoom, beside: Sequence[Reservation]) -> bool:
        """Hold room for the pods of a holder that have no nodes yet and for which nothing is held.

        Args:
            beside: Reservations beside which the room must exist.

        Returns:
            Whether the room exists, by resources and number of pods; if not, nothing is held.
        """
        holder = room.holder
        if not room.reservation.fits_then(beside):
            return False
        if self._by_uid:
            # Before it is one of them: what is on nodes now takes nothing of it.
            self._refresh()
        else:
            self._position = self._nodes.changes.position
        self._strangers.clear()
        if not holder.pods.are_new:
            room.settled.update(self._uids_on_nodes(holder.pods))
            room.assumed_before = {uid for uid in room.settled if not self._is_bound(uid)}
        self._by_uid[holder.uid] = room
        self._by_mark.setdefault(holder.pods.mark, {})[holder.uid] = room
        self._of_groups += holder.pods.group is not None
        self._preferring += room.terms.prefers_slots
        for name in room.reservation.plan.node_names:
            self._by_name.setdefault(name, {})[holder.uid] = room
        self._rows = None
        self._table[holder.key] = room.reservation
        return True

    def _uids_on_nodes(self, own: OwnPods) -> Iterator[str]:
        for pods in self._nodes.pods:
            for uid, info in pods.items():
                # First, because most pods are of other namespaces, and a group is derived from labels and owners.
                if info.pod.metadata.namespace == own.namespace:
                    group = None if own.group is None else self._key_of(info.pod)
                    if own.include(info.pod, group):
                        yield uid

    def extend(self, uid: str, until: float | None) -> None:
        """Set the clock time at which the room of a holder, if any, ends; None for no limit."""
        room = self._by_uid.get(uid)
        if room is not None:
            room.until = until

    def set_priority(self, uid: str, priority: int) -> None:
        """Set the priority of a holder's room, if any, and activate the pods that a lower one no longer blocks."""
        room = self._by_uid.get(uid)
        if room is None:
            return
        before, room.reservation.priority = room.reservation.priority, priority
        if priority != before:
            self._rows = None
        if priority < before:
            self._on_change(room.reservation)

    def group_changed(self, key: GroupKey, priority: int) -> None:
        """Set the priority of the room that follows the priority of a group."""
        for uid, room in list(self._by_mark.get(key, {}).items()):
            if room.terms.follows_group:
                self.set_priority(uid, priority)

    def end(self, uid: str) -> None:
        """End what is held for a holder, if anything, and activate the pods that it blocked."""
        ended = self._by_uid.pop(uid, None)
        if ended is None:
            return
        holder = ended.holder
        mark = holder.pods.mark
        of_mark = self._by_mark[mark]
        del of_mark[uid]
        if not of_mark:
            del self._by_mark[mark]
        self._of_groups -= holder.pods.group is not None
        self._preferring -= ended.terms.prefers_slots
        for name in ended.reservation.plan.node_names:
            of_node = self._by_name[name]
            del of_node[uid]
            if not of_node:
                del self._by_name[name]
        self._rows = None
        self._table.pop(holder.key, None)
        if not self._by_uid:
            self._strangers.clear()
            self._on_row.clear()
            self._before.clear()
        self._on_change(ended.reservation)

    def settle(self) -> list[Holder]:
        """Give up slots of bound pods, between two cycles.

        Returns:
            The holders all of whose pods have nodes; their room has ended.
        """
        return self._settle(list(self._by_uid.values()))

    def _settle(self, rooms: Iterable[HeldRoom]) -> list[Holder]:
        if not self._by_uid:
            return []
        self._refresh()
        complete = []
        for room in rooms:
            if room.assumed_before:
                # A pod whose bind has failed uses the room like others that have no node.
                room.settled -= {uid for uid in room.assumed_before if self._cache.get(uid) is None}
                room.assumed_before = {uid for uid in room.assumed_before & room.settled if not self._is_bound(uid)}
            bound, has_moved = room.settle(self._is_bound)
            if len(self._by_uid) > 1:
                # A pod takes one slot, whatever other room it may use.
                for other in self._by_uid.values():
                    other.settled |= bound
                for uid in bound:
                    self._note_used(uid, room)
            if has_moved:
                self._on_change(room.reservation)
            if room.is_complete:
                complete.append(room.holder)
                self._end_itself(room, EndReason.CONSUMED)
        return complete

    def _note_used(self, uid: str, room: HeldRoom) -> None:
        """Record in the other rooms that a bound pod may use that it has used one of them."""
        placed = self._cache.get(uid)
        for other in () if placed is None else self._rooms_of(placed.info.pod):
            if other is not room:
                other.used_elsewhere.add(uid)

    def slots_without_bound_pods(self, room: HeldRoom) -> list[Slot]:
        """Return the slots of room that is held that no bound pod has taken."""
        taken = [slot for uid, (slot, _) in room.taken.items() if not self._is_bound(uid)]
        return [*room.free_slots, *taken]

    def _is_bound(self, uid: str) -> bool:
        placed = self._cache.get(uid)
        return placed is not None and placed.state is not PodState.ASSUMED

    @property
    def next_end(self) -> float | None:
        """The clock time at which the next room ends, infinity for none; None if no room ends by itself."""
        left = [room for room in self._by_uid.values() if room.ends_itself]
        return min((inf if room.until is None else room.until for room in left), default=None)

    def look(self, now: float) -> None:
        """Settle the rooms that end by themselves, and end those whose time is over, between two cycles."""
        self._settle([room for room in self._by_uid.values() if room.terms.on_end is not None])
        for room in list(self._by_uid.values()):
            if room.until is not None and room.until <= now:
                self._end_itself(room, EndReason.EXPIRED)

    def _end_itself(self, room: HeldRoom, reason: EndReason) -> None:
        self.end(room.holder.uid)
        if room.terms.on_end is not None:
            room.terms.on_end(reason)

    # -- pods ---------------------------------------------------------------------------------------------------

    def blocking(
        self, pod: PodInfo, priority: int, gangs: Mapping[str, Reservation]
    ) -> list[tuple[GroupKey, NDArray[np.intp]]]:
        """Return the holders whose room blocks nodes for a pod, each with the rows, intp[k] ascending, k > 0.

        Args:
            priority: Priority of the pod, or of its group.
            gangs: Reservations of gangs that block the pod, by node.
        """
        self._refresh()
        rows, nominator, row_of = self._refreshed_rows(), self._nominator, self._nodes.row_of
        own = {self._numbers[room.holder.uid] for room in self._rooms_of(pod.pod)}
        blocks = rows.blocking(priority, is_admitted=is_of_admitted(pod.pod))
        nominated = [row_of(name) for name in nominator.nodes() if name in self._by_name] if len(nominator) else []
        alone = {*range(len(blocks))} if pod.terms.required_anti else {*rows.conflicting, *own}
        alone.update(number for row in nominated for number in rows.on_row.get(row, ()))
        refused = rows.refused(pod, blocks)
        for number in alone:
            room = self._ordered[number]
            if number in own:
                refused[number] = room.refused_rows(pod, nominator)
            elif blocks[number]:
                refused[number] = room.reservation.refused_rows(pod, nominator)
        found = [(self._ordered[number].reservation.key, refused[number]) for number in sorted(refused)]
        found = [(key, of_room) for key, of_room in found if len(of_room)]
        blocks[[*own]] = True
        crowded = dict(rows.crowded(pod, blocks, own))
        crowded.update((row, False) for name in gangs if (row := row_of(name)) in rows.on_row)
        for row, lacks in crowded.items():
            # Each room alone may leave space for the pod, and all rooms on a node together leave none.
            name = self._nodes.node_name(row)
            rooms = [
                room
                for number in rows.on_row[row]
                if blocks[number] and (room := self._ordered[number]).reservation.members_on(name)
            ]
            if rooms and (lacks or not self._has_room(pod, row, rooms, own, gangs.get(name))):
                found.append((rooms[0].reservation.key, np.array([row], dtype=np.intp)))
        return found

    def _refreshed_rows(self) -> RoomRows:
        rows = self._rows
        if rows is None or not rows.refresh(self._resized):
            self._ordered = tuple(self._by_uid.values())
            self._numbers = {room.holder.uid: number for number, room in enumerate(self._ordered)}
            rows = self._rows = RoomRows(
                self._nodes,
                [room.reservation for room in self._ordered],
                [room.terms.is_admitted for room in self._ordered],
            )
        self._resized.clear()
        return rows

    def _has_room(
        self, pod: PodInfo, row: int, rooms: Sequence[HeldRoom], own: Collection[int], gang: Reservation | None
    ) -> bool:
        """Return whether a pod has room on a node beside all that is held there but the slot that it would take."""
        name = self._nodes.node_name(row)
        members, leaving = [pod], dict[str, PodInfo]()
        for each in [*(room.reservation for room in rooms), *([gang] if gang is not None else [])]:
            members += each.members_on(name)
            leaving |= {info.uid: info for info in each.leaving(row)}
        of_own = (room.slots_on(name, pod.pod) for room in rooms if self._numbers[room.holder.uid] in own)
        slots = [slot for each in of_own for slot in reversed(each)]
        if slots:
            members.remove(slot_for(pod, slots).info)
        return room_beside(self._nodes, row, members, leaving.values()).fits

    def devices_held_from(self, pod: PodInfo, priority: int) -> list[HeldDevices]:
        """Return the devices that a pod may not use; *priority* is that of the pod, or of its group."""
        rooms = [room for room in self._by_uid.values() if room.reservation.has_devices]
        if not rooms:
            return []
        self._refresh()
        own, is_admitted = {room.holder.uid for room in self._rooms_of(pod.pod)}, is_of_admitted(pod.pod)
        return [
            HeldDevices(room.holder.key.holder, tuple(room.devices))
            for room in rooms
            if room.holder.uid not in own
            and (room.reservation.priority >= priority or (is_admitted and room.terms.is_admitted))
        ]

    def preferred_rows(self, pod: Pod) -> NDArray[np.intp]:
        """Return the rows with free slots for a pod whose holders prefer them, intp[k] ascending."""
        if not self._preferring:
            return _NO_ROWS
        self._refresh()
        rows = [room.own_rows(pod) for room in self._rooms_of(pod) if room.terms.prefers_slots]
        return np.unique(np.concatenate(rows)) if rows else _NO_ROWS

    def _rooms_of(self, pod: Pod) -> list[HeldRoom]:
        """Return the rooms that a pod may use, those of the highest priority first."""
        meta, labels = pod.metadata, pod.metadata.labels
        if SEARCHED_FOR_LABEL in labels:
            # Users may set the label, too.
            own = self._by_uid.get(labels[SEARCHED_FOR_LABEL]) if self._nodes.steps.is_dry else None
            return [] if own is None else [own]
        group = self._key_of(pod) if self._of_groups else None
        owners = (owner.uid for owner in meta.owner_references)
        marks: list[Hashable] = [(meta.namespace,), group, *owners, *labels.items()]
        found = [
            room
            for mark in dict.fromkeys(marks)
            for room in self._by_mark.get(mark, {}).values()
            if room.holder.pods.include(pod, group)
        ]
        return sorted(found, key=lambda room: -room.reservation.priority) if len(found) > 1 else found

    def _refresh(self) -> None:
        """Let the pods that nodes have now take slots, and free the slots of others."""
        nodes = self._nodes
        if nodes.overlays or self._before:
            self._follow_overlays()
        changed = nodes.changes.since(self._position)
        self._position = nodes.changes.position
        rows = range(len(nodes.pods)) if changed is None else sorted(set(changed))
        for row in rows:
            before, now = self._on_row.get(row), nodes.pods[row]
            for uid, (holder, pod) in list(before.items()) if before else ():
                room, info = self._by_uid.get(holder), now.get(uid)
                if info is not None and (info.pod is pod or room is None or room in self._rooms_of(info.pod)):
                    continue
                del self._on_row[row][uid]
                if room is not None:
                    room.give_back(uid)
                    self._note_resized(holder)
        for row in rows:
            name = nodes.names[row] or ""
            known, has, strangers = self._strangers.get(row, {}), dict[str, tuple[str, Pod]](), dict[str, Pod]()
            for uid, info in nodes.pods[row].items():
                of = None if known.get(uid) is info.pod else self._give(uid, info, row, name)
                if of is None:
                    strangers[uid] = info.pod
                elif of:
                    has[uid] = of, info.pod
            self._strangers[row] = strangers
            if has:
                self._on_row[row] = has
            else:
                self._on_row.pop(row, None)

    def _follow_overlays(self) -> None:
        """Store which pods have which slots when an overlay is entered, and restore it when the overlay is undone.

        A pod that a dry run removes has its own slot again afterwards, not that of another pod.
        """
        overlays, before = self._nodes.overlays, self._before
        while before and (len(overlays) < before[-1].depth or overlays[before[-1].depth - 1] is not before[-1].overlay):
            was = before.pop()
            for uid, taken in was.taken.items():
                if uid in self._by_uid and self._by_uid[uid].reset(taken):
                    self._note_resized(uid)
            self._position, self._on_row = was.position, was.on_row
        if len(overlays) > (before[-1].depth if before else 0):
            all_taken = {uid: dict(room.taken) for uid, room in self._by_uid.items()}
            on_row = {row: dict(pods) for row, pods in self._on_row.items()}
            before.append(_Assignment(len(overlays), overlays[-1], all_taken, self._position, on_row))

    def _note_resized(self, uid: str) -> None:
        number = self._numbers.get(uid)
        if number is not None:
            self._resized.add(number)

    def _give(self, uid: str, info: PodInfo, row: int, node_name: str) -> str | None:
        """Let a pod take a slot.

        Returns:
            The UID of the holder that has given it one, or whose pod needs none; "" if no slot is left; None for a pod
            that may use no room.
        """
        known, _ = self._on_row.get(row, {}).get(uid, ("", None))
        if known in self._by_uid:
            return known
        rooms = self._rooms_of(info.pod)
        if not rooms:
            return None
        if any(uid in room.settled for room in rooms):
            return rooms[0].holder.uid
        if len(rooms) > 1:
            rooms.sort(key=lambda room: not room.covers(info, node_name))
        for elsewhere in (False, True):
            for room in rooms:
                if room.take(uid, info, node_name, elsewhere=elsewhere):
                    self._note_resized(room.holder.uid)
                    return room.holder.uid
        return ""
