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
    raise NotImplementedError
