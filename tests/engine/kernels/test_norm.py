"""RMSNorm in the interpreter, against its definition in float64."""

from __future__ import annotations

import pytest
import torch

from kvscope.engine.kernels.norm import rms_norm
from tests.engine.kernels.closeness import assert_close, assert_guards, guarded_output


def definition(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    x = x.double()
    return x / (x.pow(2).mean(-1, keepdim=True) + eps).sqrt() * weight.double()


@pytest.mark.parametrize(
    ("dtype", "num_rows", "hidden_size"),
    [
        (torch.float32, 1, 576),
        (torch.float32, 3, 1),
        (torch.float16, 3, 1024),
        (torch.bfloat16, 2, 1025),
        (torch.float32, 0, 64),
    ],
)
def test_rows(dtype: torch.dtype, num_rows: int, hidden_size: int) -> None:
    torch.manual_seed(hidden_size)
    x, weight = torch.randn(num_rows, hidden_size).to(dtype), torch.randn(hidden_size).to(dtype)
    before = x.clone()
    out = guarded_output(num_rows, hidden_size, dtype=dtype)

    assert rms_norm(x, weight, 1e-5, out=out) is out

    assert_close(out, definition(x, weight, 1e-5))
    assert torch.equal(x, before)
    assert_guards(out)


@pytest.mark.parametrize(("dtype", "hidden_size"), [(torch.float32, 100), (torch.float16, 64), (torch.bfloat16, 300)])
def test_the_norm_is_of_the_residual_as_it_is_stored(dtype: torch.dtype, hidden_size: int) -> None:
    torch.manual_seed(1)
    x, residual = torch.randn(4, hidden_size).to(dtype), torch.randn(4, hidden_size).to(dtype)
    weight = torch.randn(hidden_size).to(dtype)
    total = residual.double() + x.double()

    out = rms_norm(x, weight, 1e-6, residual=residual)

    assert_close(residual, total)
    # Nearer than the rounding of the sum: from the sum itself it would be up to 2**-8 away in bfloat16.
    exact = definition(residual, weight, 1e-6)
    assert torch.equal(out, exact.to(dtype)) or (out.double() - exact).abs().max() <= torch.finfo(dtype).eps * 4


def test_a_row_of_zeros_is_zeros_and_nan_stays_in_its_row() -> None:
    x = torch.stack([torch.zeros(64), torch.full((64,), float("nan")), torch.ones(64)])

    out = rms_norm(x, torch.full((64,), 2.0), 1e-6)

    assert torch.equal(out[0], torch.zeros(64))
    assert torch.isnan(out[1]).all()
    assert_close(out[2], torch.full((64,), 2.0))


def test_eps_counts_where_a_row_is_small() -> None:
    x = torch.full((1, 64), 1e-3)

    assert_close(rms_norm(x, torch.ones(64), 3e-6), torch.full((1, 64), 0.5))


def test_refuses_other_shapes_and_types() -> None:
    x, weight = torch.zeros(2, 8), torch.zeros(8)

    def refusal(
        x: torch.Tensor = x,
        weight: torch.Tensor = weight,
        residual: torch.Tensor | None = None,
        out: torch.Tensor | None = None,
    ) -> str:
        with pytest.raises(ValueError) as caught:
            rms_norm(x, weight, 1e-6, residual=residual, out=out)
        return str(caught.value)

    assert refusal(weight=torch.zeros(9)) == "weight is torch.float32 [9] on cpu; torch.float32 [8] on cpu is needed"
    assert refusal(x=x.T) == "x of shape [8, 2] has strides [1, 8], not contiguous"
    assert refusal(x=torch.zeros(1, 16385)) == "x is [1, 16385]; [num_rows, hidden_size up to 16384] is needed"
    assert refusal(residual=torch.zeros(1, 8)) == (
        "residual is torch.float32 [1, 8] on cpu; torch.float32 [2, 8] on cpu is needed"
    )
    assert refusal(out=x.half()) == "out is torch.float16 [2, 8] on cpu; torch.float32 [2, 8] on cpu is needed"
