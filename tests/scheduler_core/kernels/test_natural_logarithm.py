"""The natural logarithm is the reference's, to the last bit."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_core.kernels.natural_logarithm import natural_logarithm


@pytest.mark.parametrize(
    ("number", "bits"),
    [
        pytest.param(1.0, "0x0.0p+0", id="one"),
        pytest.param(2.0, "0x1.62e42fefa39efp-1", id="two"),
        pytest.param(3.0, "0x1.193ea7aad030ap+0", id="three-where-the-c-library-differs"),
        pytest.param(14.0, "0x1.51cca16d7bba8p+1", id="fourteen-where-the-c-library-differs"),
        pytest.param(48.0, "0x1.ef8383c50bb74p+1", id="forty-eight-where-the-c-library-differs"),
        pytest.param(5002.0, "0x1.10901f6dc84b9p+3", id="five-thousand-nodes"),
    ],
)
def test_it_equals_gos(number: float, bits: str) -> None:
    """As Go 1.26 on amd64 printed it."""
    assert natural_logarithm(number).hex() == bits


@given(number=st.floats(1e-300, 1e300))
def test_it_is_a_logarithm(number: float) -> None:
    """Within a unit in the last place or so of the C library's."""
    assert natural_logarithm(number) == pytest.approx(math.log(number), rel=4e-16, abs=4e-16)
