"""Rules for ResourceClaims, templates, DeviceClasses, ResourceSlices and DeviceTaintRules.

Follows Kubernetes v1.37.1: pkg/apis/resource/validation, and the declarative rules of the types of resource.k8s.io/v1.
CEL expressions are compiled as the scheduler compiles them; their estimated cost is not checked.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence

from bayplan.api_validation.field_errors import Fields, dns_label, dns_subdomain, label_value, qualified_name
from bayplan.api_validation.resource_rules import amount
from bayplan.api_validation.selection_rules import node_selector_problems, template_metadata_problems
from bayplan.api_validation.volume_rules import csi_driver_name_problems
from scheduler_core.cel.device_selector import SelectorCompileError, compile_selector
from scheduler_core.config.validation import extended_resource_problems
from scheduler_core.model.pod_requests import NANO

_MAX_LIST, _MAX_TOLERATIONS, _MAX_ALTERNATIVES, _MAX_PARAMETERS = 32, 16, 8, 10 * 1024
_MAX_DEVICES, _MAX_ADVANCED_DEVICES, _MAX_ATTRIBUTES, _MAX_VALUES = 128, 64, 32, 48
_MAX_COUNTER_SETS, _MAX_CONSUMPTIONS, _MAX_CONDITIONS, _MAX_OPTIONS = 8, 2, 4, 10
_EFFECTS = ("NoExecute", "NoSchedule", "None")
_NUMBER, _PRE = r"(0|[1-9]\d*)", r"(0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*)"
_SEMVER = re.compile(
    rf"{_NUMBER}\.{_NUMBER}\.{_NUMBER}(-{_PRE}(\.{_PRE})*)?(\+[0-9a-zA-Z-]+(\.[0-9a-zA-Z-]+)*)?", re.ASCII
)


def _claim_spec_problems(spec: Fields) -> None:
    devices = spec.part("devices")
    requests = devices.parts("requests")
    if devices.fits("requests", _MAX_LIST):
        devices.no_repeats("requests", _texts_of(requests, "name"))
        for request in requests:
            _request_problems(request)
    names = {each.text("name"): set(_texts_of(each.parts("firstAvailable"), "name")) for each in requests}
    if devices.fits("constraints", _MAX_LIST):
        for constraint in devices.parts("constraints"):
            _constraint_problems(constraint, names)
    if devices.fits("config", _MAX_LIST):
        for each in devices.parts("config"):
            _reference_problems(each, names)
            _configuration_problems(each)


def _claim_template_spec_problems(spec: Fields) -> None:
    template_metadata_problems(spec.part("metadata"))
    _claim_spec_problems(spec.part("spec"))


def _class_spec_problems(spec: Fields) -> None:
    _selector_problems(spec)
    if spec.fits("config", _MAX_LIST):
        for each in spec.parts("config"):
            _configuration_problems(each)
    spec.optional("extendedResourceName", extended_resource_problems)


def _taint_rule_spec_problems(spec: Fields) -> None:
    selector = spec.part("deviceSelector")
    if selector.get("driver") is not None:
        csi_driver_name_problems(selector, "driver")
    if selector.get("pool") is not None:
        _pool_name_problems(selector, "pool")
    selector.optional("device", dns_label)
    _taint_problems(spec.part("taint"))


# -- claims -----------------------------------------------------------------------------------------------------------


def _request_problems(request: Fields) -> None:
    request.check("name", dns_label)
    has_one, alternatives = request.get("exactly") is not None, request.parts("firstAvailable")
    if not has_one and not alternatives:
        request.required("", "exactly one of `exactly` or `firstAvailable` is required")
    elif has_one and alternatives:
        detail = "exactly one of `exactly` or `firstAvailable` is required, but multiple fields are set"
        request.invalid("", "", detail)
    if has_one:
        _device_request_problems(request.part("exactly"))
    elif request.fits("firstAvailable", _MAX_ALTERNATIVES):
        request.no_repeats("firstAvailable", _texts_of(alternatives, "name"))
        for each in alternatives:
            each.check("name", dns_label)
            _device_request_problems(each)


def _device_request_problems(request: Fields) -> None:
    request.name("deviceClassName", dns_subdomain)
    _selector_problems(request)
    mode, count = request.text("allocationMode") or "ExactCount", request.number("count")
    if mode == "All":
        if count:
            request.invalid("count", count, "must not be specified when allocationMode is 'All'")
    elif mode == "ExactCount":
        if count < 0:
            request.invalid("count", count, "must be greater than zero")
    else:
        request.unsupported("allocationMode", mode, ("All", "ExactCount"))
    if request.fits("tolerations", _MAX_TOLERATIONS):
        for each in request.parts("tolerations"):
            _toleration_problems(each)


def _selector_problems(owner: Fields) -> None:
    if not owner.fits("selectors", _MAX_LIST):
        return
    for selector in owner.parts("selectors"):
        expression = selector.part("cel").text("expression")
        if not expression:
            selector.required("cel" if selector.get("cel") is None else "cel.expression")
            continue
        try:
            compile_selector(expression)
        except SelectorCompileError as error:
            selector.invalid("cel.expression", expression, f"compilation failed: {error}")


def _constraint_problems(constraint: Fields, names: Mapping[str, set[str]]) -> None:
    _reference_problems(constraint, names)
    given = constraint.given("matchAttribute", "distinctAttribute")
    if not given:
        constraint.required("", 'exactly one of "matchAttribute" or "distinctAttribute" is required')
    for field in given:
        name = constraint.text(field)
        _identifier_problems(constraint, field, name)
        if "/" not in name:
            detail = "a fully qualified name must be a domain and a name separated by a slash"
            constraint.invalid(field, name, detail)


def _reference_problems(owner: Fields, names: Mapping[str, set[str]]) -> None:
    references = owner.texts("requests")
    if not owner.fits("requests", _MAX_LIST):
        return
    owner.no_repeats("requests", references)
    for index, each in enumerate(references):
        name, slash, sub = each.partition("/")
        if name not in names or (slash and sub not in names[name]):
            detail = (
                "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'"
            )
            owner.invalid(f"requests[{index}]", each, detail)
        else:
            for part in (name, sub) if slash else (name,):
                owner.invalid(f"requests[{index}]", part, *dns_label(part))


def _configuration_problems(config: Fields) -> None:
    opaque, parameters = config.part("opaque"), config.part("opaque").get("parameters")
    if config.get("opaque") is None:
        config.required("opaque")
        return
    csi_driver_name_problems(opaque, "driver")
    if parameters is None:
        opaque.required("parameters")
    elif not isinstance(parameters, Mapping):
        opaque.invalid("parameters", "<value omitted>", "must be a valid JSON object")
    elif len(json.dumps(parameters, default=str).encode()) > _MAX_PARAMETERS:
        opaque.too_long("parameters", _MAX_PARAMETERS)


def _toleration_problems(toleration: Fields) -> None:
    operator, value = toleration.text("operator") or "Equal", toleration.text("value")
    toleration.name("key", qualified_name, is_required=False)
    if operator == "Exists":
        if value:
            toleration.invalid("value", value, "must be empty for operator `Exists`")
    elif operator == "Equal":
        toleration.check("value", label_value)
    else:
        toleration.unsupported("operator", operator, ("Equal", "Exists"))
    toleration.choice("effect", _EFFECTS)


# -- slices -----------------------------------------------------------------------------------------------------------


def _slice_spec_problems(spec: Fields) -> None:
    csi_driver_name_problems(spec, "driver")
    pool = spec.part("pool")
    _pool_name_problems(pool, "name")
    if pool.number("resourceSliceCount") <= 0:
        pool.invalid("resourceSliceCount", pool.number("resourceSliceCount"), "must be greater than zero")
    if pool.number("generation") < 0:
        pool.invalid("generation", pool.get("generation"), "must be greater than or equal to zero")
    per_device = spec.get("perDeviceNodeSelection")
    if per_device is False:
        spec.invalid("perDeviceNodeSelection", False, "must be either unset or set to true")
    _node_problems(spec, ["perDeviceNodeSelection"] if per_device else [], has_one_term=True)
    if len(spec.given("devices", "sharedCounters")) == 2:
        spec.invalid("", "", "only one of `sharedCounters` or `devices` is allowed")
    devices, counters = spec.parts("devices"), spec.parts("sharedCounters")
    advanced = any(each.get("taints") or each.get("consumesCounters") for each in devices)
    if spec.fits("devices", _MAX_ADVANCED_DEVICES if advanced else _MAX_DEVICES):
        spec.no_repeats("devices", _texts_of(devices, "name"))
        for device in devices:
            _device_problems(device, per_device=bool(per_device))
    if spec.fits("sharedCounters", _MAX_COUNTER_SETS):
        spec.no_repeats("sharedCounters", _texts_of(counters, "name"))
        for each in counters:
            _counter_problems(each, "name")


def _node_problems(owner: Fields, given: list[str], *, has_one_term: bool) -> None:
    """Validate that exactly one field selects the nodes of the devices."""
    if owner.get("nodeName") == "":
        owner.invalid("nodeName", "", "must be either unset or set to a non-empty string")
    elif owner.get("nodeName") is not None:
        given.append("nodeName")
        owner.check("nodeName", dns_subdomain)
    if owner.get("nodeSelector") is not None:
        given.append("nodeSelector")
        selector = owner.part("nodeSelector")
        node_selector_problems(selector)
        if has_one_term and len(selector.parts("nodeSelectorTerms")) > 1:
            selector.invalid("nodeSelectorTerms", [], "must have exactly one node selector term")
    if owner.get("allNodes"):
        given.append("allNodes")
    elif owner.get("allNodes") is False:
        owner.invalid("allNodes", False, "must be either unset or set to true")
    if len(given) != 1:
        detail = "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required"
        owner.required("", detail)


def _device_problems(device: Fields, *, per_device: bool) -> None:
    device.check("name", dns_label)
    attributes, capacity = device.parts_by_key("attributes"), device.parts_by_key("capacity")
    count = len(attributes) + len(capacity)
    if count > _MAX_ATTRIBUTES:
        detail = f"the total number of attributes and capacities must not exceed {_MAX_ATTRIBUTES}"
        device.invalid("", count, detail)
    for key, attribute in attributes.items():
        _identifier_problems(attribute, "", key)
        _attribute_problems(attribute)
    for key, each in capacity.items():
        _identifier_problems(each, "", key)
        if each.get("requestPolicy") is None:
            continue
        if device.get("allowMultipleAllocations"):
            _policy_problems(each.part("requestPolicy"), amount(each.get("value")))
        else:
            each.forbidden("requestPolicy", "allowMultipleAllocations must be true")
    if device.fits("taints", _MAX_TOLERATIONS):
        for taint in device.parts("taints"):
            _taint_problems(taint)
    if device.fits("consumesCounters", _MAX_CONSUMPTIONS):
        consumptions = device.parts("consumesCounters")
        device.no_repeats("consumesCounters", _texts_of(consumptions, "counterSet"))
        for consumption in consumptions:
            _counter_problems(consumption, "counterSet")
    if per_device:
        _node_problems(device, [], has_one_term=False)
    elif device.given("nodeName", "nodeSelector", "allNodes"):
        detail = "`nodeName`, `nodeSelector` and `allNodes` can only be set if `perDeviceNodeSelection` is set to true"
        device.invalid("", "", detail)
    _binding_problems(device)


def _attribute_problems(attribute: Fields) -> None:
    # Lists exist only with the gate DRAListTypeAttributes, which the scheduler has too.
    # Without it, the API server drops them.
    scalars = ("bool", "int", "string", "version")
    given = attribute.given(*scalars) or attribute.given(*(f"{kind}s" for kind in scalars))
    if len(given) != 1:
        attribute.invalid("", "", "exactly one value must be specified")
    for field in attribute.given("string", "version"):
        value = attribute.text(field)
        if field == "version" and not _SEMVER.fullmatch(value):
            attribute.invalid("version", value, "must be a string compatible with semver.org spec 2.0.0")
        if len(value.encode()) > 64:
            attribute.too_long(field, 64)


def _policy_problems(policy: Fields, capacity: int) -> None:
    default, values = policy.get("default"), policy.get("validValues") or []
    has_range = policy.get("validRange") is not None
    if values and has_range:
        policy.forbidden("", 'exactly one policy can be specified, cannot specify "validValues" and "validRange"')
    elif (values or has_range) and default is None:
        policy.required("default", "required when validValues or validRange is defined")
    elif values:
        amounts = [amount(each) for each in values]
        if amounts != sorted(amounts):
            policy.invalid("validValues", values, "values must be sorted in ascending order")
        policy.fits("validValues", _MAX_OPTIONS)
        if len({_whole(each) for each in amounts}) < len(amounts):
            policy.duplicate("validValues", values)
        if any(each > capacity for each in amounts):
            policy.invalid("validValues", values, "option is larger than capacity value")
        if amount(default) not in amounts:
            policy.invalid("validValues", values, "default value is not valid according to the requestPolicy")
    elif has_range:
        _range_problems(policy.part("validRange"), amount(default), capacity)


def _range_problems(span: Fields, default: int, capacity: int) -> None:
    least, most, step = span.get("min"), span.get("max"), span.get("step")
    if least is None:
        span.required("min", "required when validRange is defined")
        return
    low = amount(least)
    if low > capacity or default < low:
        span.invalid("min", least, "min is larger than the capacity value or the default")
    if most is not None and (low > amount(most) or amount(most) > capacity or default > amount(most)):
        span.invalid("max", most, "max is less than min or the default, or larger than the capacity value")
    if step is None:
        return
    if amount(step) <= 0:
        span.invalid("step", step, "must be greater than zero")
        return
    if low + amount(step) > capacity:
        span.invalid("step", step, "one step is larger than capacity value")
    if min(low, default) < 0:
        span.invalid("", "", "must be greater than or equal to 0")
    for value in (default, *(() if most is None else (amount(most),))):
        if (_whole(value) - _whole(low)) % _whole(amount(step)):
            span.invalid("step", step, "value is not a multiple of a given step from min")


def _whole(units: int) -> int:
    return -(-units // NANO)


def _taint_problems(taint: Fields) -> None:
    taint.check("key", qualified_name)
    taint.check("value", label_value)
    taint.choice("effect", _EFFECTS, is_required=True)


def _counter_problems(owner: Fields, name_field: str) -> None:
    owner.name(name_field, dns_label)
    owner.require("counters")
    owner.fits("counters", _MAX_LIST)
    for key in owner.mapping("counters"):
        owner.invalid(f"counters[{key}]", key, *dns_label(key))


def _binding_problems(device: Fields) -> None:
    conditions, failures = device.texts("bindingConditions"), device.texts("bindingFailureConditions")
    for field in ("bindingConditions", "bindingFailureConditions"):
        if device.fits(field, _MAX_CONDITIONS):
            device.check_each(field, qualified_name)
        device.no_repeats(field, device.texts(field))
    for index, each in enumerate(failures):
        if each in conditions:
            detail = "bindingFailureConditions must not overlap with bindingConditions"
            device.invalid(f"bindingFailureConditions[{index}]", each, detail)
    if bool(conditions) != bool(failures):
        detail = "bindingConditions and bindingFailureConditions require each other"
        device.invalid("bindingConditions", conditions, detail)


# -- names ------------------------------------------------------------------------------------------------------------


def _texts_of(parts: Sequence[Fields], field: str) -> list[str]:
    return [each.text(field) for each in parts]


def _pool_name_problems(owner: Fields, field: str) -> None:
    name = owner.text(field)
    if not name:
        owner.required(field)
        return
    if len(name) > 253:
        owner.too_long(field, 253)
    for part in name.split("/"):
        owner.invalid(field, name, *dns_subdomain(part))


def _identifier_problems(owner: Fields, field: str, name: str) -> None:
    domain, slash, identifier = name.partition("/")
    if "/" in identifier:
        return
    if not slash:
        identifier = domain
    elif not domain:
        owner.invalid(field, name, "the domain must not be empty")
    else:
        csi_driver_name_problems(owner, field, domain)
    if len(identifier) > 32:
        owner.too_long(field, 32)
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", identifier):
        detail = "a valid C identifier must start with a letter or '_', followed by letters, digits or '_'"
        owner.invalid(field, name, detail)


DEVICE_RULES: Mapping[str, Callable[[Fields], None]] = {
    "ResourceClaim": _claim_spec_problems,
    "ResourceClaimTemplate": _claim_template_spec_problems,
    "DeviceClass": _class_spec_problems,
    "ResourceSlice": _slice_spec_problems,
    "DeviceTaintRule": _taint_rule_spec_problems,
}
"""Rules of the specs, by kind."""
