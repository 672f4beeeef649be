"""Tokens from logits without a trip to the host.

The draw is the argmax of logit / temperature + Gumbel noise over the tokens that the filters leave, which is a draw
from their softmax. The noise of a token is a Philox number of (seed, index of the output token, token id), so a row's
token depends on nothing else: neither on its place in the batch nor on other rows.
Source: Gumbel-max as in Maddison et al. (1411.00030), section 2; Salmon et al., Random123 (Philox-4x32-10).

The draws differ from those of the torch sampler, which inverts the running sum: only their distribution is the same.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from kvscope.engine.kernels.device.sampling import sample_kernel
from kvscope.engine.kernels.launch import Launch, require, require_dtype

_TILE = 2048
"""Logits a turn: 8 a thread of 8 warps, so that what a filter adds up stays in registers."""
_MAX_CANDIDATES = 4096
"""So many logits are few enough to be written out and looked at by themselves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingRows:
    """Each row's settings, on the device, each `[num_rows]`."""

    temperatures: torch.Tensor
    """float32; 0 for the first of the largest logits, whatever the other settings say."""
    top_ks: torch.Tensor
    """int32; 0 or less for no limit. Tokens that tie with the last one kept are kept too (as in vLLM); 1 is greedy."""
    top_ps: torch.Tensor
    """float32 in (0, 1]; 1 for no limit: of what min_p and top_k leave, as few of the likeliest as reach this part of
    its mass; ties with the last one kept are kept too."""
    min_ps: torch.Tensor
    """float32 in [0, 1]; 0 for no limit: tokens at least this times as likely as the likeliest."""
    seeds: torch.Tensor
    """int64, any value."""
    indices: torch.Tensor
    """int64: the index of the output token that is to be drawn."""


def sample(logits: torch.Tensor, rows: SamplingRows | None, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Returns each row's token id, int64 `[num_rows]`.

    Args:
        logits: `[num_rows, vocab_size]`, rows contiguous, any of the three dtypes; not changed. NaN counts as -inf.
        rows: settings; None where all rows are greedy, which spares the passes that filters need.
        out: int64 `[num_rows]` to write to; by default a new tensor.

    Raises:
        ValueError: a shape, dtype, layout or device is not as above.
    """
    require_dtype("logits", logits)
    if logits.ndim != 2 or logits.stride(1) != 1:
        raise ValueError(
            f"logits is {list(logits.shape)} with strides {list(logits.stride())}; "
            "[num_rows, vocab_size] with contiguous rows is needed"
        )
    num_rows, vocab_size = logits.shape
    if out is None:
        out = torch.empty(num_rows, dtype=torch.int64, device=logits.device)
    require("out", out, (num_rows,), torch.int64, logits.device)
    settings: dict[str, torch.Tensor | None] = dict.fromkeys((f"{name}_ptr" for name in _SETTINGS), None)
    if rows is not None:
        for name, dtype in _SETTINGS.items():
            tensor: torch.Tensor = getattr(rows, name)
            require(name, tensor, (num_rows,), dtype, logits.device)
            settings[f"{name}_ptr"] = tensor
    num_candidates = 0 if rows is None else num_rows
    candidates = torch.empty((num_candidates, _MAX_CANDIDATES), dtype=torch.float32, device=logits.device)
    Launch(
        kernel=sample_kernel,
        grid=(num_rows, 1, 1),
        arguments={
            "logits_ptr": logits,
            "row_stride": logits.stride(0),
            **settings,
            "candidates_ptr": candidates,
            "candidate_ids_ptr": torch.empty_like(candidates, dtype=torch.int32),
            "out_ptr": out,
        },
        constants={
            "VOCAB_SIZE": vocab_size,
            "IS_GREEDY": rows is None,
            "MAX_CANDIDATES": _MAX_CANDIDATES,
            "TILE": _TILE,
        },
        num_warps=8,
        num_stages=1,
    ).run()
    return out


_SETTINGS = {
    "temperatures": torch.float32,
    "top_ks": torch.int32,
    "top_ps": torch.float32,
    "min_ps": torch.float32,
    "seeds": torch.int64,
    "indices": torch.int64,
}
