"""Compare CEL selectors of devices with the reference: match, error and cost.

go build -C tests/parity/oracle -o /tmp/selectors ./selectors
python -m tests.parity.oracle.selector_parity --binary /tmp/selectors --count 5000
"""

from __future__ import annotations

import argparse
import gzip
import json
import subprocess
import sys
from collections import Counter
from typing import Any

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
    """Return whether the reference always gives the same answer: it iterates over maps in random order."""
    return not any(text in question["expression"] for text in ("device.attributes.", "transformMap", "{"))


def store(path: str, questions: list[dict[str, Any]], answers: list[dict[str, Any]]) -> None:
    """Write the questions whose answers are stable, and the answers."""
    with gzip.open(path, "wt") as out:
        for question, expected in zip(questions, answers, strict=True):
            if stable(question) and "panic" not in expected.get("runtimeError", ""):
                out.write(json.dumps({"question": question, "expect": expected}) + "\n")


def main() -> None:
    """Run the comparison and print differences and counts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--binary", required=True, help="The program built from tests/parity/oracle/selectors.")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--show", type=int, default=20, help="Differences to print.")
    parser.add_argument("--store", help="Write questions and the reference's answers to this file (.jsonl.gz).")
    parser.add_argument("--only", default="", help="Print only differences of this sort.")
    options = parser.parse_args()
    print("overloads declared by one side only:", undeclared(options.binary) or "none")
    questions = [selector_case(options.seed, index) for index in range(options.count)]
    answers = reference_answers(options.binary, questions)
    if options.store:
        store(options.store, questions, answers)
    counts: Counter[str] = Counter()
    outcomes: Counter[str] = Counter()
    shown = 0
    for question, expected in zip(questions, answers, strict=True):
        actual = answer(question)
        found = difference(expected, actual)
        counts[found or "equal"] += 1
        outcomes[next(iter(expected))] += 1
        if found and shown < options.show and options.only in ("", found):
            shown += 1
            print(found, question["expression"], expected, actual, sep="\n    ")
    print(dict(outcomes), dict(counts))
    sys.exit(0 if counts["equal"] == options.count else 1)


if __name__ == "__main__":
    main()
