"""`kvscope run --workload`: a workload of the screen's menu through an engine in this process."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Sequence

from kvscope.analysis.setting_words import settings_line
from kvscope.analysis.workload_menu import FittedWorkload, Workload, foretold
from kvscope.cli.answers import AnswerPrinter
from kvscope.control import SubmitPlan
from kvscope.engine.llm_engine import LLMEngine
from kvscope.errors import UsageError
from kvscope.session.intake import Intake


def parse_figures(workload: Workload, texts: Sequence[str]) -> dict[str, str]:
    """Returns the figures of `NAME=VALUE` by name. Raises `UsageError` for a name that the workload has not."""
    names = [figure.name for figure in workload.figures]
    found = {}
    for text in texts:
        name, equals, value = text.partition("=")
        name = name.strip().replace("-", "_")
        if not equals:
            raise UsageError(f"--figure {text}: write it as NAME=VALUE, for example {names[0]}=4")
        if name not in names:
            nearest = difflib.get_close_matches(name, names, n=1, cutoff=0)[0]
            raise UsageError(f"{workload.name} has no figure {name!r}: did you mean {nearest}?")
        found[name] = value
    return found


def send_workload(
    workload: Workload, figures: dict[str, str], engine: LLMEngine, intake: Intake, printer: AnswerPrinter
) -> None:
    """Sends the workload with these figures, the others fitted to the engine; says on stderr what to expect.

    Raises `UsageError` where a figure cannot be.
    """
    fitted = FittedWorkload(workload, engine.configured())
    values, errors = fitted.read(figures)
    if errors:
        raise UsageError("; ".join(f"{name}: {message}" for name, message in errors.items()))
    forecast = fitted.foretell(values)
    print(f"{workload.name}: {settings_line(values)}\n{foretold(forecast.rehearsal)}", file=sys.stderr)
    if not workload.happens(forecast.rehearsal):
        advice = f"; {settings_line(forecast.remedy)} would" if forecast.remedy else ""
        print(f"with these settings it brings about no {workload.mechanism}{advice}", file=sys.stderr)
    plan = SubmitPlan(requests=fitted.plan(values), seed=values["seed"] + 1)
    for request_id in intake.submit_plan(plan, printer.update):
        printer.expect(request_id)
