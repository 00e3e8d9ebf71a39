"""Bounds and CEL rules of specs: of fields that several custom resources have, and of models in the scheduler core.

``crd_generation`` adds those of the core's models.

Every rule is a rule of the core's models, too: the API server only rejects sooner. They are not in the models because
the core does not depend on the API server, and a file has no such bounds. Every list and string has a bound, because
the API server estimates a rule's cost from them.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from pydantic import Field, WithJsonSchema
from pydantic.config import JsonDict

from bayplan.resources.resource_model import MAX_KEY_LENGTH, MAX_NAME_LENGTH
from scheduler_core.config.config_model import INT64_MAX, RuleProblem
from scheduler_core.config.gang_owners import KNOWN_OWNERS, MAX_LABELS, MAX_OWNERS
from scheduler_core.errors import QuantityError
from scheduler_core.model.pod_requests import nano

DNS_NAME_PATTERN = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"
_LABEL_KEY_NAME = r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_LABEL_KEY_PATTERN = rf"^({DNS_NAME_PATTERN[1:-1]}/)?{_LABEL_KEY_NAME}$"
_EXTENDED_RESOURCE_PATTERN = rf"^{DNS_NAME_PATTERN[1:-1]}/{_LABEL_KEY_NAME}$"
_DURATION_PATTERN = r"^[-+]?(0|(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+)$"

MAX_PLUGINS = 64
MAX_EXTENDERS = 8
MAX_MANAGED_RESOURCES = 32
MAX_ARGS = 64
_MAX_KIND_LENGTH = 63
_MAX_PATH_LENGTH = 1024
_MAX_CERTIFICATE_LENGTH = 65536


def matches(pattern: str, message: str) -> JsonDict:
    """Make a rule that a string must match; unlike the keyword ``pattern`` it has a message.

    Args:
        pattern: A regular expression without quotation marks, valid in Go and Python.
    """
    return {"rule": f"self.matches(r'{pattern}')", "message": message}


def is_label_key(message: str) -> JsonDict:
    """Make a rule that a string must be a label key, as ``name_validation.qualified_name_problems`` checks."""
    return {
        "rule": f"self.matches(r'{_LABEL_KEY_PATTERN}') && self.indexOf('/') <= {MAX_NAME_LENGTH}",
        "message": message,
    }


EXTENDED_RESOURCE_RULE: JsonDict = {
    # A quota prepends "requests." to the name; the prefix must stay a valid DNS name with it.
    "rule": f"self.matches(r'{_EXTENDED_RESOURCE_PATTERN}') && !self.contains('kubernetes.io/') && "
    f"!self.startsWith('requests.') && self.indexOf('/') <= {MAX_NAME_LENGTH - len('requests.')}",
    "message": 'must be an extended resource such as "example.com/foo", not one of Kubernetes itself or of a quota',
}
ARGS_SCHEMA: JsonDict = {"x-kubernetes-preserve-unknown-fields": True, "maxProperties": MAX_ARGS}
"""Args are not validated here: the plugin defines them, and the operator validates them with the plugin's model."""

# -- fields of several custom resources -------------------------------------------------------------------------------

_MAX_RESOURCES = 64
_MAX_AMOUNT_LENGTH = 64
_SHOWN = 64
_AMOUNT_MESSAGE = 'must be an amount of 0 or more, such as 4, "500m" or "64Gi"'
_CLASS_MESSAGE = 'must be the name of a PriorityClass: lower case letters, digits, "-" and "."'

Quantity = Annotated[
    str | int,
    WithJsonSchema(
        {
            "x-kubernetes-int-or-string": True,
            "maxLength": _MAX_AMOUNT_LENGTH,
            "x-kubernetes-validations": [
                {
                    "rule": "type(self) == int ? self >= 0 : isQuantity(self) && "
                    "!quantity(self).isLessThan(quantity('0'))",
                    "message": _AMOUNT_MESSAGE,
                }
            ],
        }
    ),
]


def is_amount(amount: str | int) -> bool:
    """Return whether the API server accepts a quantity; its length is checked first, for Python's integer limit."""
    if isinstance(amount, int):
        return 0 <= amount <= INT64_MAX
    try:
        return len(amount) <= _MAX_AMOUNT_LENGTH and nano(amount) >= 0
    except QuantityError:
        return False


def amounts(description: str, *, min_length: int | None = None) -> Any:
    """Return an optional field for amounts by resource."""
    return Field(
        default=None,
        min_length=min_length,
        description=description,
        json_schema_extra={"maxProperties": _MAX_RESOURCES},
    )


def amount_problems(field: str, given: Mapping[str, str | int] | None) -> Iterator[RuleProblem]:
    """Check that amounts can be parsed and are not negative."""
    for name, amount in (given or {}).items():
        if not is_amount(amount):
            shown = amount[:_SHOWN] if isinstance(amount, str) else min(max(amount, -INT64_MAX), INT64_MAX)
            yield RuleProblem((field, name), f'{_AMOUNT_MESSAGE}, not "{shown}"')


def priority_class_name(description: str) -> Any:
    """Return an optional field for the name of a PriorityClass."""
    return Field(
        default=None,
        min_length=1,
        description=description,
        json_schema_extra={
            "maxLength": MAX_NAME_LENGTH,
            "x-kubernetes-validations": [matches(DNS_NAME_PATTERN, _CLASS_MESSAGE)],
        },
    )


def class_problems(name: str | None) -> Iterator[RuleProblem]:
    """Check the name of a PriorityClass."""
    if name and not re.fullmatch(DNS_NAME_PATTERN, name):
        yield RuleProblem(("priorityClassName",), f'{_CLASS_MESSAGE}, not "{name[:_SHOWN]}"')


# -- models of the core -----------------------------------------------------------------------------------------------

_BINDER_RULE: JsonDict = {
    "rule": "self.filter(e, has(e.bindVerb) && size(e.bindVerb) > 0).size() <= 1",
    "message": "only one extender may have a bindVerb; remove it from the others",
}
_MANAGED_RESOURCE_RULE: JsonDict = {
    "rule": "self.all(e, !has(e.managedResources) || e.managedResources.all(r, self.exists_one(f, "
    "has(f.managedResources) && f.managedResources.exists(s, s.name == r.name))))",
    "message": "a resource may be managed by one extender only; remove it from the others",
}

_OWNER_RULE: JsonDict = {
    "rule": f"has(self.apiVersion) ? has(self.size) : self.kind in {sorted(KNOWN_OWNERS)}",
    "message": f"must be one of {', '.join(sorted(KNOWN_OWNERS))}; set apiVersion and size for another kind",
    "fieldPath": ".kind",
}
_PER_RULE: JsonDict = {
    "rule": "!has(self.per) || (self.kind == 'JobSet' && !has(self.apiVersion))",
    "message": "is only for kind JobSet; remove it",
    "fieldPath": ".per",
}
_BACKOFF_RULE: JsonDict = {
    "rule": "!has(self.podMaxBackoffSeconds) || !has(self.podInitialBackoffSeconds) || "
    "self.podMaxBackoffSeconds >= self.podInitialBackoffSeconds",
    "message": "must be at least podInitialBackoffSeconds",
    "fieldPath": ".podMaxBackoffSeconds",
}
_SHADOW_NAME_RULE: JsonDict = {
    "rule": "!has(self.shadowOf) || !has(self.schedulerName) || size(self.schedulerName) == 0",
    "message": "a shadow schedules no pods of its own; remove it, or shadowOf",
    "fieldPath": ".schedulerName",
}
_SHADOW_FIELD_RULES: list[JsonDict] = [
    {
        "rule": f"has(self.shadowOf) || !has(self.{name})",
        "message": "only a shadow has it; set shadowOf, or remove it",
        "fieldPath": f".{name}",
    }
    for name in ("samplePercent", "shadowBudgetPercent", "shadowExtenders")
]
_ENABLED_RULES = [
    {
        "rule": "self.all(p, self.exists_one(q, q.name == p.name))",
        "message": "a plugin may be enabled only once at an extension point; remove the repeated name",
    },
    {
        "rule": "self.all(p, p.name != '*')",
        "message": '"*" is only allowed in disabled; name the plugins to enable',
    },
]


def _given(name: str) -> str:
    """Return CEL that is true if the string is set and not empty."""
    return f"(has(self.{name}) && size(self.{name}) > 0)"


OVERLAYS: dict[str, dict[str, Any]] = {
    "SchedulerProfileSpec": {
        "properties": {
            "schedulerName": {"maxLength": MAX_NAME_LENGTH},
            "pluginConfig": {
                "maxItems": MAX_PLUGINS,
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["name"],
            },
            "extenders": {
                "maxItems": MAX_EXTENDERS,
                "x-kubernetes-list-type": "atomic",
                "x-kubernetes-validations": [_BINDER_RULE, _MANAGED_RESOURCE_RULE],
            },
        },
        "x-kubernetes-validations": [_BACKOFF_RULE, _SHADOW_NAME_RULE, *_SHADOW_FIELD_RULES],
    },
    "GangSettings": {
        "properties": {"fromOwners": {"maxItems": MAX_OWNERS, "x-kubernetes-list-type": "atomic"}},
    },
    "GangOwner": {
        "properties": {
            "kind": {"maxLength": _MAX_KIND_LENGTH},
            "apiVersion": {"maxLength": MAX_NAME_LENGTH},
            "plural": {"maxLength": _MAX_KIND_LENGTH},
            "nameLabel": {"maxLength": MAX_KEY_LENGTH},
            "instanceLabels": {
                "maxItems": MAX_LABELS,
                "x-kubernetes-list-type": "atomic",
                "items": {"type": "string", "minLength": 1, "maxLength": MAX_KEY_LENGTH},
            },
        },
        "x-kubernetes-validations": [_OWNER_RULE, _PER_RULE],
    },
    "OwnerSize": {
        "properties": {
            "ownerFields": {
                "maxItems": MAX_LABELS,
                "x-kubernetes-list-type": "atomic",
                "items": {"type": "string", "minLength": 1, "maxLength": MAX_NAME_LENGTH},
            },
            "podLabel": {"maxLength": MAX_KEY_LENGTH},
            "podAnnotation": {"maxLength": MAX_KEY_LENGTH},
        },
    },
    "OwnerTopology": {
        "properties": {
            "key": {
                "maxLength": MAX_KEY_LENGTH,
                "x-kubernetes-validations": [
                    is_label_key("must be the key of a node label, such as topology.kubernetes.io/zone")
                ],
            },
        },
    },
    "Plugin": {"properties": {"name": {"maxLength": MAX_NAME_LENGTH}}},
    "PluginSet": {
        "properties": {
            "enabled": {
                "maxItems": MAX_PLUGINS,
                "x-kubernetes-list-type": "atomic",
                "x-kubernetes-validations": _ENABLED_RULES,
            },
            "disabled": {
                "maxItems": MAX_PLUGINS,
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["name"],
            },
        }
    },
    "Plugins": {
        "x-kubernetes-validations": [
            {
                "rule": "!has(self.queueSort) || !has(self.queueSort.enabled) || size(self.queueSort.enabled) <= 1",
                "message": "only one plugin can order the queue; enable one at queueSort",
                "fieldPath": ".queueSort",
            }
        ]
    },
    "PluginConfig": {"properties": {"name": {"maxLength": MAX_NAME_LENGTH}, "args": ARGS_SCHEMA}},
    "ExtenderManagedResource": {
        "properties": {
            "name": {"maxLength": MAX_NAME_LENGTH, "x-kubernetes-validations": [EXTENDED_RESOURCE_RULE]},
        }
    },
    "ExtenderTLSConfig": {
        "properties": {
            "serverName": {"maxLength": MAX_NAME_LENGTH},
            "certFile": {"maxLength": _MAX_PATH_LENGTH},
            "keyFile": {"maxLength": _MAX_PATH_LENGTH},
            "caFile": {"maxLength": _MAX_PATH_LENGTH},
            "certData": {"maxLength": _MAX_CERTIFICATE_LENGTH, "format": "byte"},
            "keyData": {"maxLength": _MAX_CERTIFICATE_LENGTH, "format": "byte"},
            "caData": {"maxLength": _MAX_CERTIFICATE_LENGTH, "format": "byte"},
        },
        "x-kubernetes-validations": [
            {
                "rule": f"!has(self.insecure) || !self.insecure || !({_given('caFile')} || {_given('caData')})",
                "message": "cannot be true together with caFile or caData; remove one of them",
                "fieldPath": ".insecure",
            },
            {
                "rule": f"({_given('certFile')} || {_given('certData')}) == "
                f"({_given('keyFile')} || {_given('keyData')})",
                "message": "a client certificate and its key must be set together; set both or neither",
            },
        ],
    },
    "Extender": {
        "properties": {
            "urlPrefix": {"maxLength": _MAX_PATH_LENGTH},
            "httpTimeout": {
                "x-kubernetes-validations": [matches(_DURATION_PATTERN, 'must be a duration, such as "5s" or "1m30s"')]
            },
            "filterVerb": {"maxLength": MAX_NAME_LENGTH},
            "preemptVerb": {"maxLength": MAX_NAME_LENGTH},
            "prioritizeVerb": {"maxLength": MAX_NAME_LENGTH},
            "bindVerb": {"maxLength": MAX_NAME_LENGTH},
            "managedResources": {
                "maxItems": MAX_MANAGED_RESOURCES,
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["name"],
            },
        },
        "x-kubernetes-validations": [
            {
                "rule": "!has(self.prioritizeVerb) || size(self.prioritizeVerb) == 0 || "
                "(has(self.weight) && self.weight > 0)",
                "message": "must be at least 1 with prioritizeVerb",
                "fieldPath": ".weight",
            }
        ],
    },
}
"""Additional schema keywords for the core's models, by the model's name."""
