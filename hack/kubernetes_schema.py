"""Writes the schema of Kubernetes' objects that ``bayplan.api_validation`` reads, from a real kube-apiserver.

    python -m hack.kubernetes_schema            # regenerate
    python -m hack.kubernetes_schema --check    # exit code 1 if the file differs

The API server serves one OpenAPI v3 document for each group version. Only the kinds that Bayplan reads and the types
that they refer to are written, without descriptions. Versions that are off by default are served for this purpose.
"""

from __future__ import annotations

import argparse
import gzip
import json
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from bayplan.api_validation.strict_decoding import SCHEMA_FILE
from bayplan.kube.served_apis import DEVICE_GROUP, DEVICE_VERSIONS
from bayplan.simulation.cluster_files import kubernetes_kinds

from hack.controlplane.binaries import NEWEST
from hack.controlplane.launcher import ControlPlane, ControlPlaneError
from hack.controlplane.native_groups import NATIVE_GROUPS
from hack.controlplane.servers import Options

_PREFIX = "#/components/schemas/"
_ATTEMPTS = 30
_KEPT = ("type", "format", "enum", "x-kubernetes-list-type", "x-kubernetes-list-map-keys")

Document = Mapping[str, Any]


def reduced_schema(kinds: Iterable[tuple[str, str]], read: Callable[[str], Document]) -> dict[str, Any]:
    """Reduce the OpenAPI documents of an API server.

    Args:
        kinds: apiVersion and kind of each object.
        read: Returns the document of an apiVersion.

    Returns:
        ``kinds``, which maps ``apiVersion/kind`` to the name of a type, ``served``, which maps an apiVersion to all of
        its kinds, and ``types``.
    """
    wanted: dict[str, str] = {}
    types: dict[str, Any] = {}
    documents: dict[str, Document] = {}
    for version, kind in sorted(kinds):
        if version not in documents:
            documents[version] = read(version)["components"]["schemas"]
        schemas = documents[version]
        name = _type_of(schemas, version, kind)
        wanted[f"{version}/{kind}"] = name
        waiting = [name]
        while waiting:
            each = waiting.pop()
            if each not in types:
                types[each] = _reduced(schemas[each])
                waiting += _references(types[each])
    served = {version: _served_kinds(schemas, version) for version, schemas in sorted(documents.items())}
    return {"kinds": wanted, "served": served, "types": dict(sorted(types.items()))}


def _served_kinds(schemas: Document, version: str) -> list[str]:
    group, _, short = version.rpartition("/")
    marks = (
        mark
        for schema in schemas.values()
        if "metadata" in schema.get("properties", {})
        for mark in schema.get("x-kubernetes-group-version-kind", ())
    )
    return sorted({mark["kind"] for mark in marks if (mark["group"], mark["version"]) == (group, short)})


def _type_of(schemas: Document, version: str, kind: str) -> str:
    group, _, short = version.rpartition("/")
    for name, schema in schemas.items():
        marks = schema.get("x-kubernetes-group-version-kind", ())
        if {"group": group, "version": short, "kind": kind} in marks and "metadata" in schema.get("properties", {}):
            return name
    raise SystemExit(f"the API server has no schema of {kind} ({version})")


def _reduced(schema: Document) -> dict[str, Any]:
    for part in (schema, *schema.get("allOf", ())):
        if "$ref" in part:
            return {"ref": part["$ref"].removeprefix(_PREFIX)}
    found = {key: schema[key] for key in _KEPT if key in schema}
    if "oneOf" in schema:
        found["oneOf"] = sorted(each["type"] for each in schema["oneOf"])
    if "properties" in schema:
        found["properties"] = {name: _reduced(each) for name, each in sorted(schema["properties"].items())}
    if "items" in schema:
        found["items"] = _reduced(schema["items"])
    if isinstance(schema.get("additionalProperties"), Mapping):
        found["values"] = _reduced(schema["additionalProperties"])
    return found


def _references(schema: Document) -> list[str]:
    found = [schema["ref"]] if "ref" in schema else []
    for part in (schema.get("items"), schema.get("values"), *schema.get("properties", {}).values()):
        found += _references(part) if part else []
    return found


def complete_options() -> Options:
    """Return options of an API server that serves every version that Bayplan reads of the newest release."""
    native = NATIVE_GROUPS[NEWEST]
    devices = {f"{DEVICE_GROUP}/{version}": "true" for version in DEVICE_VERSIONS}
    return Options(
        kubernetes=NEWEST, feature_gates=native.feature_gates, runtime_config={**native.runtime_config, **devices}
    )


def read_document(plane: ControlPlane, version: str) -> Document:
    """Read the OpenAPI document of an apiVersion; a new API server serves some of them only after a few seconds."""
    path = f"/openapi/v3/{'apis' if '/' in version else 'api'}/{version}"
    for _ in range(_ATTEMPTS):
        try:
            document: Document = json.loads(plane.kubectl("get", "--raw", path))
        except ControlPlaneError:
            time.sleep(1.0)
        else:
            return document
    raise SystemExit(f"the API server does not serve {path}")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="Compare only; exit with 1 if the file differs.")
    options = parser.parse_args()
    with ControlPlane(complete_options()) as plane:
        schema = reduced_schema(kubernetes_kinds(), lambda version: read_document(plane, version))
        version = json.loads(plane.kubectl("get", "--raw", "/version"))["gitVersion"]
    text = json.dumps({"kubernetes": version, **schema}, sort_keys=True, separators=(",", ":"))
    if options.check:
        if SCHEMA_FILE.exists() and gzip.decompress(SCHEMA_FILE.read_bytes()).decode() == text:
            return 0
        print(f"{SCHEMA_FILE} differs from the schema of {version}; run python -m hack.kubernetes_schema")
        return 1
    SCHEMA_FILE.write_bytes(gzip.compress(text.encode(), 9, mtime=0))
    print(f"wrote {SCHEMA_FILE}: {len(schema['types'])} types of {version}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
