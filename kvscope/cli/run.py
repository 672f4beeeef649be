"""`kvscope run`: prompts through an engine in this process, recorded; answers on stdout, everything else on stderr."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from kvscope.analysis.setting_words import sampling_in_use, settings_line
from kvscope.analysis.text import visible
from kvscope.analysis.workload_menu import WORKLOADS, find_workload
from kvscope.cli.engine_options import recorded_to, with_engine_options
from kvscope.cli.progress_line import ProgressLine
from kvscope.control import Submit
from kvscope.errors import EngineError, KvscopeError, UsageError
from kvscope.session.build import BuiltEngine, build_engine, check_options
from kvscope.session.intake import Intake
from kvscope.session.options import EngineOptions

if TYPE_CHECKING:
    from kvscope.cli.answers import AnswerPrinter
    from kvscope.engine.llm_engine import LLMEngine, StepReport
    from kvscope.engine.scheduling.progress import Stuck

Send = Callable[["LLMEngine", Intake, "AnswerPrinter"], int | None]
"""Submits all; returns the exit code that follows from what was refused."""

WORKLOAD_HELP = f"Instead of prompts: {', '.join(workload.name for workload in WORKLOADS)}, fitted to the engine."

INTERRUPTED = 130
"""Exit code after ctrl-c, as shells have it."""


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command()(with_engine_options(run))


def run(
    engine: EngineOptions,
    prompts: Annotated[list[str] | None, typer.Argument(help="One or several prompts.", show_default=False)] = None,
    prompts_file: Annotated[Path | None, typer.Option(help="One prompt a line; - is standard input.")] = None,
    chat: Annotated[bool, typer.Option("--chat/--raw", help="Through the model's chat template, or as it is.")] = True,
    system: Annotated[str | None, typer.Option(help="System prompt of every chat.")] = None,
    priority: Annotated[int, typer.Option(help="Of every request; smaller is more urgent.")] = 0,
    cache_salt: Annotated[str | None, typer.Option(help="Keeps these requests' prefixes to themselves.")] = None,
    workload: Annotated[str | None, typer.Option(help=WORKLOAD_HELP)] = None,
    figure: Annotated[list[str] | None, typer.Option(help="NAME=VALUE of the workload; may be repeated.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One line of JSON for each request.")] = False,
    no_record: Annotated[bool, typer.Option("--no-record", help="Record nothing.")] = False,
    check: Annotated[bool, typer.Option("--check", help="Check every invariant after every step.")] = False,
) -> None:
    """Run prompts through the engine, headless, and record every decision.

    A prompt that is refused, or that could never fit into the pool, costs the others nothing: the command ends with 2
    or 5, and they are answered.
    """
    if workload is not None and (prompts or prompts_file):
        raise UsageError("--workload makes its own prompts: give a workload or prompts")
    texts = [] if workload is not None else _prompts(prompts or [], prompts_file)
    if system is not None and not chat:
        raise UsageError("--system needs --chat: a raw prompt has no system prompt")
    if no_record and (engine.recording or check):
        raise UsageError(f"--no-record contradicts {'--check' if check else '--record'}: leave one of them out")
    check_options(engine)
    options = engine if no_record else recorded_to(engine, datetime.datetime.now())
    options = msgspec.structs.replace(
        options, leaves_a_core=False, may_take_another_name=engine.recording is None
    )  # no screen runs beside it, and nobody else has been told the name
    batch = [
        Submit(prompt=text, is_chat=chat, system=system, priority=priority, cache_salt=cache_salt) for text in texts
    ]
    send: Send = partial(_submit_all, batch)
    if workload is not None:
        from kvscope.cli.run_workload import parse_figures, send_workload

        chosen = find_workload(workload)
        send = partial(send_workload, chosen, parse_figures(chosen, figure or []))
    exit_code = _run_batch(options, send, is_single=len(batch) == 1, as_json=as_json, is_checked=check)
    if exit_code:
        raise typer.Exit(exit_code)


def _prompts(arguments: Sequence[str], file: Path | None) -> list[str]:
    """Returns the prompts of the command line, then those of the file. Raises `UsageError` where there is none."""
    texts = list(arguments)
    if file is not None:
        try:
            content = sys.stdin.read() if str(file) == "-" else file.read_text()
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is no UTF-8 text"
            raise UsageError(f"cannot read prompts from {file}: {reason}") from error
        texts += [line for line in content.splitlines() if line.strip()]
    if not texts:
        raise UsageError("there is no prompt: give one, or --prompts-file with one a line (kvscope live is the screen)")
    for number, text in enumerate(texts, start=1):
        if not text.strip():
            raise UsageError(f"prompt {number} of {len(texts)} is empty: give at least one word")
    return texts


def _run_batch(options: EngineOptions, send: Send, *, is_single: bool, as_json: bool, is_checked: bool) -> int:
    """Runs what is sent to its end and returns the exit code. The recording is closed whatever happens."""
    progress = ProgressLine()
    printer = _printer(progress, is_single=is_single, as_json=as_json)
    checking = _LiveCheck() if is_checked else None
    built = build_engine(options, progress.loading)
    progress.clear()
    print(f"runs on: {visible(built.execution)}", file=sys.stderr)
    print(visible(_sampling_line(built, options)), file=sys.stderr)
    try:
        with contextlib.closing(built), _interrupt_flag() as is_interrupted:
            intake = Intake()
            intake.begin(built.engine)
            exit_code = send(built.engine, intake, printer) or 0
            stuck = _run_to_end(built.engine, intake, progress, checking, is_interrupted)
    finally:  # a run that failed is the one to look into
        progress.clear()
        _say_where_it_is_recorded(built)
    for one in stuck:
        print(f"kvscope: {one.request_id} can never go on: {one.reason}", file=sys.stderr)
    if is_interrupted():
        return INTERRUPTED
    if stuck:
        return EngineError.exit_code
    return exit_code or (checking.report() if checking else 0)


def _sampling_line(built: BuiltEngine, options: EngineOptions) -> str:
    """Says how tokens are chosen, and what the model's authors would have where nobody said anything."""
    from kvscope.engine.scheduling.request import SamplingParams

    used = sampling_in_use(dataclasses.asdict(built.sampling), dataclasses.asdict(SamplingParams()))
    given = options.sampling if options.generation_config != "auto" else built.recommended_sampling
    other = {name: value for name, value in built.recommended_sampling.items() if name not in given}
    hint = f"; the model recommends {settings_line(other)} (--generation-config auto)" if other else ""
    return f"sampling: {settings_line(used)}{hint}"


def _say_where_it_is_recorded(built: BuiltEngine) -> None:
    if built.recording_path is not None:
        num_steps = built.engine.step_index + 1
        steps = "1 step" if num_steps == 1 else f"{num_steps} steps"
        print(f"{steps} recorded in {visible(str(built.recording_path))}", file=sys.stderr)


def _printer(progress: ProgressLine, *, is_single: bool, as_json: bool) -> AnswerPrinter:
    from kvscope.cli.answers import InOrderPrinter, StreamPrinter, json_line, labelled

    if is_single and not as_json:
        return StreamPrinter(progress.clear)
    return InOrderPrinter(json_line if as_json else labelled, progress.clear)


def _submit_all(batch: Sequence[Submit], engine: LLMEngine, intake: Intake, printer: AnswerPrinter) -> int:
    """Submits every prompt; says which are refused, and returns the exit code that follows."""
    from kvscope.session.submission import submit

    exit_code = 0
    for number, command in enumerate(batch, start=1):
        try:
            printer.expect(submit(engine, command, printer.update))
        except KvscopeError as error:
            which = f"prompt {number} of {len(batch)}: " if len(batch) > 1 else ""
            print(f"kvscope: {which}{visible(error.message)}", file=sys.stderr)
            exit_code = error.exit_code
    return exit_code


def _run_to_end(
    engine: LLMEngine,
    intake: Intake,
    progress: ProgressLine,
    checking: _LiveCheck | None,
    is_interrupted: Callable[[], bool],
) -> list[Stuck]:
    """Steps until all is done. A request that can never go on is aborted, so that the others can; returns those."""
    stuck = []
    while intake.has_work:
        if is_interrupted():
            intake.drop_coming()
            engine.abort_all()
        intake.submit_due()
        report = engine.step()
        if checking is not None:
            checking.look(report)
        progress.running(f"step {report.step}: {engine.num_running} running, {engine.num_waiting} waiting")
        if report.stuck is not None and not intake.may_go_on and not is_interrupted():
            stuck.append(report.stuck)
            engine.abort(report.stuck.request_id)
    return stuck


class _LiveCheck:
    """Checks the invariants on the events of each step as it ends."""

    def __init__(self) -> None:
        from kvscope.analysis.check import Checker, Violation

        self._checker = Checker()
        self._violations: list[Violation] = []

    def look(self, report: StepReport) -> None:
        self._violations += self._checker.check_step(report.step, report.events)

    def report(self) -> int:
        """Says what is wrong, and returns the exit code."""
        for violation in self._violations:
            kind = "warning" if violation.is_warning else "violation"
            print(f"{kind}: step {violation.step}, {violation.check}: {violation.message}", file=sys.stderr)
        wrong = [violation for violation in self._violations if not violation.is_warning]
        if not wrong:
            print("every invariant holds in every step", file=sys.stderr)
        return 1 if wrong else 0


@contextlib.contextmanager
def _interrupt_flag() -> Iterator[Callable[[], bool]]:
    """Turns the first ctrl-c into a flag, so that a step is never cut in half; the second one is as hard as ever."""
    interrupts: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        interrupts.append(number)
        signal.signal(signal.SIGINT, signal.default_int_handler)

    before = signal.signal(signal.SIGINT, note)
    try:
        yield lambda: bool(interrupts)
    finally:
        signal.signal(signal.SIGINT, before)
