"""Search for devices of one node: depth first, the first solution wins.

Claims, requests, alternatives and devices are tried in order. The devices of one request are combinations: the next one
comes after the previous one. The next request starts at the first device again. A failed request backtracks over
everything before it, over claims too.

The result is that of kube-scheduler v1.37.1. Three rules end failing searches earlier, without another result or error:
a request whose remaining candidates are too few fails at once; a device is not tried in the place of one that is
interchangeable with it and failed there; a request that failed in an equal state is not searched again.

The search keeps its own stack, because claims of a pod can need more levels than Python's recursion admits.

The search is exponential in the worst case, so cheap counts that are necessary for a solution end most impossible
requests before it. Where the search may end in an error, they conclude nothing.

For the best fit, sizes are compared capacity by capacity, in the order of their names: first the capacities that the
request or its selectors name, then all. A device that lacks a capacity has 0 of it; of a device that requests share,
the rest counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from itertools import chain, islice

from scheduler_core.devices.constraints import AttributeValues
from scheduler_core.devices.device_state import CounterBalance, NodeDevices, Position, SearchState, TakenDevice
from scheduler_core.devices.requests import ClaimPlan, RequestPlan, RequestTerms
from scheduler_core.devices.selector_cache import DerivationFailure, Derived, Reads, SelectorCache
from scheduler_core.errors import AllocationError, AllocationTimeoutError
from scheduler_core.model.devices import MAX_RESULTS, DeviceConstraint
from scheduler_core.step_counter import StepCounter

Size = tuple[Mapping[str, int], Mapping[str, int]]
"""Capacities in nano-units by name: those that the request names, and all."""


class BestFit:
    """Sizes of devices for the requests of one attempt."""

    def __init__(self, plans: Sequence[ClaimPlan], selectors: SelectorCache) -> None:
        self._reads: dict[int, Reads] = {
            terms.number: selectors.reads((*terms.class_selectors, *terms.selectors))
            for plan in plans
            for request in plan.requests
            for terms in request.terms
        }

    def order(self, terms: RequestTerms, node: NodeDevices) -> Iterable[Position]:
        """Return the devices of a node that any request could take, the smallest first, equal ones in their order."""
        positions = list(node.positions())
        ranks = size_ranks([self._size(terms, node, position) for position in positions])
        return (position for _, _, position in sorted(zip(ranks, range(len(positions)), positions, strict=True)))

    def total(self, node: NodeDevices, taken: Iterable[TakenDevice]) -> Size:
        named: dict[str, int] = {}
        whole: dict[str, int] = {}
        for one in taken:
            for total, amounts in zip((named, whole), self._size(one.terms, node, one.position), strict=True):
                for name, amount in amounts.items():
                    total[name] = total.get(name, 0) + amount
        return named, whole

    def _size(self, terms: RequestTerms, node: NodeDevices, position: Position) -> Size:
        view, usage = node.pools[position[0]], node.usages[position[0]]
        record = view.records[position[1]]
        whole = {name: rule.value.nano for name, rule in record.rules.items()}
        shares = None if usage is None else usage.shares.get(view.names.names[position[1]])
        if record.shareable and shares is not None:
            whole = {name: amount - shares.consumed.get(name, 0) for name, amount in whole.items()}
        reads = self._reads[terms.number]
        named = {
            name: amount
            for name, amount in whole.items()
            if name in terms.amounts or (reads is not None and _is_read(name, reads))
        }
        return named, whole


def size_ranks(sizes: Sequence[Size]) -> list[int]:
    """Return the rank of each size among the distinct ones, 0 for the smallest."""
    orders = [sorted({name for size in sizes for name in size[part]}) for part in (0, 1)]
    keys = [tuple(size[part].get(name, 0) for part, names in enumerate(orders) for name in names) for size in sizes]
    ranks = {key: rank for rank, key in enumerate(sorted(set(keys)))}
    return [ranks[key] for key in keys]


def _is_read(name: str, reads: Iterable[tuple[str, str]]) -> bool:
    """Return whether a capacity is read; a name without a domain counts whatever its driver is."""
    domain, slash, identifier = name.rpartition("/")
    return any(each == identifier and (not slash or of == domain) for of, each in reads)


_MAX_FAILED_STATES = 100_000
_POSITIONS_PER_STEP = 8
_CONSTRAINTS_PER_STEP = 8
_DEVICES_PER_STEP = 4


@dataclass(frozen=True, slots=True)
class SearchLimits:
    """Bounds of the search on one node.

    Attributes:
        clock: Returns the time in seconds.
        timeout_seconds: Longest time; None for no limit.
        max_steps: Largest number of steps; None for no limit.
    """

    clock: Callable[[], float]
    timeout_seconds: float | None = None
    max_steps: int | None = None
    on_step: Callable[[], None] | None = None


@dataclass(frozen=True, slots=True)
class Solution:
    """Devices found.

    Attributes:
        devices: Devices by claim, in the order of the results.
        alternatives: Index of the chosen alternative by claim and request; 0 for requests without alternatives.
        size: Size of all devices, for best fit.
    """

    devices: tuple[tuple[TakenDevice, ...], ...]
    alternatives: tuple[tuple[int, ...], ...]
    size: Size = ({}, {})


class _Outcome(Enum):
    FAILED = "failed"
    TOO_MANY = "too many"


@dataclass(slots=True, eq=False)
class _Candidates:
    """Devices that one request can take in the state in which it starts, found as far as they are needed."""

    state: SearchState
    terms: RequestTerms
    claim: int
    positions: Iterator[Position]
    counter: StepCounter
    found: list[Position] = field(default_factory=list)
    is_complete: bool = False
    error: AllocationError | None = None

    def has(self, index: int) -> bool:
        while len(self.found) <= index and not self.is_complete:
            self._extend()
        return len(self.found) > index

    def _extend(self) -> None:
        state, terms = self.state, self.terms
        for number, position in enumerate(self.positions, 1):
            if not number % _POSITIONS_PER_STEP:
                self.counter.spend()
            if not state.is_free(terms, self.claim, position):
                continue
            try:
                assessment = state.node.select(terms, position)
            except AllocationError as error:
                self.error = error
                break
            if assessment is None:
                continue
            if assessment.capacity_error:
                self.error = AllocationError(
                    f"claim {terms.claim}, request {terms.name}: checking capacity for device "
                    f"{state.node.device_name(position)}: {assessment.capacity_error}"
                )
                break
            if assessment.is_usable and state.fits_capacity(assessment, position):
                self.found.append(position)
                return
        self.is_complete = True


@dataclass(slots=True, eq=False)
class _Frame:
    """One level of the search: a choice of alternatives, a device of a request, or the end of a claim."""

    kind: str
    claim: int
    request: int
    alternative: int = 0
    device: int = 0
    cursor: int = 0
    all_too_many: bool = True
    candidates: _Candidates | None = None
    tried: set[Hashable] = field(default_factory=set)
    memo: Hashable = None


_CHOICE = "choice"
_DEVICE = "device"
_END = "end"


class DeviceSearch:
    """A search on one node.

    Args:
        best_fit: Order in which devices are tried; None for that of the pools.
        for_all: Whether all solutions are wanted that differ for some pod, and not only one.
    """

    def __init__(
        self,
        node: NodeDevices,
        plans: Sequence[ClaimPlan],
        values: AttributeValues,
        all_devices: dict[int, list[Position]],
        limits: SearchLimits,
        *,
        counter: StepCounter,
        best_fit: BestFit | None = None,
        for_all: bool = False,
    ) -> None:
        self._plans = plans
        self._all_devices = all_devices
        self._limits = limits
        self._counter = counter
        # Every device that is taken is compared by all constraints of its claim.
        most = max((len(plan.claim.spec.devices.constraints) for plan in plans), default=0)
        self._steps_of_device = 1 + most // _CONSTRAINTS_PER_STEP
        self._deadline = None if limits.timeout_seconds is None else limits.clock() + limits.timeout_seconds
        self._state = SearchState(node, plans, values)
        self._best_fit = best_fit
        self._for_all = for_all
        self._stack: list[_Frame] = []
        self._failed: set[Hashable] = set()
        # Devices of equal behaviour are not interchangeable in two cases. A constraint over a request in mode All ends
        # the attempt in an error or not, depending on which of its devices is in use. And where values must differ,
        # only the first device may have a list, so that the order of the others counts.
        has_lists = any(row.has_lists for row in node.rows)
        self._is_symmetric = not any(
            terms.takes_all or (has_lists and constraint.distinct_attribute is not None)
            for plan in plans
            for constraint in plan.claim.spec.devices.constraints
            for request in plan.requests
            for terms in request.terms
        )
        # A device that is taken although too few remain can end the attempt in an error.
        self._ends_early = not any(row.has_derivation_errors for row in node.rows)
        self.steps = 0

    def run(self) -> Solution | None:
        """Return the first solution, None if there is none.

        Raises:
            AllocationError: A selector, a capacity or a constraint of mode All is at fault.
            AllocationTimeoutError: A limit was reached.
        """
        outcome = self._enter(0, 0, None, 0, None)
        while outcome is not None:
            if not self._stack:
                if outcome is _Outcome.TOO_MANY:
                    raise AllocationError("allocation max size exceeded")
                return None
            outcome = self._resume(self._stack[-1], outcome)
        return self._solution()

    def solutions(self) -> Iterator[Solution]:
        """Yield all solutions in the order of the search; no solution if a claim would have too many devices.

        Raises:
            AllocationError: As :meth:`run`.
        """
        outcome = self._enter(0, 0, None, 0, None)
        while True:
            while outcome is not None:
                if not self._stack:
                    return
                outcome = self._resume(self._stack[-1], outcome)
            yield self._solution()
            if not self._stack:
                return
            outcome = self._resume(self._stack[-1], _Outcome.FAILED)

    def _enter(
        self, claim: int, request: int, alternative: int | None, device: int, previous: _Frame | None
    ) -> _Outcome | None:
        """Go forward until a device must be chosen and none is left (an outcome), or all is done (None)."""
        while True:
            self._step()
            if claim >= len(self._plans):
                return None
            requests = self._plans[claim].requests
            if request >= len(requests):
                self._stack.append(_Frame(_END, claim, request))
                claim, request, alternative, device, previous = claim + 1, 0, None, 0, None
                continue
            plan = requests[request]
            if alternative is None and plan.has_alternatives:
                self._stack.append(_Frame(_CHOICE, claim, request))
                alternative = 0
                continue
            terms = plan.terms[alternative or 0]
            wanted = len(self._all_devices[terms.number]) if terms.takes_all else terms.count
            if terms.takes_all and not wanted:
                return _Outcome.FAILED
            if device >= wanted:
                request, alternative, device, previous = request + 1, None, 0, None
                continue
            if wanted - device > MAX_RESULTS - len(self._state.taken[claim]):
                return _Outcome.TOO_MANY
            frame = _Frame(_DEVICE, claim, request, alternative or 0, device)
            if device == 0 and self._is_symmetric and not self._for_all:
                self._counter.spend(1 + sum(map(len, self._state.taken)) // _DEVICES_PER_STEP)
                frame.memo = (claim, request, alternative, self._state.key(claim))
                if frame.memo in self._failed:
                    return _Outcome.FAILED
            if not terms.takes_all:
                if previous is None:
                    frame.candidates = _Candidates(self._state, terms, claim, self._positions(terms), self._counter)
                else:
                    frame.candidates = previous.candidates
                    frame.cursor = previous.cursor
            self._stack.append(frame)
            if not self._take_next(frame, terms, wanted):
                return self._fail(frame)
            device, previous = device + 1, frame

    def _positions(self, terms: RequestTerms) -> Iterator[Position]:
        node = self._state.node
        if self._best_fit is not None:
            self._counter.spend(1 + sum(len(row.behaviours) for row in node.rows))
        return node.positions() if self._best_fit is None else iter(self._best_fit.order(terms, node))

    def _resume(self, frame: _Frame, outcome: _Outcome) -> _Outcome | None:
        """Continue at a level after the level above it failed."""
        if frame.kind == _END:
            self._stack.pop()
            return _Outcome.FAILED
        if frame.kind == _CHOICE:
            if outcome is _Outcome.FAILED:
                frame.all_too_many = False
            frame.alternative += 1
            if frame.alternative < len(self._plans[frame.claim].requests[frame.request].terms):
                return self._enter(frame.claim, frame.request, frame.alternative, 0, None)
            self._stack.pop()
            return _Outcome.TOO_MANY if frame.all_too_many else _Outcome.FAILED
        self._state.undo(frame.claim)
        if outcome is _Outcome.TOO_MANY:
            self._stack.pop()
            return outcome
        terms = self._plans[frame.claim].requests[frame.request].terms[frame.alternative]
        if terms.takes_all or not self._take_next(frame, terms, terms.count):
            return self._fail(frame)
        in_list = self._plans[frame.claim].requests[frame.request].has_alternatives
        alternative = frame.alternative if in_list else None
        return self._enter(frame.claim, frame.request, alternative, frame.device + 1, frame)

    def _fail(self, frame: _Frame) -> _Outcome:
        self._stack.pop()
        if frame.memo is not None and len(self._failed) < _MAX_FAILED_STATES:
            self._failed.add(frame.memo)
        return _Outcome.FAILED

    def _take_next(self, frame: _Frame, terms: RequestTerms, wanted: int) -> bool:
        """Take the next device that the state admits; return False if there is none."""
        state = self._state
        if terms.takes_all:
            self._counter.spend(self._steps_of_device)
            position = self._all_devices[terms.number][frame.device]
            return state.is_free(terms, frame.claim, position) and state.take(terms, frame.claim, position, must=True)
        candidates = frame.candidates
        assert candidates is not None
        while candidates.has(frame.cursor):
            self._counter.spend(self._steps_of_device)
            is_known = candidates.is_complete and self._ends_early
            if is_known and len(candidates.found) - frame.cursor < wanted - frame.device:
                break
            position = candidates.found[frame.cursor]
            frame.cursor += 1
            signature = state.identity(position) if self._for_all else state.signature(position)
            if self._is_symmetric and signature in frame.tried:
                continue
            frame.tried.add(signature)
            if state.take(terms, frame.claim, position, must=False):
                return True
        if candidates.error is not None:
            raise candidates.error
        return False

    def _step(self) -> None:
        self.steps += 1
        self._counter.spend()
        limits = self._limits
        if limits.on_step is not None:
            limits.on_step()
        if limits.max_steps is not None and self.steps > limits.max_steps:
            raise AllocationTimeoutError(self.steps)
        if self._deadline is not None and limits.clock() >= self._deadline:
            raise AllocationTimeoutError(self.steps)

    def _solution(self) -> Solution:
        alternatives = [[0] * len(plan.requests) for plan in self._plans]
        for frame in self._stack:
            if frame.kind == _CHOICE:
                alternatives[frame.claim][frame.request] = frame.alternative
        taken = tuple(map(tuple, self._state.taken))
        solution = Solution(taken, tuple(map(tuple, alternatives)))
        if self._best_fit is None:
            return solution
        return replace(solution, size=self._best_fit.total(self._state.node, chain.from_iterable(taken)))


_LIST = ("list", None)
_ONLY_LIST: frozenset[Hashable] = frozenset((_LIST,))


def lacks_devices(node: NodeDevices, plans: Sequence[ClaimPlan], values: AttributeValues) -> bool:
    """Return whether the claims, which have no request in mode All, certainly cannot be allocated."""
    if any(row.has_errors for row in node.rows):
        return False
    # Requests with admin access take devices in use, too.
    ordinary = [(plan, request) for plan in plans for request in plan.requests if not request.terms[0].admin_access]
    requests = [request for _, request in ordinary]
    if not requests:
        return False
    needed = sum(map(_least, requests))
    has_constraints = any(plan.claim.spec.devices.constraints for plan in plans)
    is_counted_only = not has_constraints and not any(view.counters for view in node.pools)
    usable = _Usable(node, requests, needed if is_counted_only else None, values)
    if usable.is_shared:
        return False
    if len(usable.positions) < needed or usable.lacks_counters(needed):
        return True
    for plan in plans:
        own = [request for owner, request in ordinary if owner is plan]
        constraints = plan.claim.spec.devices.constraints
        if any(usable.violates(constraint, own) for constraint in constraints):
            return True
        if len(constraints) > 1 and any(usable.lacks_matching(request, constraints) for request in own):
            return True
    return False


def _least(request: RequestPlan) -> int:
    return min(terms.count for terms in request.terms)


def _covers(constraint: DeviceConstraint, request: RequestPlan) -> bool:
    names = constraint.requests
    return not names or all(terms.is_named_in(names) for terms in request.terms)


class _Usable:
    """Free devices that serve at least one request.

    Args:
        limit: Largest number of devices to look for; None for all.

    Attributes:
        is_shared: Whether one of them can be taken several times, so that they cannot be counted.
    """

    def __init__(
        self, node: NodeDevices, requests: Sequence[RequestPlan], limit: int | None, values: AttributeValues
    ) -> None:
        self._node = node
        self._attributes = values
        self._balances: dict[int, CounterBalance] = {}
        self._is_derived = any(terms.derived for request in requests for terms in request.terms)
        numbers = [terms.number for request in requests for terms in request.terms]
        found: Iterator[Position] = (
            position
            for position in node.positions()
            if not node.is_allocated(position) and self._serves(position, numbers)
        )
        for view in node.pools:
            if view.has_compatibility_groups:
                found = filter(self._is_compatible, found)
                break
        self.positions = list(islice(found, limit))
        self.is_shared = any(node.pools[pool].records[device].shareable for pool, device in self.positions)

    def _serves(self, position: Position, numbers: Sequence[int]) -> bool:
        assessments = self._node.behaviour(position).assessments
        return any(assessments[number].is_usable for number in numbers)

    def _is_compatible(self, position: Position) -> bool:
        """Return whether the devices in use have a compatibility group in common with a device.

        During a search they can only have fewer groups in common. A further share of a device is always admitted.
        """
        pool, device = position
        record = self._node.pools[pool].records[device]
        return record.shareable or not self._balance(pool).incompatible(record)

    def _balance(self, pool: int) -> CounterBalance:
        if pool not in self._balances:
            self._balances[pool] = CounterBalance(self._node.pools[pool], self._node.usages[pool])
        return self._balances[pool]

    def _of(self, requests: Sequence[RequestPlan]) -> list[Position]:
        numbers = [terms.number for request in requests for terms in request.terms]
        return [position for position in self.positions if self._serves(position, numbers)]

    def _values(self, position: Position, requests: Sequence[RequestPlan], name: str) -> frozenset[Hashable]:
        """Return the values of a device that a constraint compares, for any of the requests.

        Without list-typed attributes ``_LIST`` stands for a list, which equals no other value.
        """
        pool, device = position
        facts = self._node.pools[pool].records[device].facts
        if not self._is_derived:
            return self._compared(facts.attribute(name))
        read = self._attributes.read
        found = (self._compared(read(terms, name, facts)) for request in requests for terms in request.terms)
        return frozenset().union(*found)

    def _compared(self, attribute: Derived | None) -> frozenset[Hashable]:
        found = None if isinstance(attribute, DerivationFailure) else self._attributes.compared(attribute)
        return frozenset() if found is None else found or _ONLY_LIST

    def lacks_counters(self, needed: int) -> bool:
        """Return whether the devices that consume least exceed a counter already."""
        for number, view in enumerate(self._node.pools):
            if not view.counters:
                continue
            for key, amount in self._balance(number).available.items():
                consumed = sorted(
                    view.records[device].counters.get(key, 0) if pool == number else 0
                    for pool, device in self.positions
                )
                if consumed[needed - 1 : needed] > [0] and sum(consumed[:needed]) > amount:
                    return True
        return False

    def violates(self, constraint: DeviceConstraint, requests: Sequence[RequestPlan]) -> bool:
        """Return whether too few devices have one value, or distinct values, for the requests of a constraint."""
        covered = [request for request in requests if _covers(constraint, request)]
        needed = sum(map(_least, covered))
        if needed <= 1:
            return False
        name = constraint.match_attribute or constraint.distinct_attribute or ""
        found = [self._values(position, covered, name) for position in self._of(covered)]
        if constraint.match_attribute is None:
            # Only the first device may have a list, so that lists count as one value.
            return len(frozenset().union(*found)) < needed
        counts = Counter(value for values in found for value in values if value is not _LIST)
        return max(counts.values(), default=0) < needed

    def lacks_matching(self, request: RequestPlan, constraints: Sequence[DeviceConstraint]) -> bool:
        """Return whether too few devices are equal in all attributes that must match for a request.

        Nothing is concluded if a device has several values of one attribute.
        """
        names = [each.match_attribute for each in constraints if each.match_attribute and _covers(each, request)]
        counts: Counter[Hashable] = Counter()
        for position in self._of([request]):
            values = [self._values(position, [request], name) for name in names]
            if values and (min(map(len, values)) < 1 or max(map(len, values)) > 1):
                return False
            counts[tuple([position if _LIST in each else each for each in values])] += 1
        return max(counts.values(), default=0) < _least(request)
