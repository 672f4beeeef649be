"""Where the time of one decode step goes: the ten largest, by the CPU time of the engine's own thread.

    python benchmarks/decode_profile.py --kernels native --batch 32

`--kernels torch` is the path without kvscope's kernels. One thread, so that nothing waits. The profiler measures by the
clock; on a machine that others use its shares hold, not its times. So shares are given in the CPU time of the quickest
step without a profiler.
"""

from __future__ import annotations

import argparse
import functools
import statistics
import time
from collections.abc import Callable
from typing import Any

from torch.profiler import ProfilerActivity, profile, record_function

from kvscope.engine.model.cpu import native_model_runner
from kvscope.engine.model.cpu.native_kernels import NativeKernels
from kvscope.engine.model.cpu.native_model_runner import NativeModelRunner
from kvscope.engine.model.loader import load_model
from kvscope.engine.model.model_runner import TorchModelRunner
from kvscope.engine.scheduling.config import SchedulerConfig
from kvscope.engine.scheduling.request import Request, SamplingParams
from kvscope.engine.scheduling.scheduler import Scheduler

NUM_ROWS = 10
NUM_TIMED_STEPS = 30
NUM_PROFILED_STEPS = 10


def named(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns the function, with its time under a name in the profile."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        with record_function(name):
            return function(*args, **kwargs)

    return call


class NamedKernels(NativeKernels):
    """The kernels in C, which the profiler would not see."""


for kernel in ("rms_norm", "silu_and_mul", "rotate_and_cache", "paged_attention"):
    setattr(NamedKernels, kernel, named(f"native::{kernel}", getattr(NativeKernels, kernel)))


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kernels", choices=("native", "torch"), default="native")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--model", default="smollm2-135m")
    arguments = parser.parse_args()

    model = load_model(arguments.model, dtype="bfloat16", num_threads=1)
    config = SchedulerConfig(num_gpu_blocks=1024, max_num_seqs=64, max_num_batched_tokens=8192, max_model_len=2048)
    kind = NativeModelRunner if arguments.kernels == "native" else TorchModelRunner
    runner = kind(model.decoder, num_blocks=config.num_gpu_blocks, block_size=config.block_size)
    scheduler = Scheduler(config)
    for index in range(arguments.batch):
        prompt = [(index * 104_729 + place * 31) % model.config.vocab_size for place in range(64)]
        scheduler.add_request(
            Request(str(index), prompt, SamplingParams(temperature=0, max_tokens=999, ignore_eos=True))
        )

    def step() -> float:
        began = time.thread_time()
        with record_function("scheduler"):
            output = scheduler.schedule()
        result = runner.execute(output)
        with record_function("scheduler"):
            scheduler.update_from_output(output, result)
        return (time.thread_time() - began) * 1e3

    step()
    times = [step() for _ in range(NUM_TIMED_STEPS)]
    runner.sampler.sample = named("sampler", runner.sampler.sample)  # type: ignore[method-assign]
    native_model_runner.NativeKernels = NamedKernels  # type: ignore[attr-defined]
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        for _ in range(NUM_PROFILED_STEPS):
            step()
    events = sorted(profiler.key_averages(), key=lambda event: -event.self_cpu_time_total)
    total = sum(event.self_cpu_time_total for event in events)
    print(
        f"{arguments.kernels}, batch {arguments.batch}: {min(times):.1f} ms (median {statistics.median(times):.1f})\n"
    )
    print("| | % | µs a step | calls a step |\n|---|---:|---:|---:|")
    for event in events[:NUM_ROWS]:
        share = event.self_cpu_time_total / total
        print(f"| `{event.key}` | {share:.1%} | {share * min(times):.2f} | {event.count / NUM_PROFILED_STEPS:.0f} |")


if __name__ == "__main__":
    main()
