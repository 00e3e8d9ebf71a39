"""Compare CEL selectors of devices with the reference: match, error and cost.

`make parity` runs it after the families; alone: `python -m tests.parity.oracle.selector_parity --count 5000`.
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
from scheduler_core.cel.declarations import functions
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
"""Accepted differences: texts and positions of syntax errors depend on the recovery of the reference's parser."""


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


def answer(question: dict[str, Any]) -> dict[str, Any]:
    """Return our answer to a question, in the form of the reference's."""
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
    """Return what differs: outcome, runtime error, compile error, position, cost; empty for nothing."""
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


def reference_answers(binary: str, questions: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the reference's answers."""
    lines = "\n".join(json.dumps(question) for question in questions) + "\n"
    done = subprocess.run([binary], input=lines, capture_output=True, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def undeclared(binary: str) -> set[tuple[str, ...]]:
    """Return the overloads that only one side declares, apart from deprecated names that no expression can use."""
    done = subprocess.run([binary, "-functions"], capture_output=True, text=True, check=True)
    theirs = set()
    for line in done.stdout.splitlines():
        one = json.loads(line)
        theirs.add((one["function"], one["id"], str(one["member"]), one["result"], *(one["args"] or [])))
    theirs = {one for one in theirs if one[0] not in ("in", "_in_", "__not_strictly_false__")}
    ours = {
        (name, one.identifier, str(one.member), str(one.result), *[str(arg) for arg in one.args])
        for name, overloads in functions().items()
        for one in overloads
    }
    return theirs ^ ours


def stable(question: dict[str, Any]) -> bool:
    """Return whether the reference always gives the same cost and error: it iterates over maps in random order."""
    return not any(text in question["expression"] for text in ("device.attributes.", "transformMap", "{"))


def store(path: str, questions: list[dict[str, Any]], answers: list[dict[str, Any]]) -> None:
    """Write the questions whose answers are stable, and the answers."""
    with gzip.open(path, "wt") as out:
        for question, expected in zip(questions, answers, strict=True):
            if stable(question) and "panic" not in expected.get("runtimeError", ""):
                out.write(json.dumps({"question": question, "expect": expected}) + "\n")


@dataclass(slots=True)
class SelectorTally:
    """Agreement on selectors.

    Attributes:
        undeclared: Overloads that only one side declares.
        outcomes: How often the reference answered a match, a compile error or a runtime error.
        differences: How many answers differ in what; "equal" for those that do not.
        found: Questions with both answers that differ in more than the text of a syntax error.
        panics: Number of questions that are not judged, because the reference panics.
    """

    undeclared: set[tuple[str, ...]] = field(default_factory=set)
    outcomes: Counter[str] = field(default_factory=Counter)
    differences: Counter[str] = field(default_factory=Counter)
    found: list[tuple[str, dict[str, Any], dict[str, Any]]] = field(default_factory=list)
    panics: int = 0

    def add(self, question: dict[str, Any], expected: dict[str, Any], actual: dict[str, Any]) -> None:
        """Count an answer."""
        if "panic" in expected.get("runtimeError", ""):
            self.panics += 1
            return
        wrong = difference(expected, actual)
        if wrong in ("cost", "runtimeError") and not stable(question):
            wrong = ""
        self.outcomes[next(iter(expected))] += 1
        self.differences[wrong or "equal"] += 1
        if wrong and wrong not in COMPILE_DIFFERENCES:
            self.found.append((question["expression"], expected, actual))

    @property
    def is_whole(self) -> bool:
        """Return whether selectors were compared, and nothing but texts of compile errors differs."""
        return bool(self.differences) and not self.found and not self.undeclared


def compare_selectors(binary: Path, seed: int, count: int) -> SelectorTally:
    """Generate selectors, let both sides answer, and compare.

    Args:
        binary: The program of ``selectors/``.
        seed: Any number.
        count: Number of selectors.
    """
    tally = SelectorTally(undeclared(str(binary)))
    questions = [selector_case(seed, index) for index in range(count)]
    for question, expected in zip(questions, reference_answers(str(binary), questions), strict=True):
        tally.add(question, expected, answer(question))
    return tally


def print_selectors(tally: SelectorTally, shown: int = 5) -> None:
    """Print the counts and the first differences."""
    judged = sum(tally.differences.values())
    texts = sum(tally.differences[name] for name in COMPILE_DIFFERENCES)
    print(f"selectors: {judged - texts - len(tally.found)} of {judged} answers equal, {texts} more but for the text of")
    print(f"  a compile error; the reference panicked on {tally.panics}; {dict(tally.outcomes)}", flush=True)
    if tally.undeclared:
        print(f"  overloads that one side declares: {sorted(tally.undeclared)}")
    for expression, expected, actual in tally.found[:shown]:
        print(f"  {expression}\n    kube-scheduler | {expected}\n    bayplan        | {actual}")


def main() -> None:
    """Run the comparison and print differences and counts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--show", type=int, default=20, help="Differences to print.")
    parser.add_argument("--store", help="Write questions and the reference's answers to this file (.jsonl.gz).")
    options = parser.parse_args()
    binary = resolve(["selectors"])["selectors"]
    if options.store:
        questions = [selector_case(options.seed, index) for index in range(options.count)]
        store(options.store, questions, reference_answers(str(binary), questions))
    tally = compare_selectors(binary, options.seed, options.count)
    print_selectors(tally, options.show)
    sys.exit(0 if tally.is_whole else 1)


if __name__ == "__main__":
    main()
