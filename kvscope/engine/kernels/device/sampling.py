"""Sampling a row of logits: its largest, the filters' threshold, and the draw by Gumbel noise.

A filter keeps all logits from a threshold on. The threshold is found by halving the range where it may lie: a look at
the row says what a value between would keep, and both ends move to the nearest logits there are. A look at a whole
vocabulary is dear, so as soon as few logits are left above the lower end they are written out, and the rest of the
search and the draw are about those.
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
    candidates_ptr,
    candidate_ids_ptr,
    out_ptr,
    VOCAB_SIZE: tl.constexpr,
    IS_GREEDY: tl.constexpr,
    MAX_CANDIDATES: tl.constexpr,
    TILE: tl.constexpr,
):
    """Grid: rows. IS_GREEDY: all rows are, and the settings' pointers are None."""
    row = tl.program_id(0)
    row_ptr = logits_ptr + row.to(tl.int64) * row_stride
    peak, token_id = _largest(row_ptr, VOCAB_SIZE, TILE)
    if not IS_GREEDY:
        temperature = tl.load(temperatures_ptr + row)
        top_k = tl.load(top_ks_ptr + row)
        # A row of nothing but -inf has no distribution, and beside inf nothing else has a chance.
        if (temperature > 0) & (top_k != 1) & (peak > float("-inf")) & (peak < float("inf")):
            token_id = _sample(
                row_ptr,
                candidates_ptr + row.to(tl.int64) * MAX_CANDIDATES,
                candidate_ids_ptr + row.to(tl.int64) * MAX_CANDIDATES,
                peak,
                # Of a temperature that is next to nothing the opposite would be infinite, and times 0 no number.
                1.0 / tl.maximum(temperature, 1e-30),
                tl.where(top_k < VOCAB_SIZE, top_k, 0),
                tl.load(top_ps_ptr + row),
                tl.load(min_ps_ptr + row),
                tl.load(seeds_ptr + row),
                tl.load(indices_ptr + row),
                VOCAB_SIZE,
                MAX_CANDIDATES,
                TILE,
            )
    tl.store(out_ptr + row, token_id.to(tl.int64))


@triton.jit
def _largest(row_ptr, VOCAB_SIZE: tl.constexpr, TILE: tl.constexpr):
    """Returns the row's largest logit and the first token id that has it; id 0 where all are -inf or NaN."""
    best = tl.full([TILE], float("-inf"), tl.float32)
    best_ids = tl.arange(0, TILE)
    for first in tl.range(0, VOCAB_SIZE, TILE, num_stages=6):
        token_ids = first + tl.arange(0, TILE)
        logits = tl.load(row_ptr + token_ids, mask=token_ids < VOCAB_SIZE, other=float("-inf")).to(tl.float32)
        is_better = logits > best
        best = tl.where(is_better, logits, best)
        best_ids = tl.where(is_better, token_ids, best_ids)
    return _best(best, best_ids)


@triton.jit
def _best(values, token_ids):
    """Returns the largest value and the first token id that has it."""
    peak = tl.max(values, 0)
    return peak, tl.min(tl.where(values == peak, token_ids, 0x7FFFFFFF), 0)


@triton.jit
def _sample(
    row_ptr,
    candidates_ptr,
    candidate_ids_ptr,
    peak,
    scale,
    top_k,
    top_p,
    min_p,
    seed,
    index,
    VOCAB_SIZE: tl.constexpr,
    MAX_CANDIDATES: tl.constexpr,
    TILE: tl.constexpr,
):
    """Returns the token drawn from a row. scale: 1 / temperature; top_k: 0 for no limit."""
    # Finite: tokens at -inf have no part in anything.
    threshold = peak * 0 - 3.4028234e38
    if min_p > 0:
        threshold = tl.maximum(peak + tl.log(min_p) / scale, threshold)
    num_kept = top_k * 0 + VOCAB_SIZE
    least_mass = peak * 0
    # A small vocabulary is written out in any case, and then it counts how many are not -inf.
    if (min_p > 0) | (top_k > 0) | (top_p < 1) | (VOCAB_SIZE <= MAX_CANDIDATES):
        count, mass, lowest, _ = _look(row_ptr, VOCAB_SIZE, threshold, peak, scale, TILE)
        num_kept = count.to(tl.int32)
        # Of what top_k leaves where there is one: known when its threshold is.
        least_mass = tl.where(top_k > 0, 0.0, top_p * mass)
        if (num_kept > MAX_CANDIDATES) & ((top_k > 0) | (top_p < 1)):
            threshold, num_kept = _narrow(
                row_ptr,
                VOCAB_SIZE,
                lowest,
                num_kept,
                MAX_CANDIDATES,
                peak,
                scale,
                top_k.to(tl.float32),
                least_mass,
                TILE,
            )
    if num_kept <= MAX_CANDIDATES:
        _write_out(row_ptr, candidates_ptr, candidate_ids_ptr, threshold, VOCAB_SIZE, TILE)
        threshold = _exact(candidates_ptr, num_kept, threshold, peak, scale, top_k, top_p, least_mass, TILE)
        token_id = _draw_candidate(
            candidates_ptr, candidate_ids_ptr, num_kept, threshold, peak, scale, seed, index, VOCAB_SIZE, TILE // 2
        )
    else:
        threshold = _exact(row_ptr, VOCAB_SIZE, threshold, peak, scale, top_k, top_p, least_mass, TILE)
        # Four random words for each place take registers: half as many places at a time.
        token_id = _draw(row_ptr, threshold, peak, scale, seed, index, VOCAB_SIZE, TILE // 2)
    return token_id


@triton.jit
def _exact(logits_ptr, num_logits, threshold, peak, scale, top_k, top_p, least_mass, TILE: tl.constexpr):
    """Returns the threshold of top_k and then top_p, which is not below `threshold`. top_p's mass is `least_mass`
    where there is no top_k, else its part of what top_k leaves."""
    if top_k > 0:
        count, _, lowest, _ = _look(logits_ptr, num_logits, threshold, peak, scale, TILE)
        least_count = top_k.to(tl.float32)
        threshold, _ = _narrow(logits_ptr, num_logits, lowest, count, 0, peak, scale, least_count, 0.0, TILE)
    if top_p < 1:
        count, mass, lowest, _ = _look(logits_ptr, num_logits, threshold, peak, scale, TILE)
        least_mass = tl.where(top_k > 0, top_p * mass, least_mass)
        threshold, _ = _narrow(logits_ptr, num_logits, lowest, count, 0, peak, scale, 0.0, least_mass, TILE)
    return threshold


@triton.jit
def _narrow(
    logits_ptr, num_logits, low, num_kept, num_enough, peak, scale, least_count, least_mass, TILE: tl.constexpr
):
    """Returns the highest threshold that keeps `least_count` logits and `least_mass`, and how many it keeps.

    low: the lowest logit there is to keep, itself the answer where no other is. Stops early at a threshold that keeps
    no more than `num_enough`, so that it may be lower than the highest.
    """
    num_kept = num_kept.to(tl.int32)
    above = peak  # the highest that may be the answer
    # Most likely next to nothing is below this, and few are above.
    middle = tl.minimum(tl.maximum(peak - 8.0 / scale, low), above)
    turn = 0
    while (low < above) & (num_kept > num_enough):
        middle = tl.where(middle > low, middle, above)
        count, mass, lowest, highest = _look(logits_ptr, num_logits, middle, peak, scale, TILE)
        if (count >= least_count) & (mass >= least_mass):
            low = lowest
            num_kept = count.to(tl.int32)
        else:
            above = highest
        # In turns the mean, good among neighbours, and the mean of the bits, good where numbers are far apart.
        turn += 1
        if turn % 2 == 0:
            middle = _from_sortable((_sortable(low) >> 1) + (_sortable(above) >> 1))
        else:
            middle = 0.5 * low + 0.5 * above
    return low, num_kept


@triton.jit
def _sortable(number):
    """Returns int32 in the order of float32: of a negative number all bits but the sign are turned over."""
    bits = number.to(tl.int32, bitcast=True)
    return bits ^ ((bits >> 31) & 0x7FFFFFFF)


@triton.jit
def _from_sortable(key):
    bits = key ^ ((key >> 31) & 0x7FFFFFFF)
    return bits.to(tl.float32, bitcast=True)


@triton.jit
def _look(logits_ptr, num_logits, threshold, peak, scale, TILE: tl.constexpr):
    """Returns what the threshold keeps: their number, their mass relative to the peak's, and the lowest of them; and
    the highest that it does not keep."""
    count = tl.zeros([TILE], tl.float32)
    mass = tl.zeros([TILE], tl.float32)
    lowest = tl.full([TILE], float("inf"), tl.float32)
    highest = tl.full([TILE], float("-inf"), tl.float32)
    for first in tl.range(0, num_logits, TILE, num_stages=6):
        places = first + tl.arange(0, TILE)
        logits = tl.load(logits_ptr + places, mask=places < num_logits, other=float("-inf")).to(tl.float32)
        is_kept = logits >= threshold
        count += tl.where(is_kept, 1.0, 0.0)
        mass += tl.where(is_kept, tl.exp((logits - peak) * scale), 0.0)
        lowest = tl.where(is_kept & (logits < lowest), logits, lowest)
        highest = tl.where((logits < threshold) & (logits > highest), logits, highest)
    return tl.sum(count, 0), tl.sum(mass, 0), tl.min(lowest, 0), tl.max(highest, 0)


@triton.jit
def _write_out(row_ptr, candidates_ptr, candidate_ids_ptr, threshold, VOCAB_SIZE: tl.constexpr, TILE: tl.constexpr):
    """Writes the logits kept and their token ids, in the order of the ids."""
    num_before = 0
    for first in tl.range(0, VOCAB_SIZE, TILE, num_stages=6):
        token_ids = first + tl.arange(0, TILE)
        logits = tl.load(row_ptr + token_ids, mask=token_ids < VOCAB_SIZE, other=float("-inf")).to(tl.float32)
        is_kept = logits >= threshold
        places = num_before + tl.cumsum(is_kept.to(tl.int32), 0) - 1
        tl.store(candidates_ptr + places, logits, mask=is_kept)
        tl.store(candidate_ids_ptr + places, token_ids, mask=is_kept)
        num_before += tl.sum(is_kept.to(tl.int32), 0)
    # Other threads of this program read them next.
    tl.debug_barrier()


@triton.jit
def _draw(row_ptr, threshold, peak, scale, seed, index, VOCAB_SIZE: tl.constexpr, TILE: tl.constexpr):
    """Returns the token kept with the largest sum of scaled logit and noise.

    Four tokens, one of each quarter of the vocabulary, share a place and its four random words.
    """
    QUARTER: tl.constexpr = (VOCAB_SIZE + 63) // 64 * 16
    best = tl.full([TILE], float("-inf"), tl.float32)
    best_ids = tl.full([TILE], 0x7FFFFFFF, tl.int32)
    for first in range(0, QUARTER, TILE):
        places = first + tl.arange(0, TILE)
        words = _random_words(seed, index, places)
        for quarter in tl.static_range(4):
            token_ids = places + quarter * QUARTER
            is_token = (places < QUARTER) & (token_ids < VOCAB_SIZE)
            logits = tl.load(row_ptr + token_ids, mask=is_token, other=float("-inf")).to(tl.float32)
            scores = (logits - peak) * scale - tl.log(_exponential(words[quarter]))
            is_better = (logits >= threshold) & (scores > best)
            best = tl.where(is_better, scores, best)
            best_ids = tl.where(is_better, token_ids, best_ids)
    _, token_id = _best(best, best_ids)
    return token_id


@triton.jit
def _draw_candidate(
    candidates_ptr,
    candidate_ids_ptr,
    num_candidates,
    threshold,
    peak,
    scale,
    seed,
    index,
    VOCAB_SIZE: tl.constexpr,
    TILE: tl.constexpr,
):
    """As `_draw`, with the same noise, over the logits that were written out."""
    QUARTER: tl.constexpr = (VOCAB_SIZE + 63) // 64 * 16
    best = tl.full([TILE], float("-inf"), tl.float32)
    best_ids = tl.full([TILE], 0x7FFFFFFF, tl.int32)
    for first in range(0, num_candidates, TILE):
        places = first + tl.arange(0, TILE)
        is_candidate = places < num_candidates
        logits = tl.load(candidates_ptr + places, mask=is_candidate, other=float("-inf"))
        token_ids = tl.load(candidate_ids_ptr + places, mask=is_candidate, other=0)
        words = _random_words(seed, index, token_ids % QUARTER)
        quarters = token_ids // QUARTER
        low_words = tl.where(quarters == 0, words[0], words[1])
        high_words = tl.where(quarters == 2, words[2], words[3])
        noise = -tl.log(_exponential(tl.where(quarters < 2, low_words, high_words)))
        scores = (logits - peak) * scale + noise
        is_better = (logits >= threshold) & (scores > best)
        best = tl.where(is_better, scores, best)
        best_ids = tl.where(is_better, token_ids, best_ids)
    _, token_id = _best(best, best_ids)
    return token_id


@triton.jit
def _random_words(seed, index, places):
    """Returns four random uint32 for each place."""
    zeros = places * 0
    low_index = zeros + (index & 0x7FFFFFFF).to(tl.int32)
    high_index = zeros + (index >> 31).to(tl.int32)
    return tl.philox(seed, places, low_index, high_index, zeros)


@triton.jit
def _exponential(bits):
    """Returns exponentially distributed numbers of random uint32. The smallest matter: they win, and must not tie.

    So small ones come from the series of -log(1 - u), which keeps all of u's bits.
    """
    uniform = tl.minimum((bits.to(tl.float32) + 0.5) * 2.3283064365386963e-10, 0.99999994)
    series = uniform * (1.0 + uniform * (0.5 + uniform * (1.0 / 3.0)))
    return tl.where(uniform < 0.01, series, -tl.log(1.0 - uniform))
