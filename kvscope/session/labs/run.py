"""Runs a lab: every variant in every round, in this process, each into a recording of its own.

The model is loaded once. A round runs all variants, every other round backwards, so that a machine that gets slower or
faster meanwhile favours nobody; a run before the first round, which is not recorded, warms up.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Literal

import msgspec

from kvscope.engine.llm_engine import LLMEngine
from kvscope.errors import EngineError
from kvscope.session.build import build_engine_over, load_chosen_model
from kvscope.session.labs.figures import Reading, read_recording
from kvscope.session.labs.lab import Arrival, Expectation, Lab, Variant
from kvscope.session.options import EngineOptions
from kvscope.session.prompt_texts import prompt_tokens

if TYPE_CHECKING:
    from kvscope.engine.model.loader import Model

Report = Callable[[str, float | None], None]
"""Takes what is being done, and how far it is where that is known."""

Outcome = Literal["borne out", "not borne out", "undecided"]


@dataclass(frozen=True, slots=True)
class RunOfVariant:
    """One run, as its recording shows it."""

    recording: Path
    values: dict[str, float | None]
    """By the figures' keys."""


@dataclass(frozen=True, slots=True)
class Tested:
    """An expectation held against the rounds: each round's runs of the two variants are compared with each other."""

    expectation: Expectation
    num_held: int
    num_rounds: int

    @property
    def outcome(self) -> Outcome:
        """Only what held in every round is borne out; what held in some is undecided."""
        if self.num_held == self.num_rounds:
            return "borne out"
        return "undecided" if self.num_held else "not borne out"


@dataclass(frozen=True, slots=True)
class LabRun:
    """All runs of a lab."""

    lab: Lab
    model: str
    device: str
    num_threads: int
    runs: dict[str, list[RunOfVariant]] = field(default_factory=dict)
    """By variant; one for each round."""

    @property
    def num_rounds(self) -> int:
        return min(map(len, self.runs.values()))

    def values(self, variant: str, figure: str) -> list[float | None]:
        """Returns a figure of a variant, round by round."""
        return [run.values[figure] for run in self.runs[variant]]

    def median(self, variant: str, figure: str) -> float | None:
        """Returns the median over the rounds that have the figure."""
        known = [value for value in self.values(variant, figure) if value is not None]
        return median(known) if known else None

    def tested(self) -> list[Tested]:
        """Returns every expectation with what became of it."""
        return [self._test(expectation) for expectation in self.lab.expectations]

    def _test(self, expectation: Expectation) -> Tested:
        left = self.values(expectation.left, expectation.figure)
        right = self.values(expectation.right, expectation.figure)
        held = sum(map(expectation.holds, left, right))
        return Tested(expectation, held, self.num_rounds)


def run_lab(
    lab: Lab, options: EngineOptions, folder: Path, num_rounds: int, report: Report = lambda what, progress: None
) -> LabRun:
    """Runs a lab and reads its recordings, which lie in `folder` (it must be there) as `VARIANT-ROUND.db`.

    Of the options the model, dtype and device are used.

    Raises:
        ModelError, UsageError, EngineError: as `build_engine`.
    """
    model = load_chosen_model(options, report)
    prompts = prompt_tokens(model.tokenizer, lab.arrivals)
    num_runs = num_rounds * len(lab.variants)
    report("warming up", None)
    _run(model, options, lab, lab.variants[-1], prompts, None)
    paths: dict[str, list[Path]] = {variant.name: [] for variant in lab.variants}
    for round_number in range(1, num_rounds + 1):
        for variant in lab.variants if round_number % 2 else reversed(lab.variants):
            num_done = sum(map(len, paths.values()))
            report(f"round {round_number} of {num_rounds}: {variant.name}", num_done / num_runs)
            path = folder / f"{variant.name}-{round_number}.db"
            _run(model, options, lab, variant, prompts, path)
            paths[variant.name].append(path)
    report("reading the recordings", None)
    found = LabRun(lab, model.name, model.device, model.num_threads)
    for name, recordings in paths.items():
        found.runs[name] = [RunOfVariant(path, _values(lab, read_recording(path))) for path in recordings]
    return found


def _values(lab: Lab, reading: Reading) -> dict[str, float | None]:
    return {figure.key: figure.read(reading) for figure in lab.figures}


def _run(
    model: Model,
    options: EngineOptions,
    lab: Lab,
    variant: Variant,
    prompts: Sequence[Sequence[int]],
    recording: Path | None,
) -> None:
    """Runs the workload once."""
    chosen = msgspec.structs.replace(
        options,
        settings={**lab.settings, **variant.settings},
        recording=str(recording) if recording is not None else None,
    )
    built = build_engine_over(model, chosen)
    with contextlib.closing(built):
        _drive(built.engine, lab.arrivals, prompts)


def _drive(engine: LLMEngine, arrivals: Sequence[Arrival], prompts: Sequence[Sequence[int]]) -> None:
    """Steps until all are done. Who is due, or would be awaited by an idle engine, arrives before the step."""
    coming = deque(sorted(zip(arrivals, prompts, strict=True), key=lambda pair: pair[0].before_step))
    while coming or engine.has_work:
        while coming and (coming[0][0].before_step <= engine.step_index + 1 or not engine.has_work):
            arrival, prompt = coming.popleft()
            sampling = {"max_tokens": arrival.num_output_tokens, "ignore_eos": True}
            engine.add_request(prompt, sampling, request_id=arrival.request_id)
        report = engine.step()
        if report.stuck is not None and not coming:
            raise EngineError(f"{report.stuck.request_id} can never go on: {report.stuck.reason}")
