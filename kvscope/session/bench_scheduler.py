"""Times the scheduler on its own: `schedule` and `update_from_output` of steady steps, recording off and on.

The same cases can be run by vLLM's scheduler in another interpreter (`VllmScheduler`), interleaved. Times are CPU time
of the one thread that schedules, so that a ratio means something on a machine that others use too. What a step costs
outside of these two calls (building a model's output, making requests) is not timed, on either side.
"""

from __future__ import annotations

import dataclasses
import json
import statistics
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

from kvscope.engine.scheduling.config import SchedulerConfig
from kvscope.engine.scheduling.output import ModelRunnerOutput
from kvscope.engine.scheduling.request import Request, SamplingParams
from kvscope.engine.scheduling.scheduler import Scheduler
from kvscope.errors import UsageError
from kvscope.events import EngineConfigured, EventSink, NullSink
from kvscope.recording.recorder import Recorder

BLOCK_SIZE = 16
NUM_PROMPT_TOKENS = 32
NUM_SHARED_TOKENS = 1024
NUM_WARM_UP_STEPS = 20


@dataclass(frozen=True, slots=True)
class Case:
    """A steady state: so many requests decode; with admissions, so many more come in a step, hit, and end at once."""

    name: str
    num_running: int
    num_admissions: int = 0

    @property
    def num_blocks(self) -> int:
        return 32_768 if self.num_running <= 256 else 131_072

    @property
    def token_budget(self) -> int:
        """Enough for all prompts in one step."""
        return self.num_running * NUM_PROMPT_TOKENS + 2 * NUM_SHARED_TOKENS


CASES = (
    Case("16 decode", 16),
    Case("64 decode", 64),
    Case("256 decode", 256),
    Case("1024 decode", 1024),
    Case("256 decode, 4 admissions hit 1,024 tokens", 256, num_admissions=4),
)


@dataclass(slots=True)
class CaseTimes:
    """One case, in µs of CPU time a step: a median for each round."""

    case: Case
    off_us: list[float]
    on_us: list[float]
    vllm_us: list[float]
    """Empty where vLLM was not asked."""

    def ratios(self, which: Literal["off", "on"]) -> list[float]:
        """Returns kvscope's time over vLLM's, round by round."""
        mine = self.off_us if which == "off" else self.on_us
        return [have / other for have, other in zip(mine, self.vllm_us, strict=False)]


def time_kvscope(case: Case, num_steps: int, *, is_recording: bool) -> float:
    """Returns the median step of one run, in µs; with a recording, its hand-over belongs to the step."""
    if not is_recording:
        return _time_steps(case, num_steps, NullSink())
    with tempfile.TemporaryDirectory() as folder, Recorder(Path(folder) / "bench.db") as recorder:
        return _time_steps(case, num_steps, recorder)


def _time_steps(case: Case, num_steps: int, sink: EventSink) -> float:
    config = SchedulerConfig(
        num_gpu_blocks=case.num_blocks,
        block_size=BLOCK_SIZE,
        max_num_batched_tokens=case.token_budget,
        max_num_seqs=case.num_running + case.num_admissions,
        max_model_len=4096,
    )
    scheduler = Scheduler(config, is_recording=sink.is_recording)
    for index in range(case.num_running):
        scheduler.add_request(_request(f"decode-{index}", _own_tokens(index), max_tokens=3000))
    times: list[int] = []
    for step in range(num_steps + NUM_WARM_UP_STEPS):
        for index in range(case.num_admissions):
            tokens = [*range(NUM_SHARED_TOKENS), *_own_tokens(1_000_000 + step * 8 + index)]
            scheduler.add_request(_request(f"hit-{step}-{index}", tokens, max_tokens=1))
        start = time.thread_time_ns()
        output = scheduler.schedule()
        scheduled = time.thread_time_ns()
        sampled = [[] if request.is_prefill_chunk else [7] for request in output.requests]
        model_output = ModelRunnerOutput(sampled_token_ids=sampled)
        executed = time.thread_time_ns()
        scheduler.update_from_output(output, model_output)
        if sink.is_recording:
            events = scheduler.take_events()
            if step == 0:
                events.insert(0, _configured(config))
            sink.write_step(step, events)
        times.append(scheduled - start + time.thread_time_ns() - executed)
    return statistics.median(times[NUM_WARM_UP_STEPS:]) / 1000


def _own_tokens(index: int) -> range:
    """Tokens that no other request begins with."""
    return range(10_000 + index * NUM_PROMPT_TOKENS, 10_000 + (index + 1) * NUM_PROMPT_TOKENS)


def _request(request_id: str, tokens: range | list[int], *, max_tokens: int) -> Request:
    return Request(request_id, list(tokens), SamplingParams(temperature=0.0, max_tokens=max_tokens))


def _configured(config: SchedulerConfig) -> EngineConfigured:
    return EngineConfigured(
        model="scripted",
        device="none",
        dtype="none",
        settings=config.as_settings(),
        num_gpu_blocks=config.num_gpu_blocks,
        block_size=config.block_size,
        watermark_blocks=config.watermark_blocks,
    )


class VllmScheduler:
    """vLLM's own scheduler, timed by `benchmarks/vllm_scheduler.py` in an interpreter that has vLLM."""

    def __init__(self, python: Path) -> None:
        """Starts it. Raises `UsageError` where there is no such interpreter or script."""
        import kvscope

        script = Path(kvscope.__file__).parent.parent / "benchmarks" / "vllm_scheduler.py"
        if not script.is_file():
            raise UsageError(f"--vllm needs {script}: run it from a source checkout (pip install -e)")
        try:
            self._process = subprocess.Popen(
                [str(python), str(script)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
        except OSError as error:
            raise UsageError(f"--vllm {python}: {error.strerror}; give a Python interpreter that has vLLM") from error

    def time(self, case: Case, num_steps: int) -> float:
        """Returns the median step of one run, in µs. Raises `UsageError` where vLLM could not run it."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        question = dataclasses.asdict(case) | {
            "num_blocks": case.num_blocks,
            "token_budget": case.token_budget,
            "block_size": BLOCK_SIZE,
            "num_prompt_tokens": NUM_PROMPT_TOKENS,
            "num_shared_tokens": NUM_SHARED_TOKENS,
            "num_warm_up_steps": NUM_WARM_UP_STEPS,
            "num_steps": num_steps,
        }
        try:
            self._process.stdin.write(json.dumps(question) + "\n")
            self._process.stdin.flush()
            for line in self._process.stdout:  # vLLM may print lines of its own
                if line.startswith("{"):
                    answer: dict[str, Any] = json.loads(line)
                    return float(answer["median_us"])
        except BrokenPipeError:
            pass
        raise UsageError("vLLM's scheduler could not be run in that interpreter: see its messages above")

    def __enter__(self) -> VllmScheduler:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()
