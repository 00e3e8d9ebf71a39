"""The syntax tree of a CEL expression after macro expansion.

The type checker writes ``type`` and the resolved names into the nodes. A node may occur twice in a tree, because
``optMap`` repeats its target.
"""

from __future__ import annotations

from collections.abc import Iterator

from scheduler_core.cel.value_types import Type


class Node:
    """A node.

    Attributes:
        offset: Code point offset in the expression that errors report.
        type: The type that the checker found.
        depth: Levels of operators, selections and member calls in the source text below and at this node.
    """

    __slots__ = ("depth", "offset", "type")

    def __init__(self, offset: int) -> None:
        self.offset = offset
        self.type: Type | None = None
        self.depth = 0


class Literal(Node):
    """A constant: bool, int, ``Uint``, float, str, bytes or None."""

    __slots__ = ("value",)

    def __init__(self, offset: int, value: object) -> None:
        super().__init__(offset)
        self.value = value


class Ident(Node):
    """A name. The checker sets ``type_value`` for names of types, ``is_global`` for variables of the environment."""

    __slots__ = ("is_global", "name", "type_value")

    def __init__(self, offset: int, name: str) -> None:
        super().__init__(offset)
        self.name = name
        self.type_value: object = None
        self.is_global = False


class Select(Node):
    """A field selection, or a presence test of a field. The checker sets ``resolved`` when it is a qualified name."""

    __slots__ = ("field", "operand", "resolved", "test_only")

    def __init__(self, offset: int, operand: Node, field: str, *, test_only: bool = False) -> None:
        super().__init__(offset)
        self.operand = operand
        self.field = field
        self.test_only = test_only
        self.resolved: Ident | None = None


class Call(Node):
    """A call or an operator. ``overloads`` holds the identifiers of the overloads that match by type."""

    __slots__ = ("args", "function", "overloads", "target")

    def __init__(self, offset: int, function: str, args: list[Node], target: Node | None = None) -> None:
        super().__init__(offset)
        self.function = function
        self.args = args
        self.target = target
        self.overloads: tuple[str, ...] = ()


class ListLiteral(Node):
    """A list. ``optional`` holds the indices of elements written ``?e``."""

    __slots__ = ("elements", "optional")

    def __init__(self, offset: int, elements: list[Node], optional: frozenset[int] = frozenset()) -> None:
        super().__init__(offset)
        self.elements = elements
        self.optional = optional


class Entry:
    """An entry of a map or struct literal."""

    __slots__ = ("key", "offset", "optional", "value")

    def __init__(self, offset: int, key: Node, value: Node, *, optional: bool) -> None:
        self.offset = offset
        self.key = key
        self.value = value
        self.optional = optional


class MapLiteral(Node):
    """A map."""

    __slots__ = ("entries",)

    def __init__(self, offset: int, entries: list[Entry]) -> None:
        super().__init__(offset)
        self.entries = entries


class StructLiteral(Node):
    """A message of a named type; keys of entries are string literals."""

    __slots__ = ("entries", "name")

    def __init__(self, offset: int, name: str, entries: list[Entry]) -> None:
        super().__init__(offset)
        self.name = name
        self.entries = entries


class Comprehension(Node):
    """A fold over a list or map, into which the macros expand."""

    __slots__ = ("accumulator", "condition", "initial", "iter_range", "iter_var", "iter_var2", "result", "step")

    def __init__(
        self,
        offset: int,
        *,
        iter_range: Node,
        iter_var: str,
        accumulator: str,
        initial: Node,
        condition: Node,
        step: Node,
        result: Node,
        iter_var2: str = "",
    ) -> None:
        super().__init__(offset)
        self.iter_range = iter_range
        self.iter_var = iter_var
        self.iter_var2 = iter_var2
        self.accumulator = accumulator
        self.initial = initial
        self.condition = condition
        self.step = step
        self.result = result


def children(node: Node) -> list[Node]:
    """Return the nodes directly below *node*."""
    if type(node) is Call:
        return [*([node.target] if node.target is not None else []), *node.args]
    if type(node) is Select:
        return [] if node.resolved is not None else [node.operand]
    if type(node) is ListLiteral:
        return list(node.elements)
    if type(node) is MapLiteral or type(node) is StructLiteral:
        return [part for entry in node.entries for part in (entry.key, entry.value)]
    if type(node) is Comprehension:
        return [node.iter_range, node.initial, node.condition, node.step, node.result]
    return []


def descendants(tree: Node) -> Iterator[Node]:
    """Iterate over *tree* and all nodes below it, each once."""
    pending = [tree]
    seen: set[int] = set()
    while pending:
        node = pending.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        yield node
        pending.extend(reversed(children(node)))
