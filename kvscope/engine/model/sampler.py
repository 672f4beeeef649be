"""Chooses tokens from logits by each request's sampling settings.

Holds no state of any request: counts for penalties come from the request's tokens, and randomness from a hash of
(seed, index of the output token). So a request with a seed gets the same tokens alone or in any batch, after a
preemption, and with or without speculation. Meanings and order of the settings as in vLLM V1: logprobs from the raw
logits; then min_tokens, penalties, temperature, min_p, top_k, top_p.
"""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from kvscope.engine.scheduling.output import TokenLogprobs
from kvscope.engine.scheduling.request import Request, SamplingParams

_NUM_CANDIDATES = 256
"""Most likely tokens looked at first for top_k and top_p; a whole sort of the vocabulary costs ten times as much."""


@dataclass(slots=True)
class SamplingRow:
    """One row of logits: the token that follows a request's tokens and `drafts`, those of its drafts fed before it."""

    request: Request
    drafts: Sequence[int] = ()

    @property
    def num_output_tokens(self) -> int:
        """Output tokens before the one to be sampled."""
        return self.request.num_output_tokens + len(self.drafts)

    @property
    def output_token_ids(self) -> list[int]:
        """All tokens of the output so far; placeholders of drafts (-1) are none."""
        return [*self.request.output_token_ids, *(draft for draft in self.drafts if draft >= 0)]

    @property
    def all_token_ids(self) -> list[int]:
        return [*self.request.prompt_token_ids, *self.output_token_ids]


class Sampler:
    """Samples a batch. `entropy` stands for the seed of requests that have none; random by default."""

    def __init__(self, entropy: bytes | None = None) -> None:
        self._entropy = os.urandom(16) if entropy is None else entropy

    def sample(self, logits: torch.Tensor, rows: Sequence[SamplingRow]) -> tuple[list[int], list[TokenLogprobs | None]]:
        """Returns each row's token, and its logprobs where the request wants them.

        logits: `[num_rows, vocab_size]`, any float dtype; not changed.
        """
        if all(_is_plain_greedy(row.request.sampling) for row in rows):
            return _argmax(logits), [None] * len(rows)
        raw = logits.float()
        adjusted = _adjust(raw, rows)
        tokens = _argmax(adjusted)
        random = [i for i, row in enumerate(rows) if not row.request.sampling.is_greedy]
        if random:
            uniforms = [self._uniform(rows[i]) for i in random]
            settings = [rows[i].request.sampling for i in random]
            sampled: list[int] = _sample_random(adjusted[random], settings, uniforms).tolist()
            for i, token_id in zip(random, sampled, strict=True):
                tokens[i] = token_id
        return tokens, _logprobs(raw, tokens, rows)

    def _uniform(self, row: SamplingRow) -> float:
        """Returns a number in [0, 1) that depends on the request's seed and the token's index alone."""
        seed = row.request.sampling.seed
        key = f"seed {seed}".encode() if seed is not None else self._entropy + row.request.request_id.encode()
        digest = hashlib.blake2b(key + b" %d" % row.num_output_tokens, digest_size=8).digest()
        return (int.from_bytes(digest, "big") >> 11) / 2**53


def _argmax(logits: torch.Tensor) -> list[int]:
    """Returns the first of each row's largest logits."""
    if logits.device.type != "cpu":
        return logits.argmax(-1).tolist()
    # torch's own takes 10 ms for 32 rows of bfloat16 on a CPU, which is an eighth of the whole step; this 0.4 ms.
    values = logits if logits.dtype in (torch.float32, torch.float64) else logits.float()
    token_ids: list[int] = values.numpy().argmax(-1).tolist()
    return token_ids


def _is_plain_greedy(sampling: SamplingParams) -> bool:
    return sampling.is_greedy and not _is_adjusted(sampling) and sampling.logprobs is None


def _is_adjusted(sampling: SamplingParams) -> bool:
    return (
        sampling.repetition_penalty != 1.0
        or sampling.presence_penalty != 0.0
        or sampling.frequency_penalty != 0.0
        or sampling.min_tokens > 0
    )


def _adjust(raw: torch.Tensor, rows: Sequence[SamplingRow]) -> torch.Tensor:
    """Applies min_tokens and penalties; returns `raw` itself where no row has any."""
    if not any(_is_adjusted(row.request.sampling) for row in rows):
        return raw
    adjusted = raw.clone()
    for logits, row in zip(adjusted, rows, strict=True):
        sampling = row.request.sampling
        if row.num_output_tokens < sampling.min_tokens:
            stops = {*row.request.eos_token_ids, *sampling.stop_token_ids}
            known = [token_id for token_id in stops if 0 <= token_id < len(logits)]
            logits[torch.tensor(known, dtype=torch.int64, device=logits.device)] = float("-inf")
        if sampling.repetition_penalty != 1.0:
            seen = torch.tensor(sorted(set(row.all_token_ids)), device=logits.device)
            values, penalty = logits[seen], sampling.repetition_penalty
            logits[seen] = torch.where(values > 0, values / penalty, values * penalty)
        if sampling.presence_penalty or sampling.frequency_penalty:
            _penalize_output(logits, row)
    return adjusted


def _penalize_output(logits: torch.Tensor, row: SamplingRow) -> None:
    counts = Counter(row.output_token_ids)
    if not counts:
        return
    sampling = row.request.sampling
    token_ids = torch.tensor(list(counts), device=logits.device)
    times = torch.tensor(list(counts.values()), dtype=logits.dtype, device=logits.device)
    logits[token_ids] -= sampling.frequency_penalty * times + sampling.presence_penalty


def _sample_random(logits: torch.Tensor, settings: list[SamplingParams], uniforms: list[float]) -> torch.Tensor:
    """Samples rows of float32 logits `[num_rows, vocab_size]`, one uniform number each; returns `[num_rows]`."""
    # Divided by less, float32 would be infinite.
    temperatures = torch.tensor([max(s.temperature, 1e-30) for s in settings], device=logits.device)
    probs = torch.softmax(logits / temperatures[:, None], -1)
    result = torch.empty(len(settings), dtype=torch.int64, device=logits.device)
    uniform = torch.tensor(uniforms, dtype=torch.float64, device=logits.device)
    vocab_size = logits.shape[-1]
    whole = [i for i, s in enumerate(settings) if not _is_filtered(s, vocab_size)]
    if whole:
        result[whole] = _invert(probs[whole], uniform[whole])
    filtered = [i for i, s in enumerate(settings) if _is_filtered(s, vocab_size)]
    if filtered:
        # Few candidates first. Which rows need more depends on each row alone, never on the batch.
        num_candidates = min(_NUM_CANDIDATES, vocab_size)
        top_probs, top_ids = probs[filtered].topk(num_candidates, -1)
        masses = top_probs.sum(-1).tolist()
        for j, i in enumerate(filtered):
            row_probs, row_ids = top_probs[j], top_ids[j]
            if not _suffices(settings[i], num_candidates, masses[j], float(row_probs[-1] / row_probs[0])):
                row_probs, row_ids = probs[i].sort(descending=True, stable=True)
            kept = _filter(row_probs, settings[i])
            result[i] = row_ids[_invert(kept[None], uniform[i : i + 1])[0]]
    return result


def _is_filtered(sampling: SamplingParams, vocab_size: int) -> bool:
    return 0 < sampling.top_k < vocab_size or sampling.top_p < 1.0 or sampling.min_p > 0.0


def _suffices(sampling: SamplingParams, num_candidates: int, mass: float, last_ratio: float) -> bool:
    """True where what the settings keep surely lies within the candidates."""
    return (
        0 < sampling.top_k <= num_candidates
        or (sampling.top_p < 1.0 and sampling.min_p == 0.0 and mass >= sampling.top_p)
        or (sampling.min_p > 0.0 and last_ratio < sampling.min_p)
    )


def _filter(probs: torch.Tensor, sampling: SamplingParams) -> torch.Tensor:
    """Applies min_p, top_k and top_p to descending probabilities; returns the head of them that is kept."""
    num_kept = len(probs)
    if sampling.min_p > 0.0:
        num_kept = int((probs >= sampling.min_p * probs[0]).sum())
    if sampling.top_k > 0:
        num_kept = min(num_kept, sampling.top_k)
    if sampling.top_p < 1.0:
        # Of what the other two left, as few as reach top_p. Without them, of the whole distribution (which sums to 1).
        is_cut = sampling.top_k > 0 or sampling.min_p > 0.0
        sums = probs[:num_kept].cumsum(-1, dtype=torch.float64)
        target = sampling.top_p * (float(sums[-1]) if is_cut else 1.0)
        num_kept = min(num_kept, int((sums < target).sum()) + 1)
    return probs[:num_kept]


def _invert(probs: torch.Tensor, uniform: torch.Tensor) -> torch.Tensor:
    """Returns for each row the index at which the running sum of (unnormalised) probabilities passes `uniform`."""
    sums = probs.cumsum(-1, dtype=torch.float64)
    indices = torch.searchsorted(sums, (uniform * sums[:, -1])[:, None], right=True).squeeze(-1)
    return indices.clamp_(max=probs.shape[-1] - 1)


def _logprobs(raw: torch.Tensor, tokens: list[int], rows: Sequence[SamplingRow]) -> list[TokenLogprobs | None]:
    result: list[TokenLogprobs | None] = [None] * len(rows)
    wanted = [i for i, row in enumerate(rows) if row.request.sampling.logprobs is not None]
    if not wanted:
        return result
    logprobs = torch.log_softmax(raw[wanted], -1)
    own = logprobs.gather(1, torch.tensor([[tokens[i]] for i in wanted], device=raw.device))
    ranks = (logprobs > own).sum(-1).tolist()
    for j, i in enumerate(wanted):
        num_top = min(rows[i].request.sampling.logprobs or 0, raw.shape[-1])
        values, token_ids = logprobs[j].topk(num_top)
        top = list(zip(token_ids.tolist(), values.tolist(), strict=True))
        result[i] = TokenLogprobs(logprob=float(own[j, 0]), rank=ranks[j] + 1, top=top)
    return result
