"""`kvscope bench kernels`: what the GPU's kernels reach of a copy's and a matrix product's rate."""

from __future__ import annotations

import json
import statistics
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kvscope.errors import EngineError, UsageError
from kvscope.session.build import require_engine_extra

if TYPE_CHECKING:
    from kvscope.session.bench_measure import Ratio
    from kvscope.session.kernel_work import Work


def register(bench: typer.Typer) -> None:
    """Adds the command."""
    bench.command()(kernels)


def kernels(
    rounds: Annotated[int, typer.Option(min=1, help="Rounds, each of the copy, the product and the kernel.")] = 5,
    as_json: Annotated[bool, typer.Option("--json", help="One line of JSON for each kernel.")] = False,
) -> None:
    """Time each kernel on the GPU: GB/s and TFLOP/s, and their part of a copy's and a matrix product's."""
    require_engine_extra()
    import torch

    from kvscope.engine.kernels import unavailable_reason

    device = torch.device("cuda")
    if reason := unavailable_reason(device):
        raise UsageError(f"bench kernels measures a GPU's kernels, and they cannot run here: {reason}")
    from kvscope.cli.progress_line import ProgressLine
    from kvscope.session.bench_kernels import Sizes, kernel_cases, seconds_per_launch
    from kvscope.session.bench_measure import ratio, take_turns, this_machine
    from kvscope.session.kernel_work import QWEN3_0_6B

    progress, machine = ProgressLine(), this_machine(has_torch=True)
    if not as_json:
        print(*machine.lines(), sep="\n", flush=True)
        print(f"{'':<40}{'µs':>10}{'GB/s':>10}{'TFLOP/s':>10}   of the copy, of the product: median (spread)")
    copy, product, *cases = kernel_cases(QWEN3_0_6B, Sizes(), device)
    bounds = {case.name: seconds_per_launch(case.prepare(), device) for case in (copy, product)}
    for case in cases:
        progress.loading(case.name, None)
        try:
            measures = {**bounds, case.name: seconds_per_launch(case.prepare(), device)}
        except torch.cuda.OutOfMemoryError:
            raise EngineError(f"{case.name}: the GPU's memory does not suffice; free it of other programs") from None
        seconds = take_turns(measures, rounds)
        progress.clear()
        copies, products, times = (seconds[name] for name in (copy.name, product.name, case.name))
        of_copy = ratio([case.work.num_bytes / s for s in times], [copy.work.num_bytes / s for s in copies])
        of_product = None
        if case.work.num_flops:
            of_product = ratio([case.work.num_flops / s for s in times], [product.work.num_flops / s for s in products])
        result = rates(case.name, case.work, statistics.median(times), of_copy, of_product)
        if as_json:
            copied = copy.work.num_bytes / statistics.median(copies) / 1e9
            multiplied = product.work.num_flops / statistics.median(products) / 1e12
            bounded = {"copy_gb_per_s": copied, "product_tflop_per_s": multiplied}
            print(json.dumps(result | bounded | {"seconds": times, "machine": machine.as_json()}), flush=True)
        else:
            print(row(result, of_copy, of_product), flush=True)


def rates(name: str, work: Work, seconds: float, of_copy: Ratio, of_product: Ratio | None) -> dict[str, Any]:
    """Returns a kernel's figures, as `--json` has them."""
    return {
        "kernel": name,
        "microseconds": seconds * 1e6,
        "gb_per_s": work.num_bytes / seconds / 1e9,
        "tflop_per_s": work.num_flops / seconds / 1e12,
        "of_copy": of_copy.as_json(),
        "of_product": of_product and of_product.as_json(),
    }


def row(result: dict[str, Any], of_copy: Ratio, of_product: Ratio | None) -> str:
    """Returns a kernel's line of the table."""
    tflops = f"{result['tflop_per_s']:>10.1f}" if of_product else f"{'':>10}"
    line = f"{result['kernel']:<40}{result['microseconds']:>10.1f}{result['gb_per_s']:>10.0f}{tflops}   {of_copy}"
    return f"{line}, {of_product}" if of_product else line
