"""Compile a checked syntax tree into closures.

Follows the structure of cel-go's planner, because constants that it folds and attributes that it merges decide the cost
of an evaluation and which error is reported. An error in one argument does not stop the evaluation of the others of an
operator, because they count towards the cost. ``overloads.Frame`` enforces the limit of the cost.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, cast

from scheduler_core.cel import syntax_tree as ast
from scheduler_core.cel.checker import FUNCTIONS
from scheduler_core.cel.extensions import compile_pattern
from scheduler_core.cel.overloads import ERROR_VALUE, LIST_COST, CallCost, Frame, Implementation, Overload
from scheduler_core.cel.problems import AbortedError, EvaluationError, InvalidExpressionError
from scheduler_core.cel.standard_functions import require_hashable
from scheduler_core.cel.value_types import Type
from scheduler_core.cel.values import MAX_INT, MISSING, NONE, Mapping, Optional, Uint, go_text, go_type, type_name

_CONVERSIONS = frozenset({"bool", "bytes", "double", "duration", "dyn", "int", "string", "timestamp", "type", "uint"})
_PARSERS = frozenset({"quantity", "semver"})
_SEARCHES = frozenset({"find", "findAll", "matches"})
_PRIMITIVES = frozenset({bool, float, int, str, Uint})
_IDENTIFIER_COST, _MAP_COST = 1, 30
Run = Callable[[Frame], Any]


# -- attributes: field selection and indexing, with presence tests and optional chains --------------------------------


@dataclass(frozen=True, slots=True)
class Qualifier:
    """One selection or index.

    Attributes:
        key: The key; MISSING if it is computed.
        optional: Whether an absent key yields ``optional.none()``.
    """

    key: Any
    compute: Run | None = None
    optional: bool = False
    test_only: bool = False


@dataclass(frozen=True, slots=True)
class Attribute:
    """A value and the qualifiers applied to it in order; or a choice between two attributes.

    Attributes:
        choices: The attributes for true and false; empty for no choice.
    """

    base: Run
    qualifiers: tuple[Qualifier, ...] = ()
    choices: tuple[Attribute, ...] = ()
    is_device: bool = False

    def qualified(self, qualifier: Qualifier) -> Attribute:
        if self.choices:
            return replace(self, choices=tuple([choice.qualified(qualifier) for choice in self.choices]))
        return replace(self, qualifiers=(*self.qualifiers, qualifier))

    def resolver(self) -> Run:
        """Return a function that resolves the attribute. The cost of qualifiers is counted, that of the base is not."""
        if self.choices:
            return _choice(self.base, self.choices[0].resolver(), self.choices[1].resolver())
        if not self.qualifiers:
            return self.base
        general = _path(self.base, self.qualifiers)
        names = [each.key for each in self.qualifiers if each == Qualifier(each.key) and type(each.key) is str]
        is_value = self.is_device and len(self.qualifiers) == len(names) == 3
        return _device_path(general, *names) if is_value else general


def _choice(condition: Run, if_true: Run, if_false: Run) -> Run:
    def resolve(frame: Frame) -> Any:
        value = condition(frame)
        if value is True:
            return if_true(frame)
        if value is False:
            return if_false(frame)
        raise EvaluationError("no such overload")

    return resolve


def _device_path(general: Run, field: str, domain: str, name: str) -> Run:
    def resolve(frame: Frame) -> Any:
        try:
            value = frame.device.entries[field].entries[domain].entries[name]
        except (AttributeError, KeyError):
            return general(frame)
        frame.cost += 3
        return value

    return resolve


def _path(base: Run, qualifiers: tuple[Qualifier, ...]) -> Run:
    def resolve(frame: Frame) -> Any:
        value = base(frame)
        optional = type(value) is Optional
        if optional:
            if value.value is MISSING:
                return value
            value = value.value
        for qualifier in qualifiers:
            optional = optional or qualifier.optional
            frame.cost += not optional
            key = qualifier.key if qualifier.compute is None else _computed(qualifier.compute(frame))
            if not optional:
                value = _find(value, key) is not MISSING if qualifier.test_only else _qualify(value, key)
                continue
            value = _find(value, key)
            if value is MISSING:
                return NONE
            frame.cost += 1
        return Optional(value) if optional else value

    return resolve


def _computed(key: Any) -> Any:
    if type(key) not in _PRIMITIVES:
        raise EvaluationError(f"invalid qualifier type: {go_type(key)}")
    return key


def _qualify(value: Any, key: Any) -> Any:
    """Return the field, entry or element *key* of *value*. Raises EvaluationError: there is none."""
    found = _find(value, key)
    if found is MISSING:
        problem = "index out of bounds" if type(value) is tuple else "no such key"
        raise EvaluationError(f"{problem}: {go_text(key)}")
    return found


def _find(value: Any, key: Any) -> Any:
    """Return the field, entry or element *key* of *value*, MISSING if there is none."""
    if isinstance(value, Mapping):
        return value.find(key)
    if type(value) is tuple:
        index = _index(key)
        return value[index] if 0 <= index < len(value) else MISSING
    return MISSING


def _index(key: Any) -> int:
    if type(key) is int or (type(key) is Uint and key <= MAX_INT) or (type(key) is float and key.is_integer()):
        return int(key)
    if type(key) in (float, Uint):
        raise EvaluationError(f"unsupported index value {go_text(key)} in list")
    kind = {bool: "bool", str: "string"}.get(type(key), "value")
    raise EvaluationError(f"unsupported index type '{kind}' in list")


# -- the planner ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Plan:
    """What a node compiles into: how it is evaluated, and its value if constant or the attribute if it is one."""

    run: Run
    constant: Any = MISSING
    attribute: Attribute | None = None

    @property
    def base(self) -> Attribute:
        return self.attribute if self.attribute is not None else Attribute(self.run)


def compile_tree(tree: ast.Node) -> tuple[Run, int]:
    """Return a function that evaluates a checked tree, and the number of slots of its frame."""
    planner = _Planner()
    return planner.plan(tree).run, planner.slots


class _Planner:
    """Plans of the nodes of a tree, and the slots of the frame for the variables of nested comprehensions."""

    def __init__(self) -> None:
        self.slots = 0
        self._open: list[tuple[str, int]] = []
        self._plans: dict[int, _Plan] = {}

    def _open_slot(self, name: str) -> int:
        self._open.append((name, self.slots))
        self.slots += 1
        return self.slots - 1

    def plan(self, node: ast.Node) -> _Plan:
        known = self._plans.get(id(node))
        if known is None:
            known = self._plans[id(node)] = self._new_plan(node)
        return known

    def _new_plan(self, node: ast.Node) -> _Plan:
        if type(node) is ast.Call:
            return self._call(node)
        if type(node) is ast.Select:
            return self._select(node)
        if type(node) is ast.Ident:
            return self._ident(node)
        if type(node) is ast.Literal:
            return _constant(node.value)
        if type(node) is ast.ListLiteral:
            return self._list(node)
        return self._map(node) if type(node) is ast.MapLiteral else self._comprehension(cast("ast.Comprehension", node))

    def _ident(self, node: ast.Ident) -> _Plan:
        if node.type_value is not None:
            return _constant(node.type_value)
        if node.type is not None and node.type.kind == "type":
            # cel-go takes any name of this type for that of a type.
            raise InvalidExpressionError(f"program instantiation failed: reference to undefined type: {node.name}")
        if node.is_global:
            return _attribute(Attribute(lambda frame: frame.device, is_device=True))
        slot = next(slot for name, slot in reversed(self._open) if name == node.name)
        return _attribute(Attribute(_reader(slot)))

    def _select(self, node: ast.Select) -> _Plan:
        if node.resolved is not None:
            return self._ident(node.resolved)
        attribute = self.plan(node.operand).base.qualified(Qualifier(node.field, test_only=node.test_only))
        return _presence_test(attribute) if node.test_only else _attribute(attribute)

    def _index(self, operand: _Plan, index: _Plan, *, optional: bool) -> _Plan:
        if index.constant is MISSING:
            compute = index.attribute.resolver() if index.attribute is not None else index.run
            qualifier = Qualifier(MISSING, compute, optional=optional)
        elif type(index.constant) in _PRIMITIVES:
            qualifier = Qualifier(index.constant, optional=optional)
        else:
            kind = go_type(index.constant)
            raise InvalidExpressionError(f"program instantiation failed: invalid qualifier type: {kind}")
        return _attribute(operand.base.qualified(qualifier))

    def _call(self, node: ast.Call) -> _Plan:
        args = [self.plan(arg) for arg in node.operands]
        name = node.function
        if name in ("_&&_", "_||_"):
            return _Plan(_logical(args[0].run, args[1].run, decisive=name == "_||_"))
        if name == "_?_:_":
            return _attribute(Attribute(args[0].run, choices=(args[1].base, args[2].base)))
        if name in ast.SELECTIONS:
            return self._index(args[0], args[1], optional=name != "_[_]")
        if name in ("or", "orValue"):
            return _Plan(_alternative(args[0].run, args[1].run, unwrap=name == "orValue"))
        if name == "@in" and len(node.overloads) == 1 and type(args[1].constant) is tuple:
            return _membership(args[0].run, args[1].constant, node.overloads)
        pattern = args[1].constant if name in _SEARCHES and len(args) >= 2 else MISSING
        if type(pattern) is str:
            _at_compilation(lambda: compile_pattern(pattern))
        run = _planned(name, node.overloads, [arg.run for arg in args], constant_pattern=type(pattern) is str)
        if name in _PARSERS and all(arg.constant is not MISSING for arg in args):
            return _Plan(_evaluated_once(run))
        if name in _CONVERSIONS and len(args) == 1 and args[0].constant is not MISSING:
            return _constant(_folded(run))
        return _Plan(run)

    def _list(self, node: ast.ListLiteral) -> _Plan:
        plans = [self.plan(element) for element in node.elements]
        run = _list_builder([(plan.run, index in node.optional) for index, plan in enumerate(plans)])
        return _constant(_folded(run)) if all(plan.constant is not MISSING for plan in plans) else _Plan(run)

    def _map(self, node: ast.MapLiteral) -> _Plan:
        entries = [(self.plan(entry.key), self.plan(entry.value), entry.optional) for entry in node.entries]
        run = _map_builder([(key.run, value.run, optional) for key, value, optional in entries])
        constant = all(key.constant is not MISSING and value.constant is not MISSING for key, value, _ in entries)
        return _constant(_folded(run)) if constant else _Plan(run)

    def _comprehension(self, node: ast.Comprehension) -> _Plan:
        initial, iter_range = self.plan(node.initial), self.plan(node.iter_range).run
        accumulator = self._open_slot(node.accumulator)
        variables = [self._open_slot(name) for name in (node.iter_var, node.iter_var2) if name]
        condition = self.plan(node.condition)
        is_met = None if condition.constant is True else condition.run
        iterate = _iteration(variables, accumulator, is_met, self._step(node, accumulator))
        del self._open[-len(variables) :]
        result = self.plan(node.result).run
        del self._open[-1]

        def evaluate(frame: Frame) -> Any:
            iterated = iter_range(frame)
            frame.slots[accumulator] = _start(initial)
            if iterated != ():
                iterate(frame, iterated)
            value = frame.slots[accumulator]
            if type(value) is list:
                frame.add_work(len(value))
                frame.slots[accumulator] = tuple(value)
            frame.charge(0)
            return result(frame)

        return _Plan(evaluate)

    def _step(self, node: ast.Comprehension, accumulator: int) -> Run:
        """Return the step; a list or map that it accumulates grows in place."""
        step = node.step
        if type(step) is ast.Call and step.function == "_?_:_":
            grown = self._grown(step.args[1], node, accumulator)
            if grown is not None:
                condition, unchanged = self.plan(step.args[0]).run, self.plan(step.args[2]).base
                return _attribute(Attribute(condition, choices=(Attribute(grown), unchanged))).run
        return self._grown(step, node, accumulator) or self.plan(step).run

    def _grown(self, step: ast.Node, node: ast.Comprehension, accumulator: int) -> Run | None:
        """Return how a step adds to the list or map of a macro in place, None for another step."""
        if type(step) is not ast.Call or step.function not in _ADDITIONS or not step.args:
            return None
        target, initial = step.args[0], type(node.initial)
        named = type(target) is ast.Ident and target.name == node.accumulator and target.name.startswith("@")
        if not named or initial not in (ast.ListLiteral, ast.MapLiteral):
            return None
        return _accumulation(accumulator, [self.plan(arg).run for arg in step.args[1:]], _ADDITIONS[step.function])


# -- constants and attributes ---------------------------------------------------------------------------------------


def _constant(value: Any) -> _Plan:
    return _Plan(lambda _frame: value, constant=value)


def _attribute(attribute: Attribute) -> _Plan:
    resolve = attribute.resolver()
    if attribute.choices:
        return _Plan(resolve, attribute=attribute)

    def evaluate(frame: Frame) -> Any:
        try:
            return resolve(frame)
        finally:
            frame.cost += _IDENTIFIER_COST

    return _Plan(evaluate, attribute=attribute)


def _presence_test(attribute: Attribute) -> _Plan:
    resolve = attribute.resolver()
    refund = _IDENTIFIER_COST if attribute.choices else 0

    def evaluate(frame: Frame) -> Any:
        value = resolve(frame)
        frame.cost -= refund
        return value.value is not MISSING if type(value) is Optional else value

    return _Plan(evaluate, attribute=attribute)


def _at_compilation(run: Callable[[], Any]) -> Any:
    try:
        return run()
    except (AbortedError, EvaluationError) as error:
        raise InvalidExpressionError(f"program instantiation failed: {error}") from None


def _folded(run: Run) -> Any:
    return _at_compilation(lambda: run(Frame(Mapping(), 0)))


def _evaluated_once(run: Run) -> Run:
    """Return a function that counts the cost of a call of constants and returns its result, evaluated beforehand."""
    frame = Frame(Mapping(), 0)
    try:
        result = run(frame)
    except (AbortedError, EvaluationError):
        return run
    cost = frame.cost

    def evaluate(frame: Frame) -> Any:
        frame.cost += cost
        return result

    return evaluate


def _unwrapped(value: Any, is_optional: bool, what: str) -> Any:
    if not is_optional:
        return value
    if type(value) is not Optional:
        raise EvaluationError(f"cannot initialize {what} from non-optional value {go_text(value)}")
    return value.value


def _list_builder(elements: list[tuple[Run, bool]]) -> Run:
    def evaluate(frame: Frame) -> tuple[Any, ...]:
        values = []
        try:
            for run, optional in elements:
                value = _unwrapped(run(frame), optional, "optional list element")
                if value is not MISSING:
                    values.append(value)
        finally:
            frame.charge(LIST_COST)
        return tuple(values)

    return evaluate


def _map_builder(entries: list[tuple[Run, Run, bool]]) -> Run:
    def evaluate(frame: Frame) -> Mapping:
        built = Mapping()
        try:
            for key_run, value_run, optional in entries:
                key, value = key_run(frame), value_run(frame)
                value = _unwrapped(value, optional, f"optional entry '{go_text(key)}'" if optional else "")
                if value is MISSING:
                    built.remove(key)
                    continue
                require_hashable(key)
                try:
                    built.insert(key, value)
                except TypeError:
                    raise EvaluationError(f"unsupported key type in map: {type_name(key)}") from None
        finally:
            frame.charge(_MAP_COST)
        return built

    return evaluate


# -- calls ----------------------------------------------------------------------------------------------------------


def _planned(name: str, overloads: tuple[Overload, ...], args: list[Run], *, constant_pattern: bool = False) -> Run:
    """Return a function that evaluates a call; the reference compiles a constant pattern beforehand."""
    function = FUNCTIONS[name]
    one = overloads[0] if len(overloads) == 1 else None
    cost = function.cost if one is None or one.cost is None else one.cost
    candidates = [each for each in (function.overloads if one is None else overloads) if each.run is not None]
    run = function.run
    if run is None and len(candidates) == 1 and constant_pattern:
        run = candidates[0].run
    if run is None:
        run = _dispatcher(name, candidates)
    is_binary = len(args) == 2 and not constant_pattern and (one is not None or function.run is not None)
    return _binary(args[0], args[1], run, cost, _STRINGS.get(name)) if is_binary else _sequence(args, run, cost)


def _dispatcher(name: str, overloads: list[Overload]) -> Implementation:
    def dispatch(*args: Any) -> Any:
        values = args[:-1]
        for overload in overloads:
            if len(overload.args) == len(values) and all(map(_matches_type, overload.args, values)):
                return cast("Implementation", overload.run)(*args)
        raise EvaluationError(f"no such overload: {name}({', '.join([type_name(value) for value in values])})")

    return dispatch


def _matches_type(kind: Type, value: Any) -> bool:
    """Return whether a value is of a type; of a list or map the first element or entry decides."""
    if kind.kind in ("param", "dyn", "any"):
        return True
    if kind.name != type_name(value):
        return False
    if kind.kind == "list" and value:
        return _matches_type(kind.params[0], value[0])
    if kind.kind == "map" and isinstance(value, Mapping) and len(value):
        key = next(iter(value.iterate()))
        return _matches_type(kind.params[0], key) and _matches_type(kind.params[1], value.find(key))
    return True


def _split(cost: CallCost) -> tuple[int, Callable[[Sequence[Any], Any], int] | None]:
    return (cost, None) if isinstance(cost, int) else (0, cost)


def _sequence(args: list[Run], run: Implementation, cost: CallCost) -> Run:
    last = len(args) - 1
    fixed, price = _split(cost)

    def evaluate(frame: Frame) -> Any:
        values: list[Any] = []
        try:
            for arg in args:
                values.append(arg(frame))  # noqa: PERF401 - what was evaluated before an error counts
            result = run(*values, frame)
        except EvaluationError:
            # The reference counts a call only if it finds all arguments evaluated.
            if len(values) == last:
                values.append(ERROR_VALUE)
            if len(values) > last:
                frame.charge(fixed if price is None else price(values, ERROR_VALUE))
            raise
        frame.cost += fixed if price is None else price(values, result)
        if frame.cost > frame.cost_to_check:
            frame.check()
        return result

    return evaluate


_STRINGS = {"_==_": True, "_!=_": False}
"""Result for equal strings, which are compared without a call because most comparisons are between strings."""


def _binary(left: Run, right: Run, run: Implementation, cost: CallCost, if_equal: bool | None = None) -> Run:
    fixed, price = _split(cost)

    def evaluate(frame: Frame) -> Any:
        one = two = ERROR_VALUE
        try:
            one = left(frame)
            two = right(frame)
            if if_equal is not None and type(one) is str and type(two) is str:
                frame.cost += (min(len(one), len(two)) + 9) // 10
                return (one == two) is if_equal
            result = run(one, two, frame)
        except EvaluationError:
            if one is ERROR_VALUE:
                with suppress(EvaluationError):
                    two = right(frame)
            frame.charge(fixed if price is None else price((one, two), ERROR_VALUE))
            raise
        frame.cost += fixed if price is None else price((one, two), result)
        if frame.cost > frame.cost_to_check:
            frame.check()
        return result

    return evaluate


def _logical(left: Run, right: Run, *, decisive: bool) -> Run:
    def evaluate(frame: Frame) -> bool:
        error: EvaluationError | None = None
        for side in (left, right):
            try:
                value: object = side(frame)
            except EvaluationError as failure:
                error = error or failure
                continue
            if value is decisive:
                return decisive
            if type(value) is not bool:
                error = error or EvaluationError("no such overload")
        if error is not None:
            raise error
        return not decisive

    return evaluate


def _alternative(left: Run, right: Run, *, unwrap: bool) -> Run:
    def evaluate(frame: Frame) -> Any:
        value = left(frame)
        if type(value) is not Optional:
            raise EvaluationError("no such overload")
        if value.value is MISSING:
            return right(frame)
        return value.value if unwrap else value

    return evaluate


def _membership(run: Run, elements: tuple[Any, ...], overloads: tuple[Overload, ...]) -> _Plan:
    """Return the plan of ``in`` with a constant list, which costs nothing."""
    if not elements:
        return _constant(False)
    if any(type(element) not in _PRIMITIVES for element in elements):
        return _Plan(_planned("@in", overloads, [run, lambda _frame: elements]))
    members = Mapping()
    for element in elements:
        members.insert(element, element)

    def evaluate(frame: Frame) -> bool:
        found = run(frame)
        if type(found) not in _PRIMITIVES:
            require_hashable(found)
            return False
        return members.find(found) is not MISSING

    return _Plan(evaluate)


# -- comprehensions, into which CEL's macros expand ------------------------------------------------------------------

# The slot of an accumulator contains its value, the error of its last step or initial value, or what follows; a list of
# Python is one that its comprehension still appends to, because CEL's lists are tuples.


@dataclass(slots=True, eq=False)
class _Unread:
    """An initial value that has not been read yet."""

    initial: Run


def _reader(slot: int) -> Run:
    def read(frame: Frame) -> Any:
        value = frame.slots[slot]
        if type(value) is _Unread:
            try:
                value = frame.slots[slot] = value.initial(frame)
            except EvaluationError as error:
                frame.slots[slot] = error
                raise
            return value
        if isinstance(value, EvaluationError):
            raise value
        return tuple(value) if type(value) is list else value

    return read


def _start(initial: _Plan) -> Any:
    if initial.constant is MISSING:
        return _Unread(initial.run)
    if initial.constant == ():
        return []
    if type(initial.constant) is Mapping and not len(initial.constant):
        return Mapping()
    return initial.constant


def _iteration(
    variables: list[int], accumulator: int, condition: Run | None, step: Run
) -> Callable[[Frame, Any], None]:
    first, second = variables[0], variables[1] if len(variables) > 1 else None

    def iterate(frame: Frame, iterated: Any) -> None:
        slots = frame.slots
        for one, two in _entries(iterated, two=second is not None):
            slots[first] = one
            if second is not None:
                slots[second] = two
            if condition is not None:
                try:
                    if condition(frame) is False:
                        return
                except EvaluationError:
                    pass
            try:
                slots[accumulator] = step(frame)
            except EvaluationError as error:
                slots[accumulator] = error
            frame.charge(0)

    return iterate


def _entries(iterated: Any, *, two: bool) -> Any:
    if type(iterated) is tuple:
        return enumerate(iterated) if two else zip(iterated, iterated, strict=True)
    if isinstance(iterated, Mapping):
        return [(key, iterated.find(key)) for key in iterated.iterate()]
    if two:
        raise EvaluationError(f"unsupported comprehension range type: {go_type(iterated)}")
    raise EvaluationError(f"got '{go_type(iterated)}', expected iterable type")


def _accumulation(accumulator: int, args: list[Run], add: Callable[[Any, Sequence[Any], Frame], Any]) -> Run:
    """Return a step that adds the values of *args* to an accumulator in place."""
    last = len(args) - 1

    def step(frame: Frame) -> Any:
        current = frame.slots[accumulator]
        frame.cost += _IDENTIFIER_COST
        failed = current if isinstance(current, EvaluationError) else None
        values: list[Any] = []
        try:
            # Like the reference, which evaluates both operands of an operator, but stops at the first failed argument.
            for arg in args if failed is None or not last else ():
                values.append(arg(frame))  # noqa: PERF401 - what was evaluated before an error counts
        except EvaluationError as error:
            failed = failed or error
        if len(values) >= last:
            frame.charge(1)
        if failed is not None:
            raise failed
        return add(current, values, frame)

    return step


def _append(current: Any, values: Sequence[Any], frame: Frame) -> Any:
    (elements,) = values
    if type(current) is list:
        current.extend(elements)
        return current
    frame.add_work(len(current))
    return (*current, *elements)


def _insert(current: Mapping, values: Sequence[Any], _frame: Frame) -> Mapping:
    if len(values) == 2:
        _insert_new(current, values[0], values[1])
        return current
    (added,) = values
    if not isinstance(added, Mapping):
        raise EvaluationError(f"no such overload: cel.@mapInsert(map, {type_name(added)})")
    for key in added.iterate():
        _insert_new(current, key, added.find(key))
    return current


def _insert_new(target: Mapping, key: Any, value: Any) -> None:
    if target.contains(key):
        raise EvaluationError(f"insert failed: key {go_text(key)} already exists")
    target.insert(key, value)


# What adds to the accumulator of a macro, by the function of its step.
_ADDITIONS: dict[str, Callable[[Any, Sequence[Any], Frame], Any]] = {"_+_": _append, "cel.@mapInsert": _insert}
