"""Type checking of CEL expressions, as cel-go does it for device selectors.

Errors have the positions and texts of cel-go.
"""

from __future__ import annotations

from typing import cast

from scheduler_core.cel.checked_types import (
    Substitutions,
    assign,
    assign_all,
    is_dyn,
    is_dyn_or_error,
    most_general,
    substitute,
    unwrap_optional,
)
from scheduler_core.cel.declarations import FIELDS, TYPE_IDENTIFIERS, VARIABLES, Overload, functions
from scheduler_core.cel.problems import Problems
from scheduler_core.cel.syntax_tree import (
    Call,
    Comprehension,
    Entry,
    Ident,
    ListLiteral,
    Literal,
    MapLiteral,
    Node,
    Select,
    StructLiteral,
    descendants,
)
from scheduler_core.cel.value_types import (
    BOOL,
    BYTES,
    DOUBLE,
    DYN,
    ERROR,
    INT,
    NULL,
    STRING,
    UINT,
    Type,
    list_of,
    map_of,
    optional_of,
    type_of,
    type_param,
)
from scheduler_core.cel.values import TypeValue, Uint

_LITERALS: dict[type, Type] = {
    bool: BOOL,
    bytes: BYTES,
    float: DOUBLE,
    int: INT,
    str: STRING,
    type(None): NULL,
    Uint: UINT,
}


def check(tree: Node, problems: Problems) -> Type:
    """Check *tree*, write types and overloads into it, and return its type."""
    checker = _Checker(problems)
    checker.check(tree)
    for node in descendants(tree):
        node.type = substitute(checker.substitutions, cast("Type", node.type), params_to_dyn=True)
    return cast("Type", tree.type)


def qualified_name(node: Node) -> str | None:
    """Return the dotted name that *node* spells, None if it is none."""
    names = []
    while type(node) is Select and not node.test_only:
        names.append(node.field)
        node = node.operand
    if type(node) is not Ident:
        return None
    return ".".join([node.name, *reversed(names)])


class _Checker:
    def __init__(self, problems: Problems) -> None:
        self._problems = problems
        self.substitutions: Substitutions = {}
        self._scopes: list[dict[str, Type]] = []
        self._variables = 0

    def check(self, node: Node) -> Type:
        """Check a node and return its type."""
        # A node that occurs twice is checked once, else nested optMap calls would take exponential time.
        if node.type is not None:
            return node.type
        if type(node) is Call:
            node.type = self._call(node)
        elif type(node) is Select:
            node.type = self._select(node)
        elif type(node) is Ident:
            node.type = self._ident(node)
        elif type(node) is Literal:
            node.type = _LITERALS[type(node.value)]
        elif type(node) is Comprehension:
            node.type = self._comprehension(node)
        elif type(node) is ListLiteral:
            node.type = self._list(node)
        elif type(node) is MapLiteral:
            node.type = self._map(node)
        else:
            node.type = self._struct(cast("StructLiteral", node))
        return node.type

    def _new_variable(self) -> Type:
        self._variables += 1
        return type_param(f"_var{self._variables - 1}")

    def _resolved(self, node: Node) -> Type:
        return substitute(self.substitutions, self.check(node))

    def _assignable(self, source: Type, target: Type) -> bool:
        found = assign(self.substitutions, source, target)
        if found is not None:
            self.substitutions = found
        return found is not None

    def _mismatch(self, offset: int, expected: Type, actual: Type) -> None:
        self._problems.report(offset, f"expected type '{expected}' but found '{actual}'")

    def _undeclared(self, offset: int, name: str) -> Type:
        self._problems.report(offset, f"undeclared reference to '{name}' (in container '')")
        return ERROR

    def _lookup(self, name: str, into: Ident) -> Type | None:
        if not name.startswith("."):
            for scope in reversed(self._scopes):
                if name in scope:
                    return scope[name]
        bare = name.removeprefix(".")
        if bare in VARIABLES:
            into.is_global = True
            return VARIABLES[bare]
        if bare in TYPE_IDENTIFIERS:
            into.type_value = TypeValue(bare)
            return type_of(TYPE_IDENTIFIERS[bare])
        return None

    def _ident(self, node: Ident) -> Type:
        return self._lookup(node.name, node) or self._undeclared(node.offset, node.name)

    def _select(self, node: Select) -> Type:
        name = None if node.test_only else qualified_name(node)
        if name is not None and not self._is_local(name.partition(".")[0]):
            ident = Ident(node.offset, name)
            found = self._lookup(name, ident)
            if found is not None:
                node.resolved = ident
                return found
        result = self._field(node.offset, node.operand, node.field, optional=False)
        return BOOL if node.test_only else substitute(self.substitutions, result)

    def _is_local(self, name: str) -> bool:
        return any(name in scope for scope in self._scopes)

    def _field(self, offset: int, operand: Node, field: str, *, optional: bool) -> Type:
        target, was_optional = unwrap_optional(self._resolved(operand))
        result = ERROR
        if target.kind == "map":
            result = target.params[1]
        elif target.kind == "struct":
            fields = FIELDS.get(target.name, {})
            if field in fields:
                result = fields[field]
            else:
                self._problems.report(offset, f"undefined field '{field}'")
        elif target.kind == "param":
            self._assignable(DYN, target)
            result = DYN
        else:
            if not is_dyn_or_error(target):
                self._problems.report(offset, f"type '{target}' does not support field selection")
            result = DYN
        return optional_of(result) if was_optional or optional else result

    def _call(self, node: Call) -> Type:
        if node.function == "_?._":
            field = cast("Literal", node.args[1])
            self.check(field)
            result = self._field(node.offset, node.args[0], cast("str", field.value), optional=True)
            node.overloads = ("select_optional_field",)
            return substitute(self.substitutions, result)
        for arg in node.args:
            self.check(arg)
        if node.target is not None:
            prefix = qualified_name(node.target)
            if prefix is not None:
                namespaced = f"{prefix.removeprefix('.')}.{node.function}"
                if namespaced in functions():
                    node.function = namespaced
                    node.target = None
                    return self._resolve(node)
            self.check(node.target)
        name = node.function.removeprefix(".") if node.target is None else node.function
        if name not in functions():
            return self._undeclared(node.offset, node.function)
        node.function = name
        return self._resolve(node)

    def _resolve(self, node: Call) -> Type:
        overloads = functions()[node.function]
        arguments = [*([node.target] if node.target is not None else []), *node.args]
        types = [cast("Type", arg.type) for arg in arguments]
        if node.function in ("_&&_", "_||_"):
            return self._logical(node, types, overloads[0])
        result: Type | None = None
        found = []
        for overload in overloads:
            if overload.member != (node.target is not None) or len(overload.args) != len(types):
                continue
            fresh = {param: self._new_variable() for param in overload.params}
            args = tuple(substitute(fresh, arg) for arg in overload.args)
            substitutions = assign_all(self.substitutions, types, args)
            if substitutions is None:
                continue
            self.substitutions = substitutions
            found.append(overload.identifier)
            current = substitute(self.substitutions, substitute(fresh, overload.result))
            if result is None:
                result = current
            elif not is_dyn(result) and current != result:
                result = DYN
        node.overloads = tuple(found)
        if result is None:
            return self._no_overload(node, types)
        return result

    def _logical(self, node: Call, types: list[Type], overload: Overload) -> Type:
        failed = False
        for arg, kind in zip(node.args, types, strict=True):
            if not self._assignable(kind, BOOL):
                self._mismatch(arg.offset, BOOL, kind)
                failed = True
        node.overloads = (overload.identifier,)
        return ERROR if failed else BOOL

    def _no_overload(self, node: Call, types: list[Type]) -> Type:
        texts = [str(substitute(self.substitutions, kind, params_to_dyn=True)) for kind in types]
        target = ""
        if node.target is not None:
            target = texts.pop(0) + "."
        signature = f"{target}({', '.join(texts)})"
        self._problems.report(node.offset, f"found no matching overload for '{node.function}' applied to '{signature}'")
        return ERROR

    def _join(self, previous: Type | None, current: Type) -> Type:
        if previous is None:
            return current
        if self._assignable(previous, current):
            return most_general(previous, current)
        return DYN

    def _unwrapped(self, node: Node, kind: Type, *, optional: bool) -> Type:
        if not optional:
            return kind
        inner, was_optional = unwrap_optional(kind)
        if not was_optional and not is_dyn(inner):
            self._mismatch(node.offset, optional_of(inner), inner)
        return inner

    def _list(self, node: ListLiteral) -> Type:
        element: Type | None = None
        for index, item in enumerate(node.elements):
            kind = self._unwrapped(item, self.check(item), optional=index in node.optional)
            element = self._join(element, kind)
        return list_of(element or self._new_variable())

    def _map(self, node: MapLiteral) -> Type:
        key: Type | None = None
        value: Type | None = None
        for entry in node.entries:
            key = self._join(key, self.check(entry.key))
            kind = self._unwrapped(entry.value, self.check(entry.value), optional=entry.optional)
            value = self._join(value, kind)
        if key is None or value is None:
            return map_of(self._new_variable(), self._new_variable())
        return map_of(key, value)

    def _struct(self, node: StructLiteral) -> Type:
        # No type of this environment can be constructed by its name.
        name = node.name.removeprefix(".")
        if name in TYPE_IDENTIFIERS or name in VARIABLES:
            text = "is not a type" if name in VARIABLES else "is not a message type"
            self._problems.report(node.offset, f"'{name}' {text}")
        else:
            self._undeclared(node.offset, node.name)
            return ERROR
        for entry in node.entries:
            self._initializer(entry)
        return ERROR

    def _initializer(self, entry: Entry) -> None:
        self._unwrapped(entry.value, self.check(entry.value), optional=entry.optional)
        self._problems.report(entry.offset, f"undefined field '{cast('Literal', entry.key).value}'")

    def _comprehension(self, node: Comprehension) -> Type:
        self.check(node.iter_range)
        accumulator = self.check(node.initial)
        iterated = self._resolved(node.iter_range)
        self._scopes.append({node.accumulator: accumulator})
        self._scopes.append(self._loop_variables(node, iterated))
        self.check(node.condition)
        self._require(node.condition, BOOL)
        self.check(node.step)
        self._require(node.step, accumulator)
        self._scopes.pop()
        self.check(node.result)
        self._scopes.pop()
        return self._resolved(node.result)

    def _require(self, node: Node, kind: Type) -> None:
        actual = cast("Type", node.type)
        if not self._assignable(kind, actual):
            self._mismatch(node.offset, kind, actual)

    def _loop_variables(self, node: Comprehension, iterated: Type) -> dict[str, Type]:
        two = bool(node.iter_var2)
        if iterated.kind == "list":
            first, second = (INT, iterated.params[0]) if two else (iterated.params[0], DYN)
        elif iterated.kind == "map":
            first, second = iterated.params
        elif iterated.kind in ("dyn", "error", "param"):
            self._assignable(DYN, iterated)
            first, second = DYN, DYN
        else:
            self._problems.report(
                node.iter_range.offset,
                f"expression of type '{iterated}' cannot be range of a comprehension (must be list, map, or dynamic)",
            )
            first, second = ERROR, ERROR
        return {node.iter_var: first, node.iter_var2: second} if two else {node.iter_var: first}
