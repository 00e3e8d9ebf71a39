"""Law: null, a missing field and an empty value decode as in a Go client, in every type that is decoded from outside.

The types are found by reflection, so that a new kind or field is covered without a new row. Each has a sample in which
every field is set; then one field at a time is null, missing, empty or has a null element. Expected is what the plain
rule of Go's ``encoding/json`` yields: null leaves the zero value.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec
import pytest
from bayplan.gangs.group_translation import (
    CompositeSpec,
    NativeGroup,
    NativeSpecV1Alpha2,
    NativeSpecV1Beta1,
    SchedulerPluginsGroup,
)
from bayplan.kube.custom_resources import ControllerRevision
from bayplan.kube.http.api_request import ApiStatus
from bayplan.kube.http.deep_json import ObjectJsonDecoder
from bayplan.kube.served_apis import OPTIONAL, REQUIRED
from bayplan.kube.watches.cluster_informers import STORAGE, WORKLOADS
from bayplan.kube.watches.watch_stream import ObjectDecoder, WatchEvent
from bayplan.serving.authorization import _AccessReview, _TokenReview
from bayplan.simulation.cluster_files import _DECODED
from msgspec import Raw, Struct, UnsetType
from msgspec.structs import FieldInfo, fields

from scheduler_core.framework.object_reads import ObjectReads, StatusField, decoded_types
from scheduler_core.model.meta import ObjectMeta
from scheduler_core.model.node import Node
from scheduler_core.model.nullable_forms import convert
from scheduler_core.model.pod import Pod
from scheduler_core.model.workloads import PriorityClass
from tests.parity.conformance.cases import Case, decode_case

DECLARED = decoded_types([
    ("Plugin", ObjectReads(
        node_annotations=True,
        pod_annotations=True,
        node_status=(StatusField("conditions", tuple[dict[str, str], ...], ()),),
    )),
])  # fmt: skip
INFORMED: tuple[type[Any], ...] = (
    *WORKLOADS.values(), *STORAGE.values(), *REQUIRED.values(), *OPTIONAL.values(),
    Node, Pod, PriorityClass, NativeGroup, SchedulerPluginsGroup, DECLARED.node, DECLARED.pod,
)  # fmt: skip
REQUESTED: tuple[type[Any], ...] = (ControllerRevision, _TokenReview, _AccessReview, ApiStatus, Pod)
CONVERTED: tuple[type[Any], ...] = (
    *dict.fromkeys(kind for _, kind in _DECODED.values()), NativeSpecV1Alpha2, NativeSpecV1Beta1, CompositeSpec,
)  # fmt: skip

Path_ = tuple[str | int, ...]


# -- samples by reflection -------------------------------------------------------------------------------------------


def arms(hint: Any) -> list[Any]:
    if get_origin(hint) in (Union, UnionType):
        return [arm for arm in get_args(hint) if arm not in (NoneType, UnsetType)]
    return [hint]


def sample(hint: Any) -> Any:
    """Return JSON of a type with every field set and one element in each list and map."""
    kind = arms(hint)[0]
    origin, args = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return sample(args[0])
    if origin is Literal:
        return args[0]
    if origin in (tuple, list):
        return [sample(args[0])]
    if origin is dict:
        return {"k": sample(args[1])}
    if isinstance(kind, type) and issubclass(kind, Struct):
        return {info.encode_name: sample(info.type) for info in fields(kind)}
    return {
        str: "1", int: 1, float: 1.5, bool: True, datetime: "2026-01-01T00:00:00Z", Raw: {"a": 1}, Any: {"a": 1},
        dict: {"a": 1}, list: [1],
    }[kind]  # fmt: skip


def zero(hint: Any) -> Any:
    """Return the JSON to which Go's zero value of a type is encoded, a struct with the fields that must be set."""
    if NoneType in get_args(hint):
        return None
    kinds = arms(hint)
    kind = int if int in kinds else kinds[0]
    origin = get_origin(kind)
    if origin in (tuple, list):
        return []
    if origin is dict or kind is dict:
        return {}
    if isinstance(kind, type) and issubclass(kind, Struct):
        return {info.encode_name: zero(info.type) for info in fields(kind) if info.required}
    return {str: "", int: 0, float: 0.0, bool: False, Any: None}[kind]


class Place(Struct, frozen=True):
    """A field, or the only element of a list or map: where it is in the sample, and its type."""

    path: Path_
    hint: Any
    info: FieldInfo | None = None
    owner: type[Any] | None = None


def places(hint: Any, path: Path_ = ()) -> Iterator[Place]:
    kind = arms(hint)[0]
    origin, args = get_origin(kind), get_args(kind)
    if origin in (tuple, list) or origin is dict:
        inner = (*path, "k" if origin is dict else 0)
        element = args[-1] if origin is dict else args[0]
        yield Place(inner, element)
        yield from places(element, inner)
    elif isinstance(kind, type) and issubclass(kind, Struct):
        for info in fields(kind):
            yield Place((*path, info.encode_name), info.type, info, kind)
            yield from places(info.type, (*path, info.encode_name))


def with_value(document: Any, path: Path_, value: Any) -> Any:
    step, rest = path[0], path[1:]
    copied: Any = dict(document) if isinstance(document, dict) else list(document)
    copied[step] = with_value(copied[step], rest, value) if rest else value
    return copied


def without(document: Any, path: Path_) -> Any:
    if len(path) == 1:
        return {name: value for name, value in document.items() if name != path[0]}
    copied: Any = dict(document) if isinstance(document, dict) else list(document)
    copied[path[0]] = without(copied[path[0]], path[1:])
    return copied


def is_identity(place: Place) -> bool:
    owner = place.owner
    named = owner is not None and issubclass(owner, ObjectMeta) and place.path[-1] == "name"
    return named or place.path[-1] == "metadata"


def cases(kind: type[Any], *, of_manifest: bool) -> Iterator[tuple[str, Any, Any]]:
    """Yield the name, the document and the document that it must be equal to."""
    whole = sample(kind)
    for place in places(kind):
        where = ".".join(map(str, place.path))
        info = place.info
        if arms(place.hint)[0] is Raw:
            continue
        if info is None:
            wants_error = of_manifest and _has_required(place.hint)
            if not wants_error:
                yield (
                    f"{where}: null element",
                    with_value(whole, place.path, None),
                    with_value(whole, place.path, zero(place.hint)),
                )
        elif not info.required:
            yield f"{where}: null", with_value(whole, place.path, None), without(whole, place.path)
        elif not is_identity(place) and not of_manifest:
            yield f"{where}: null", with_value(whole, place.path, None), with_value(whole, place.path, zero(place.hint))
            yield f"{where}: missing", without(whole, place.path), with_value(whole, place.path, zero(place.hint))
        if info is not None and not info.required and get_origin(arms(place.hint)[0]) in (tuple, list, dict):
            empty: Any = {} if get_origin(arms(place.hint)[0]) is dict else []
            if NoneType not in get_args(place.hint):
                yield f"{where}: empty", with_value(whole, place.path, empty), without(whole, place.path)


def _has_required(hint: Any) -> bool:
    kind = arms(hint)[0]
    return isinstance(kind, type) and issubclass(kind, Struct) and any(info.required for info in fields(kind))


def plain(value: Any) -> Any:
    """Return a value as builtins, without null fields: None is how some structs store an empty list."""
    return _without_empty(msgspec.json.decode(msgspec.json.encode(value)))


def _without_empty(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_empty(each) for name, each in value.items() if each is not None and each != []}
    return [_without_empty(each) for each in value] if isinstance(value, list) else value


def check(decode: Callable[[Any], Any], kind: type[Any], *, of_manifest: bool = False) -> None:
    tried = 0
    for name, document, expected in cases(kind, of_manifest=of_manifest):
        tried += 1
        try:
            found = decode(document)
        except Exception as error:  # noqa: BLE001 - any is a failure of the law
            pytest.fail(f"{kind.__name__} {name}: {error}")
        assert plain(found) == plain(decode(expected)), f"{kind.__name__} {name}"
    assert tried > 1


# -- the law -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", INFORMED, ids=lambda kind: kind.__name__)
def test_watched_and_listed_objects(kind: type[Any]) -> None:
    """Lines of a watch and items of a list accept null wherever Go does."""
    decoder = ObjectDecoder(kind)

    def watched(document: Any) -> Any:
        text = msgspec.json.encode(document)
        event = decoder.line(b'{"type":"MODIFIED","object":' + text + b"}")
        listed = decoder.listed(Raw(text))
        assert isinstance(event, WatchEvent), event
        assert isinstance(listed, WatchEvent), listed
        assert plain(event.object) == plain(listed.object)
        return event.object

    check(watched, kind)


@pytest.mark.parametrize("kind", REQUESTED, ids=lambda kind: kind.__name__)
def test_responses(kind: type[Any]) -> None:
    """Responses to requests accept null wherever Go does."""
    decoder = ObjectJsonDecoder(kind)
    check(lambda document: decoder.decode(msgspec.json.encode(document)), kind)


@pytest.mark.parametrize("kind", CONVERTED, ids=lambda kind: kind.__name__)
def test_manifests_and_specs(kind: type[Any]) -> None:
    """Manifests, and specs that are decoded by their version, accept null; a required field must have a value."""
    check(lambda document: convert(document, kind), kind, of_manifest=True)


def test_conformance_cases() -> None:
    """The objects of a case are decoded as those of the API server."""
    for field in fields(Case):
        kind = arms(get_type_hints(Case)[field.name])[0]
        element = get_args(kind)[0] if get_origin(kind) is tuple else kind
        if not (isinstance(element, type) and issubclass(element, Struct)):
            continue
        is_list = get_origin(kind) is tuple

        def decode(document: Any, name: str = field.encode_name, is_list: bool = is_list) -> Any:
            case = {"pod": {"metadata": {"name": "p"}}, name: [document] if is_list else document}
            return getattr(decode_case(msgspec.json.encode(case)), name)

        check(decode, element)
    assert decode_case(b'{"pod":{"metadata":{"name":"p"}},"nodes":null,"featureGates":null}').nodes == ()


@pytest.mark.parametrize("required", ["metadata", "metadata.name"])
@pytest.mark.parametrize("kind", [Node, Pod, *STORAGE.values()], ids=lambda kind: kind.__name__)
def test_an_identity_is_never_guessed(kind: type[Any], required: str) -> None:
    """An object without a name is not decoded: its change would be applied to another object."""
    path = tuple(required.split("."))
    whole = sample(kind)
    for document in (with_value(whole, path, None), without(whole, path)):
        with pytest.raises(msgspec.ValidationError, match=path[-1]):
            ObjectJsonDecoder(kind).decode(msgspec.json.encode(document))


STRICT_DECODERS = {
    "operator/bayplan/api_validation/strict_decoding.py": "untyped JSON, checked against the schema of the API server",
    "operator/bayplan/cli/bundle.py": "untyped JSON",
    "operator/bayplan/cli/operator_requests.py": "responses of Bayplan itself",
    "operator/bayplan/cli/record.py": "records that Bayplan wrote",
    "operator/bayplan/cli/reserve.py": "untyped JSON",
    "operator/bayplan/extenders/json_bodies.py": "accepts null by its own types, and names in any case",
    "operator/bayplan/extenders/raw_objects.py": "fields as raw JSON, of any type",
    "operator/bayplan/kube/credentials.py": "a kubeconfig that is not plain is read by the client library",
    "operator/bayplan/fit/claim_templates.py": "untyped JSON, a manifest that is decoded later",
    "operator/bayplan/fit/room_search.py": "answers of Bayplan itself",
    "operator/bayplan/gangs/helpful_node_search.py": "answers of Bayplan itself",
    "operator/bayplan/kube/http/deep_json.py": "the decoders themselves",
    "operator/bayplan/kube/leader_election.py": "an annotation that Bayplan wrote",
    "operator/bayplan/kube/watches/watch_stream.py": "envelopes; the object inside is decoded by ObjectJsonDecoder",
    "operator/bayplan/profiles/rollback.py": "untyped JSON",
    "operator/bayplan/profiles/webhook_certificate.py": "untyped JSON",
    "operator/bayplan/simulation/cluster_files.py": "untyped JSON",
    "operator/bayplan/rebalancing/plan_controller.py": "answers of Bayplan itself",
    "operator/bayplan/serving/fit_endpoint.py": "requests of `bayplan fit`, in which objects are untyped JSON",
    "operator/bayplan/texts/document_formats.py": "documents of Bayplan itself",
    "scheduler_core/cycle/search_basis.py": "results of a copy of the process",
    "scheduler_core/model/nullable_forms.py": "the mechanism itself",
    "scheduler_core/plugins/dynamic_resources/claim_binding.py": "JSON that it has just written",
    "scheduler_core/record_assembly.py": "records that Bayplan wrote",
    "scheduler_core/recording/object_types.py": "records that Bayplan wrote",
    "scheduler_core/recording/record_file.py": "records that Bayplan wrote",
    "scheduler_core/recording/replayed_input.py": "records that Bayplan wrote",
}
"""Files that decode without accepting null everywhere, and why they may."""

_STRICT = re.compile(r"msgspec\.(?:json\.decode|json\.Decoder|convert)\(|(?<!Object)\bDeepDecoder\(")


def test_every_other_decoder_accepts_null() -> None:
    """A new decoder of outside input uses the mechanism above, or a row has the reason why not."""
    root = Path(__file__).parents[2]
    found = {
        str(path.relative_to(root))
        for source in ("operator/bayplan", "scheduler_core")
        for path in (root / source).rglob("*.py")
        if _STRICT.search(path.read_text())
    }
    assert found == STRICT_DECODERS.keys()
