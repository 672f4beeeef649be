"""A model of how long a step takes, fitted to a recording: time = base + a·prefill tokens + b·decodes + c·context read.

Least squares, first of the errors as they are, then weighted by 1 / estimate², so that short decode steps count as much
as long prefills. (Weights by the measured times would favour the steps that happened to be quick.) A coefficient that
comes out negative is left out and the rest fitted again: no work makes a step faster. Steps that lie far off (a first
step's warm-up, a pause of the machine) are left out of a second fit, and counted.

Everything that is computed with it is an estimate; `FitError` says how good a one on the steps it was fitted to.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kvscope.analysis.percentiles import percentile
from kvscope.analysis.step_columns import StepColumns

_MIN_STEPS = 8
"""With fewer steps than this four coefficients say nothing."""
_FAR_OFF = 5.0
"""A step whose relative error exceeds this many times the median one is left out of the second fit."""
_LEAST_FAR_OFF = 0.25
"""But never one that is off by less than this share."""
_TERMS = 4
POOR_FIT = 0.25
"""A median error beyond this makes single times guesses; counts and orders of steps do not depend on it."""


@dataclass(frozen=True, slots=True)
class StepLoad:
    """What a step's time depends on."""

    num_prefill_tokens: int
    num_decode_tokens: int
    num_token_pairs: int
    """Context read, see `StepColumns.num_token_pairs`."""

    @property
    def terms(self) -> tuple[float, float, float, float]:
        """What the coefficients of the model are multiplied with, the constant one first."""
        return 1.0, self.num_prefill_tokens, self.num_decode_tokens, self.num_token_pairs


@dataclass(frozen=True, slots=True, kw_only=True)
class FitError:
    """How far the model is from the steps that it was fitted to; shares of the measured time."""

    num_steps: int
    num_left_out: int
    """Steps that lay far off; they count in the errors below all the same."""
    median: float
    p90: float
    largest: float
    total: float
    """Of all steps together, with its sign: above 0 the model is too slow."""

    @property
    def is_poor(self) -> bool:
        """True where half of the steps are off by more than `POOR_FIT`."""
        return self.median > POOR_FIT


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTimeModel:
    """Coefficients in ns."""

    base_ns: float
    prefill_token_ns: float
    decode_token_ns: float
    token_pair_ns: float
    error: FitError

    def predict_ns(self, load: StepLoad) -> int:
        """Returns the estimated duration of a step that schedules something; at least 1."""
        terms = self.base_ns, self.prefill_token_ns, self.decode_token_ns, self.token_pair_ns
        return max(round(_product(terms, load.terms)), 1)


def fit_step_time(columns: StepColumns) -> StepTimeModel | None:
    """Returns the model of a recording's steps, None where it has too few timed ones that scheduled anything."""
    loads, times = [], []
    for index in range(len(columns)):
        busy_ns = step_busy_ns(columns, index)
        if columns.num_scheduled_requests[index] and columns.forward_ns[index]:
            loads.append(
                StepLoad(
                    columns.num_prefill_tokens[index],
                    columns.num_decode_tokens[index],
                    columns.num_token_pairs[index],
                )
            )
            times.append(busy_ns)
    if len(times) < _MIN_STEPS:
        return None
    return fit(loads, times)


def step_busy_ns(columns: StepColumns, index: int) -> int:
    """Returns what a step took of the engine's time: schedule, forward, sample, update, handing over."""
    return (
        columns.schedule_ns[index]
        + columns.forward_ns[index]
        + columns.sample_ns[index]
        + columns.update_ns[index]
        + columns.record_ns[index]
    )


def fit(loads: Sequence[StepLoad], times_ns: Sequence[int]) -> StepTimeModel:
    """Returns the model of these steps; times above 0."""
    rows = [load.terms for load in loads]
    near = list(range(len(rows)))
    terms = _weighted(rows, times_ns, near)
    errors = [_relative_error(terms, row, time) for row, time in zip(rows, times_ns, strict=True)]
    limit = max(_FAR_OFF * percentile(sorted(errors), 50), _LEAST_FAR_OFF)
    near = [index for index, error in enumerate(errors) if error <= limit]
    if _TERMS <= len(near) < len(errors):
        terms = _weighted(rows, times_ns, near)
    predicted = [_product(terms, row) for row in rows]
    ordered = sorted(abs(have - time) / time for have, time in zip(predicted, times_ns, strict=True))
    base, prefill, decode, pair = terms
    return StepTimeModel(
        base_ns=base,
        prefill_token_ns=prefill,
        decode_token_ns=decode,
        token_pair_ns=pair,
        error=FitError(
            num_steps=len(rows),
            num_left_out=len(errors) - len(near),
            median=percentile(ordered, 50),
            p90=percentile(ordered, 90),
            largest=ordered[-1],
            total=sum(predicted) / sum(times_ns) - 1,
        ),
    )


def _weighted(rows: Sequence[Sequence[float]], times_ns: Sequence[int], chosen: Sequence[int]) -> tuple[float, ...]:
    """Fits these steps by their errors as they are, then by their errors relative to that fit, twice."""
    weights = [1.0] * len(chosen)
    terms: tuple[float, ...] = ()
    for _ in range(3):
        samples = ((rows[index], times_ns[index], weight) for index, weight in zip(chosen, weights, strict=True))
        terms = _least_squares(samples)
        weights = [1 / max(_product(terms, rows[index]), 1.0) for index in chosen]
    return terms


def _relative_error(terms: Sequence[float], row: Sequence[float], time_ns: int) -> float:
    """Returns the error as a share of the estimate."""
    estimate = max(_product(terms, row), 1.0)
    return abs(time_ns - estimate) / estimate


def _product(terms: Sequence[float], row: Sequence[float]) -> float:
    return sum(term * value for term, value in zip(terms, row, strict=True))


def _least_squares(samples: Iterable[tuple[Sequence[float], int, float]]) -> tuple[float, ...]:
    """Returns coefficients of at least 0 that make the sum of squared errors small, each error times its weight."""
    matrix = [[0.0] * _TERMS for _ in range(_TERMS)]
    right = [0.0] * _TERMS
    for row, time_ns, weight in samples:
        scaled = [value * weight for value in row]
        for i in range(_TERMS):
            right[i] += scaled[i] * time_ns * weight
            for j in range(_TERMS):
                matrix[i][j] += scaled[i] * scaled[j]
    used = [index for index in range(_TERMS) if matrix[index][index] > 0]
    while used:
        solved = _solve([[matrix[i][j] for j in used] for i in used], [right[i] for i in used])
        lowest = min(range(len(used)), key=lambda index: solved[index] * matrix[used[index]][used[index]] ** 0.5)
        if solved[lowest] >= 0:
            terms = [0.0] * _TERMS
            for index, value in zip(used, solved, strict=True):
                terms[index] = value
            return tuple(terms)
        del used[lowest]
    return (0.0,) * _TERMS


def _solve(matrix: list[list[float]], right: list[float]) -> list[float]:
    """Solves a symmetric system by Gauss's elimination; a column that depends on those before it gets 0.

    Rows and columns are scaled to a diagonal of 1 first: context is a million times a base.
    """
    size = len(right)
    scale = [matrix[i][i] ** -0.5 for i in range(size)]
    rows = [[matrix[i][j] * scale[i] * scale[j] for j in range(size)] + [right[i] * scale[i]] for i in range(size)]
    kept = []
    for column in range(size):
        if rows[column][column] < 1e-9:
            continue
        kept.append(column)
        for below in range(column + 1, size):
            factor = rows[below][column] / rows[column][column]
            for j in range(column, size + 1):
                rows[below][j] -= factor * rows[column][j]
    solved = [0.0] * size
    for column in reversed(kept):
        rest = sum(rows[column][j] * solved[j] for j in range(column + 1, size))
        solved[column] = (rows[column][size] - rest) / rows[column][column]
    return [value * factor for value, factor in zip(solved, scale, strict=True)]
