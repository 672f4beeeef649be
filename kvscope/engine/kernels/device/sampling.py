"""Sampling a row of logits: its largest, the filters' threshold, and the draw by Gumbel noise.

A filter keeps all logits from a threshold on. top_k's and top_p's are found by halving: the logits' bits, ordered as
integers, are cut in two, and after each look at the row both ends move to the nearest logits there are, so that it
takes about as many looks as bits tell neighbours apart.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit(
    do_not_specialize_on_alignment=[
        "temperatures_ptr",
        "top_ks_ptr",
        "top_ps_ptr",
        "min_ps_ptr",
        "seeds_ptr",
        "indices_ptr",
        "out_ptr",
    ]
)
def sample_kernel(
    logits_ptr,
    row_stride,
    temperatures_ptr,
    top_ks_ptr,
    top_ps_ptr,
    min_ps_ptr,
    seeds_ptr,
    indices_ptr,
    out_ptr,
    VOCAB_SIZE: tl.constexpr,
    IS_GREEDY: tl.constexpr,
    TILE: tl.constexpr,
):
    """Grid: rows. IS_GREEDY: all rows are, and the settings' pointers are None."""
    row = tl.program_id(0)
    row_ptr = logits_ptr + row.to(tl.int64) * row_stride
    peak, token_id = _largest(row_ptr, VOCAB_SIZE, TILE)
    if not IS_GREEDY:
        temperature = tl.load(temperatures_ptr + row)
        top_k = tl.load(top_ks_ptr + row)
        # A row of nothing but -inf has no distribution.
        if (temperature > 0) & (top_k != 1) & (peak > float("-inf")):
            scale = 1.0 / temperature
            top_p = tl.load(top_ps_ptr + row)
            min_p = tl.load(min_ps_ptr + row)
            threshold = _sortable(peak * 0 + float("-inf"))
            if min_p > 0:
                threshold = _sortable(peak + temperature * tl.log(min_p))
            if (top_k > 0) & (top_k < VOCAB_SIZE):
                threshold = _highest_threshold(
                    row_ptr, threshold, peak, scale, top_k.to(tl.float32), False, VOCAB_SIZE, TILE
                )
            if top_p < 1:
                mass, _, _ = _look(row_ptr, threshold, peak, scale, True, VOCAB_SIZE, TILE)
                threshold = _highest_threshold(row_ptr, threshold, peak, scale, top_p * mass, True, VOCAB_SIZE, TILE)
            seed = tl.load(seeds_ptr + row)
            index = tl.load(indices_ptr + row)
            token_id = _draw(row_ptr, threshold, peak, scale, seed, index, VOCAB_SIZE, TILE)
    tl.store(out_ptr + row, token_id.to(tl.int64))


@triton.jit
def _load(row_ptr, token_ids, VOCAB_SIZE: tl.constexpr):
    """Returns logits in float32; -inf for NaN and behind the vocabulary, the largest finite for inf."""
    logits = tl.load(row_ptr + token_ids, mask=token_ids < VOCAB_SIZE, other=float("-inf")).to(tl.float32)
    return tl.minimum(tl.where(logits == logits, logits, float("-inf")), 3.4028234e38)


@triton.jit
def _sortable(logits):
    """Returns int32 in the order of float32: of a negative number all bits but the sign are turned over."""
    bits = logits.to(tl.int32, bitcast=True)
    return bits ^ ((bits >> 31) & 0x7FFFFFFF)


@triton.jit
def _best(values, token_ids):
    """Returns the largest value and the first token id that has it."""
    peak = tl.max(values, 0)
    return peak, tl.min(tl.where(values == peak, token_ids, 0x7FFFFFFF), 0)


@triton.jit
def _largest(row_ptr, VOCAB_SIZE: tl.constexpr, TILE: tl.constexpr):
    """Returns the row's largest logit and the first token id that has it; id 0 where all are -inf."""
    best = tl.full([TILE], float("-inf"), tl.float32)
    best_ids = tl.arange(0, TILE)
    for first in tl.range(0, VOCAB_SIZE, TILE, num_stages=3):
        token_ids = first + tl.arange(0, TILE)
        logits = _load(row_ptr, token_ids, VOCAB_SIZE)
        is_better = logits > best
        best = tl.where(is_better, logits, best)
        best_ids = tl.where(is_better, token_ids, best_ids)
    return _best(best, best_ids)


@triton.jit
def _look(row_ptr, threshold, peak, scale, BY_MASS: tl.constexpr, VOCAB_SIZE: tl.constexpr, TILE: tl.constexpr):
    """Returns what the threshold keeps (their number, or their mass relative to the peak's), the lowest that it keeps
    and the highest that it does not."""
    kept = tl.zeros([TILE], tl.float32)
    lowest = tl.full([TILE], 0x7FFFFFFF, tl.int32)
    highest = tl.full([TILE], -0x80000000, tl.int32)
    for first in tl.range(0, VOCAB_SIZE, TILE, num_stages=3):
        token_ids = first + tl.arange(0, TILE)
        logits = _load(row_ptr, token_ids, VOCAB_SIZE)
        keys = _sortable(logits)
        is_kept = (keys >= threshold) & (token_ids < VOCAB_SIZE)
        kept += tl.where(is_kept, tl.exp((logits - peak) * scale) if BY_MASS else 1.0, 0.0)
        lowest = tl.where(is_kept, tl.minimum(lowest, keys), lowest)
        highest = tl.where(is_kept, highest, tl.maximum(highest, keys))
    return tl.sum(kept, 0), tl.min(lowest, 0), tl.max(highest, 0)


@triton.jit
def _highest_threshold(
    row_ptr,
    threshold,
    peak,
    scale,
    target,
    BY_MASS: tl.constexpr,
    VOCAB_SIZE: tl.constexpr,
    TILE: tl.constexpr,
):
    """Returns the highest threshold, not below `threshold`, that keeps `target` or more; `threshold` if none does."""
    low = threshold.to(tl.int64)  # keeps enough, or is where we end
    high = _sortable(peak).to(tl.int64) + 1  # keeps too little
    while high - low > 1:
        middle = (low + (high - low) // 2).to(tl.int32)
        kept, lowest, highest = _look(row_ptr, middle, peak, scale, BY_MASS, VOCAB_SIZE, TILE)
        if kept >= target:
            low = lowest.to(tl.int64)
        else:
            high = tl.maximum(highest.to(tl.int64), low) + 1
    return low.to(tl.int32)


@triton.jit
def _draw(row_ptr, threshold, peak, scale, seed, index, VOCAB_SIZE: tl.constexpr, TILE: tl.constexpr):
    """Returns the token with the largest sum of scaled logit and noise among those kept."""
    best = tl.full([TILE], float("-inf"), tl.float32)
    best_ids = tl.full([TILE], 0x7FFFFFFF, tl.int32)
    for first in tl.range(0, VOCAB_SIZE, TILE, num_stages=3):
        token_ids = first + tl.arange(0, TILE)
        logits = _load(row_ptr, token_ids, VOCAB_SIZE)
        zeros = token_ids * 0
        low_index = zeros + (index & 0x7FFFFFFF).to(tl.int32)
        high_index = zeros + (index >> 31).to(tl.int32)
        bits, _, _, _ = tl.philox(seed, token_ids, low_index, high_index, zeros)
        scores = (logits - peak) * scale - tl.log(_exponential(bits))
        is_better = (_sortable(logits) >= threshold) & (token_ids < VOCAB_SIZE) & (scores > best)
        best = tl.where(is_better, scores, best)
        best_ids = tl.where(is_better, token_ids, best_ids)
    _, token_id = _best(best, best_ids)
    return token_id


@triton.jit
def _exponential(bits):
    """Returns exponentially distributed numbers of random uint32. The smallest matter: they win, and must not tie.

    So small ones come from the series of -log(1 - u), which keeps all of u's bits.
    """
    uniform = tl.minimum((bits.to(tl.float32) + 0.5) * 2.3283064365386963e-10, 0.99999994)
    series = uniform * (1.0 + uniform * (0.5 + uniform * (1.0 / 3.0)))
    return tl.where(uniform < 0.01, series, -tl.log(1.0 - uniform))
