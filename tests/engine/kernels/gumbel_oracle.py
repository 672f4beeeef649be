"""What the sampling kernel should draw, by sorting and in float64, with a Philox of its own."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_MASK = np.uint64(0xFFFFFFFF)


def philox(key: tuple[int, int], counter: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Philox-4x32-10 (Salmon et al., 2011, section 3.3) of counters `[4, n]`, each below 2**32."""
    c0, c1, c2, c3 = counter.astype(np.uint64)
    k0, k1 = np.uint64(key[0]), np.uint64(key[1])
    for _ in range(10):
        product0, product2 = c0 * np.uint64(0xD2511F53), c2 * np.uint64(0xCD9E8D57)
        c0, c1, c2, c3 = (
            (product2 >> np.uint64(32)) ^ c1 ^ k0,
            product2 & _MASK,
            (product0 >> np.uint64(32)) ^ c3 ^ k1,
            product0 & _MASK,
        )
        k0, k1 = (k0 + np.uint64(0x9E3779B9)) & _MASK, (k1 + np.uint64(0xBB67AE85)) & _MASK
    return np.stack([c0, c1, c2, c3])


def gumbel_noise(seed: int, index: int, vocab_size: int) -> NDArray[np.float64]:
    """Returns the noise of each token: word t // q of the block at t % q, q being a quarter rounded up to 16."""
    quarter = -(-vocab_size // 64) * 16
    counter = np.zeros((4, quarter), dtype=np.uint64)
    counter[0] = np.arange(quarter)
    counter[1], counter[2] = index & 0x7FFFFFFF, index >> 31
    words = philox((seed & 0xFFFFFFFF, (seed >> 32) & 0xFFFFFFFF), counter).reshape(-1)[:vocab_size]
    return -np.log(-np.log1p(-(words + 0.5) / 2**32))


def kept_tokens(
    logits: NDArray[np.float64], temperature: float, top_k: int, top_p: float, min_p: float
) -> NDArray[np.bool_]:
    """Returns which tokens the filters leave: min_p, then top_k, then top_p of the rest; ties with the last stay."""
    probs: NDArray[np.float64] = np.exp((logits - logits.max()) / temperature)
    kept: NDArray[np.bool_] = probs >= min_p
    if top_k > 0:
        kept &= probs >= np.sort(probs)[::-1][:top_k][-1]
    if top_p < 1:
        mass, needed = 0.0, top_p * probs[kept].sum()
        for prob in np.sort(probs[kept])[::-1]:
            mass += prob
            if mass >= needed:
                kept &= probs >= prob
                break
    return kept


def drawn(
    logits: NDArray[np.float64], temperature: float, top_k: int, top_p: float, min_p: float, seed: int, index: int
) -> int:
    """Returns the token that one row should give."""
    if temperature == 0 or top_k == 1:
        return int(logits.argmax())
    kept = kept_tokens(logits, temperature, top_k, top_p, min_p)
    return int(np.where(kept, logits / temperature + gumbel_noise(seed, index, len(logits)), -np.inf).argmax())
