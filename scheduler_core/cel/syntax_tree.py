"""The syntax tree of a CEL expression after macro expansion.

The type checker writes ``type`` and the resolved names into the nodes. A node may occur twice in a tree, because
``optMap`` repeats its target.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from dataclasses import field as slot
from typing import TYPE_CHECKING

from scheduler_core.cel.value_types import Type

if TYPE_CHECKING:
    from scheduler_core.cel.overloads import Overload


@dataclass(slots=True, eq=False)
class Node:
    """A node at a code point offset, with the type that the checker found.

    ``depth`` is the number of levels of operators, selections and member calls in the source text, at most, down to it.
    """

    offset: int
    type: Type | None = slot(default=None, init=False)
    depth: int = slot(default=0, init=False)


@dataclass(slots=True, eq=False)
class Literal(Node):
    """A constant: bool, int, ``Uint``, float, str, bytes or None."""

    value: object


@dataclass(slots=True, eq=False)
class Ident(Node):
    """A name. The checker sets ``type_value`` for names of types, ``is_global`` for variables of the environment."""

    name: str
    type_value: object = slot(default=None, init=False)
    is_global: bool = slot(default=False, init=False)


@dataclass(slots=True, eq=False)
class Select(Node):
    """A field selection, or a presence test of a field. The checker sets ``resolved`` when it is a qualified name."""

    operand: Node
    field: str
    test_only: bool = slot(default=False, kw_only=True)
    resolved: Ident | None = slot(default=None, init=False)


@dataclass(slots=True, eq=False)
class Call(Node):
    """A call or an operator. ``overloads`` are those that match by type."""

    function: str
    args: list[Node]
    target: Node | None = None
    overloads: tuple[Overload, ...] = slot(default=(), init=False)

    @property
    def operands(self) -> list[Node]:
        return self.args if self.target is None else [self.target, *self.args]


@dataclass(slots=True, eq=False)
class ListLiteral(Node):
    """A list. ``optional`` holds the indices of elements written ``?e``."""

    elements: list[Node]
    optional: frozenset[int] = frozenset()


@dataclass(slots=True, eq=False)
class Entry:
    """An entry of a map or struct literal."""

    offset: int
    key: Node
    value: Node
    optional: bool


@dataclass(slots=True, eq=False)
class MapLiteral(Node):
    entries: list[Entry]


@dataclass(slots=True, eq=False)
class StructLiteral(Node):
    """A message of a named type; keys of entries are string literals."""

    name: str
    entries: list[Entry]


@dataclass(slots=True, eq=False, kw_only=True)
class Comprehension(Node):
    """A fold over a list or map, into which the macros expand; ``iter_var2`` is empty if there is one variable."""

    offset: int
    iter_range: Node
    iter_var: str
    iter_var2: str = ""
    accumulator: str
    initial: Node
    condition: Node
    step: Node
    result: Node


def children(node: Node) -> list[Node]:
    if type(node) is Call:
        return node.operands
    if type(node) is Select:
        return [] if node.resolved is not None else [node.operand]
    if type(node) is ListLiteral:
        return node.elements
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
        if id(node) not in seen:
            seen.add(id(node))
            yield node
            pending.extend(reversed(children(node)))


# -- reads of the device --------------------------------------------------------------------------------------------

Reads = frozenset[tuple[str, str]] | None
_WHOLE = {"driver", "allowMultipleAllocations"}
"""Fields of the device that are no maps."""
SELECTIONS = ("_[_]", "_[?_]", "_?._")


def attribute_reads(tree: Node) -> Reads:
    """Return the pairs of domain and name that a checked tree reads, None if they depend on the device.

    Each occurrence of ``device`` must select a field, and each selection from a map a constant domain and name. A
    variable of ``cel.bind`` stands for its value.
    """
    usage = _Usage(tree)
    reads: set[tuple[str, str]] = set()
    try:
        for node in descendants(tree):
            for key, field in usage.selections(node) if type(node) is Ident and node.is_global else ():
                for domain, of_domain in usage.selections(field) if key not in _WHOLE else ():
                    reads.update((domain, name) for name, _ in usage.selections(of_domain))
    except LookupError:
        return None
    return frozenset(reads)


class _Usage:
    """What selects from each node."""

    def __init__(self, tree: Node) -> None:
        self._selections: dict[int, list[Node]] = {}
        bound: dict[int, str] = {}
        idents: dict[str, list[Ident]] = {}
        names: Counter[str] = Counter()
        unread: set[int] = set()
        for node in descendants(tree):
            if type(node) is Select:
                self._selections.setdefault(id(node.operand), []).append(node)
            elif type(node) is Call and node.function in SELECTIONS:
                self._selections.setdefault(id(node.args[0]), []).append(node)
            elif type(node) is Comprehension:
                names.update([node.accumulator, node.iter_var, node.iter_var2])
                if type(node.iter_range) is ListLiteral and not node.iter_range.elements:
                    bound[id(node.initial)] = node.accumulator
                    unread.add(id(node.step))
            elif type(node) is Ident and not node.is_global:
                idents.setdefault(node.name, []).append(node)
        # A name that is bound twice may stand for either value.
        self._bound = {key: name for key, name in bound.items() if names[name] == 1}
        self._idents = {name: [one for one in found if id(one) not in unread] for name, found in idents.items()}

    def selections(self, node: Node) -> Iterator[tuple[str, Node]]:
        """Yield what selects from *node*, by key. Raises LookupError: a key is computed, or there is another use."""
        name = self._bound.get(id(node))
        if name is not None:
            for ident in self._idents.get(name, []):
                yield from self.selections(ident)
            return
        for each in self._selections[id(node)]:
            key = constant_key(each)
            if key is None:
                raise LookupError
            yield key, each


def constant_key(node: Node) -> str | None:
    """Return the key that a selection reads, None if it is computed."""
    if type(node) is Select:
        return node.field
    if type(node) is Call and type(node.args[1]) is Literal and type(node.args[1].value) is str:
        return node.args[1].value
    return None
