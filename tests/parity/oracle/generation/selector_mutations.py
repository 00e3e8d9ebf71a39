"""Generation of realistic selectors, of which most have one changed character."""

from __future__ import annotations

import random

_REALISTIC = [
    'device.driver == "gpu.example.com"',
    'device.attributes["gpu.example.com"].model == "A100"',
    'device.capacity["gpu.example.com"].memory.compareTo(quantity("40Gi")) >= 0',
    'device.attributes["gpu.example.com"].version.isGreaterThan(semver("1.0.0"))',
    '"other.example.com" in device.attributes',
    'has(device.attributes["gpu.example.com"].model)',
    'device.attributes["gpu.example.com"].?model.orValue("none") != "none"',
    'cel.bind(dra, device.attributes["gpu.example.com"], dra.shared && dra.count > 4)',
    'device.attributes["gpu.example.com"].links.exists(x, x == 2)',
    'device.attributes["gpu.example.com"].names.includes("a")',
    'device.attributes["gpu.example.com"].model.matches("^[AH]100$")',
    'device.attributes["gpu.example.com"].model in ["A100", "H100"]',
    "device.allowMultipleAllocations",
    'device.attributes.exists(d, d.startsWith("gpu"))',
    'device.attributes.all(d, m, "model" in m)',
    'device.attributes["gpu.example.com"].model.lowerAscii() == "a100"',
    'device.capacity["gpu.example.com"].cores.asInteger() % 2 == 0',
    'device.attributes["gpu.example.com"][?"absent"].hasValue()',
    "optional.of(1).optMap(x, x + 1).value() == 2",
    "[3, 1, 2].sort() == [1, 2, 3]",
    '"a,b".split(",").size() == 2',
    'duration("1h") > duration("1m")',
    'timestamp("2024-01-01T00:00:00Z").getFullYear() == 2024',
    '{"a": 1, "b": 2}.transformMap(k, v, v + 1)["a"] == 2',
    "sets.contains([1, 2], [2])",
    'quantity("1Gi").add(quantity("1Gi")).isLessThan(quantity("3Gi"))',
]


def mutated(source: random.Random) -> str:
    """Return a realistic selector, usually with an error."""
    text = source.choice(_REALISTIC)
    if source.random() < 0.5:
        text = f"{text} {source.choice(['&&', '||'])} {source.choice(_REALISTIC)}"
    if source.random() < 0.6:
        position = source.randrange(len(text))
        change = source.random()
        insertion = source.choice(["(", ")", '"', "'", ".", "x", "1", " ", "[", "]", "?", "!", "-", "==", ","])
        if change < 0.4:
            text = text[:position] + text[position + 1 :]
        elif change < 0.7:
            text = text[:position] + insertion + text[position:]
        else:
            text = text[:position] + insertion + text[position + 1 :]
    return text
