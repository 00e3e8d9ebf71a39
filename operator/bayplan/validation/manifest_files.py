"""Manifests from files, directories, standard input and lists, each with the line numbers of its fields.

Separate from the simulation's reader, which stops at an object that it cannot decode; here every field must be found
again by its line.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

import yaml
from msgspec import Struct

from bayplan.texts import yaml_documents
from bayplan.texts.document_formats import printable_record
from scheduler_core.config.validation import path_steps


class Severity(Enum):
    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


class Finding(Struct, frozen=True, rename="camel"):
    """A finding.

    Attributes:
        severity: An error makes the files invalid.
        line: Line from 1; 0 for the whole file.
        document: Number of the document in the file, from 1; 0 for the whole file.
        object: Kind and name; "" for none.
    """

    severity: Severity
    file: str
    message: str
    line: int = 0
    document: int = 0
    object: str = ""
    path: str = ""

    def __str__(self) -> str:
        """Format like ``a.yaml:7: error: SchedulerProfile batch: spec.pluginss: unknown field; ...``."""
        place = f"{self.file}:{self.line}" if self.line else self.file
        return ": ".join(part for part in (place, self.severity.value, self.object, self.path, self.message) if part)


class Report(Struct, frozen=True, rename="camel"):
    """All findings, and the files that could not be read, in sentences."""

    valid: bool
    objects: int
    findings: tuple[Finding, ...] = ()
    unreadable: tuple[str, ...] = ()


def report_of(findings: Sequence[Finding], objects: int, unreadable: Sequence[str]) -> Report:
    order = {severity: number for number, severity in enumerate(Severity)}
    ordered = sorted(dict.fromkeys(findings), key=lambda each: (each.file, each.line, order[each.severity], each.path))
    is_valid = not unreadable and not any(each.severity is Severity.ERROR for each in ordered)
    return Report(is_valid, objects, tuple(ordered), tuple(unreadable))


def as_text(report: Report) -> str:
    """Format one line for each finding, and a summary."""
    lines = [printable_record(str(each)) for each in (*report.findings, *report.unreadable)]
    counts = {severity: sum(each.severity is severity for each in report.findings) for severity in Severity}
    errors = counts[Severity.ERROR]
    summary = [_counted(errors, "problem")] if errors or not report.unreadable else []
    if counts[Severity.WARNING]:
        summary.append(_counted(counts[Severity.WARNING], "warning"))
    if report.unreadable:
        summary.append(f"{_counted(len(report.unreadable), 'file')} could not be read")
    lines.append(f"{_counted(report.objects, 'object')} validated: {', '.join(summary)}")
    return "\n".join(lines)


def _counted(count: int, noun: str) -> str:
    return f"{count or 'no'} {noun}{'' if count == 1 else 's'}"


STANDARD_INPUT = "-"
_SUFFIXES = frozenset({".yaml", ".yml", ".json"})


@dataclass(frozen=True, slots=True)
class Manifest:
    """A document, or an item of a list."""

    body: Any
    file: str
    number: int
    node: yaml.Node

    def line(self, path: str = "") -> int:
        """Return the line, from 1, of a field such as ``spec.plugins.score.enabled[2].name``, or of what has it."""
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
    """Manifests in the order of the files, and file, line and name of fields that occur twice in one mapping."""

    manifests: list[Manifest] = field(default_factory=list)
    unreadable: list[str] = field(default_factory=list)
    repeated: list[tuple[str, int, str]] = field(default_factory=list)


def read_manifests(sources: Sequence[str], *, recursive: bool = False) -> Reading:
    """Read files, the ``.yaml``, ``.yml`` and ``.json`` files of directories, or standard input for ``-``."""
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
                reading.unreadable.append(f"{name}: is not YAML or JSON: {error}; correct it")
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
            reading.unreadable.append(f"{source}: contains no .yaml, .yml or .json file; use another directory")
    for each in paths:
        try:
            yield str(each), each.read_bytes()
        except OSError as error:
            message = f"cannot be read: {error.strerror or error}; use a file, a directory, or - for standard input"
            reading.unreadable.append(f"{each}: {message}")


def _read(name: str, text: bytes, reading: Reading) -> None:
    for number, (reader, node) in enumerate(yaml_documents.read_nodes(text, yaml_documents.ManifestLoader), 1):
        reading.repeated += ((name, line, key) for line, key in _repetitions(node))
        body = reader.construct_document(node)
        if body is not None:
            reading.manifests += _flattened(Manifest(body, name, number, node))


def _flattened(manifest: Manifest) -> Iterator[Manifest]:
    """Yield an object, or the items of a list."""
    items = yaml_documents.list_items(manifest.body)
    if items is None:
        yield manifest
        return
    listed = _child(manifest.node, "", "items")
    nodes = listed[1].value if listed is not None else []
    for item, node in zip(items, nodes, strict=True):
        yield from _flattened(Manifest(item, manifest.file, manifest.number, node))


def _child(node: yaml.Node, index: str, name: str) -> tuple[int, yaml.Node] | None:
    """Return line and node of a list entry or of a mapping's field; ``[key]`` may name either."""
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
    """Yield keys that occur twice in a mapping, which kubectl rejects and YAML parsers accept."""
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
