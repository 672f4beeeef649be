"""The sampling kernel in the interpreter, against sorting in float64 and a Philox of the tests' own."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np
import pytest
import torch

from kvscope.engine.kernels import sampling as sampling_module
from kvscope.engine.kernels.sampling import SamplingRows, sample
from tests.engine.kernels.gumbel_oracle import drawn, gumbel_noise, kept_tokens, philox

OUT_OF_RANGE = -(2**60)


@dataclass(frozen=True, slots=True)
class Row:
    """One row's settings."""

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int = 0
    index: int = 0


def draw(logits: torch.Tensor, rows: list[Row] | None) -> list[int]:
    """Samples into an output of impossible tokens."""
    settings = rows and SamplingRows(
        temperatures=torch.tensor([row.temperature for row in rows]),
        top_ks=torch.tensor([row.top_k for row in rows], dtype=torch.int32),
        top_ps=torch.tensor([row.top_p for row in rows]),
        min_ps=torch.tensor([row.min_p for row in rows]),
        seeds=torch.tensor([row.seed for row in rows]),
        indices=torch.tensor([row.index for row in rows]),
    )
    out = torch.full((len(logits),), OUT_OF_RANGE)
    tokens: list[int] = sample(logits, settings or None, out=out).tolist()
    assert tokens == out.tolist()
    return tokens


def expected(logits: torch.Tensor, rows: list[Row]) -> list[int]:
    return [
        drawn(values, row.temperature, row.top_k, row.top_p, row.min_p, row.seed, row.index)
        for values, row in zip(logits.double().numpy(), rows, strict=True)
    ]


@pytest.fixture
def _small_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """A small vocabulary has two tiles or more, and more logits than are written out."""
    monkeypatch.setattr(sampling_module, "_TILE", 64)
    monkeypatch.setattr(sampling_module, "_MAX_CANDIDATES", 16)


def test_the_generator_gives_the_numbers_of_its_paper() -> None:
    """Known answers of Random123's kat_vectors for philox4x32, 10 rounds."""
    zeros = philox((0, 0), np.zeros((4, 1), dtype=np.uint64))
    ones = philox((0xFFFFFFFF, 0xFFFFFFFF), np.full((4, 1), 0xFFFFFFFF, dtype=np.uint64))

    assert [f"{number:08x}" for number in zeros[:, 0]] == ["6627e8d5", "e169c58d", "bc57ac4c", "9b00dbd8"]
    assert [f"{number:08x}" for number in ones[:, 0]] == ["408f276d", "41c83b0e", "a20bc7c6", "6d5451fd"]


def test_the_draw_has_the_softmax_distribution() -> None:
    """Of the oracle, which the kernel is compared with: 5,000 draws of four tokens, 4 standard deviations."""
    logits = np.log(np.array([0.5, 0.3, 0.15, 0.05]))
    draws = [int((logits + gumbel_noise(seed=7, index=index, vocab_size=4)).argmax()) for index in range(5000)]

    counts = np.bincount(draws, minlength=4)

    assert (np.abs(counts - [2500, 1500, 750, 250]) < 4 * np.sqrt([1250, 1050, 637.5, 237.5])).all()


@pytest.mark.usefixtures("_small_tiles")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("vocab_size", [1, 2, 63, 64, 65, 300])
def test_greedy_is_the_first_of_the_largest(dtype: torch.dtype, vocab_size: int) -> None:
    torch.manual_seed(vocab_size)
    logits = torch.randn(4, vocab_size).to(dtype)
    logits[1] = logits[1].round()  # ties
    logits[2, -1] = 50.0
    logits[3] = -3.0

    assert draw(logits, None) == logits.float().numpy().argmax(-1).tolist()
    assert draw(logits, [Row(temperature=0.0, top_p=0.1, seed=row) for row in range(4)]) == draw(logits, None)
    assert draw(logits, [Row(temperature=2.0, top_k=1, seed=row) for row in range(4)]) == draw(logits, None)


def test_greedy_over_more_than_a_tile() -> None:
    logits = torch.zeros(2, 4096 + 3)
    logits[0, 4095], logits[1, 4097] = 1.0, 1.0

    assert draw(logits, None) == [4095, 4097]


@pytest.mark.usefixtures("_small_tiles")
@pytest.mark.parametrize("vocab_size", [2, 64, 65, 200])
def test_draws_without_filters(vocab_size: int) -> None:
    torch.manual_seed(vocab_size)
    logits = torch.randn(8, vocab_size) * 3
    rows = [
        Row(seed=0),
        Row(seed=1),
        Row(seed=-1),
        Row(seed=2**63 - 1, index=3),
        Row(seed=-(2**63), index=2**31 - 1),
        Row(seed=5, index=2**31),
        Row(seed=5, index=2**40 + 7, temperature=0.05),
        Row(seed=5, index=0, temperature=30.0),
    ]

    assert draw(logits, rows) == expected(logits, rows)


FILTERS = [
    Row(top_k=2),
    Row(top_k=5, temperature=0.6),
    Row(top_k=64, temperature=5.0),
    Row(top_k=99, temperature=50.0),
    Row(top_k=100, temperature=50.0),
    Row(top_k=100_000, temperature=50.0),
    Row(top_p=0.9),
    Row(top_p=0.999, temperature=3.0),
    Row(top_p=0.01, temperature=3.0),
    Row(min_p=0.1),
    Row(min_p=1.0, temperature=9.0),
    Row(min_p=0.02, temperature=3.0, top_k=9),
    Row(top_k=20, top_p=0.7, temperature=4.0),
    Row(top_k=6, top_p=0.95, min_p=0.01, temperature=2.0),
]


@pytest.mark.usefixtures("_small_tiles")
@pytest.mark.parametrize(
    ("filters", "dtype"), zip(FILTERS, itertools.cycle([torch.float32, torch.bfloat16, torch.float16])), ids=str
)
def test_draws_with_filters(filters: Row, dtype: torch.dtype) -> None:
    """At high temperatures nearly every token kept is drawn once in a while, so that one too many or few would show."""
    torch.manual_seed(3)
    logits = (torch.randn(1, 100) * 4).to(dtype).expand(8, 100)
    rows = [
        Row(filters.temperature, filters.top_k, filters.top_p, filters.min_p, seed=row * 1_000_003, index=row)
        for row in range(8)
    ]

    assert draw(logits, rows) == expected(logits, rows)


@pytest.mark.usefixtures("_small_tiles")
@pytest.mark.parametrize("settings", [Row(top_k=3), Row(top_p=0.59), Row(top_p=0.61), Row(top_k=4, top_p=0.8)], ids=str)
def test_filters_keep_exactly_what_they_should(settings: Row) -> None:
    """A temperature at which tokens kept are drawn about equally often, so that each is seen."""
    # Relative to the likeliest: 1, 1/2, 1/2 (a tie), 1/4, then little.
    probs = torch.full((100,), 1e-3)
    probs[[70, 10, 90, 40]] = torch.tensor([1.0, 0.5, 0.5, 0.25])
    kept = kept_tokens(probs.log().double().numpy(), 1.0, settings.top_k, settings.top_p, 0.0).nonzero()[0].tolist()
    rows = [Row(top_k=settings.top_k, top_p=settings.top_p, seed=seed) for seed in range(16)]

    assert sorted(set(draw(probs.log().expand(16, 100), rows))) == kept


@pytest.mark.usefixtures("_small_tiles")
def test_a_row_depends_on_itself_alone() -> None:
    """Rows among others, in another order, and with a stride, beside columns that would win if they were read."""
    torch.manual_seed(5)
    wide = torch.full((6, 130), float("inf"))
    logits = wide[:, :100]
    logits.copy_(torch.randn(6, 100) * 2)
    rows = [Row(seed=row, index=9, top_p=0.8, top_k=[0, 30][row % 2], temperature=1.5) for row in range(6)]
    alone = [draw(logits[row : row + 1], [rows[row]])[0] for row in range(6)]

    assert draw(logits, rows) == alone
    assert draw(logits.flip(0), rows[::-1]) == alone[::-1]
    assert len(set(alone)) > 1


@pytest.mark.usefixtures("_small_tiles")
@pytest.mark.filterwarnings("ignore:invalid value")  # inf - inf in a comparison that discards it
def test_logits_that_are_no_numbers() -> None:
    nan, inf = float("nan"), float("inf")
    logits = torch.full((5, 70), -inf)
    logits[0, 5], logits[0, 6] = nan, 1.0
    logits[1] = nan
    logits[3, 69] = inf
    logits[4, 3] = -1e30
    rows = [Row(seed=row, top_p=0.9, top_k=3) for row in range(5)]

    assert draw(logits, None) == [6, 0, 0, 69, 3]
    assert draw(logits, rows) == [6, 0, 0, 69, 3]
    assert draw(logits, [Row(seed=row) for row in range(5)]) == [6, 0, 0, 69, 3]


@pytest.mark.usefixtures("_small_tiles")
def test_candidates_are_read_only_where_they_were_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """What an earlier step left behind them would win if it were read; also where only -inf keeps tokens out."""

    def left_behind(shape: tuple[int, ...], *, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        return torch.full(shape, float("inf"), dtype=dtype, device=device)

    monkeypatch.setattr(torch, "empty", left_behind)
    torch.manual_seed(6)
    logits, rows = torch.randn(2, 100), [Row(top_k=5, seed=1), Row(top_k=16, seed=2)]
    few, row = torch.full((1, 12), -math.inf), [Row(seed=3)]
    few[0, [2, 9]] = 0.0

    assert draw(logits, rows) == expected(logits, rows)
    assert draw(few, row) == expected(few, row)


@pytest.mark.usefixtures("_small_tiles")
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # products that are -inf, as they should, or discarded
def test_temperatures_at_the_ends_of_float32() -> None:
    torch.manual_seed(8)
    logits = torch.randn(4, 100) * 9
    filters = [{}, {"top_k": 3}, {"top_p": 0.9}, {"min_p": 0.2}]

    def rows(temperature: float) -> list[Row]:
        return [Row(temperature, seed=seed, **settings) for seed, settings in enumerate(filters)]  # type: ignore[arg-type]

    for cold in (1e-39, 1e-6):
        assert draw(logits, rows(cold)) == logits.argmax(-1).tolist()
    for hot in (1e6, math.inf):  # noise alone decides
        assert draw(logits, rows(hot)) == expected(logits, rows(1e6))


def test_refuses_what_does_not_fit() -> None:
    logits = torch.zeros(2, 8)

    def refusal(logits: torch.Tensor, rows: SamplingRows | None) -> str:
        with pytest.raises(ValueError) as caught:
            sample(logits, rows)
        return str(caught.value)

    floats, integers = torch.ones(2), torch.zeros(2, dtype=torch.int64)
    rows = SamplingRows(
        temperatures=floats, top_ks=integers, top_ps=floats, min_ps=floats, seeds=integers, indices=integers
    )
    assert refusal(logits, rows) == "top_ks is torch.int64 [2] on cpu; torch.int32 [2] on cpu is needed"
    assert refusal(logits.T, None) == (
        "logits is [8, 2] with strides [1, 8]; [num_rows, vocab_size] with contiguous rows is needed"
    )
    assert refusal(logits.double(), None) == "logits is torch.float64; float32, float16 or bfloat16 is needed"
