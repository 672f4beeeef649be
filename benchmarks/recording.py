"""Measures a recording of steady decode: its size, its time on the engine's thread, how quickly it opens and seeks.

    python benchmarks/recording.py --steps 20000 --pace-ms 5 [--json]

The real scheduler decodes a full batch with random tokens; a request that ends is followed by a new one, so that soon
every allocation evicts a cached block. `--pace-ms` sleeps in each step as a model's forward pass would; without it the
engine's thread competes with the recorder's for the interpreter all the time. Times are of the wall clock; seeks are
given in CPU time too, which a busy machine disturbs less.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from kvscope import events as ev
from kvscope.engine.scheduling.config import SchedulerConfig
from kvscope.engine.scheduling.output import ModelRunnerOutput
from kvscope.engine.scheduling.request import Request, SamplingParams
from kvscope.engine.scheduling.scheduler import Scheduler
from kvscope.recording import Recorder
from kvscope.replay import open_recording

VOCABULARY = 49_152
NUM_SEEKS = 300
NUM_COLUMNS = 200


class SteadyDecode:
    """A scheduler that is kept full of decoding requests."""

    def __init__(self, num_running: int, num_output_tokens: int) -> None:
        self.config = SchedulerConfig(
            num_gpu_blocks=32_768,
            block_size=16,
            max_num_batched_tokens=8_192,
            max_num_seqs=num_running,
            max_model_len=8_192,
        )
        self.scheduler = Scheduler(self.config, is_recording=True)
        self.num_tokens = 0
        self._num_output_tokens = num_output_tokens
        self._num_requests = 0
        self._random = random.Random(1)
        self._tokens = [self._random.randrange(VOCABULARY) for _ in range(1 << 20)]

    def step(self, step: int) -> list[ev.Event]:
        """Runs a step and returns its events."""
        while len(self.scheduler.running) + len(self.scheduler.waiting) < self.config.max_num_seqs:
            self._add_request()
        begin = time.perf_counter_ns()
        output = self.scheduler.schedule()
        scheduled = time.perf_counter_ns()
        first = self._random.randrange(len(self._tokens) - len(output.requests))
        sampled = [
            [self._tokens[first + place]] if request.num_computed_tokens >= request.num_tokens else []
            for place, request in enumerate(output.requests)
        ]
        self.scheduler.update_from_output(output, ModelRunnerOutput(sampled_token_ids=sampled))
        self.num_tokens += sum(map(len, sampled))
        events = self.scheduler.take_events()
        if step == 0:
            events.insert(0, self._configured())
        events.append(
            ev.StepFinished(
                schedule_ns=scheduled - begin,
                forward_ns=self._random.randrange(5_000_000, 9_000_000),
                sample_ns=self._random.randrange(200_000, 900_000),
                update_ns=self._random.randrange(100_000, 300_000),
                record_ns=self._random.randrange(5_000, 20_000),
            )
        )
        return events

    def _add_request(self) -> None:
        mean = self._num_output_tokens
        shortest = 10 if self._num_requests < self.config.max_num_seqs else mean // 2  # the first ones end one by one
        sampling = SamplingParams(max_tokens=self._random.randint(shortest, mean * 3 // 2), temperature=0)
        prompt = self._random.choices(self._tokens, k=self._random.randint(64, 512))
        self.scheduler.add_request(
            Request(
                request_id=f"req-{self._num_requests}",
                prompt_token_ids=prompt,
                sampling=sampling,
                arrival_time=float(self._num_requests),
            )
        )
        self._num_requests += 1

    def _configured(self) -> ev.EngineConfigured:
        return ev.EngineConfigured(
            model="scripted",
            device="none",
            dtype="none",
            settings=self.config.as_settings(),
            num_gpu_blocks=self.config.num_gpu_blocks,
            block_size=self.config.block_size,
            watermark_blocks=self.config.watermark_blocks,
        )


def percentile(values: Iterable[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(int(len(ordered) * share), len(ordered) - 1)]


def measure_writing(
    path: Path, num_steps: int, num_running: int, num_output_tokens: int, pace_s: float
) -> dict[str, float]:
    """Records the run and returns its size, and the time that handing over a step takes."""
    load = SteadyDecode(num_running, num_output_tokens)
    recorder = Recorder(path)
    hand_over_us = []
    for step in range(num_steps):
        events = load.step(step)
        begin = time.perf_counter_ns()
        recorder.write_step(step, events)
        hand_over_us.append((time.perf_counter_ns() - begin) / 1e3)
        if pace_s:
            time.sleep(pace_s)
    recorder.close()
    return {
        "num_steps": num_steps,
        "num_tokens": load.num_tokens,
        "bytes_per_token": path.stat().st_size / load.num_tokens,
        "hand_over_us_p50": percentile(hand_over_us, 0.5),
        "hand_over_us_p99": percentile(hand_over_us, 0.99),
    }


def measure_reading(path: Path) -> dict[str, float]:
    """Opens the recording as a screen does, and seeks."""
    begin = time.perf_counter()
    timeline = open_recording(path)
    width = next(
        width
        for power in range(7)
        for width in (10**power, 2 * 10**power, 5 * 10**power)
        if width * NUM_COLUMNS > timeline.last_step
    )
    timeline.summaries(0, NUM_COLUMNS, width)
    found = {"open_ms": (time.perf_counter() - begin) * 1e3}
    last = timeline.last_step
    chance = random.Random(2)
    ways = {
        "seek": [chance.randint(0, last) for _ in range(NUM_SEEKS)],
        "step_back": range(last - 1, max(last - 1 - NUM_SEEKS, -1), -1),
        "step_forward": range(max(last - NUM_SEEKS, 0), last),
    }
    for name, steps in ways.items():
        for clock, unit in ((time.perf_counter, "ms"), (time.process_time, "cpu_ms")):
            took = [timed(clock, lambda step=step: timeline.at(step)) for step in steps]  # type: ignore[misc]
            found |= {f"{name}_{unit}_p50": percentile(took, 0.5), f"{name}_{unit}_p99": percentile(took, 0.99)}
    timeline.close()
    return found


def timed(clock: Callable[[], float], act: Callable[[], object]) -> float:
    """Returns how many ms it takes."""
    begin = clock()
    act()
    return (clock() - begin) * 1e3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=5_000)
    parser.add_argument("--running", type=int, default=256)
    parser.add_argument("--output-tokens", type=int, default=1_000, help="mean length of an answer")
    parser.add_argument("--pace-ms", type=float, default=0.0)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "steady.db"
        found = measure_writing(path, options.steps, options.running, options.output_tokens, options.pace_ms / 1e3)
        found |= measure_reading(path)
    if options.json:
        print(json.dumps(found))
    else:
        for name, value in found.items():
            print(f"{name:>24}  {value:,.2f}")


if __name__ == "__main__":
    main()
