"""Compile a checked syntax tree into closures.

Follows the structure of cel-go's planner, because constants that it folds and attributes that it merges decide the cost
of an evaluation and which error is reported.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

from scheduler_core.cel.attributes import Attribute, Qualifier, Run
from scheduler_core.cel.calls import plan_call, plan_equality
from scheduler_core.cel.constructors import list_builder, map_builder, require_hashable
from scheduler_core.cel.cost import IDENTIFIER_COST
from scheduler_core.cel.folds import ACCUMULATING, Fold, Slots, plan_fold
from scheduler_core.cel.operators import Frame
from scheduler_core.cel.problems import AbortedError, EvaluationError, InvalidExpressionError
from scheduler_core.cel.regular_expressions import compile_pattern
from scheduler_core.cel.syntax_tree import (
    Call,
    Comprehension,
    Ident,
    ListLiteral,
    Literal,
    MapLiteral,
    Node,
    Select,
)
from scheduler_core.cel.values import MISSING, Mapping, Optional, Uint

_CONVERSIONS = frozenset({"bool", "bytes", "double", "duration", "dyn", "int", "string", "timestamp", "type", "uint"})
_PARSERS = frozenset({"quantity", "semver"})
_SEARCHES = frozenset({"find", "findAll", "matches"})
_PRIMITIVES = frozenset({bool, float, int, str, Uint})


@dataclass(frozen=True)
class Plan:
    """What a node compiles into.

    Attributes:
        run: Evaluates the node and counts its cost.
        constant: The value if the node is constant, else MISSING.
        attribute: The attribute if the node is one.
    """

    run: Run
    constant: Any = MISSING
    attribute: Attribute | None = None


def compile_tree(tree: Node) -> tuple[Run, int]:
    """Return a function that evaluates a checked tree, and the number of slots of its frame.

    Raises:
        InvalidExpressionError: A constant in the tree cannot be evaluated.
    """
    compiler = _Compiler()
    plan = compiler.plan(tree)
    return plan.run, compiler.slots.count


def constant(value: Any) -> Plan:
    """Return the plan of a constant."""
    return Plan(lambda _frame: value, constant=value)


def _attribute(attribute: Attribute) -> Plan:
    resolve = attribute.resolver()
    if attribute.condition is not None:
        return Plan(resolve, attribute=attribute)

    def evaluate(frame: Frame) -> Any:
        try:
            return resolve(frame)
        finally:
            frame.cost += IDENTIFIER_COST

    return Plan(evaluate, attribute=attribute)


def _presence_test(attribute: Attribute) -> Plan:
    resolve = attribute.resolver()
    refund = attribute.condition is not None

    def evaluate(frame: Frame) -> Any:
        value = resolve(frame)
        if refund:
            frame.cost -= IDENTIFIER_COST
        return value.value is not MISSING if type(value) is Optional else value

    return Plan(evaluate, attribute=attribute)


def _device(frame: Frame) -> Any:
    return frame.device


class _Compiler:
    def __init__(self) -> None:
        self.slots = Slots()
        self._plans: dict[int, Plan] = {}

    def plan(self, node: Node) -> Plan:
        """Return the plan of a node."""
        known = self._plans.get(id(node))
        if known is None:
            known = self._plans[id(node)] = self._new_plan(node)
        return known

    def _new_plan(self, node: Node) -> Plan:
        if type(node) is Call:
            return self._call(node)
        if type(node) is Select:
            return self._select(node)
        if type(node) is Ident:
            return self._ident(node)
        if type(node) is Literal:
            return constant(node.value)
        if type(node) is ListLiteral:
            return self._list(node)
        if type(node) is MapLiteral:
            return self._map(node)
        return self._comprehension(cast("Comprehension", node))

    def _ident(self, node: Ident) -> Plan:
        if node.type_value is not None:
            return constant(node.type_value)
        if node.is_global:
            return _attribute(Attribute(_device, root=node.name.removeprefix(".")))
        return _attribute(Attribute(self.slots.reader(node.name)))

    def _base(self, plan: Plan) -> Attribute:
        return plan.attribute if plan.attribute is not None else Attribute(plan.run)

    def _select(self, node: Select) -> Plan:
        if node.resolved is not None:
            return self._ident(node.resolved)
        base = self._base(self.plan(node.operand))
        attribute = base.qualified(Qualifier(node.field, test_only=node.test_only))
        return _presence_test(attribute) if node.test_only else _attribute(attribute)

    def _index(self, operand: Plan, index: Plan, *, optional: bool) -> Plan:
        if index.constant is not MISSING:
            if type(index.constant) not in _PRIMITIVES:
                raise InvalidExpressionError("program instantiation failed: invalid qualifier type")
            qualifier = Qualifier(index.constant, optional=optional)
        else:
            compute = index.attribute.resolver() if index.attribute is not None else index.run
            qualifier = Qualifier(MISSING, compute, optional=optional)
        return _attribute(self._base(operand).qualified(qualifier))

    def _call(self, node: Call) -> Plan:
        args = [self.plan(arg) for arg in ([node.target, *node.args] if node.target is not None else node.args)]
        function = node.function
        if function in ("_&&_", "_||_"):
            return Plan(_logical(args[0].run, args[1].run, decisive=function == "_||_"))
        if function == "_?_:_":
            return _attribute(
                Attribute(None, condition=args[0].run, choices=(self._base(args[1]), self._base(args[2])))
            )
        if function in ("_==_", "_!=_"):
            return Plan(plan_equality(args[0].run, args[1].run, negated=function == "_!=_"))
        if function in ("_[_]", "_[?_]", "_?._"):
            return self._index(args[0], args[1], optional=function != "_[_]")
        if function in ("or", "orValue") and len(args) == 2:
            return Plan(_alternative(args[0].run, args[1].run, unwrap=function == "orValue"))
        if function == "@in" and node.overloads == ("in_list",) and args[1].constant is not MISSING:
            return _membership(args[0], args[1].constant)
        constant_pattern = function in _SEARCHES and len(args) >= 2 and type(args[1].constant) is str
        if constant_pattern:
            _require_pattern(args[1].constant)
        run = plan_call(function, node.overloads, [arg.run for arg in args], constant_pattern=constant_pattern)
        if function in _PARSERS and all(arg.constant is not MISSING for arg in args):
            return Plan(_evaluated_once(run))
        if function in _CONVERSIONS and len(args) == 1 and args[0].constant is not MISSING:
            return constant(_folded(run))
        return Plan(run)

    def _list(self, node: ListLiteral) -> Plan:
        plans = [self.plan(element) for element in node.elements]
        runs = [(plan.run, index in node.optional) for index, plan in enumerate(plans)]
        run = list_builder(runs)
        if all(plan.constant is not MISSING for plan in plans):
            return constant(_folded(run))
        return Plan(run)

    def _map(self, node: MapLiteral) -> Plan:
        entries = [(self.plan(entry.key), self.plan(entry.value), entry.optional) for entry in node.entries]
        run = map_builder([(key.run, value.run, optional) for key, value, optional in entries])
        if all(key.constant is not MISSING and value.constant is not MISSING for key, value, _ in entries):
            return constant(_folded(run))
        return Plan(run)

    def _comprehension(self, node: Comprehension) -> Plan:
        initial = self.plan(node.initial)
        iter_range = self.plan(node.iter_range)
        slots = self.slots
        accumulator = slots.open(node.accumulator)
        first = slots.open(node.iter_var)
        second = slots.open(node.iter_var2) if node.iter_var2 else None
        condition = self.plan(node.condition)
        step = self._step(node, accumulator)
        slots.close(2 if second is not None else 1)
        result = self.plan(node.result)
        slots.close(1)
        return Plan(
            plan_fold(
                Fold(
                    iter_range=iter_range.run,
                    accumulator=accumulator,
                    first=first,
                    second=second,
                    initial=initial.run,
                    initial_constant=initial.constant,
                    condition=condition.run,
                    condition_constant=condition.constant,
                    step=step,
                    result=result.run,
                )
            )
        )

    def _step(self, node: Comprehension, accumulator: int) -> Run:
        """Return the step; a list or map that it accumulates grows in place."""
        step = node.step
        if type(step) is Call and step.function == "_?_:_" and self._accumulates(step.args[1], node):
            condition = self.plan(step.args[0]).run
            return _attribute(
                Attribute(
                    None,
                    condition=condition,
                    choices=(
                        Attribute(self._accumulation(cast("Call", step.args[1]), accumulator)),
                        self._base(self.plan(step.args[2])),
                    ),
                )
            ).run
        if self._accumulates(step, node):
            return self._accumulation(cast("Call", step), accumulator)
        return self.plan(step).run

    def _accumulates(self, step: Node, node: Comprehension) -> bool:
        if type(step) is not Call or step.function not in ACCUMULATING or not step.args:
            return False
        target = step.args[0]
        return (
            type(target) is Ident
            and target.name == node.accumulator
            and type(node.initial) in (ListLiteral, MapLiteral)
            and target.name.startswith("@")
        )

    def _accumulation(self, step: Call, accumulator: int) -> Run:
        args = [self.plan(arg).run for arg in step.args[1:]]
        return ACCUMULATING[step.function](accumulator, args)


def _folded(run: Run) -> Any:
    try:
        return run(Frame(Mapping(), 0))
    except EvaluationError as error:
        raise InvalidExpressionError(f"program instantiation failed: {error}") from None


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


def _require_pattern(pattern: str) -> None:
    try:
        compile_pattern(pattern)
    except EvaluationError as error:
        raise InvalidExpressionError(f"program instantiation failed: {error}") from None


def _logical(left: Run, right: Run, *, decisive: bool) -> Run:
    def evaluate(frame: Frame) -> bool:
        error: EvaluationError | None = None
        try:
            if _decides(left(frame), decisive=decisive):
                return decisive
        except EvaluationError as failure:
            error = failure
        try:
            if _decides(right(frame), decisive=decisive):
                return decisive
        except EvaluationError as failure:
            raise (error or failure) from None
        if error is not None:
            raise error
        return not decisive

    return evaluate


def _decides(value: Any, *, decisive: bool) -> bool:
    if value is decisive:
        return True
    if type(value) is not bool:
        raise EvaluationError("no such overload")
    return False


def _alternative(left: Run, right: Run, *, unwrap: bool) -> Run:
    def evaluate(frame: Frame) -> Any:
        value = left(frame)
        if type(value) is not Optional:
            raise EvaluationError("no such overload")
        if value.value is MISSING:
            return right(frame)
        return value.value if unwrap else value

    return evaluate


def _membership(value: Plan, elements: tuple[Any, ...]) -> Plan:
    """Return the plan of ``in`` with a constant list, which costs nothing."""
    if not elements:
        return constant(False)
    if any(type(element) not in _PRIMITIVES for element in elements):
        return Plan(plan_call("@in", ("in_list",), [value.run, constant(elements).run]))
    run = value.run
    members = {_member(element) for element in elements}

    def evaluate(frame: Frame) -> bool:
        found = run(frame)
        if type(found) not in _PRIMITIVES:
            require_hashable(found)
            return False
        return _member(found) in members

    return Plan(evaluate)


def _member(value: Any) -> Any:
    return ("bool", value) if type(value) is bool else value
