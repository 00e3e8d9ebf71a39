"""Selection of the tests of images, charts, docs, pages, benchmarks and peers by what changed since a merge base.

All tests are selected unless git lists every changed path: a test that is left out wrongly costs more than a slow run.
"""

from __future__ import annotations

import subprocess
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LIST = "tests/selection/changed_paths.toml"


@dataclass(frozen=True, slots=True)
class Selection:
    """Tests that are left out, as prefixes of their ids, and the reason in one line."""

    left_out: tuple[str, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class PathLists:
    """The lists of changed_paths.toml: paths by group of tests, and tests by group."""

    everything: Sequence[str]
    elsewhere: Sequence[str]
    groups: Mapping[str, Mapping[str, Sequence[str]]]

    @classmethod
    def read(cls, root: Path = ROOT) -> PathLists:
        """Read the lists of a work tree."""
        return cls(**tomllib.loads((root / LIST).read_text(encoding="utf-8")))

    def selection(self, changed: Iterable[str]) -> Selection:
        """Return which tests are left out if only these paths changed."""
        changed = sorted(changed)
        named = [*self.elsewhere, *(path for group in self.groups.values() for path in group["paths"])]
        for path in changed:
            if contains(self.everything, path):
                return Selection((), f"all, because {path} changed")
            if not contains(named, path):
                return Selection((), f"all, because {path} is in no list of {LIST}")
        unchanged = [
            name for name, group in self.groups.items() if not any(contains(group["paths"], path) for path in changed)
        ]
        left_out = tuple(test for name in unchanged for test in self.groups[name]["tests"])
        return Selection(left_out, f"all except those of unchanged {', '.join(unchanged)}" if left_out else "all")


def contains(paths: Iterable[str], path: str) -> bool:
    """Return whether a path is in a list; entries that end with "/" contain everything below."""
    return any(path == entry or (entry.endswith("/") and path.startswith(entry)) for entry in paths)


def select(base: str, root: Path = ROOT) -> Selection:
    """Return which tests are left out in a work tree, compared with its merge base with *base*."""
    try:
        changed = _changed_paths(base, root)
    except _UnknownChangesError as problem:
        return Selection((), f"all, because {problem}")
    return PathLists.read(root).selection(changed)


class _UnknownChangesError(Exception):
    """The paths that changed cannot be determined."""


def _changed_paths(base: str, root: Path) -> set[str]:
    """Return the paths that differ from the merge base in commits, in the work tree, or as files without a commit."""
    if _git(root, "rev-parse", "--is-shallow-repository") != "false\n":
        raise _UnknownChangesError("the clone is shallow")
    merge_base = _git(root, "merge-base", "HEAD", base).strip()
    # A rename changes two paths.
    differing = _git(root, "diff", "--name-only", "--no-renames", "-z", merge_base)
    new = _git(root, "ls-files", "--others", "--exclude-standard", "-z")
    changed = {*differing.split("\0"), *new.split("\0")} - {""}
    if not changed:
        raise _UnknownChangesError(f"nothing differs from {base}")
    return changed


def _git(root: Path, *arguments: str) -> str:
    try:
        done = subprocess.run(["git", "-C", root, *arguments], check=True, capture_output=True, encoding="utf-8")
    except OSError as problem:
        raise _UnknownChangesError(f"git does not start: {problem}") from problem
    except subprocess.CalledProcessError as problem:
        detail = (problem.stderr.splitlines() or ["no result"])[0]
        raise _UnknownChangesError(f"git {' '.join(arguments)} fails: {detail}") from problem
    return done.stdout
