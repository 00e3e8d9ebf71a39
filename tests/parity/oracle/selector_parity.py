"""Comparison of CEL device selectors with the reference: match, error and cost.

`make parity` runs it after the families; `python -m tests.parity.oracle.selector_parity --count 5000` runs it alone.
"""

from __future__ import annotations

import argparse
import gzip
import json
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hack.controlplane.binaries import resolve
from scheduler_core.cel.checker import FUNCTIONS
from scheduler_core.cel.device_selector import (
    AttributeValue,
    DeviceFacts,
    SelectorCompileError,
    SelectorRuntimeError,
    Version,
    compile_selector,
)
from tests.parity.oracle.generation.selectors import selector_case

COMPILE_DIFFERENCES = frozenset({"later compile errors", "compile error", "compile error position"})
"""Accepted differences: text and position of a syntax error depend on the error recovery of the reference's parser."""


def attribute_value(value: dict[str, Any]) -> AttributeValue:
    """Return the value of an attribute of a question."""
    ((kind, content),) = value.items()
    if kind == "version":
        return Version(content)
    if kind == "versions":
        return tuple(Version(text) for text in content)
    return tuple(content) if isinstance(content, list) else content


def device_facts(question: dict[str, Any]) -> DeviceFacts:
    """Return the device of a question."""
    return DeviceFacts(
        driver=question["driver"],
        allow_multiple_allocations=question.get("allowMultipleAllocations", False),
        attributes={name: attribute_value(value) for name, value in question.get("attributes", {}).items()},
        capacity=question.get("capacity", {}),
    )


def evaluate(question: dict[str, Any]) -> dict[str, Any]:
    """Return the result of a question in the format of the reference."""
    try:
        selector = compile_selector(question["expression"])
    except SelectorCompileError as error:
        return {"compileError": str(error)}
    try:
        match, cost = selector.matches_with_cost(device_facts(question))
    except SelectorRuntimeError as error:
        return {"runtimeError": str(error)}
    return {"match": match, "cost": cost}


def difference(expected: dict[str, Any], actual: dict[str, Any]) -> str:
    """Return the kind of the first difference, or "" if the results are equal."""
    kinds = ("match", "compileError", "runtimeError")
    expected_kind = next(kind for kind in kinds if kind in expected)
    if expected_kind not in actual:
        return "outcome"
    if expected_kind == "compileError":
        first, second = (text["compileError"].split("\n")[0] for text in (expected, actual))
        if first == second:
            return "" if expected == actual else "later compile errors"
        return "compile error" if first.split(": ")[:3] == second.split(": ")[:3] else "compile error position"
    if expected[expected_kind] != actual[expected_kind]:
        return expected_kind
    return "cost" if expected_kind == "match" and expected["cost"] != actual["cost"] else ""


def reference_results(binary: str, questions: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the reference's results."""
    lines = "\n".join(json.dumps(question) for question in questions) + "\n"
    done = subprocess.run([binary], input=lines, capture_output=True, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def differing_overloads(binary: str) -> set[tuple[str, ...]]:
    """Return the overloads that only one side declares, except deprecated names that no expression can use."""
    done = subprocess.run([binary, "-functions"], capture_output=True, text=True, check=True)
    reference = set()
    for line in done.stdout.splitlines():
        one = json.loads(line)
        reference.add((one["function"], str(one["member"]), one["result"], *(one["args"] or [])))
    reference = {one for one in reference if one[0] not in ("in", "_in_", "__not_strictly_false__")}
    own = {
        (name, str(one.member), str(one.result), *[str(arg) for arg in one.args])
        for name, function in FUNCTIONS.items()
        for one in function.overloads
    }
    return reference ^ own


def is_deterministic(question: dict[str, Any]) -> bool:
    """Return whether the reference's cost and error are deterministic; it iterates over maps in random order."""
    return not any(text in question["expression"] for text in ("device.attributes.", "transformMap", "{"))


def store(path: str, questions: list[dict[str, Any]], results: list[dict[str, Any]]) -> None:
    """Write the questions with deterministic results, and the results."""
    with gzip.open(path, "wt") as out:
        for question, expected in zip(questions, results, strict=True):
            if is_deterministic(question) and "panic" not in expected.get("runtimeError", ""):
                out.write(json.dumps({"question": question, "expect": expected}) + "\n")


@dataclass(slots=True)
class SelectorTally:
    """Agreement on selectors.

    Attributes:
        differing_overloads: Overloads that only one side declares.
        outcomes: Number of matches, compile errors and runtime errors of the reference.
        differences: Number of results by kind of difference, or "equal".
        found: Expressions and both results that differ in more than the text of a syntax error.
        panics: Number of questions that are not compared because the reference panics.
    """

    differing_overloads: set[tuple[str, ...]] = field(default_factory=set)
    outcomes: Counter[str] = field(default_factory=Counter)
    differences: Counter[str] = field(default_factory=Counter)
    found: list[tuple[str, dict[str, Any], dict[str, Any]]] = field(default_factory=list)
    panics: int = 0

    def add(self, question: dict[str, Any], expected: dict[str, Any], actual: dict[str, Any]) -> None:
        """Count a result."""
        if "panic" in expected.get("runtimeError", ""):
            self.panics += 1
            return
        wrong = difference(expected, actual)
        if wrong in ("cost", "runtimeError") and not is_deterministic(question):
            wrong = ""
        self.outcomes[next(iter(expected))] += 1
        self.differences[wrong or "equal"] += 1
        if wrong and wrong not in COMPILE_DIFFERENCES:
            self.found.append((question["expression"], expected, actual))

    @property
    def agrees(self) -> bool:
        """Return whether selectors were compared and at most texts of compile errors differ."""
        return bool(self.differences) and not self.found and not self.differing_overloads


def compare_selectors(binary: Path, seed: int, count: int) -> SelectorTally:
    """Generate selectors, evaluate them on both sides, and compare the results.

    Args:
        binary: The program of ``selectors/``.
    """
    tally = SelectorTally(differing_overloads(str(binary)))
    questions = [selector_case(seed, index) for index in range(count)]
    for question, expected in zip(questions, reference_results(str(binary), questions), strict=True):
        tally.add(question, expected, evaluate(question))
    return tally


def print_selectors(tally: SelectorTally, limit: int = 5) -> None:
    """Print the counts and the first differences."""
    compared = sum(tally.differences.values())
    texts = sum(tally.differences[name] for name in COMPILE_DIFFERENCES)
    print(
        f"selectors: {compared - texts - len(tally.found)} of {compared} results are equal,"
        f" {texts} more except for the text"
    )
    print(f"  of a compile error; the reference panicked on {tally.panics}; {dict(tally.outcomes)}", flush=True)
    if tally.differing_overloads:
        print(f"  overloads that only one side declares: {sorted(tally.differing_overloads)}")
    for expression, expected, actual in tally.found[:limit]:
        print(f"  {expression}\n    kube-scheduler | {expected}\n    bayplan        | {actual}")


def main() -> None:
    """Run the comparison and print differences and counts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--show", type=int, default=20, help="Differences to print.")
    parser.add_argument("--store", help="File (.jsonl.gz) for questions and the reference's results.")
    options = parser.parse_args()
    binary = resolve(["selectors"])["selectors"]
    if options.store:
        questions = [selector_case(options.seed, index) for index in range(options.count)]
        store(options.store, questions, reference_results(str(binary), questions))
    tally = compare_selectors(binary, options.seed, options.count)
    print_selectors(tally, options.show)
    sys.exit(0 if tally.agrees else 1)


if __name__ == "__main__":
    main()
