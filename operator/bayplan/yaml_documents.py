"""YAML from people and from strangers, read without harm.

Owns the bounds on what a file may hold, and what is said of one that cannot be read. It must not know what is in it.
Why bounds: a few lines of aliases stand for gigabytes, and libyaml's composer, which calls itself, ends the whole
process at some ten thousand levels. A key that stands twice is refused as kubectl refuses it: one of both values would
be dropped in silence.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import yaml

MAX_DEPTH = 100
MAX_VALUES_BY_ALIASES = 100_000


class UnfitYamlError(yaml.YAMLError):
    """YAML that is not read, though it is YAML."""


class SafeLoader(yaml.CSafeLoader):
    """Reads plain data as ``yaml.safe_load`` does."""


class ManifestLoader(SafeLoader):
    """Reads plain data as kubectl does: what looks like a date is text."""


ManifestLoader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in SafeLoader.yaml_implicit_resolvers.items()
}


def load(text: str | bytes, loader: type[yaml.CSafeLoader] = SafeLoader) -> Any:
    """Read the one document of a text; None for an empty one.

    Raises:
        YAMLError: It is no YAML, holds several documents, or is out of bounds.
    """
    documents = list(load_all(text, loader))
    if len(documents) > 1:
        raise UnfitYamlError("holds several documents; leave one")
    return documents[0] if documents else None


def load_all(text: str | bytes, loader: type[yaml.CSafeLoader] = SafeLoader) -> Iterator[Any]:
    """Read all documents of a text.

    Raises:
        YAMLError: It is no YAML, or out of bounds.
    """
    for reader, node in read_nodes(text, loader):
        _check_keys(node)
        try:
            document = reader.construct_document(node)
        except ValueError as error:  # a number of thousands of digits, a date that there is not
            raise UnfitYamlError(f"holds what cannot be read ({error}); put it into quotation marks") from error
        yield document


def read_nodes(text: str | bytes, loader: type[yaml.CSafeLoader]) -> Iterator[tuple[yaml.CSafeLoader, yaml.Node]]:
    """Read all documents of a text as nodes, which know their lines; keys that stand twice are let through.

    Yields:
        Each document's node, and the loader that makes plain data of it.

    Raises:
        YAMLError: It is no YAML, or out of bounds.
    """
    _check_depth(text)
    reader = loader(text)
    try:
        while reader.check_node():
            node = reader.get_node()
            assert node is not None  # check_node() has just said so
            _check_aliases(node)
            yield reader, node
    finally:
        reader.dispose()


def _check_depth(text: str | bytes) -> None:
    """Refuse a text that is nested too deep: by its events, which come one at a time however deep they lie.

    Raises:
        YAMLError: It is, or is no YAML.
    """
    depth = 0
    for event in yaml.parse(text, Loader=yaml.CSafeLoader):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > MAX_DEPTH:
                raise UnfitYamlError(f"is nested deeper than {MAX_DEPTH} levels in {_line(event)}; make it flatter")
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1


def _check_aliases(root: yaml.Node) -> None:
    """Refuse an alias within what it stands for, and aliases that stand for too much.

    Raises:
        YAMLError: There are such.
    """
    sizes: dict[int, int] = {}
    _size(root, sizes, set())
    if sizes[id(root)] - len(sizes) > MAX_VALUES_BY_ALIASES:
        raise UnfitYamlError(f"its aliases stand for more than {MAX_VALUES_BY_ALIASES:,} values; write them out")


def _size(node: yaml.Node, sizes: dict[int, int], above: set[int]) -> int:
    """How many values a node stands for with its aliases written out; each node is looked at once."""
    number = id(node)
    if number in above:
        raise UnfitYamlError(f"holds an alias within what it stands for in {_line(node)}; remove it")
    if number not in sizes:
        above.add(number)
        sizes[number] = 1 + sum(_size(inner, sizes, above) for inner in _within(node))
        above.discard(number)
    return sizes[number]


def _within(node: yaml.Node) -> Iterator[yaml.Node]:
    if isinstance(node, yaml.SequenceNode):
        yield from node.value
    elif isinstance(node, yaml.MappingNode):
        for pair in node.value:
            yield from pair


def _check_keys(root: yaml.Node) -> None:
    to_see, seen = [root], {id(root)}
    while to_see:
        node = to_see.pop()
        keys: set[tuple[str, str]] = set()
        for key, _ in node.value if isinstance(node, yaml.MappingNode) else ():
            if not isinstance(key, yaml.ScalarNode):
                continue
            if (key.tag, key.value) in keys:
                message = f'has the key "{key.value[:64]}" twice in one mapping, in {_line(key)}; remove one'
                raise UnfitYamlError(message)
            keys.add((key.tag, key.value))
        inner = [one for one in _within(node) if id(one) not in seen]
        seen.update(map(id, inner))
        to_see += inner


def _line(part: yaml.Node | yaml.Event) -> str:
    return "a line" if part.start_mark is None else f"line {part.start_mark.line + 1}"
