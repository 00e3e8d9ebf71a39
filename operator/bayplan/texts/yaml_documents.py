"""Safe parsing of YAML from users.

Sizes are bounded: a few lines of aliases can expand to gigabytes, and libyaml's recursive composer crashes the process
at some ten thousand levels. A repeated key is an error, unlike in kubectl, which drops all values but the last.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Hashable, Iterator, Mapping
from typing import Any

import yaml

MAX_DEPTH = 100
MAX_VALUES_BY_ALIASES = 100_000


class RejectedYamlError(yaml.YAMLError):
    """Raised for YAML that is valid but not accepted."""


class SafeLoader(yaml.CSafeLoader):
    """Loader of plain data, like ``yaml.safe_load``."""


class ManifestLoader(SafeLoader):
    """Loader of plain data that reads scalars and keys as kubectl does: sigs.k8s.io/yaml, then as JSON.

    Dates are text, 1e3 and 08 are numbers; keys are text; unknown tags are ignored. Unlike there, y and n are text.
    """

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        """Return a mapping, of which the keys are text."""
        found = super().construct_mapping(node, deep)
        return found if all(type(key) is str for key in found) else {_key(key): each for key, each in found.items()}


def _key(key: Hashable) -> str:
    match key:
        case bool():
            return str(key).lower()
        case str() | int():
            return str(key)
        case float():
            return f"{key:g}"
        case _:
            raise RejectedYamlError(f"has a key that is not text ({key}); put it in quotes")


def _number(loader: yaml.CSafeLoader, node: yaml.ScalarNode) -> Any:
    """Return a number as Go reads it: a whole one if it is written as such, or the text if it is too large."""
    written = loader.construct_scalar(node)
    text = str(written).replace("_", "")
    digits = text.lstrip("+-")
    if digits.lstrip(".").lower() in ("inf", "nan"):
        raise RejectedYamlError(f"has the number {written}, which JSON does not have, at {_line(node)}; remove it")
    if re.fullmatch(r"0[0-7]+", digits):
        text = text.replace("0", "0o", 1)
    try:
        return int(text, 0)
    except ValueError:
        number = float(text)
        return number if math.isfinite(number) else written


def _flag(loader: yaml.CSafeLoader, node: yaml.ScalarNode) -> bool:
    return str(loader.construct_scalar(node)).lower() in ("yes", "true", "on")


def _of_unknown_tag(loader: yaml.CSafeLoader, _: str, node: yaml.Node) -> Any:
    if isinstance(node, yaml.MappingNode):
        return loader.construct_mapping(node, deep=True)
    if isinstance(node, yaml.SequenceNode):
        return loader.construct_sequence(node, deep=True)
    assert isinstance(node, yaml.ScalarNode)
    return loader.construct_scalar(node)


def _binary(loader: yaml.CSafeLoader, node: yaml.ScalarNode) -> str:
    return loader.construct_yaml_binary(node).decode()


_TAG = "tag:yaml.org,2002:"
_GO_SCALARS = {
    f"{_TAG}bool": r"yes|Yes|YES|true|True|TRUE|on|On|ON|no|No|NO|false|False|FALSE|off|Off|OFF",
    f"{_TAG}null": r"~|null|Null|NULL|",
    f"{_TAG}merge": "<<",
    f"{_TAG}int": r"[-+]?(?:0[bB][01_]+|0[oO]?[0-7_]+|0[xX][0-9a-fA-F_]+|0|[1-9][0-9_]*)",
    f"{_TAG}float": r"[-+]?(?:\.[0-9]+|[0-9][0-9_]*(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?"
    r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)",
}
ManifestLoader.yaml_implicit_resolvers = {
    None: [(tag, re.compile(f"^(?:{pattern})$")) for tag, pattern in _GO_SCALARS.items()]
}
for _name in ("int", "float"):
    ManifestLoader.add_constructor(f"{_TAG}{_name}", _number)
ManifestLoader.add_constructor(f"{_TAG}binary", _binary)
ManifestLoader.add_constructor(f"{_TAG}bool", _flag)
ManifestLoader.add_multi_constructor("!", _of_unknown_tag)


class PlainDumper(yaml.SafeDumper):
    """YAML dumper without anchors, which are hard to review and not supported by every parser."""

    def ignore_aliases(self, _data: Any) -> bool:
        """Return True: write repeated values in full."""
        return True


def load(text: str | bytes) -> Any:
    """Parse the one document of a text, None for an empty one; raises YAMLError as :func:`load_all`."""
    documents = list(load_all(text))
    if len(documents) > 1:
        raise RejectedYamlError("has several documents; keep one")
    return documents[0] if documents else None


def load_all(text: str | bytes, loader: type[yaml.CSafeLoader] = SafeLoader) -> Iterator[Any]:
    """Parse all documents of a text; raises YAMLError if it is not YAML, or exceeds a bound."""
    for reader, node in read_nodes(text, loader):
        _check_keys(node)
        try:
            document = reader.construct_document(node)
        except ValueError as error:  # a number of thousands of digits, a date that does not exist
            raise RejectedYamlError(f"has a value that cannot be read ({error}); put it in quotes") from error
        yield document


def value_at(document: Any, *path: str) -> Any:
    """Return a value within plain data; None if it is missing, or if something on the way to it is no mapping."""
    for name in path:
        document = document.get(name) if isinstance(document, Mapping) else None
    return document


def mapping_at(document: Any, *path: str) -> Mapping[str, Any]:
    """Return a mapping within plain data; an empty one for anything else."""
    found = value_at(document, *path)
    return found if isinstance(found, Mapping) else {}


def list_at(document: Any, *path: str) -> list[Any]:
    """Return a list within plain data; an empty one for anything else."""
    found = value_at(document, *path)
    return found if isinstance(found, list) else []


def list_items(document: Any) -> list[Any] | None:
    """Return the items of a Kubernetes list, those of a typed list with the kind; None for any other document."""
    kind = document.get("kind") if isinstance(document, dict) else None
    items = document.get("items") if isinstance(document, dict) else None
    if not (isinstance(kind, str) and kind.endswith("List") and isinstance(items, list)):
        return None
    if kind == "List" and document.get("apiVersion") != "v1":
        return None
    implied = {} if kind == "List" else {"apiVersion": document.get("apiVersion"), "kind": kind.removesuffix("List")}
    return [{**implied, **item} if isinstance(item, dict) else item for item in items]


def read_nodes(text: str | bytes, loader: type[yaml.CSafeLoader]) -> Iterator[tuple[yaml.CSafeLoader, yaml.Node]]:
    """Parse all documents to nodes with lines, and the loader of their data; repeated keys are not checked."""
    try:
        _check_depth(text)
    except yaml.MarkedYAMLError:
        separated = _separated(text)
        if not separated:
            raise
        text = separated
        _check_depth(text)
    reader = loader(text)
    try:
        while reader.check_node():
            node = reader.get_node()
            assert node is not None  # check_node() returned True
            _check_aliases(node)
            yield reader, node
    finally:
        reader.dispose()


def _separated(text: str | bytes) -> str:
    """Return JSON objects that follow each other as documents, without other lines; "" if there is anything else."""
    try:
        rest = text if isinstance(text, str) else text.decode()
        decoder, objects, end = json.JSONDecoder(), list[str](), 0
        while rest[end:].strip():
            begin = end + len(rest[end:]) - len(rest[end:].lstrip())
            _, end = decoder.raw_decode(rest, begin)
            objects.append(rest[begin:end])
            end += rest.startswith("\n", end)
    except (ValueError, RecursionError):
        return ""
    return "\n--- ".join(objects)


def _check_depth(text: str | bytes) -> None:
    """Reject a text that is nested too deep, or is not YAML, by its events, which are parsed without recursion."""
    depth = 0
    for event in yaml.parse(text, Loader=yaml.CSafeLoader):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > MAX_DEPTH:
                raise RejectedYamlError(f"is nested deeper than {MAX_DEPTH} levels at {_line(event)}; make it flatter")
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1


def is_too_deep(document: Any) -> bool:
    """Return whether plain data is nested deeper than YAML may be; it is walked without recursion."""
    level = [document]
    for _ in range(MAX_DEPTH + 1):
        level = [
            inner
            for each in level
            for inner in (each.values() if isinstance(each, dict) else each if isinstance(each, list) else ())
            if isinstance(inner, dict | list)
        ]
        if not level:
            return False
    return True


def _check_aliases(root: yaml.Node) -> None:
    """Reject an alias within its own anchor, and aliases that expand to too many values or too many levels.

    Each node is visited once and without recursion: a chain of aliases is deeper than the text that spells it.

    Raises:
        YAMLError: There is such an alias.
    """
    sizes: dict[int, tuple[int, int]] = {}
    above: set[int] = set()
    to_see: list[tuple[yaml.Node, bool]] = [(root, False)]
    while to_see:
        node, is_left = to_see.pop()
        number = id(node)
        if is_left:
            inner = [sizes[id(each)] for each in _within(node)]
            depth = 1 + max((each[1] for each in inner), default=0) if isinstance(node, yaml.CollectionNode) else 0
            if depth > MAX_DEPTH:
                message = f"its aliases expand to more than {MAX_DEPTH} levels at {_line(node)}; write them out"
                raise RejectedYamlError(message)
            sizes[number] = 1 + sum(each[0] for each in inner), depth
            above.discard(number)
        elif number in above:
            raise RejectedYamlError(f"has an alias within its own anchor at {_line(node)}; remove it")
        elif number not in sizes:
            above.add(number)
            to_see.append((node, True))
            to_see += [(each, False) for each in _within(node)]
    if sizes[id(root)][0] - len(sizes) > MAX_VALUES_BY_ALIASES:
        raise RejectedYamlError(f"its aliases expand to more than {MAX_VALUES_BY_ALIASES:,} values; write them out")


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
                message = f'has the key "{key.value[:64]}" twice in one mapping, at {_line(key)}; remove one'
                raise RejectedYamlError(message)
            keys.add((key.tag, key.value))
        inner = [one for one in _within(node) if id(one) not in seen]
        seen.update(map(id, inner))
        to_see += inner


def _line(part: yaml.Node | yaml.Event) -> str:
    return "a line" if part.start_mark is None else f"line {part.start_mark.line + 1}"
