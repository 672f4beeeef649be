"""The fit finds the law behind made-up steps, is not led astray by a few, and says how far it is off."""

from __future__ import annotations

from kvscope.analysis.step_columns import StepColumns
from kvscope.analysis.step_time_model import FitError, StepLoad, StepTimeModel, fit, fit_step_time

LOADS = [
    StepLoad(prefill, decode, pairs)
    for prefill, decode, pairs in [
        (100, 0, 5050),
        (0, 4, 900),
        (0, 4, 1700),
        (30, 3, 2000),
        (0, 8, 4000),
        (64, 8, 9000),
        (0, 1, 60),
        (0, 2, 5000),
        (7, 5, 800),
        (0, 7, 100),
    ]
]


def law_ns(load: StepLoad) -> int:
    """2 ms, 50 µs a prefill token, 300 µs a decode, 40 ns a token of context."""
    return 2_000_000 + 50_000 * load.num_prefill_tokens + 300_000 * load.num_decode_tokens + 40 * load.num_token_pairs


def rounded(model: StepTimeModel) -> list[int]:
    return [round(value) for value in (model.base_ns, model.prefill_token_ns, model.decode_token_ns)] + [
        round(model.token_pair_ns)
    ]


def test_an_exact_law_is_found_exactly() -> None:
    model = fit(LOADS, [law_ns(load) for load in LOADS])
    assert rounded(model) == [2_000_000, 50_000, 300_000, 40]
    assert model.predict_ns(StepLoad(10, 2, 1000)) == 2_000_000 + 500_000 + 600_000 + 40_000
    error = model.error
    assert (error.num_steps, error.num_left_out, error.is_poor) == (10, 0, False)
    assert max(error.median, error.p90, error.largest, abs(error.total)) < 1e-6


def test_a_step_that_lies_far_off_is_left_out_of_the_fit_and_counted_in_the_error() -> None:
    times = [law_ns(load) for load in LOADS * 3]
    warm_up = law_ns(StepLoad(5, 5, 300))
    model = fit([*LOADS * 3, StepLoad(5, 5, 300)], [*times, warm_up * 10])
    assert rounded(model) == [2_000_000, 50_000, 300_000, 40]
    assert (model.error.num_left_out, round(model.error.largest, 6)) == (1, 0.9)
    assert round(model.error.total, 6) == round((sum(times) + warm_up) / (sum(times) + warm_up * 10) - 1, 6)


def test_no_work_makes_a_step_faster() -> None:
    """Times that fall with each decode: the coefficient is 0, and the base their mean."""
    loads = [StepLoad(0, decodes, 0) for decodes in (1, 2, 3, 4)]
    model = fit(loads, [4000, 3000, 2000, 1000])
    assert (model.prefill_token_ns, model.decode_token_ns, model.token_pair_ns) == (0, 0, 0)
    assert round(model.base_ns) == 2500
    assert model.error == FitError(
        num_steps=4,
        num_left_out=0,
        median=model.error.median,
        p90=model.error.p90,
        largest=1.5,
        total=0.0,
    )
    assert round(model.error.median, 6) == round((0.25 + 0.375) / 2, 6)
    assert model.error.is_poor


def test_a_run_without_a_clock_has_no_model() -> None:
    assert fit_step_time(StepColumns()) is None
