"""Extenders: HTTP services that take part in filtering, scoring, preempting or binding.

Owns their fields and the rules among them. It must not know the protocol they speak. Why certificates are checked
for base64 only: whether they fit is seen by the TLS library when the client is made.
Source: kube-scheduler v0.36.3, config/v1/types.go; v1.36.3, validation/validation.go and pkg/scheduler/extender.go.
"""

import base64
import binascii
from collections.abc import Iterator, Sequence
from typing import ClassVar

from pydantic import Field

from scheduler_core.config.config_model import INT64_MAX, ConfigModel, RuleProblem
from scheduler_core.config.duration import DurationField, seconds
from scheduler_core.config.kubernetes_names import extended_resource_problems


class ExtenderManagedResource(ConfigModel):
    """An extended resource that an extender looks after."""

    name: str = Field(min_length=1, description="Name of the extended resource, such as example.com/licence.")
    ignored_by_scheduler: bool = Field(
        default=False, description="Whether NodeResourcesFit leaves this resource to the extender."
    )


class ExtenderTLSConfig(ConfigModel):
    """How the connection to an extender is secured. Data go before files."""

    insecure: bool = Field(default=False, description="Do not verify the extender's certificate; for tests only.")
    server_name: str = Field(
        default="", description="Name that the extender's certificate must bear; the host of urlPrefix when empty."
    )
    cert_file: str = Field(default="", description="Path, on the scheduler's side, of the client certificate (PEM).")
    key_file: str = Field(default="", description="Path, on the scheduler's side, of the client key (PEM).")
    ca_file: str = Field(default="", description="Path, on the scheduler's side, of the trusted authorities (PEM).")
    cert_data: str = Field(default="", description="The client certificate (PEM) in base64.")
    key_data: str = Field(
        default="",
        repr=False,
        description="The client key (PEM) in base64. Prefer keyFile: what stands here can be read by whoever reads "
        "this object.",
    )
    ca_data: str = Field(default="", description="The trusted authorities (PEM) in base64.")

    def rule_problems(self) -> Iterator[RuleProblem]:
        """Data are base64, a certificate has its key, and unverified means that no authority is given."""
        for name, text in (("certData", self.cert_data), ("keyData", self.key_data), ("caData", self.ca_data)):
            try:
                base64.b64decode(text, validate=True)
            except (binascii.Error, ValueError):
                yield RuleProblem((name,), "must be base64")
        if self.insecure and (self.ca_file or self.ca_data):
            yield RuleProblem(("insecure",), "cannot be true beside caFile or caData; remove the one not wanted")
        if bool(self.cert_file or self.cert_data) != bool(self.key_file or self.key_data):
            yield RuleProblem((), "a client certificate needs its key and the other way round; give both or neither")


class Extender(ConfigModel):
    """An extender. Without the verb for a step it takes no part in it."""

    zero_is_unset: ClassVar[frozenset[str]] = frozenset({"httpTimeout"})

    url_prefix: str = Field(
        min_length=1, description="Where the extender listens, such as https://licences.example.com/scheduler."
    )
    filter_verb: str = Field(default="", description="Path after urlPrefix of the filter call; empty for none.")
    preempt_verb: str = Field(default="", description="Path after urlPrefix of the preempt call; empty for none.")
    prioritize_verb: str = Field(default="", description="Path after urlPrefix of the prioritize call; empty for none.")
    weight: int = Field(
        default=0,
        ge=-INT64_MAX - 1,
        le=INT64_MAX,
        description="How much the extender's scores count; at least 1 with prioritizeVerb.",
    )
    bind_verb: str = Field(
        default="",
        description="Path after urlPrefix of the bind call; empty for none. Only one extender may bind, and it "
        "creates the binding itself.",
    )
    enable_https: bool = Field(
        default=False,
        alias="enableHTTPS",
        description="Whether the extender's certificate goes unverified where tlsConfig names no authority, as with "
        "kube-scheduler. It is the scheme of urlPrefix that decides between HTTP and HTTPS.",
    )
    tls_config: ExtenderTLSConfig | None = Field(default=None, description="How the connection is secured.")
    http_timeout: DurationField = Field(
        default=seconds(5),
        description="How long one call may take, such as 5s. A filter that takes longer fails the pod's attempt, a "
        "prioritize that takes longer is left out.",
    )
    node_cache_capable: bool = Field(
        default=False, description="Whether the extender knows the nodes itself, so that it is sent names only."
    )
    managed_resources: tuple[ExtenderManagedResource, ...] = Field(
        default=(),
        strict=False,
        description="Extended resources that the extender looks after: only pods that request one of them are sent "
        "to it. When empty, all pods are.",
    )
    ignorable: bool = Field(
        default=False, description="Whether scheduling goes on when the extender is away or answers with an error."
    )


def extender_problems(extenders: Sequence[Extender]) -> Iterator[RuleProblem]:
    """Find what is wrong among the extenders of one configuration or profile.

    Args:
        extenders: All of them, from the field ``extenders``.

    Yields:
        A problem for each scoring extender without weight, each invalid or repeated managed resource and each
        binder after the first.
    """
    seen: set[str] = set()
    has_binder = False
    for index, extender in enumerate(extenders):
        if extender.prioritize_verb and extender.weight <= 0:
            yield RuleProblem(
                ("extenders", index, "weight"), f"must be at least 1 with prioritizeVerb, not {extender.weight}"
            )
        if extender.bind_verb:
            if has_binder:
                yield RuleProblem(
                    ("extenders", index, "bindVerb"), "only one extender may bind and an earlier one does; remove one"
                )
            has_binder = True
        for position, resource in enumerate(extender.managed_resources):
            place = ("extenders", index, "managedResources", position, "name")
            for message in extended_resource_problems(resource.name):
                yield RuleProblem(place, message)
            if resource.name in seen:
                yield RuleProblem(
                    place, f'"{resource.name}" is managed by an earlier entry already; remove one of them'
                )
            seen.add(resource.name)
