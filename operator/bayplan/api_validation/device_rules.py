"""Rules for ResourceClaims, templates, DeviceClasses, ResourceSlices and DeviceTaintRules.

Follows Kubernetes v1.37.1: pkg/apis/resource/validation, and the declarative rules of the types of resource.k8s.io/v1.
CEL expressions are compiled as the scheduler compiles them; their estimated cost is not checked.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from bayplan.api_validation.field_errors import (
    FieldErrors,
    dns_label,
    dns_subdomain,
    entries,
    label_value,
    mapping,
    qualified_name,
    text,
    texts,
)
from bayplan.api_validation.resource_rules import amount
from bayplan.api_validation.selection_rules import annotation_problems, label_problems, node_selector_problems
from bayplan.api_validation.volume_rules import csi_driver_name_problems
from scheduler_core.cel.device_selector import SelectorCompileError, compile_selector
from scheduler_core.config.validation import extended_resource_problems
from scheduler_core.model.pod_requests import NANO

Value = Mapping[str, Any]

_MAX_LIST, _MAX_TOLERATIONS, _MAX_ALTERNATIVES, _MAX_PARAMETERS = 32, 16, 8, 10 * 1024
_MAX_DEVICES, _MAX_ADVANCED_DEVICES, _MAX_ATTRIBUTES, _MAX_VALUES = 128, 64, 32, 48
_MAX_COUNTER_SETS, _MAX_CONSUMPTIONS, _MAX_CONDITIONS, _MAX_OPTIONS = 8, 2, 4, 10
_EFFECTS = ("NoExecute", "NoSchedule", "None")
_NUMBER, _PRE = r"(0|[1-9]\d*)", r"(0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*)"
_SEMVER = re.compile(
    rf"{_NUMBER}\.{_NUMBER}\.{_NUMBER}(-{_PRE}(\.{_PRE})*)?(\+[0-9a-zA-Z-]+(\.[0-9a-zA-Z-]+)*)?", re.ASCII
)


def claim_spec_problems(found: FieldErrors, spec: Value, path: str) -> None:
    devices = mapping(spec, "devices")
    where = f"{path}.devices"
    requests = entries(devices, "requests")
    if _fits(found, requests, f"{where}.requests", _MAX_LIST):
        _unique(found, [text(each, "name") for _, each in requests], f"{where}.requests")
        for index, request in requests:
            _request_problems(found, request, f"{where}.requests[{index}]")
    names = {
        text(each, "name"): {text(sub, "name") for _, sub in entries(each, "firstAvailable")} for _, each in requests
    }
    constraints = entries(devices, "constraints")
    if _fits(found, constraints, f"{where}.constraints", _MAX_LIST):
        for index, constraint in constraints:
            _constraint_problems(found, constraint, f"{where}.constraints[{index}]", names)
    config = entries(devices, "config")
    if _fits(found, config, f"{where}.config", _MAX_LIST):
        for index, each in config:
            _reference_problems(found, each, f"{where}.config[{index}]", names)
            _configuration_problems(found, each, f"{where}.config[{index}]")


def claim_template_spec_problems(found: FieldErrors, spec: Value, path: str) -> None:
    metadata = mapping(spec, "metadata")
    annotation_problems(found, metadata.get("annotations"), f"{path}.metadata.annotations")
    label_problems(found, metadata.get("labels"), f"{path}.metadata.labels")
    for field, value in metadata.items():
        if field not in ("annotations", "labels") and value not in (None, "", 0):  # An empty list is set, too.
            found.forbidden(f"{path}.metadata.{field}", "cannot be set")
    claim_spec_problems(found, mapping(spec, "spec"), f"{path}.spec")


def class_spec_problems(found: FieldErrors, spec: Value, path: str) -> None:
    _selector_problems(found, spec, path)
    config = entries(spec, "config")
    if _fits(found, config, f"{path}.config", _MAX_LIST):
        for index, each in config:
            _configuration_problems(found, each, f"{path}.config[{index}]")
    found.optional(f"{path}.extendedResourceName", spec.get("extendedResourceName"), extended_resource_problems)


def taint_rule_spec_problems(found: FieldErrors, spec: Value, path: str) -> None:
    selector = mapping(spec, "deviceSelector")
    where = f"{path}.deviceSelector"
    if selector.get("driver") is not None:
        csi_driver_name_problems(found, f"{where}.driver", selector["driver"])
    if selector.get("pool") is not None:
        _pool_name_problems(found, selector["pool"], f"{where}.pool")
    found.optional(f"{where}.device", selector.get("device"), dns_label)
    _taint_problems(found, mapping(spec, "taint"), f"{path}.taint")


# -- claims -----------------------------------------------------------------------------------------------------------


def _request_problems(found: FieldErrors, request: Value, path: str) -> None:
    found.check(f"{path}.name", text(request, "name"), dns_label)
    exactly, alternatives = request.get("exactly"), entries(request, "firstAvailable")
    if exactly is None and not alternatives:
        found.required(path, "exactly one of `exactly` or `firstAvailable` is required")
    elif exactly is not None and alternatives:
        found.invalid(path, "", "exactly one of `exactly` or `firstAvailable` is required, but multiple fields are set")
    if exactly is not None:
        _device_request_problems(found, exactly, f"{path}.exactly")
    elif _fits(found, alternatives, f"{path}.firstAvailable", _MAX_ALTERNATIVES):
        _unique(found, [text(each, "name") for _, each in alternatives], f"{path}.firstAvailable")
        for index, each in alternatives:
            where = f"{path}.firstAvailable[{index}]"
            found.check(f"{where}.name", text(each, "name"), dns_label)
            _device_request_problems(found, each, where)


def _device_request_problems(found: FieldErrors, request: Value, path: str) -> None:
    found.name(f"{path}.deviceClassName", text(request, "deviceClassName"), dns_subdomain)
    _selector_problems(found, request, path)
    mode, count = text(request, "allocationMode") or "ExactCount", request.get("count") or 0
    if mode == "All":
        if count:
            found.invalid(f"{path}.count", count, "must not be specified when allocationMode is 'All'")
    elif mode == "ExactCount":
        if count < 0:
            found.invalid(f"{path}.count", count, "must be greater than zero")
    else:
        found.unsupported(f"{path}.allocationMode", mode, ("All", "ExactCount"))
    tolerations = entries(request, "tolerations")
    if _fits(found, tolerations, f"{path}.tolerations", _MAX_TOLERATIONS):
        for index, each in tolerations:
            _toleration_problems(found, each, f"{path}.tolerations[{index}]")


def _selector_problems(found: FieldErrors, value: Value, path: str) -> None:
    selectors = entries(value, "selectors")
    if not _fits(found, selectors, f"{path}.selectors", _MAX_LIST):
        return
    for index, selector in selectors:
        where = f"{path}.selectors[{index}].cel"
        if selector.get("cel") is None:
            found.required(where)
            continue
        expression = text(selector["cel"], "expression")
        if not expression:
            found.required(f"{where}.expression")
            continue
        try:
            compile_selector(expression)
        except SelectorCompileError as error:
            found.invalid(f"{where}.expression", expression, f"compilation failed: {error}")


def _constraint_problems(found: FieldErrors, constraint: Value, path: str, names: Mapping[str, set[str]]) -> None:
    _reference_problems(found, constraint, path, names)
    given = [field for field in ("matchAttribute", "distinctAttribute") if constraint.get(field) is not None]
    if not given:
        found.required(path, 'exactly one of "matchAttribute" or "distinctAttribute" is required')
    for field in given:
        _full_name_problems(found, constraint[field], f"{path}.{field}")


def _reference_problems(found: FieldErrors, value: Value, path: str, names: Mapping[str, set[str]]) -> None:
    references = texts(value, "requests")
    if not _fits(found, references, f"{path}.requests", _MAX_LIST):
        return
    _unique(found, references, f"{path}.requests")
    for index, each in enumerate(references):
        name, slash, sub = each.partition("/")
        if name not in names or (slash and sub not in names[name]):
            detail = (
                "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'"
            )
            found.invalid(f"{path}.requests[{index}]", each, detail)
        else:
            for part in (name, sub) if slash else (name,):
                found.check(f"{path}.requests[{index}]", part, dns_label)


def _configuration_problems(found: FieldErrors, config: Value, path: str) -> None:
    opaque = config.get("opaque")
    if opaque is None:
        found.required(f"{path}.opaque")
        return
    csi_driver_name_problems(found, f"{path}.opaque.driver", text(opaque, "driver"))
    parameters = opaque.get("parameters")
    if parameters is None:
        found.required(f"{path}.opaque.parameters")
    elif not isinstance(parameters, Mapping):
        found.invalid(f"{path}.opaque.parameters", "<value omitted>", "must be a valid JSON object")
    elif len(json.dumps(parameters, default=str).encode()) > _MAX_PARAMETERS:
        found.too_long(f"{path}.opaque.parameters", _MAX_PARAMETERS)


def _toleration_problems(found: FieldErrors, toleration: Value, path: str) -> None:
    key, value = text(toleration, "key"), text(toleration, "value")
    operator, effect = text(toleration, "operator") or "Equal", text(toleration, "effect")
    found.name(f"{path}.key", key, qualified_name, is_required=False)
    if operator == "Exists":
        if value:
            found.invalid(f"{path}.value", value, "must be empty for operator `Exists`")
    elif operator == "Equal":
        found.check(f"{path}.value", value, label_value)
    else:
        found.unsupported(f"{path}.operator", operator, ("Equal", "Exists"))
    found.choice(f"{path}.effect", effect, _EFFECTS)


# -- slices -----------------------------------------------------------------------------------------------------------


def slice_spec_problems(found: FieldErrors, spec: Value, path: str) -> None:
    csi_driver_name_problems(found, f"{path}.driver", text(spec, "driver"))
    pool = mapping(spec, "pool")
    _pool_name_problems(found, text(pool, "name"), f"{path}.pool.name")
    if (pool.get("resourceSliceCount") or 0) <= 0:
        found.invalid(
            f"{path}.pool.resourceSliceCount", pool.get("resourceSliceCount") or 0, "must be greater than zero"
        )
    if (pool.get("generation") or 0) < 0:
        found.invalid(f"{path}.pool.generation", pool["generation"], "must be greater than or equal to zero")
    per_device = spec.get("perDeviceNodeSelection")
    if per_device is False:
        found.invalid(f"{path}.perDeviceNodeSelection", False, "must be either unset or set to true")
    _node_problems(found, spec, path, [] if not per_device else ["perDeviceNodeSelection"], has_one_term=True)
    devices, counters = entries(spec, "devices"), entries(spec, "sharedCounters")
    if spec.get("devices") is not None and spec.get("sharedCounters") is not None:
        found.invalid(path, "", "only one of `sharedCounters` or `devices` is allowed")
    advanced = any(each.get("taints") or each.get("consumesCounters") for _, each in devices)
    if _fits(found, devices, f"{path}.devices", _MAX_ADVANCED_DEVICES if advanced else _MAX_DEVICES):
        _unique(found, [text(each, "name") for _, each in devices], f"{path}.devices")
        for index, device in devices:
            _device_problems(found, device, f"{path}.devices[{index}]", per_device=bool(per_device))
    if _fits(found, counters, f"{path}.sharedCounters", _MAX_COUNTER_SETS):
        _unique(found, [text(each, "name") for _, each in counters], f"{path}.sharedCounters")
        for index, each in counters:
            _counter_problems(found, each, f"{path}.sharedCounters[{index}]", "name")


def _node_problems(found: FieldErrors, value: Value, path: str, given: list[str], *, has_one_term: bool) -> None:
    """Validate that exactly one field selects the nodes of the devices."""
    name, selector, everywhere = value.get("nodeName"), value.get("nodeSelector"), value.get("allNodes")
    if name == "":
        found.invalid(f"{path}.nodeName", name, "must be either unset or set to a non-empty string")
    elif name is not None:
        given.append("nodeName")
        found.check(f"{path}.nodeName", name, dns_subdomain)
    if selector is not None:
        given.append("nodeSelector")
        node_selector_problems(found, selector, f"{path}.nodeSelector")
        if has_one_term and len(selector.get("nodeSelectorTerms") or ()) > 1:
            found.invalid(f"{path}.nodeSelector.nodeSelectorTerms", [], "must have exactly one node selector term")
    if everywhere:
        given.append("allNodes")
    elif everywhere is False:
        found.invalid(f"{path}.allNodes", False, "must be either unset or set to true")
    if len(given) != 1:
        found.required(
            path, "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required"
        )


def _device_problems(found: FieldErrors, device: Value, path: str, *, per_device: bool) -> None:
    found.check(f"{path}.name", text(device, "name"), dns_label)
    attributes, capacity = mapping(device, "attributes"), mapping(device, "capacity")
    if len(attributes) + len(capacity) > _MAX_ATTRIBUTES:
        found.invalid(
            path,
            len(attributes) + len(capacity),
            f"the total number of attributes and capacities must not exceed {_MAX_ATTRIBUTES}",
        )
    for key, attribute in attributes.items():
        where = f"{path}.attributes[{key}]"
        _identifier_problems(found, key, where)
        _attribute_problems(found, attribute or {}, where)
    for key, each in capacity.items():
        where = f"{path}.capacity[{key}]"
        _identifier_problems(found, key, where)
        policy = (each or {}).get("requestPolicy")
        if policy is not None and not device.get("allowMultipleAllocations"):
            found.forbidden(f"{where}.requestPolicy", "allowMultipleAllocations must be true")
        elif policy is not None:
            _policy_problems(found, policy, f"{where}.requestPolicy", amount(each.get("value")))
    taints = entries(device, "taints")
    if _fits(found, taints, f"{path}.taints", _MAX_TOLERATIONS):
        for index, taint in taints:
            _taint_problems(found, taint, f"{path}.taints[{index}]")
    consumptions = entries(device, "consumesCounters")
    if _fits(found, consumptions, f"{path}.consumesCounters", _MAX_CONSUMPTIONS):
        _unique(found, [text(each, "counterSet") for _, each in consumptions], f"{path}.consumesCounters")
        for index, each in consumptions:
            _counter_problems(found, each, f"{path}.consumesCounters[{index}]", "counterSet")
    if per_device:
        _node_problems(found, device, path, [], has_one_term=False)
    elif any(device.get(field) is not None for field in ("nodeName", "nodeSelector", "allNodes")):
        detail = "`nodeName`, `nodeSelector` and `allNodes` can only be set if `perDeviceNodeSelection` is set to true"
        found.invalid(path, "", detail)
    _binding_problems(found, device, path)


def _attribute_problems(found: FieldErrors, attribute: Value, path: str) -> None:
    # Lists exist only with the gate DRAListTypeAttributes, which the scheduler has too.
    # Without it, the API server drops them.
    scalars, lists = ([f"{kind}{end}" for kind in ("bool", "int", "string", "version")] for end in ("", "s"))
    given = [field for field in scalars if attribute.get(field) is not None]
    if len(given or [field for field in lists if attribute.get(field) is not None]) != 1:
        found.invalid(path, "", "exactly one value must be specified")
    for field in ("string", "version"):
        value = attribute.get(field)
        if value is None:
            continue
        if field == "version" and not _SEMVER.fullmatch(value):
            found.invalid(f"{path}.version", value, "must be a string compatible with semver.org spec 2.0.0")
        if len(value.encode()) > 64:
            found.too_long(f"{path}.{field}", 64)


def _policy_problems(found: FieldErrors, policy: Value, path: str, capacity: int) -> None:
    default, values, span = policy.get("default"), policy.get("validValues") or [], policy.get("validRange")
    if values and span is not None:
        found.forbidden(path, 'exactly one policy can be specified, cannot specify "validValues" and "validRange"')
        return
    if (values or span is not None) and default is None:
        found.required(f"{path}.default", "required when validValues or validRange is defined")
        return
    if values:
        amounts = [amount(each) for each in values]
        if amounts != sorted(amounts):
            found.invalid(f"{path}.validValues", values, "values must be sorted in ascending order")
        if len(values) > _MAX_OPTIONS:
            found.too_many(f"{path}.validValues", len(values), _MAX_OPTIONS)
        if len({_whole(each) for each in amounts}) < len(amounts):
            found.duplicate(f"{path}.validValues", values)
        if any(each > capacity for each in amounts):
            found.invalid(f"{path}.validValues", values, "option is larger than capacity value")
        if amount(default) not in amounts:
            found.invalid(f"{path}.validValues", values, "default value is not valid according to the requestPolicy")
    elif span is not None:
        _range_problems(found, span, f"{path}.validRange", amount(default), capacity)


def _range_problems(found: FieldErrors, span: Value, path: str, default: int, capacity: int) -> None:
    if span.get("min") is None:
        found.required(f"{path}.min", "required when validRange is defined")
        return
    low, high, step = amount(span["min"]), span.get("max"), span.get("step")
    if low > capacity or default < low:
        found.invalid(f"{path}.min", span["min"], "min is larger than the capacity value or the default")
    if high is not None and (low > amount(high) or amount(high) > capacity or default > amount(high)):
        found.invalid(f"{path}.max", high, "max is less than min or the default, or larger than the capacity value")
    if step is None:
        return
    if amount(step) <= 0:
        found.invalid(f"{path}.step", step, "must be greater than zero")
        return
    if low + amount(step) > capacity:
        found.invalid(f"{path}.step", step, "one step is larger than capacity value")
    if min(low, default) < 0:
        found.invalid(path, "", "must be greater than or equal to 0")
    for value in (default, *(() if high is None else (amount(high),))):
        if (_whole(value) - _whole(low)) % _whole(amount(step)):
            found.invalid(f"{path}.step", step, "value is not a multiple of a given step from min")


def _whole(units: int) -> int:
    return -(-units // NANO)


def _taint_problems(found: FieldErrors, taint: Value, path: str) -> None:
    found.check(f"{path}.key", text(taint, "key"), qualified_name)
    found.check(f"{path}.value", text(taint, "value"), label_value)
    found.choice(f"{path}.effect", text(taint, "effect"), _EFFECTS, is_required=True)


def _counter_problems(found: FieldErrors, value: Value, path: str, name_field: str) -> None:
    name, counters = text(value, name_field), mapping(value, "counters")
    found.name(f"{path}.{name_field}", name, dns_label)
    if not counters:
        found.required(f"{path}.counters")
    elif len(counters) > _MAX_LIST:
        found.too_many(f"{path}.counters", len(counters), _MAX_LIST)
    for key in counters:
        found.check(f"{path}.counters[{key}]", key, dns_label)


def _binding_problems(found: FieldErrors, device: Value, path: str) -> None:
    conditions, failures = texts(device, "bindingConditions"), texts(device, "bindingFailureConditions")
    for field, given in (("bindingConditions", conditions), ("bindingFailureConditions", failures)):
        if _fits(found, given, f"{path}.{field}", _MAX_CONDITIONS):
            for index, each in enumerate(given):
                found.check(f"{path}.{field}[{index}]", each, qualified_name)
        _unique(found, given, f"{path}.{field}")
    for index, each in enumerate(failures):
        if each in conditions:
            detail = "bindingFailureConditions must not overlap with bindingConditions"
            found.invalid(f"{path}.bindingFailureConditions[{index}]", each, detail)
    if bool(conditions) != bool(failures):
        found.invalid(
            f"{path}.bindingConditions", conditions, "bindingConditions and bindingFailureConditions require each other"
        )


# -- names ------------------------------------------------------------------------------------------------------------


def _pool_name_problems(found: FieldErrors, name: str, path: str) -> None:
    if not name:
        found.required(path)
        return
    if len(name) > 253:
        found.too_long(path, 253)
    for part in name.split("/"):
        found.invalid(path, name, *dns_subdomain(part))


def _identifier_problems(found: FieldErrors, name: str, path: str) -> None:
    parts = name.split("/")
    if len(parts) > 2:
        return
    if len(parts) == 2:
        if not parts[0]:
            found.invalid(path, name, "the domain must not be empty")
        else:
            csi_driver_name_problems(found, path, parts[0])
    identifier = parts[-1]
    if len(identifier) > 32:
        found.too_long(path, 32)
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", identifier):
        found.invalid(
            path,
            name,
            "a valid C identifier must start with a letter or '_', followed by letters, digits or '_'",
        )


def _full_name_problems(found: FieldErrors, name: str, path: str) -> None:
    _identifier_problems(found, name, path)
    if "/" not in name:
        found.invalid(path, name, "a fully qualified name must be a domain and a name separated by a slash")


def _fits(found: FieldErrors, values: Any, path: str, limit: int) -> bool:
    if len(values) > limit:
        found.too_many(path, len(values), limit)
    return len(values) <= limit


def _unique(found: FieldErrors, values: list[str], path: str) -> None:
    for index, each in enumerate(values):
        if each in values[:index]:
            found.duplicate(f"{path}[{index}]", each)


DEVICE_RULES: Mapping[str, Callable[[FieldErrors, Value, str], None]] = {
    "ResourceClaim": claim_spec_problems,
    "ResourceClaimTemplate": claim_template_spec_problems,
    "DeviceClass": class_spec_problems,
    "ResourceSlice": slice_spec_problems,
    "DeviceTaintRule": taint_rule_spec_problems,
}
