"""Held room of all holders in arrays, so that a pod is compared with all rooms at once.

An entry is one row of one room. A shared row has several rooms: each alone may leave space for a pod, and all of them
together leave none, so that it has an entry for their sum, too. Conflicts, nominated pods and pods of a holder are
evaluated room by room.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, pairwise

import numpy as np
from numpy.typing import NDArray

from scheduler_core.model.pod_requests import LARGEST_REQUEST
from scheduler_core.placement.reservations import Reservation, room_beside
from scheduler_core.snapshot.node_columns import NodeColumns
from scheduler_core.snapshot.pod_info import PodInfo


class RoomRows:
    """Room beside reservations of holders, which are numbered in the given order.

    Args:
        are_admitted: Whether another controller has admitted the holder, by number.

    Attributes:
        priorities: Priority of each reservation, int64 by number.
        conflicting: Numbers of the reservations with which a pod may conflict by more than resources.
    """

    def __init__(self, nodes: NodeColumns, reservations: Sequence[Reservation], are_admitted: Iterable[bool]) -> None:
        self._nodes = nodes
        self._reservations = reservations
        self._position, self._version = nodes.changes.position, nodes.version
        self.priorities = np.array([each.priority for each in reservations], dtype=np.int64)
        self.conflicting = {number for number, each in enumerate(reservations) if each.can_conflict}
        self._admitted = np.array([*are_admitted], dtype=np.bool_)
        parts = [each.room for each in reservations]
        sizes = [len(rows) for rows, _, _ in parts]
        self._bounds = (0, *accumulate(sizes))
        self._numbers = np.repeat(np.arange(len(parts)), sizes)
        self._rows = np.concatenate([rows for rows, _, _ in parts])
        self._free = np.concatenate([free for _, free, _ in parts], axis=1)
        self._slots = np.concatenate([slots for _, _, slots in parts])
        on_row = defaultdict[int, list[int]](list)
        for number, row in zip(self._numbers.tolist(), self._rows.tolist(), strict=True):
            on_row[row].append(number)
        self.on_row: Mapping[int, Sequence[int]] = dict(on_row)
        """Numbers of the reservations of each row, ascending."""
        shared = [row for row, numbers in on_row.items() if len(numbers) > 1]
        self._shared = {row: index for index, row in enumerate(shared)}
        self._shared_rows = shared
        self._shared_numbers = np.array([number for row in shared for number in on_row[row]], dtype=np.intp)
        self._shared_starts = [0, *accumulate(len(on_row[row]) for row in shared)][:-1]
        self._free_of_all = np.zeros((len(self._free), len(shared)), dtype=np.int64)
        self._slots_of_all = np.zeros(len(shared), dtype=np.int64)
        """Pod slots beside all rooms of a shared row; 0 if these themselves do not fit."""
        for row in shared:
            self._add_up(row)

    def refresh(self, resized: Collection[int]) -> bool:
        """Recompute the entries of changed rows, and of reservations of which slots were taken or given back.

        Returns:
            Whether all entries are current; if not, this object must be replaced.
        """
        nodes = self._nodes
        changed = nodes.changes.since(self._position)
        if changed is None or self._version != nodes.version or len(self._free) != len(nodes.allocatable):
            return False
        rows = self.on_row.keys() & set(changed) if changed else set[int]()
        numbers = {number for row in rows for number in self.on_row[row]}
        numbers.update(resized)
        for number in numbers:
            part = slice(self._bounds[number], self._bounds[number + 1])
            _, self._free[:, part], self._slots[part] = self._reservations[number].room
        for number in resized:
            rows.update(self._reservations[number].rows.tolist())
        for row in rows & self._shared.keys():
            self._add_up(row)
        self._position = nodes.changes.position
        return True

    def _add_up(self, row: int) -> None:
        nodes, index, name = self._nodes, self._shared[row], self._nodes.node_name(row)
        rooms = [each for number in self.on_row[row] if (each := self._reservations[number]).members_on(name)]
        members = [info for room in rooms for info in room.members_on(name)]
        leaving = {info.uid: info for room in rooms for info in room.leaving(row)}
        if members:
            self._free_of_all[:, index], slots, fits = room_beside(nodes, row, members, leaving.values())
            self._slots_of_all[index] = slots if fits else 0
        else:
            # Nothing is held there now, whatever pods of other origin use.
            self._free_of_all[:, index], self._slots_of_all[index] = LARGEST_REQUEST, 1

    # -- a pod --------------------------------------------------------------------------------------------------

    def blocking(self, priority: int, *, is_admitted: bool) -> NDArray[np.bool_]:
        """Return which reservations block a pod of a priority, bool by number."""
        blocks: NDArray[np.bool_] = self.priorities >= priority
        return blocks | self._admitted if is_admitted else blocks

    def refused(self, pod: PodInfo, blocks: NDArray[np.bool_]) -> dict[int, NDArray[np.intp]]:
        """Return the rows without room for a pod beside each reservation alone, by number, intp[k] ascending, k > 0."""
        fits = self._slots >= 1
        for column, amount in pod.fit:
            fits &= self._free[column] >= amount
        entries = np.flatnonzero(~fits & blocks[self._numbers])
        if not len(entries):
            return {}
        # Entries are ordered by number.
        numbers, rows = self._numbers[entries], self._rows[entries]
        starts = [0, *(np.flatnonzero(numbers[1:] != numbers[:-1]) + 1).tolist()]
        return {numbers.item(start): rows[start:end] for start, end in pairwise((*starts, len(entries)))}

    def crowded(self, pod: PodInfo, blocks: NDArray[np.bool_], own: Collection[int]) -> Iterator[tuple[int, bool]]:
        """Yield the shared rows that may lack room for a pod beside all reservations, and whether they do lack it.

        Args:
            blocks: Reservations that count, bool by number.
            own: Numbers of those of which the pod may take a slot.
        """
        if not self._shared_rows:
            return
        counted = blocks[self._shared_numbers]
        some = np.logical_or.reduceat(counted, self._shared_starts)
        if not some.any():
            return
        are_all = np.logical_and.reduceat(counted, self._shared_starts)
        if own:
            is_own = np.zeros(len(blocks), dtype=np.bool_)
            is_own[[*own]] = True
            are_all &= ~np.logical_or.reduceat(is_own[self._shared_numbers], self._shared_starts)
        fits = self._slots_of_all >= 1
        for column, amount in pod.fit:
            fits &= self._free_of_all[column] >= amount
        for index in np.flatnonzero(some & ~(are_all & fits)).tolist():
            yield self._shared_rows[index], bool(are_all[index])
