"""Manifests from files, each with the lines on which its fields stand.

Owns the way from paths to documents: files, directories, standard input, several documents in a file, lists. It must
not know what a document means. Why a reader of its own beside the simulation's: that one wants objects and stops at
what it cannot decode, while here every field must be found again by its line.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from bayplan import yaml_documents
from scheduler_core.config.validation import path_steps

STANDARD_INPUT = "-"
_SUFFIXES = frozenset({".yaml", ".yml", ".json"})


@dataclass(frozen=True, slots=True)
class Manifest:
    """A document, or an item of a list.

    Attributes:
        body: What it holds.
        file: Where it stands.
        number: Which document of the file, from 1.
        node: The same as YAML has read it, which knows lines.
    """

    body: Any
    file: str
    number: int
    node: yaml.Node

    def line(self, path: str = "") -> int:
        """The line of a field, or of what holds it where the field itself is not there; from 1.

        Args:
            path: Such as ``spec.plugins.score.enabled[2].name``.
        """
        node: yaml.Node = self.node
        line: int = node.start_mark.line
        for index, name in path_steps(path):
            found = _child(node, index, name)
            if found is None:
                break
            line, node = found
        return line + 1


@dataclass(slots=True)
class Reading:
    """What was read.

    Attributes:
        manifests: In the order in which they stand.
        unreadable: What could not be read, and why, in sentences that begin with the file.
        repeated: Fields that stand twice in one mapping: the file, the line and the field.
    """

    manifests: list[Manifest] = field(default_factory=list)
    unreadable: list[str] = field(default_factory=list)
    repeated: list[tuple[str, int, str]] = field(default_factory=list)


def read_manifests(sources: Sequence[str], *, recursive: bool = False) -> Reading:
    """Read manifests.

    Args:
        sources: Files, directories (their ``.yaml``, ``.yml`` and ``.json`` files), ``-`` for standard input.
        recursive: Whether directories in directories are read too.
    """
    reading = Reading()
    for source in sources:
        for name, text in _texts(source, recursive, reading):
            try:
                _read(name, text, reading)
            except yaml.MarkedYAMLError as error:
                mark = error.problem_mark
                where = f"{name}:{mark.line + 1}" if mark is not None else name
                reading.unreadable.append(f"{where}: is not YAML: {error.problem or error}; correct it")
            except (yaml.YAMLError, UnicodeDecodeError, ValueError, RecursionError) as error:
                reading.unreadable.append(f"{name}: is neither YAML nor JSON: {error}; correct it")
    return reading


def _texts(source: str, recursive: bool, reading: Reading) -> Iterator[tuple[str, bytes]]:
    if source == STANDARD_INPUT:
        yield "standard input", sys.stdin.buffer.read()
        return
    path = Path(source)
    paths = [path]
    if path.is_dir():
        found = path.rglob("*") if recursive else path.glob("*")
        paths = sorted(each for each in found if each.suffix in _SUFFIXES and each.is_file())
        if not paths:
            reading.unreadable.append(f"{source}: holds no .yaml, .yml or .json file; name another directory")
    for each in paths:
        try:
            yield str(each), each.read_bytes()
        except OSError as error:
            told = f"cannot be read: {error.strerror or error}; name a file, a directory, or - for standard input"
            reading.unreadable.append(f"{each}: {told}")


def _read(name: str, text: bytes, reading: Reading) -> None:
    for number, (reader, node) in enumerate(yaml_documents.read_nodes(text, yaml_documents.ManifestLoader), 1):
        reading.repeated += ((name, line, key) for line, key in _repetitions(node))
        body = reader.construct_document(node)
        if body is not None:
            reading.manifests += _flattened(Manifest(body, name, number, node))


def _flattened(manifest: Manifest) -> Iterator[Manifest]:
    """An object, or the items of a list; those of a typed list carry no kind of their own."""
    body = manifest.body
    kind = body.get("kind") if isinstance(body, dict) else None
    items = body.get("items") if isinstance(body, dict) else None
    if not (isinstance(kind, str) and kind.endswith("List") and isinstance(items, list)):
        yield manifest
        return
    implied = {} if kind == "List" else {"apiVersion": body.get("apiVersion"), "kind": kind.removesuffix("List")}
    listed = _child(manifest.node, "", "items")
    nodes = listed[1].value if listed is not None else []
    for item, node in zip(items, nodes, strict=True):
        whole = {**implied, **item} if isinstance(item, dict) else item
        yield from _flattened(Manifest(whole, manifest.file, manifest.number, node))


def _child(node: yaml.Node, index: str, name: str) -> tuple[int, yaml.Node] | None:
    """The line and node of an entry of a list, or of a field of a mapping; ``[key]`` may name either."""
    if isinstance(node, yaml.SequenceNode):
        if index.isdigit() and int(index) < len(node.value):
            entry = node.value[int(index)]
            return entry.start_mark.line, entry
        return None
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value == (index or name):
                return key.start_mark.line, value
    return None


def _repetitions(root: yaml.Node | None) -> Iterator[tuple[int, str]]:
    """Keys that stand twice in a mapping, which kubectl refuses and YAML's readers pass over."""
    waiting, known = [root], set[int]()
    while waiting:
        node = waiting.pop()
        if node is None or id(node) in known:
            continue
        known.add(id(node))
        if isinstance(node, yaml.SequenceNode):
            waiting += node.value
        elif isinstance(node, yaml.MappingNode):
            seen = set[str]()
            for key, value in node.value:
                waiting.append(value)
                if isinstance(key, yaml.ScalarNode):
                    if key.value in seen:
                        yield key.start_mark.line + 1, key.value
                    seen.add(key.value)
