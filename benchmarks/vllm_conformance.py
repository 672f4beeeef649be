"""Holds kvscope's scheduler against vLLM's own, step by step, on random scenarios.

    python -m benchmarks.vllm_conformance --vllm PYTHON [--runs 100] [--seed 0]

PYTHON is an interpreter that has vLLM. Each scenario runs in both; queues, block tables, reference counts, the free
queue's order, what is cached, scheduled, drafted, sampled and finished must be the same after every step. The first
difference of a run is printed with the scenario that leads to it, and the exit code is 1.

Where a victim's blocks of the same step are taken back, kvscope differs on purpose (see `kvscope.engine.scheduling`
`.scheduler`): that run is compared up to there.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kvscope import events as ev
from kvscope.engine.scheduling.scenario import parse_scenario
from kvscope.engine.scheduling.scripted_run import ScriptedRun
from kvscope.replay.dump import StepRecord, dump_steps

COMPARED = (
    "waiting",
    "running",
    "free_queue",
    "ref_cnt",
    "cached_blocks",
    "duplicate_groups",
    "block_ids",
    "num_computed_tokens",
    "num_tokens",
)
"""Of the books after schedule and after update."""


def random_scenario(seed: int) -> dict[str, Any]:
    """Returns a small run with a tight pool: the file format of `kvscope simulate`."""
    chance = random.Random(seed)
    block_size = chance.choice([1, 1, 2, 3, 4, 8, 16, 256])
    max_model_len = chance.randint(4, 40) if block_size < 16 else chance.randint(block_size, 4 * block_size)
    config = _random_config(chance, block_size, max_model_len)
    prefixes = [_tokens(chance, chance.randint(0, max_model_len - 2)) for _ in range(3)]
    last_step = chance.choice([0, 3, 12])
    requests = [
        _random_request(chance, f"r{number}", config, prefixes, last_step) for number in range(chance.randint(1, 14))
    ]
    return {"name": f"random {seed}", "config": config, "requests": requests}


def _random_config(chance: random.Random, block_size: int, max_model_len: int) -> dict[str, Any]:
    num_seqs = chance.randint(1, 6)
    is_chunking = chance.random() < 0.75
    budget = chance.choice([chance.randint(num_seqs, 2 * num_seqs), chance.randint(num_seqs, 2 * max_model_len + 8)])
    blocks_of_one = -(-max_model_len // block_size)
    num_spec_tokens = chance.choice([0, 0, 1, 3])
    threshold = chance.choice([0, 0, chance.randint(1, max_model_len), max_model_len])
    return {
        "num_gpu_blocks": 1 + blocks_of_one + chance.choice([0, 0, 1, chance.randint(0, 3 * blocks_of_one)]),
        "block_size": block_size,
        "max_num_batched_tokens": budget if is_chunking else max(budget, max_model_len),
        "max_num_scheduled_tokens": chance.choice([None, None, chance.randint(1, 2 * budget)]),
        "max_num_seqs": num_seqs,
        "max_model_len": max_model_len,
        "enable_prefix_caching": chance.random() < 0.8,
        "enable_chunked_prefill": is_chunking,
        "policy": chance.choice(["fcfs", "priority"]),
        "watermark": chance.choice([0.0, 0.0, 0.1, 0.35]),
        "scheduler_reserve_full_isl": chance.random() < 0.5,
        # vLLM asserts that no threshold cuts an admission that is padded with drafts.
        "long_prefill_token_threshold": threshold if not num_spec_tokens or threshold > num_spec_tokens else 0,
        "num_spec_tokens": num_spec_tokens,
        "num_lookahead_tokens": chance.choice([None, None, num_spec_tokens or None]),
    }


def _random_request(
    chance: random.Random, request_id: str, config: dict[str, Any], prefixes: list[list[int]], last_step: int
) -> dict[str, Any]:
    # A scheduler takes prompts that an engine refuses: they never sample.
    longest = config["max_model_len"] - 1 + (chance.randint(1, 3) if chance.random() < 0.05 else 0)
    own = _tokens(chance, chance.choice([1, chance.randint(1, longest), longest]))
    prompt = (chance.choice([*prefixes, []]) + own)[: chance.choice([longest, chance.randint(1, longest)])]
    max_tokens = chance.choice([1, 2, chance.randint(1, 12), config["max_model_len"]])
    output = _tokens(chance, config["max_model_len"] + config["num_spec_tokens"] + 2)
    is_cancelled = chance.random() < 0.25
    arrival_step = chance.randint(0, last_step)
    return {
        "id": request_id,
        "arrival_step": arrival_step,
        "arrival_time": float(chance.choice([arrival_step, 0, 1])),
        "prompt_token_ids": prompt,
        "max_tokens": max_tokens,
        "priority": chance.choice([0, 0, 1, 2]),
        "output_token_ids": output,
        "stop_token_ids": chance.choice([[], [], [2]]),
        "cache_salt": chance.choice([None, None, None, "a"]),
        "cancel_step": arrival_step + chance.randint(0, 8) if is_cancelled else None,
        "cancel_mid": is_cancelled and chance.random() < 0.5,
        "drafts": [
            _drafts(chance, output, place, config["num_spec_tokens"])
            for place in range(16 if chance.random() < 0.8 else 0)
        ],
    }


def _tokens(chance: random.Random, count: int) -> list[int]:
    """Few different ones, so that prefixes meet and drafts come true; 2 ends some requests."""
    return [chance.choice([3, 3, 3, 4, 5, 2] if chance.random() < 0.1 else [3, 4]) for _ in range(count)]


def _drafts(chance: random.Random, output: list[int], place: int, num_spec_tokens: int) -> list[int]:
    if chance.random() < 0.5:
        return output[place + 1 : place + 1 + chance.randint(0, num_spec_tokens)]
    return _tokens(chance, chance.randint(0, num_spec_tokens))


class _Collected:
    is_recording = True

    def __init__(self) -> None:
        self.steps: list[tuple[int, list[ev.Event]]] = []

    def write_step(self, step: int, events: Any) -> None:
        self.steps.append((step, list(events)))


def run_here(scenario: dict[str, Any]) -> tuple[list[StepRecord], int]:
    """Returns kvscope's records, and how many of them are to be equal."""
    sink = _Collected()
    ScriptedRun(parse_scenario(scenario), sink).run()
    taken_back = (
        step
        for step, events in sink.steps
        for event in events
        if isinstance(event, ev.BlockUncached) and event.reason == "preempted"
    )
    return list(dump_steps(sink.steps)), next(taken_back, len(sink.steps))


def first_difference(mine: StepRecord, other: dict[str, Any]) -> str | None:
    """Returns what differs in a step, in words; None where nothing does."""
    pairs = [(name, mine[name], other[name]) for name in ("num_scheduled_tokens", "scheduled_spec_tokens", "sampled")]
    pairs.append(("scheduling order", list(mine["num_scheduled_tokens"]), list(other["num_scheduled_tokens"])))
    pairs.append(("finished", mine["finished"], other["finished"]))
    for when, books in (("after_schedule", mine["after_schedule"]), ("after_update", _after_update(mine))):
        pairs += [(f"{when}.{name}", books[name], other[when][name]) for name in COMPARED]
    for name, have, want in pairs:
        if have != want:
            return f"{name}: kvscope {have}, vLLM {want}"
    return None


def _after_update(record: StepRecord) -> dict[str, Any]:
    return {**record["after_schedule"], **record["after_update"]}


class VllmSteps:
    """`vllm_steps.py` in vLLM's interpreter."""

    def __init__(self, python: str) -> None:
        script = Path(__file__).with_name("vllm_steps.py")
        self._process = subprocess.Popen(
            [python, str(script)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )

    def run(self, scenario: dict[str, Any], num_steps: int) -> Any:
        """Returns vLLM's records, or what it raised."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"scenario": scenario, "num_steps": num_steps}) + "\n")
        self._process.stdin.flush()
        line = next(line for line in self._process.stdout if line.startswith(("[", "{")))
        return json.loads(line)


def compare(scenario: dict[str, Any], run_there: Callable[[dict[str, Any], int], Any]) -> tuple[int, str | None]:
    """Returns how many steps are equal, and what differs in the next."""
    records, num_comparable = run_here(scenario)
    theirs = run_there(scenario, num_comparable)
    if isinstance(theirs, dict):
        return 0, f"vLLM raised {theirs['error']}"
    for step, (mine, other) in enumerate(zip(records, theirs, strict=False)):
        difference = first_difference(json.loads(json.dumps(mine)), other)
        if difference is not None:
            return step, f"step {step}, {difference}"
    return num_comparable, None


def main() -> int:
    """Compares, prints what differs and a line at the end; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vllm", required=True, help="Python that has vLLM")
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0, help="of the first run; the others follow")
    options = parser.parse_args()
    other = VllmSteps(options.vllm)
    num_steps = num_different = 0
    for seed in range(options.seed, options.seed + options.runs):
        scenario = random_scenario(seed)
        num_equal, difference = compare(scenario, other.run)
        num_steps += num_equal
        if difference is not None:
            num_different += 1
            print(f"seed {seed}: {difference}\n  {json.dumps(scenario)}", flush=True)
    print(f"{options.runs} runs, {num_steps} equal steps, {num_different} runs that differ")
    return 1 if num_different else 0


if __name__ == "__main__":
    sys.exit(main())
