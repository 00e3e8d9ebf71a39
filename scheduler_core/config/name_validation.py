"""Kubernetes' rules for label keys, label values and resource names, for names in configurations.

They are not used for objects of the API server, which has validated them.
Source: apimachinery v0.37.1, pkg/util/validation and pkg/apis/core/v1/helper of Kubernetes v1.37.1.
"""

import re

_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
_DNS_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_DNS_SUBDOMAIN = re.compile(rf"{_DNS_LABEL}(\.{_DNS_LABEL})*")
_QUOTA_PREFIX = "requests."


def qualified_name_problems(name: str) -> list[str]:
    """Check a label key or resource name: an optional DNS prefix with a slash, then a name.

    Args:
        name: A name such as ``cpu``, ``topology.kubernetes.io/zone``.

    Returns:
        Messages; empty for a valid name.
    """
    prefix, slash, local = name.rpartition("/")
    if "/" in prefix:
        return [f'"{name}" must have at most one slash: an optional DNS prefix, "/" and a name']
    problems = []
    if slash and (len(prefix) > 253 or not _DNS_SUBDOMAIN.fullmatch(prefix)):
        problems.append(f'"{name}" must have a DNS name in lower case of at most 253 characters before the slash')
    if len(local) > 63 or not _NAME.fullmatch(local):
        problems.append(
            f'"{name}" must have 1 to 63 letters, digits, "-", "_" or "." as its name, '
            "with a letter or digit at both ends"
        )
    return problems


def label_value_problems(value: str) -> list[str]:
    """Check a label value.

    Returns:
        Messages; empty for a valid value.
    """
    if value == "" or (len(value) <= 63 and _NAME.fullmatch(value)):
        return []
    message = (
        f'"{value}" is not a label value: use at most 63 letters, digits, "-", "_" or ".", '
        "with a letter or digit at both ends"
    )
    return [message]


def extended_resource_problems(name: str) -> list[str]:
    """Check the name of an extended resource, which a device plugin or an extender provides.

    Args:
        name: A name such as ``example.com/foo``.

    Returns:
        Messages; empty for a valid name.
    """
    problems = qualified_name_problems(name)
    if problems:
        return problems
    if "/" not in name or "kubernetes.io/" in name:
        return [f'"{name}" is reserved for Kubernetes; use an extended resource such as "example.com/foo"']
    if name.startswith(_QUOTA_PREFIX):
        return [f'"{name}" must not begin with "{_QUOTA_PREFIX}", which resource quotas use as a prefix']
    if qualified_name_problems(_QUOTA_PREFIX + name):
        return [f'"{name}" is too long: with "{_QUOTA_PREFIX}" before it the prefix exceeds 253 characters']
    return []
