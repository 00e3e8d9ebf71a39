"""Tests of the problems of objects that cannot be decoded."""

from typing import Any

import msgspec
import pytest
from bayplan.simulation.cluster_files import decoding_problem

from scheduler_core.model.pod import Pod


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        pytest.param(
            {"metadata": {"name": True}},
            "metadata.name: must be text, not true or false; put it in quotes",
            id="boolean for text",
        ),
        pytest.param(
            {"metadata": {"name": "p"}, "spec": {"priority": "5"}},
            "spec.priority: must be a whole number or null, not text; remove the quotes",
            id="text for an optional number",
        ),
        pytest.param(
            {"metadata": {"name": "p"}, "spec": {"hostNetwork": "true"}},
            "spec.hostNetwork: must be true or false, not text; remove the quotes",
            id="text for a boolean",
        ),
        pytest.param({"metadata": {}}, "metadata.name: is required; add it", id="missing field"),
        pytest.param({}, "metadata: is required; add it", id="missing top-level field"),
        pytest.param(
            {"metadata": {"name": "p"}, "spec": {"nodeSelector": {"disk": "ssd", "gen": 7}}},
            "spec.nodeSelector[gen]: must be text, not a whole number; put it in quotes",
            id="value of a mapping",
        ),
        pytest.param(
            {"metadata": {"name": "p"}, "spec": {"containers": [{"resources": {"requests": {"cpu": [1]}}}]}},
            "spec.containers[0].resources.requests[cpu]: must be a whole number or a number or text, not a list; "
            "correct it",
            id="value of several types",
        ),
        pytest.param(
            {"metadata": {"name": "p", "creationTimestamp": "yesterday"}},
            "metadata.creationTimestamp: invalid RFC3339 encoded datetime; correct it",
            id="invalid time",
        ),
    ],
)
def test_a_problem_has_field_error_and_remedy(body: dict[str, Any], problem: str) -> None:
    """A problem has the path of the field, the error and the remedy."""
    with pytest.raises(msgspec.ValidationError) as caught:
        msgspec.convert(body, Pod)
    assert str(decoding_problem(caught.value, body)) == problem
