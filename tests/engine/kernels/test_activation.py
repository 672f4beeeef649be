"""SwiGLU's gate in the interpreter, against its definition in float64."""

from __future__ import annotations

import pytest
import torch

from kvscope.engine.kernels.activation import silu_and_mul
from tests.engine.kernels.closeness import assert_close, assert_guards, guarded_output


# A tile is 1,024 wide.
@pytest.mark.parametrize(
    ("dtype", "num_rows", "size"),
    [
        (torch.float32, 2, 1),
        (torch.float32, 3, 1024),
        (torch.float16, 2, 1025),
        (torch.bfloat16, 2, 1536),
        (torch.float32, 1, 2048),
        (torch.bfloat16, 1, 2049),
        (torch.float16, 0, 8),
    ],
)
def test_rows(dtype: torch.dtype, num_rows: int, size: int) -> None:
    torch.manual_seed(size)
    gate, up = torch.randn(num_rows, size).to(dtype), torch.randn(num_rows, size).to(dtype)
    out = guarded_output(num_rows, size, dtype=dtype)

    assert silu_and_mul(torch.cat([gate, up], -1), out=out) is out

    assert_close(out, gate.double() / (1 + (-gate.double()).exp()) * up.double())
    assert_guards(out)


@pytest.mark.filterwarnings("ignore:overflow")  # on purpose: exp(10000) is inf, and its quotient 0
def test_gates_far_out() -> None:
    gate, up = torch.tensor([[-1e4, -100.0, 100.0, 1e4]]), torch.tensor([[3.0, -2.0, 2.0, 0.5]])

    assert torch.equal(silu_and_mul(torch.cat([gate, up], -1)), torch.tensor([[0.0, 0.0, 200.0, 5000.0]]))


def test_refuses_an_odd_width() -> None:
    with pytest.raises(ValueError) as caught:
        silu_and_mul(torch.zeros(2, 7))
    assert str(caught.value) == "gate_up is [2, 7]; [num_rows, 2 * intermediate_size] is needed"
