"""`kvscope bench engine`: tokens a second, first token and steps of the whole engine, beside vLLM and transformers."""

from __future__ import annotations

import contextlib
import itertools
import json
import statistics
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvscope.session.bench_engine import Case, Contender, Run

_NUM_TRIES = 2
"""Of each number of threads, before the better one is taken."""


def register(bench: typer.Typer) -> None:
    """Adds the command."""
    bench.command()(engine)


def engine(
    model: Annotated[str, typer.Option(help="As in kvscope run.")] = "smollm2-135m",
    vllm: Annotated[Path | None, typer.Option(help="Python that has vLLM's CPU build.")] = None,
    transformers: Annotated[Path | None, typer.Option(help="Python that has transformers.")] = None,
    threads: Annotated[
        list[int] | None, typer.Option(min=1, help="Tried for every engine; of each case the better counts. [1 2]")
    ] = None,
    pairs: Annotated[int, typer.Option(min=1, help="Interleaved rounds of each case.")] = 5,
    case: Annotated[
        list[str] | None,
        typer.Option(help="Only this one: 'batch 1', 'batch 8', 'batch 32', 'batch 64', 'prefill 1,024'. [all]"),
    ] = None,
    vllm_eager: Annotated[bool, typer.Option("--vllm-eager", help="vLLM without torch.compile.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One line of JSON for each case.")] = False,
) -> None:
    """Time the engine on a CPU in bfloat16: batches of 1 to 64 and a prefill of 1,024 tokens."""
    import platformdirs

    from kvscope.cli.progress_line import ProgressLine
    from kvscope.engine.model.loader import load_model
    from kvscope.session.bench_engine import (
        KvscopeEngine,
        PeerEngine,
        PeerProcess,
        build_kvscope,
        cases_named,
        fastest,
        peer_folder,
    )
    from kvscope.session.bench_measure import this_machine
    from kvscope.session.build import require_engine_extra

    require_engine_extra()
    cases = cases_named(case or [])
    progress = ProgressLine()
    tried = threads or [1, 2]
    seeds = itertools.count(1)
    with contextlib.ExitStack() as stack:
        loaded = load_model(model, dtype="bfloat16", num_threads=max(tried), progress=progress.loading)
        built = build_kvscope(loaded)
        own = [KvscopeEngine(built.engine, loaded.config.vocab_size, count) for count in tried]
        engines: dict[str, Sequence[Contender]] = {"kvscope": own}
        versions: dict[str, dict[str, str]] = {}
        for name, python in (("vllm", vllm), ("transformers", transformers)):
            if python is None:
                continue
            arguments = [str(peer_folder(model, platformdirs.user_cache_path("kvscope") / "bench"))]
            if name == "vllm":
                arguments.append("eager" if vllm_eager else "compiled")
            progress.loading(f"starting {name}", None)
            process = stack.enter_context(PeerProcess(name, python, arguments, max(tried)))
            versions[name] = process.versions
            engines[name] = [PeerEngine(process, loaded.config.vocab_size, count) for count in tried]
        machine = this_machine(has_torch=True)
        execution = built.execution.partition(";")[0]
        progress.clear()
        if not as_json:
            print(*machine.lines(), sep="\n")
            for name, packages in versions.items():
                print(f"{name}: {', '.join(f'{package} {version}' for package, version in packages.items())}")
            print(f"kvscope on {execution}; {model}, bfloat16", flush=True)
        for number, timed in enumerate(cases):
            progress.loading(f"{timed.name}: which number of threads is better", None)
            chosen = {name: fastest(many, timed, _NUM_TRIES, lambda: next(seeds)) for name, many in engines.items()}
            runs = _take_turns(timed, chosen, pairs, seeds, progress)
            progress.clear()
            if as_json:
                about: dict[str, Any] = {"model": model, "dtype": "bfloat16", "execution": execution}
                about |= {"threads_tried": tried, "machine": machine.as_json(), "peers": versions}
                print(json.dumps(_as_json(timed, chosen, runs) | about), flush=True)
            else:
                _print_case(timed, chosen, runs, has_head=number == 0)


def _take_turns(
    case: Case, chosen: dict[str, Contender], pairs: int, seeds: itertools.count[int], progress: Any
) -> dict[str, list[Run]]:
    """Runs every engine once a round, with the round's prompts. Every other round runs backwards."""
    from kvscope.session.bench_measure import take_turns

    runs: dict[str, list[Run]] = {name: [] for name in chosen}
    seed_of_round = list(itertools.islice(seeds, pairs))

    def measure(name: str) -> float:
        runs[name].append(chosen[name].run(case, seed_of_round[len(runs[name])]))
        return runs[name][-1].tokens_per_s

    take_turns(
        {name: lambda name=name: measure(name) for name in chosen},  # type: ignore[misc]
        pairs,
        lambda round_number, name: progress.loading(f"{case.name}: round {round_number + 1} of {pairs}, {name}", None),
    )
    return runs


def _print_case(case: Case, chosen: dict[str, Contender], runs: dict[str, list[Run]], *, has_head: bool) -> None:
    """Prints medians over the rounds, and of kvscope's rate over a peer's also spread and interval."""
    if has_head:
        columns = f"{'case':<15}{'engine':<14}{'threads':>7}{'tokens/s':>10}{'TTFT ms':>10}{'ITL ms':>9}"
        print(columns + ("   kvscope / it" if len(runs) > 1 else ""))
    for name, many in runs.items():
        itl = statistics.median(run.itl_ms or 0.0 for run in many)
        print(
            f"{case.name:<15}{name:<14}{chosen[name].num_threads:>7}"
            f"{statistics.median(run.tokens_per_s for run in many):>10.1f}"
            f"{statistics.median(run.ttft_ms for run in many):>10.1f}"
            f"{f'{itl:.1f}' if itl else '':>9}" + (f"   {_ratio(runs, name)}" if name != "kvscope" else ""),
            flush=True,
        )


def _ratio(runs: dict[str, list[Run]], name: str) -> Any:
    from kvscope.session.bench_measure import ratio

    return ratio([run.tokens_per_s for run in runs["kvscope"]], [run.tokens_per_s for run in runs[name]])


def _as_json(case: Case, chosen: dict[str, Contender], runs: dict[str, list[Run]]) -> dict[str, Any]:
    return {
        "case": case.name,
        "num_requests": case.num_requests,
        "num_prompt_tokens": case.num_prompt_tokens,
        "num_tokens": case.num_tokens,
        "engines": {
            name: {
                "threads": chosen[name].num_threads,
                "tokens_per_s": [run.tokens_per_s for run in many],
                "ttft_ms": [run.ttft_ms for run in many],
                "itl_ms": [run.itl_ms for run in many],
            }
            for name, many in runs.items()
        },
        "ratios": {name: _ratio(runs, name).as_json() for name in runs if name != "kvscope"},
    }
