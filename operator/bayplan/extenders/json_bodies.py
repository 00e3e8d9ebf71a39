"""JSON bodies of requests to extenders and of their responses.

Field names of responses are matched in any case, as Go does: extenders of older protocol versions send ``nodenames``
and newer ones ``NodeNames``.

Source: k8s.io/kube-scheduler v0.37.1, extender/v1/types.go.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Annotated

import msgspec
from msgspec import Meta, Raw, Struct, field

from bayplan.kube.http.deep_json import DeepDecoder
from scheduler_core.ports import Binding

_INT64 = Meta(ge=-(2**63), le=2**63 - 1)


class _ListMeta(Struct, frozen=True):
    """``metadata`` of a list that did not come from a server: empty, but present."""


class _NodeList(Struct, frozen=True):
    items: list[Raw] | None
    metadata: _ListMeta = _ListMeta()


class _NodeArguments(Struct, frozen=True, rename="pascal"):
    pod: Raw
    nodes: _NodeList | None
    node_names: Sequence[str] | None


class _Victims(Struct, frozen=True):
    pods: list[Raw] = msgspec.field(name="Pods")
    violations: int = msgspec.field(name="NumPDBViolations")


class _MetaPod(Struct, frozen=True):
    uid: str = msgspec.field(name="UID")


class _MetaVictims(Struct, frozen=True):
    pods: list[_MetaPod] = msgspec.field(name="Pods")
    violations: int = msgspec.field(name="NumPDBViolations")


class _PreemptionArguments(Struct, frozen=True, rename="pascal"):
    pod: Raw
    node_name_to_victims: dict[str, _Victims] | None
    node_name_to_meta_victims: dict[str, _MetaVictims] | None


class _BindingArguments(Struct, frozen=True):
    name: str = msgspec.field(name="PodName")
    namespace: str = msgspec.field(name="PodNamespace")
    uid: str = msgspec.field(name="PodUID")
    node: str = msgspec.field(name="Node")


_REQUIRED_FIELDS = DeepDecoder(dict[str, Raw])
_EMPTY = Raw(b"{}")


class SentVictims(Struct, frozen=True):
    """Victims on a node in a request: their JSON, or their UIDs, and the number of those with violated budgets."""

    pods: Sequence[bytes] | Sequence[str]
    violations: int


class FilterResponse(Struct, frozen=True):
    """Result of a filter call: ``NodeNames``, and the names of ``Nodes``; None if absent."""

    node_names: tuple[str, ...] | None = None
    nodes: tuple[str, ...] | None = None
    failed: Mapping[str, str] = field(default_factory=dict)
    unresolvable: Mapping[str, str] = field(default_factory=dict)
    error: str = ""


class ChosenVictims(Struct, frozen=True):
    """Victims on a node in a response."""

    uids: tuple[str, ...]
    violations: int


# -- requests -------------------------------------------------------------------------------------------------------


def names_body(pod: bytes, node_names: Sequence[str]) -> bytes:
    """Encode a filter or prioritize call to an extender with its own node cache."""
    return msgspec.json.encode(_NodeArguments(Raw(pod), None, node_names))


def nodes_body(pod: bytes, nodes: Sequence[bytes]) -> bytes:
    """Encode a filter or prioritize call to an extender without a node cache."""
    return msgspec.json.encode(_NodeArguments(Raw(pod), _NodeList([Raw(node) for node in nodes] or None), None))


def uid_victims_body(pod: bytes, victims: Mapping[str, SentVictims]) -> bytes:
    """Encode a preempt call to an extender with its own cache."""
    encoded = {
        node: _MetaVictims([_MetaPod(str(uid)) for uid in chosen.pods], chosen.violations)
        for node, chosen in victims.items()
    }
    return msgspec.json.encode(_PreemptionArguments(Raw(pod), None, encoded))


def victims_body(pod: bytes, victims: Mapping[str, SentVictims]) -> bytes:
    """Encode a preempt call to an extender without a cache."""
    encoded = {
        node: _Victims([Raw(victim) for victim in chosen.pods], chosen.violations) for node, chosen in victims.items()
    }
    return msgspec.json.encode(_PreemptionArguments(Raw(pod), encoded, None))


def on_node(pod: bytes, node_name: str) -> bytes:
    """Set the node of a pod whose bind may still be in flight, as in kube-scheduler's own cache."""
    fields = _REQUIRED_FIELDS.decode(pod)
    spec = _REQUIRED_FIELDS.decode(fields.get("spec", _EMPTY))
    if "nodeName" in spec:
        return pod
    spec["nodeName"] = Raw(msgspec.json.encode(node_name))
    fields["spec"] = Raw(msgspec.json.encode(spec))
    return msgspec.json.encode(fields)


def binding_body(binding: Binding) -> bytes:
    return msgspec.json.encode(_BindingArguments(binding.name, binding.namespace, binding.uid, binding.node_name))


# -- responses ------------------------------------------------------------------------------------------------------

_Fields = dict[str, Raw]
_FIELDS = msgspec.json.Decoder(_Fields | None)
_FIELD_LISTS = msgspec.json.Decoder(list[_Fields | None] | None)
_FIELD_MAPS = msgspec.json.Decoder(dict[str, _Fields] | None)
_TEXT = msgspec.json.Decoder(str | None)
_TEXTS = msgspec.json.Decoder(list[str] | None)
_TEXT_MAP = msgspec.json.Decoder(dict[str, str | None] | None)
_INTEGER = msgspec.json.Decoder(Annotated[int, _INT64] | None)
_NULL = Raw(b"null")


class _NamedMeta(Struct, frozen=True, gc=False):
    name: str = ""


class _NamedNode(Struct, frozen=True, gc=False):
    metadata: _NamedMeta = _NamedMeta()


_NAMED_NODES = msgspec.json.Decoder(list[_NamedNode] | None)


def read_filter(body: bytes) -> FilterResponse:
    """Decode the response to a filter call; raises DecodeError if it is not JSON or not of this form."""
    fields = _folded(_FIELDS.decode(body))
    names = _TEXTS.decode(fields.get("nodenames", _NULL))
    return FilterResponse(
        node_names=None if names is None else tuple(names),
        nodes=_node_names(fields.get("nodes", _NULL)),
        failed=_messages(fields.get("failednodes", _NULL)),
        unresolvable=_messages(fields.get("failedandunresolvablenodes", _NULL)),
        error=_text(fields.get("error", _NULL)),
    )


def read_scores(body: bytes) -> dict[str, int]:
    """Decode the response to a prioritize call; scores of a repeated host are added."""
    scores: dict[str, int] = {}
    for entry in _FIELD_LISTS.decode(body) or ():
        fields = _folded(entry)
        host = _text(fields.get("host", _NULL))
        scores[host] = scores.get(host, 0) + (_INTEGER.decode(fields.get("score", _NULL)) or 0)
    return scores


def read_victims(body: bytes) -> dict[str, ChosenVictims]:
    """Decode the response to a preempt call, by node name."""
    encoded = _FIELD_MAPS.decode(_folded(_FIELDS.decode(body)).get("nodenametometavictims", _NULL)) or {}
    chosen = {}
    for node, entry in encoded.items():
        fields = _folded(entry)
        pods = _FIELD_LISTS.decode(fields.get("pods", _NULL)) or ()
        uids = tuple(_text(_folded(pod).get("uid", _NULL)) for pod in pods)
        chosen[node] = ChosenVictims(uids, _INTEGER.decode(fields.get("numpdbviolations", _NULL)) or 0)
    return chosen


def read_binding_error(body: bytes) -> str:
    """Decode the error in the response to a bind call; empty if the pod is bound."""
    return _text(_folded(_FIELDS.decode(body)).get("error", _NULL))


def _folded(fields: _Fields | None) -> _Fields:
    return {name.lower(): value for name, value in (fields or {}).items()}


def _text(raw: Raw) -> str:
    return _TEXT.decode(raw) or ""


def _messages(raw: Raw) -> dict[str, str]:
    return {name: message or "" for name, message in (_TEXT_MAP.decode(raw) or {}).items()}


def _node_names(raw: Raw) -> tuple[str, ...] | None:
    """Return the names in a NodeList; other fields are ignored, because the scheduler has the nodes itself."""
    listed = _FIELDS.decode(raw)
    if listed is None:
        return None
    items = _folded(listed).get("items", _NULL)
    # Fast path for thousands of nodes with the usual field names.
    with suppress(msgspec.ValidationError):
        usual = tuple(node.metadata.name for node in _NAMED_NODES.decode(items) or ())
        if all(usual):
            return usual
    names = []
    for node in _FIELD_LISTS.decode(items) or ():
        metadata = _folded(_FIELDS.decode(_folded(node).get("metadata", _NULL)))
        names.append(_text(metadata.get("name", _NULL)))
    return tuple(names)
