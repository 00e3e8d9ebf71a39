"""Search for devices of one node: depth first, the first solution wins.

Claims, requests, alternatives and devices are tried in order. The devices of one request are combinations: the next one
comes after the previous one. The next request starts at the first device again. A failed request backtracks over
everything before it, over claims too.

The result is that of kube-scheduler v1.37.1. Three rules end failing searches earlier, without another result or error:
a request whose remaining candidates are too few fails at once; a device is not tried in the place of one that is
interchangeable with it and failed there; a request that failed in an equal state is not searched again.

The search keeps its own stack, because claims of a pod can need more levels than Python's recursion admits.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from itertools import chain

from scheduler_core.devices.best_fit import BestFit, Size
from scheduler_core.devices.constraints import AttributeValues
from scheduler_core.devices.device_state import NodeDevices, Position, SearchState, TakenDevice
from scheduler_core.devices.requests import ClaimPlan, RequestTerms
from scheduler_core.errors import AllocationError, AllocationTimeoutError
from scheduler_core.model.devices import MAX_RESULTS
from scheduler_core.step_counter import StepCounter

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
        on_step: Called at each step; what it raises ends the search.
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


class _Candidates:
    """Devices that one request can take in the state in which it starts, found as far as they are needed."""

    __slots__ = ("_claim", "_counter", "_positions", "_state", "_terms", "error", "found", "is_complete")

    def __init__(
        self,
        state: SearchState,
        terms: RequestTerms,
        claim: int,
        positions: Iterator[Position],
        counter: StepCounter,
    ) -> None:
        self._counter = counter
        self._state = state
        self._terms = terms
        self._claim = claim
        self._positions = positions
        self.found: list[Position] = []
        self.is_complete = False
        self.error: AllocationError | None = None

    def has(self, index: int) -> bool:
        """Return whether there is a candidate of this index."""
        while len(self.found) <= index and not self.is_complete:
            self._extend()
        return len(self.found) > index

    def _extend(self) -> None:
        state, terms = self._state, self._terms
        for number, position in enumerate(self._positions, 1):
            if not number % _POSITIONS_PER_STEP:
                self._counter.spend()
            if not state.is_free(terms, self._claim, position):
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


class _Frame:
    """One level of the search: a choice of alternatives, a device of a request, or the end of a claim."""

    __slots__ = (
        "all_too_many",
        "alternative",
        "candidates",
        "claim",
        "cursor",
        "device",
        "kind",
        "memo",
        "request",
        "tried",
    )

    def __init__(self, kind: str, claim: int, request: int, alternative: int = 0, device: int = 0) -> None:
        self.kind = kind
        self.claim = claim
        self.request = request
        self.alternative = alternative
        self.device = device
        self.cursor = 0
        self.all_too_many = True
        self.candidates: _Candidates | None = None
        self.tried: set[Hashable] = set()
        self.memo: Hashable = None


_CHOICE = "choice"
_DEVICE = "device"
_END = "end"


class Search:
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
        # A constraint over a request in mode All ends the attempt in an error or not, depending on which of its devices
        # is in use: devices of equal behaviour are not interchangeable then.
        self._is_symmetric = not any(
            terms.takes_all and plan.claim.spec.devices.constraints
            for plan in plans
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
        """Return the devices in the order in which a request tries them."""
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
