"""Which attributes and capacities an expression reads."""

from __future__ import annotations

from collections import Counter

from scheduler_core.cel.syntax_tree import Call, Comprehension, Ident, ListLiteral, Literal, Node, Select, descendants

Reads = frozenset[tuple[str, str]] | None
_FIELDS = {"attributes", "capacity"}
_WHOLE = {"driver", "allowMultipleAllocations"}
_SELECTIONS = ("_[_]", "_[?_]", "_?._")


def attribute_reads(tree: Node) -> Reads:
    """Return the pairs of domain and name that a checked tree reads, None if they depend on the device.

    Each occurrence of ``device`` must select a field, and each selection from a map a constant domain and name. A
    variable of ``cel.bind`` stands for its value.
    """
    usage = _Usage(tree)
    reads: set[tuple[str, str]] = set()
    for node in descendants(tree):
        if type(node) is Ident and node.is_global and not _collect(node, usage, reads):
            return None
    return frozenset(reads)


class _Usage:
    """What selects from each node."""

    def __init__(self, tree: Node) -> None:
        self._selections: dict[int, list[Node]] = {}
        self._bound: dict[int, str] = {}
        self._idents: dict[str, list[Ident]] = {}
        names: Counter[str] = Counter()
        unread: set[int] = set()
        for node in descendants(tree):
            for operand in _operands(node):
                self._selections.setdefault(id(operand), []).append(node)
            if type(node) is Comprehension:
                names.update([node.accumulator, node.iter_var, node.iter_var2])
                if type(node.iter_range) is ListLiteral and not node.iter_range.elements:
                    self._bound[id(node.initial)] = node.accumulator
                    unread.add(id(node.step))
            elif type(node) is Ident and not node.is_global:
                self._idents.setdefault(node.name, []).append(node)
        # A name that is bound twice may stand for either value.
        self._bound = {key: name for key, name in self._bound.items() if names[name] == 1}
        self._idents = {
            name: [ident for ident in idents if id(ident) not in unread] for name, idents in self._idents.items()
        }

    def selections(self, node: Node) -> list[Node] | None:
        """Return the nodes that select from *node*; None if it is used in another way, too."""
        name = self._bound.get(id(node))
        if name is None:
            return self._selections.get(id(node))
        found: list[Node] = []
        for ident in self._idents.get(name, []):
            selections = self.selections(ident)
            if selections is None:
                return None
            found += selections
        return found


def _operands(node: Node) -> list[Node]:
    if type(node) is Select:
        return [node.operand]
    if type(node) is Call and node.function in _SELECTIONS:
        return [node.args[0]]
    return []


def _key(node: Node) -> str | None:
    if type(node) is Select:
        return node.field
    if type(node) is Call and type(node.args[1]) is Literal and type(node.args[1].value) is str:
        return node.args[1].value
    return None


def _collect(device: Node, usage: _Usage, reads: set[tuple[str, str]]) -> bool:
    """Add what is read through one occurrence of the device; return False if that is not known."""
    fields = usage.selections(device)
    if fields is None:
        return False
    for field_node in fields:
        field = _key(field_node)
        if field in _WHOLE:
            continue
        domains = usage.selections(field_node) if field in _FIELDS else None
        if domains is None:
            return False
        for domain_node in domains:
            domain, names = _key(domain_node), usage.selections(domain_node)
            if domain is None or names is None:
                return False
            for name_node in names:
                name = _key(name_node)
                if name is None:
                    return False
                reads.add((domain, name))
    return True
