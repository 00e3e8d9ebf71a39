"""Redaction of recorded objects."""

from __future__ import annotations

import msgspec
import pytest

from scheduler_core.config.profile_config import Extender, ExtenderTLSConfig, ProfileConfig
from scheduler_core.framework.object_reads import DecodedTypes
from scheduler_core.model.devices import DeviceClass
from scheduler_core.model.meta import AnnotatedMeta
from scheduler_core.model.pod import Pod
from scheduler_core.model.storage import PersistentVolumeClaim
from scheduler_core.recording.object_types import ObjectTypes, redacted
from scheduler_core.recording.record_file import RecordError
from scheduler_core.recording.recorder import public_config

TYPES = ObjectTypes(DecodedTypes())
HIDDEN = "do-not-record"
POD = {
    "metadata": {"name": "p", "annotations": {"note": HIDDEN}},
    "spec": {
        "containers": [{"name": "c", "image": "i", "env": [{"name": "TOKEN", "value": HIDDEN}], "args": [HIDDEN]}],
        "volumes": [{"name": "v", "secret": {"secretName": HIDDEN}}],
    },
}
CLASS = {
    "metadata": {"name": "c"},
    "spec": {"config": [{"opaque": {"driver": "d", "parameters": {"password": HIDDEN}}}]},
}


def recorded(value: object) -> bytes:
    return msgspec.json.encode(TYPES.content(value))


def test_a_pod_is_recorded_without_environment() -> None:
    """Environment variables, arguments and secret volumes of a pod are not recorded."""
    pod = msgspec.json.decode(msgspec.json.encode(POD), type=Pod)
    assert HIDDEN.encode() not in recorded(pod)


def test_parameters_of_drivers_are_hashed() -> None:
    """Opaque parameters of drivers are recorded as a hash, and hashing is idempotent."""
    decoded = msgspec.json.decode(msgspec.json.encode(CLASS), type=DeviceClass)
    assert HIDDEN.encode() not in recorded(decoded)
    once = redacted(decoded)
    assert once != decoded
    assert redacted(once) == once


def test_the_annotation_of_kubectl_is_hashed() -> None:
    """The last-applied annotation of kubectl is recorded as a hash, because it contains the whole object."""
    meta = AnnotatedMeta("c", annotations={"kubectl.kubernetes.io/last-applied-configuration": HIDDEN, "a": "b"})
    claim = PersistentVolumeClaim(meta)
    assert HIDDEN.encode() not in recorded(claim)
    assert b'"a":"b"' in recorded(claim)


def test_keys_and_passwords_of_extenders() -> None:
    """The configuration of a profile is recorded without keys and passwords of extenders."""
    key = "ZG8tbm90LXJlY29yZA=="
    tls = ExtenderTLSConfig(key_data=key, cert_data=key)
    extender = Extender(url_prefix=f"https://user:{HIDDEN}@host/path", filter_verb="filter", tls_config=tls)
    config = ProfileConfig(scheduler_name="s", extenders=(extender,))
    text = public_config(config).model_dump_json(by_alias=True)
    assert HIDDEN not in text
    assert key not in text
    assert "https://host/path" in text
    assert ProfileConfig.model_validate_json(text).scheduler_name == "s"


@pytest.mark.parametrize("content", [("Pod", b'{"metadata":3}'), ("Unknown", b"{}")])
def test_an_invalid_object(content: tuple[str, bytes]) -> None:
    """An invalid or unknown object raises an error about the record."""
    with pytest.raises(RecordError, match="the record contains an"):
        TYPES.value((content[0], msgspec.Raw(content[1])))
