"""Type checking of CEL expressions over the variable ``device``, with cel-go's positions and texts of errors.

Literals that types do not restrict, such as patterns, are validated afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import count
from typing import cast

from scheduler_core.cel import extensions, kubernetes_functions, standard_functions
from scheduler_core.cel import syntax_tree as ast
from scheduler_core.cel import value_types as kinds
from scheduler_core.cel.extensions import check_format, compile_pattern
from scheduler_core.cel.overloads import Function, Overload, function, merged
from scheduler_core.cel.problems import InvalidExpressionError, Problems
from scheduler_core.cel.standard_functions import parse_duration, parse_timestamp
from scheduler_core.cel.value_types import Substitutions, Type, is_dyn, list_of, map_of, optional_of, substitute
from scheduler_core.cel.values import TypeValue, Uint

# No variable has these types, so that calls fail; expressions with dyn compile.
_AUTHORIZATION = [
    function("allowed", "Decision.() -> bool"),
    function("check", "PathCheck.(string) | ResourceCheck.(string) -> Decision", cost=350_000),
    function("error", "Decision.() -> string"),
    function("errored", "Decision.() -> bool"),
    function("group", "Authorizer.(string) -> GroupCheck"),
    function("path", "Authorizer.(string) -> PathCheck"),
    function("reason", "Decision.() -> string"),
    function("resource", "GroupCheck.(string) -> ResourceCheck"),
    function("serviceAccount", "Authorizer.(string, string) -> Authorizer"),
    *[
        function(name, "ResourceCheck.(string) -> ResourceCheck")
        for name in ("fieldSelector", "labelSelector", "name", "namespace", "subresource")
    ],
]
FUNCTIONS: Mapping[str, Function] = merged(
    *_AUTHORIZATION,
    *standard_functions.FUNCTIONS,
    *extensions.FUNCTIONS,
    *kubernetes_functions.FUNCTIONS,
)
"""The functions and operators that device selectors may call, by name."""

_DEVICE = Type("struct", "kubernetes.DRADevice")
_FIELDS: dict[str, Type] = {
    "allowMultipleAllocations": kinds.BOOL,
    "attributes": map_of(kinds.STRING, map_of(kinds.STRING, kinds.DYN)),
    "capacity": map_of(kinds.STRING, map_of(kinds.STRING, kinds.QUANTITY)),
    "driver": kinds.STRING,
}
# Types that are values; "google.protobuf.Any" and the like are their names.
_TYPE_IDENTIFIERS: dict[str, Type] = {
    **{kind.name: kind for kind in (*kinds.PRIMITIVES, kinds.IP, kinds.CIDR) if kind is not kinds.DYN},
    "list": list_of(kinds.DYN),
    "map": map_of(kinds.DYN, kinds.DYN),
    "optional_type": optional_of(kinds.DYN),
}
_LITERALS: dict[type, Type] = {
    bool: kinds.BOOL, bytes: kinds.BYTES, float: kinds.DOUBLE, int: kinds.INT, str: kinds.STRING,
    type(None): kinds.NULL, Uint: kinds.UINT,
}  # fmt: skip


def check(tree: ast.Node, problems: Problems) -> Type:
    checker = _Checker(problems)
    checker.check(tree)
    for node in ast.descendants(tree):
        # Entries of an undeclared message are not checked.
        if node.type is not None:
            node.type = substitute(checker.substitutions, node.type, params_to_dyn=True)
    return cast("Type", tree.type)


def _qualified_name(node: ast.Node) -> str | None:
    names = []
    while type(node) is ast.Select and not node.test_only:
        names.append(node.field)
        node = node.operand
    if type(node) is not ast.Ident:
        return None
    return ".".join([node.name, *reversed(names)])


class _Checker:
    def __init__(self, problems: Problems) -> None:
        self._problems = problems
        self.substitutions: Substitutions = {}
        self._scopes: list[dict[str, Type]] = []
        self._variables = count()

    def check(self, node: ast.Node) -> Type:
        # A node that occurs twice is checked once, else nested optMap calls would take exponential time.
        if node.type is not None:
            return node.type
        node.type = self._unchecked(node)
        return node.type

    def _unchecked(self, node: ast.Node) -> Type:
        if type(node) is ast.Call:
            return self._call(node)
        if type(node) is ast.Select:
            return self._select(node)
        if type(node) is ast.Ident:
            return self._lookup(node.name, node) or self._undeclared(node.offset, node.name)
        if type(node) is ast.Literal:
            return _LITERALS[type(node.value)]
        if type(node) is ast.Comprehension:
            return self._comprehension(node)
        if type(node) is ast.ListLiteral:
            return self._list(node)
        return self._map(node) if type(node) is ast.MapLiteral else self._struct(cast("ast.StructLiteral", node))

    def _new_variable(self) -> Type:
        return Type("param", f"_var{next(self._variables)}")

    def _resolved(self, node: ast.Node) -> Type:
        return substitute(self.substitutions, self.check(node))

    def _assignable(self, source: Type, target: Type) -> bool:
        found = kinds.assign(self.substitutions, (source,), (target,))
        if found is not None:
            self.substitutions = found
        return found is not None

    def _mismatch(self, offset: int, expected: Type, actual: Type) -> None:
        self._problems.report(offset, f"expected type '{expected}' but found '{actual}'")

    def _undeclared(self, offset: int, name: str) -> Type:
        self._problems.report(offset, f"undeclared reference to '{name}' (in container '')")
        return kinds.ERROR

    def _lookup(self, name: str, into: ast.Ident) -> Type | None:
        if not name.startswith("."):
            for scope in reversed(self._scopes):
                if name in scope:
                    return scope[name]
        bare = name.removeprefix(".")
        if bare == "device":
            into.is_global = True
            return _DEVICE
        if bare in _TYPE_IDENTIFIERS:
            into.type_value = TypeValue(bare)
            return Type("type", "type", (_TYPE_IDENTIFIERS[bare],))
        return None

    def _select(self, node: ast.Select) -> Type:
        name = None if node.test_only else _qualified_name(node)
        if name is not None and not any(name.partition(".")[0] in scope for scope in self._scopes):
            ident = ast.Ident(node.offset, name)
            found = self._lookup(name, ident)
            if found is not None:
                node.resolved = ident
                return found
        result = self._field(node.offset, node.operand, node.field, optional=False)
        return kinds.BOOL if node.test_only else substitute(self.substitutions, result)

    def _field(self, offset: int, operand: ast.Node, field: str, *, optional: bool) -> Type:
        target, was_optional = kinds.unwrap_optional(self._resolved(operand))
        result = kinds.DYN
        if target.kind == "map":
            result = target.params[1]
        elif target.kind == "struct":
            found = _FIELDS.get(field) if target == _DEVICE else None
            if found is None:
                self._problems.report(offset, f"undefined field '{field}'")
            result = found or kinds.ERROR
        elif target.kind == "param":
            self._assignable(kinds.DYN, target)
        elif not is_dyn(target) and target != kinds.ERROR:
            self._problems.report(offset, f"type '{target}' does not support field selection")
        return optional_of(result) if was_optional or optional else result

    def _call(self, node: ast.Call) -> Type:
        if node.function == "_?._":
            field = cast("ast.Literal", node.args[1])
            self.check(field)
            result = self._field(node.offset, node.args[0], cast("str", field.value), optional=True)
            return substitute(self.substitutions, result)
        for arg in node.args:
            self.check(arg)
        if node.target is not None:
            prefix = _qualified_name(node.target)
            if prefix is not None:
                namespaced = f"{prefix.removeprefix('.')}.{node.function}"
                if namespaced in FUNCTIONS:
                    node.function = namespaced
                    node.target = None
                    return self._resolve(node)
            self.check(node.target)
        name = node.function.removeprefix(".") if node.target is None else node.function
        if name not in FUNCTIONS:
            return self._undeclared(node.offset, node.function)
        node.function = name
        return self._resolve(node)

    def _resolve(self, node: ast.Call) -> Type:
        overloads = FUNCTIONS[node.function].overloads
        types = tuple([cast("Type", arg.type) for arg in node.operands])
        if node.function in ("_&&_", "_||_"):
            return self._logical(node, types, overloads[0])
        result: Type | None = None
        found: list[Overload] = []
        for overload in overloads:
            if overload.member != (node.target is not None) or len(overload.args) != len(types):
                continue
            fresh = {param: self._new_variable() for param in overload.params}
            args = tuple(substitute(fresh, arg) for arg in overload.args)
            substitutions = kinds.assign(self.substitutions, types, args)
            if substitutions is None:
                continue
            self.substitutions = substitutions
            found.append(overload)
            current = substitute(self.substitutions, substitute(fresh, overload.result))
            if result is None:
                result = current
            elif not is_dyn(result) and current != result:
                result = kinds.DYN
        node.overloads = tuple(found)
        if result is None:
            return self._no_overload(node, types)
        return result

    def _logical(self, node: ast.Call, types: tuple[Type, ...], overload: Overload) -> Type:
        failed = False
        for arg, kind in zip(node.args, types, strict=True):
            if not self._assignable(kind, kinds.BOOL):
                self._mismatch(arg.offset, kinds.BOOL, kind)
                failed = True
        node.overloads = (overload,)
        return kinds.ERROR if failed else kinds.BOOL

    def _no_overload(self, node: ast.Call, types: tuple[Type, ...]) -> Type:
        texts = [str(substitute(self.substitutions, kind, params_to_dyn=True)) for kind in types]
        target = "" if node.target is None else f"{texts.pop(0)}."
        signature = f"{target}({', '.join(texts)})"
        self._problems.report(node.offset, f"found no matching overload for '{node.function}' applied to '{signature}'")
        return kinds.ERROR

    def _join(self, previous: Type | None, current: Type) -> Type:
        if previous is None:
            return current
        if self._assignable(previous, current):
            return kinds.most_general(previous, current)
        return kinds.DYN

    def _unwrapped(self, node: ast.Node, kind: Type, *, optional: bool) -> Type:
        if not optional:
            return kind
        inner, was_optional = kinds.unwrap_optional(kind)
        if not was_optional and not is_dyn(inner):
            self._mismatch(node.offset, optional_of(inner), inner)
        return inner

    def _list(self, node: ast.ListLiteral) -> Type:
        element: Type | None = None
        for index, item in enumerate(node.elements):
            kind = self._unwrapped(item, self.check(item), optional=index in node.optional)
            element = self._join(element, kind)
        return list_of(element or self._new_variable())

    def _map(self, node: ast.MapLiteral) -> Type:
        key: Type | None = None
        value: Type | None = None
        for entry in node.entries:
            key = self._join(key, self.check(entry.key))
            kind = self._unwrapped(entry.value, self.check(entry.value), optional=entry.optional)
            value = self._join(value, kind)
        if key is None or value is None:
            return map_of(self._new_variable(), self._new_variable())
        return map_of(key, value)

    def _struct(self, node: ast.StructLiteral) -> Type:
        # No type of this environment can be constructed by its name.
        name = node.name.removeprefix(".")
        if name != "device" and name not in _TYPE_IDENTIFIERS:
            return self._undeclared(node.offset, node.name)
        self._problems.report(node.offset, f"'{name}' is not a {'type' if name == 'device' else 'message type'}")
        for entry in node.entries:
            self._unwrapped(entry.value, self.check(entry.value), optional=entry.optional)
            self._problems.report(entry.offset, f"undefined field '{cast('ast.Literal', entry.key).value}'")
        return kinds.ERROR

    def _comprehension(self, node: ast.Comprehension) -> Type:
        self.check(node.iter_range)
        accumulator = self.check(node.initial)
        iterated = self._resolved(node.iter_range)
        self._scopes += [{node.accumulator: accumulator}, self._loop_variables(node, iterated)]
        self.check(node.condition)
        self._require(node.condition, kinds.BOOL)
        self.check(node.step)
        self._require(node.step, accumulator)
        self._scopes.pop()
        self.check(node.result)
        self._scopes.pop()
        return self._resolved(node.result)

    def _require(self, node: ast.Node, kind: Type) -> None:
        actual = cast("Type", node.type)
        if not self._assignable(kind, actual):
            self._mismatch(node.offset, kind, actual)

    def _loop_variables(self, node: ast.Comprehension, iterated: Type) -> dict[str, Type]:
        two = bool(node.iter_var2)
        if iterated.kind == "list":
            first, second = (kinds.INT, iterated.params[0]) if two else (iterated.params[0], kinds.DYN)
        elif iterated.kind == "map":
            first, second = iterated.params
        elif iterated.kind in ("dyn", "error", "param"):
            self._assignable(kinds.DYN, iterated)
            first, second = kinds.DYN, kinds.DYN
        else:
            self._problems.report(
                node.iter_range.offset,
                f"expression of type '{iterated}' cannot be range of a comprehension (must be list, map, or dynamic)",
            )
            first, second = kinds.ERROR, kinds.ERROR
        return {node.iter_var: first, node.iter_var2: second} if two else {node.iter_var: first}


# -- validation of literals -----------------------------------------------------------------------------------------


def validate_literals(tree: ast.Node, problems: Problems) -> None:
    """Record literals in a checked tree that are invalid where they stand."""
    formats = [each for each in ast.descendants(tree) if type(each) is ast.Call and each.function == "format"]
    exempt = {id(inner) for call in formats for inner in ast.descendants(call)}
    for node in ast.descendants(tree):
        if type(node) is ast.Call:
            _validate_call(node, problems)
        elif type(node) is ast.ListLiteral and id(node) not in exempt:
            _validate_list(node, problems)
        elif type(node) is ast.MapLiteral and id(node) not in exempt:
            _validate_map(node, problems)


def _element_type(node: ast.Node, *, optional: bool) -> Type:
    kind = cast("Type", node.type)
    if optional and not kind.params:
        # The reference panics here.
        raise InvalidExpressionError("compilation failed: optional element or entry of unknown type")
    return kind.params[0] if optional else kind


def _validate_list(node: ast.ListLiteral, problems: Problems) -> None:
    first: Type | None = None
    for index, element in enumerate(node.elements):
        kind = _element_type(element, optional=index in node.optional)
        if first is not None and kind != first:
            problems.report(element.offset, f"expected type '{first}' but found '{kind}'")
            return
        first = first or kind


def _validate_map(node: ast.MapLiteral, problems: Problems) -> None:
    first: tuple[Type, Type] | None = None
    for entry in node.entries:
        found = (_element_type(entry.key, optional=False), _element_type(entry.value, optional=entry.optional))
        if first is not None:
            for part, expected, kind in zip((entry.key, entry.value), first, found, strict=True):
                if kind != expected:
                    problems.report(part.offset, f"expected type '{expected}' but found '{kind}'")
        first = first or found


_VALIDATORS: dict[str, Callable[[str], bool]] = {
    "duration": lambda text: parse_duration(text) is not None,
    "timestamp": lambda text: parse_timestamp(text) is not None,
    "matches": kubernetes_functions.parses(compile_pattern),
}


def _validate_call(node: ast.Call, problems: Problems) -> None:
    argument = node.args[0] if node.args else None
    if node.function == "format" and type(node.target) is ast.Literal and type(argument) is ast.ListLiteral:
        names = [cast("Type", element.type).name for element in argument.elements]
        message, index = check_format(cast("str", node.target.value), names)
        if message:
            problems.report(argument.elements[index].offset if index >= 0 else node.offset, message)
    valid = _VALIDATORS.get(node.function)
    if valid and type(argument) is ast.Literal and type(argument.value) is str and not valid(argument.value):
        problems.report(argument.offset, f"invalid {node.function} argument")
