"""Near-valid objects of every kind that Bayplan reads: a valid one with one or two mutations along its schema.

Mutations are unknown fields, other types, null, values from pools that contain what names, amounts and enumerations get
wrong, removed fields, fields that are added with generated content, and repeated list entries.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from bayplan.api_validation.strict_decoding import Schema, kubernetes_schema
from bayplan.texts import yaml_documents

Body = dict[str, Any]
Place = tuple[Any, Any, Schema]
"""A container, a key or index of it, and the schema of the value there."""

_FIELDS_OF_ADMISSION = frozenset(
    {
        # What admission plugins, the registry or the allocation of addresses decide, not validation.
        "apiVersion",
        "kind",
        "namespace",
        "priority",
        "priorityClassName",
        "runtimeClassName",
        "clusterIP",
        "clusterIPs",
        "ipFamilies",
        "ipFamilyPolicy",
        "serviceAccountName",
        "expression",
        "adminAccess",
        # Fields of a feature gate that is off; with --feature-gates, Bayplan reads them.
        "bools",
        "ints",
        "strings",
        "versions",
    }
)
_TEXTS = (
    *("", "a", "web", "Web", "a_b", "a.b", "-a", "a-", "a b", "example.com/a", "a/b/c", "/a", "../a", "..", "*"),
    *("a" * 64, "a" * 254, "1", "-1", "0", "50%", "150%", "10.0.0.1", "fd00::1", "10.0.0.300", "10.0.0.0/24"),
    *("kubernetes.io/x", "ä", "Always", "always", "Exists", "In", "in", "Gt", "NoSchedule", "Equal", "Never", "TCP"),
    *("None", "ReadWriteOnce", "cpu", "hugepages-2Mi", "hugepages-x", "ephemeral-storage", "requests.cpu"),
    *("kubernetes.io/batch", "attachable-volumes-csi-x", "metadata.name", "metadata.labels['a']", "limits.cpu"),
    *("LoadBalancer", "NodePort", "http", "127.0.0.1", "fe80::1", "fd00::/64", "10.0.0.0/33", "010.0.0.1", "1.2.3"),
    *("a.b.c/d", "a--b", "True", "a\nb", " ", "a/../b", "a:b", "$(A)", "a=b", "a" * 63, "a" * 253, "a" * 16),
    *("RuntimeDefault", "example.com", "foo.k8s.io/x", "gpu.example.com", "🙂"),
)
_NUMBERS = (
    *(0, 1, 2, -1, 100, 101, 255, 256, 511, 512, 65535, 65536, 2**31 - 1, 2**31, 2**63),
    *(3, 10, 16, 32, 64, 128, 300, 420, 600, 1000, 3600, 1.5, -5, 2**63 - 1, -(2**63), -(2**63) - 1, 10**19),
)
_AMOUNTS = (
    *("1", "0", "-1", "500m", "1.5", "1Gi", "3Mi", "1e3", "", "lots", "1 Gi", "1GB", 2, 0.5, -3),
    *("0.1", "1u", "100n", "1.5Gi", "1Ei", "9223372036854775807", "1e30", "-0", "+1", "1E3", "1K", ".5", "5.", " 1"),
    *("4Mi", "2Mi", 1e3, "1e-3", "0.0001m"),
)
_TIMES = (
    *("2026-11-26T08:00:00Z", "2026-11-26T08:00:00+01:00", "2026-11-26", "", "today", "2026-13-01T00:00:00Z"),
    *("2026-11-26T08:00:00.123456789Z", "2026-11-26t08:00:00z", "2026-02-30T00:00:00Z", "2028-02-29T00:00:00Z"),
    *("9999-12-31T23:59:59-14:00", "2026-11-26T24:00:00Z", "2026-11-26T8:00:00Z", "2026-11-26T08:00:00,5Z"),
    *("2026-11-26T08:00:00+24:00", "2026-11-26T08:00:00+23:60", "2026-11-26T08:00:00+0100"),
)

_EARLIER = {
    "resource.k8s.io/v1beta2": "resource.k8s.io/v1",
    "scheduling.k8s.io/v1alpha3": "scheduling.k8s.io/v1beta1",
}


@cache
def valid_objects() -> list[Body]:
    """Return the valid objects, those of some kinds in an earlier version, too."""
    file = Path(__file__).with_name("valid_objects.yaml")
    objects = list(yaml_documents.load_all(file.read_bytes(), yaml_documents.ManifestLoader))
    known = kubernetes_schema().kinds()
    earlier = (
        {**each, "apiVersion": version}
        for each in objects
        for version in _EARLIER
        if (version, each["kind"]) in known and each["apiVersion"] == _EARLIER[version]
    )
    return [*objects, *map(copy.deepcopy, earlier)]


def mutated_object(chance: random.Random) -> Body:
    """Return a copy of a valid object with zero to two mutations."""
    objects = valid_objects()
    # Half of them are pods, which have most rules.
    body = copy.deepcopy(chance.choice(objects[:2]) if chance.random() < 0.5 else chance.choice(objects))
    for _ in range(chance.choices((0, 1, 2), (1, 12, 4))[0]):
        _mutate(body, chance)
    return body


def _mutate(body: Body, chance: random.Random) -> None:
    schema = kubernetes_schema()
    name = schema.type_of(body["apiVersion"], body["kind"])
    places = list(_places(body, {"ref": name}))
    container, key, value_schema = chance.choice(places)
    value = container[key]
    resolved = _resolved(value_schema)
    actions = [_replace, _replace, _replace, _remove, _retype, _nullify]
    if isinstance(value, dict):
        actions = [_add_field, _add_field, _add_field, _unknown_field, _remove, _retype, _nullify]
    elif isinstance(value, list):
        actions = [_repeat, _add_entry, _empty, _remove, _retype, _nullify]
    chance.choice(actions)(container, key, resolved, chance)


def _places(value: Any, schema: Schema) -> Iterator[Place]:
    resolved = _resolved(schema)
    if isinstance(value, dict):
        for name in value:
            inner = resolved.get("properties", {}).get(name) or resolved.get("values") or {}
            if name in _FIELDS_OF_ADMISSION:
                continue
            yield value, name, inner
            yield from _places(value[name], inner)
    elif isinstance(value, list):
        for index, each in enumerate(value):
            yield value, index, resolved.get("items", {})
            yield from _places(each, resolved.get("items", {}))


def _resolved(schema: Schema) -> Schema:
    while "ref" in schema:
        schema = kubernetes_schema().types[schema["ref"]]
    return schema


# -- mutations --------------------------------------------------------------------------------------------------------


def _replace(container: Any, key: Any, schema: Schema, chance: random.Random) -> None:
    container[key] = _generated(schema, chance, 0)


def _remove(container: Any, key: Any, _: Schema, __: random.Random) -> None:
    del container[key]


def _retype(container: Any, key: Any, _: Schema, chance: random.Random) -> None:
    container[key] = chance.choice((5, "text", True, 1.5, [], {}, ["a"], {"a": "b"}))


def _nullify(container: Any, key: Any, _: Schema, __: random.Random) -> None:
    container[key] = None


def _unknown_field(container: Any, key: Any, schema: Schema, chance: random.Random) -> None:
    known = list(schema.get("properties", ())) or ["a"]
    name = chance.choice(known)
    container[key][chance.choice((f"{name}s", name.capitalize(), name[:-1] or "x", f"{name}_"))] = "x"


def _add_field(container: Any, key: Any, schema: Schema, chance: random.Random) -> None:
    properties: Mapping[str, Schema] = schema.get("properties", {})
    names = [name for name in properties if name not in container[key] and name not in _FIELDS_OF_ADMISSION]
    if names:
        name = chance.choice(names)
        container[key][name] = _generated(_resolved(properties[name]), chance, 0)
    elif "values" in schema:
        container[key][chance.choice(_TEXTS)] = _generated(_resolved(schema["values"]), chance, 0)


def _repeat(container: Any, key: Any, _: Schema, __: random.Random) -> None:
    container[key] = container[key] + copy.deepcopy(container[key][-1:])


def _add_entry(container: Any, key: Any, schema: Schema, chance: random.Random) -> None:
    container[key] = [*container[key], _generated(_resolved(schema.get("items", {})), chance, 0)]


def _empty(container: Any, key: Any, _: Schema, __: random.Random) -> None:
    container[key] = []


def _generated(schema: Schema, chance: random.Random, depth: int) -> Any:
    """Return a value of a schema, mostly one that can be decoded."""
    schema = _resolved(schema)
    if "properties" in schema:
        names = [name for name in schema["properties"] if name not in _FIELDS_OF_ADMISSION]
        chosen = chance.sample(names, min(len(names), chance.randint(0, 3 - depth))) if depth < 3 else []
        return {name: _generated(schema["properties"][name], chance, depth + 1) for name in chosen}
    if "items" in schema:
        return [_generated(schema["items"], chance, depth + 1) for _ in range(chance.randint(0, 2))]
    if "values" in schema:
        return {
            chance.choice(_TEXTS): _generated(schema["values"], chance, depth + 1) for _ in range(chance.randint(0, 2))
        }
    return _scalar(schema, chance)


def _scalar(schema: Schema, chance: random.Random) -> Any:
    if schema.get("enum") and chance.random() < 0.7:
        return chance.choice(schema["enum"])
    if schema.get("oneOf") == ["number", "string"]:
        return chance.choice(_AMOUNTS)
    if schema.get("format") == "int-or-string":
        return chance.choice((*_NUMBERS[:8], *_TEXTS))
    if schema.get("format") == "date-time":
        return chance.choice(_TIMES)
    if schema.get("format") == "byte":
        return chance.choice(("", "YQ==", "YQ", "%"))
    match schema.get("type"):
        case "integer":
            return chance.choice(_NUMBERS)
        case "boolean":
            return chance.choice((True, False))
        case "string":
            return chance.choice(_TEXTS)
        case "number":
            return chance.choice((0, 1.5, -1))
        case _:
            return chance.choice(({}, {"a": 1}))
