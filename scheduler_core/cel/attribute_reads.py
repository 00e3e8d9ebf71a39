"""Which attributes and capacities an expression reads."""

from __future__ import annotations

from scheduler_core.cel.syntax_tree import Call, Ident, Literal, Node, Select, descendants

Reads = frozenset[tuple[str, str]] | None
_FIELDS = {"attributes", "capacity"}
_WHOLE = {"driver", "allowMultipleAllocations"}


def attribute_reads(tree: Node) -> Reads:
    """Return the pairs of domain and name that a checked tree reads, None if they depend on the device.

    Each occurrence of ``device`` must select a field, and each selection from a map a constant domain and name.
    """
    parents: dict[int, list[Node]] = {}
    devices = []
    for node in descendants(tree):
        for operand in _operands(node):
            parents.setdefault(id(operand), []).append(node)
        if type(node) is Ident and node.is_global:
            devices.append(node)
    reads: set[tuple[str, str]] = set()
    for device in devices:
        chains = parents.get(id(device), [])
        if not chains or not all(_collect(chain, parents, reads) for chain in chains):
            return None
    return frozenset(reads)


def _operands(node: Node) -> list[Node]:
    if type(node) is Select:
        return [node.operand]
    if type(node) is Call and node.function in ("_[_]", "_[?_]", "_?._"):
        return [node.args[0]]
    return []


def _key(node: Node) -> str | None:
    if type(node) is Select:
        return node.field
    if type(node) is Call and type(node.args[1]) is Literal and type(node.args[1].value) is str:
        return node.args[1].value
    return None


def _collect(chain: Node, parents: dict[int, list[Node]], reads: set[tuple[str, str]]) -> bool:
    field = _key(chain)
    if field in _WHOLE:
        return True
    if field not in _FIELDS or id(chain) not in parents:
        return False
    for domain_node in parents[id(chain)]:
        domain = _key(domain_node)
        if domain is None or id(domain_node) not in parents:
            return False
        for name_node in parents[id(domain_node)]:
            name = _key(name_node)
            if name is None:
                return False
            reads.add((domain, name))
    return True
