"""Times whole engines on one model: kvscope's, and peers in interpreters of their own, in turns.

Every engine gets the same prompts of one length, all at once, and generates as many greedy tokens for each; a step may
hold all prompts. So the first step is the prefill, and each later one decodes the whole batch. No engine gets the same
prompts twice: kvscope's keeps its prefix cache, and finds nothing in it.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol

from kvscope.errors import UsageError
from kvscope.session.build import BuiltEngine, build_engine_over
from kvscope.session.options import EngineOptions

if TYPE_CHECKING:
    from kvscope.engine.llm_engine import LLMEngine
    from kvscope.engine.model.loader import Model

MAX_NUM_SEQS = 64
MAX_NUM_BATCHED_TOKENS = 8192
MAX_MODEL_LEN = 2048
_BLOCK_SIZE = 16


@dataclass(frozen=True, slots=True)
class Case:
    """So many requests at once; with one token to generate it is the prefill that counts."""

    name: str
    num_requests: int
    num_prompt_tokens: int
    num_tokens: int

    def prompts(self, seed: int, vocab_size: int) -> list[list[int]]:
        """Returns prompts of which no two begin alike, nor like those of the seeds before and after."""
        return [
            [(seed * 7919 + request * 104_729 + place * 31) % vocab_size for place in range(self.num_prompt_tokens)]
            for request in range(self.num_requests)
        ]


CASES = (
    Case("batch 1", 1, 64, 64),
    Case("batch 8", 8, 64, 48),
    Case("batch 32", 32, 64, 32),
    Case("batch 64", 64, 64, 32),
    Case("prefill 1,024", 1, 1024, 1),
)


def cases_named(names: Sequence[str]) -> tuple[Case, ...]:
    """Returns the cases of these names, all where there are none. Raises `UsageError` for a name that no case has."""
    known = {case.name: case for case in CASES}
    for name in names:
        if name not in known:
            raise UsageError(f"--case {name}: there is none of that name; give one of {', '.join(map(repr, known))}")
    return tuple(case for case in CASES if not names or case.name in names)


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a case: when each step's tokens were there, in seconds since the requests were submitted."""

    case: Case
    step_times_s: Sequence[float]

    @property
    def ttft_ms(self) -> float:
        return self.step_times_s[0] * 1e3

    @property
    def itl_ms(self) -> float | None:
        """The median; None where there is one token."""
        steps = [after - before for before, after in zip(self.step_times_s, self.step_times_s[1:], strict=False)]
        return statistics.median(steps) * 1e3 if steps else None

    @property
    def tokens_per_s(self) -> float:
        """Tokens generated behind the first step; of a prefill, prompt tokens."""
        if len(self.step_times_s) == 1:
            return self.case.num_requests * self.case.num_prompt_tokens / self.step_times_s[0]
        seconds = self.step_times_s[-1] - self.step_times_s[0]
        return self.case.num_requests * (len(self.step_times_s) - 1) / seconds


class Contender(Protocol):
    """An engine with a number of threads."""

    name: str
    num_threads: int

    def run(self, case: Case, seed: int) -> Run:
        """Runs a case. Raises `UsageError` where the engine could not."""
        ...


def build_kvscope(model: Model) -> BuiltEngine:
    """Returns an engine that has room for every case, with nothing recorded."""
    blocks = max(case.num_requests * -(-(case.num_prompt_tokens + case.num_tokens) // _BLOCK_SIZE) for case in CASES)
    settings = {
        "num_gpu_blocks": blocks + 1,
        "block_size": _BLOCK_SIZE,
        "max_num_seqs": MAX_NUM_SEQS,
        "max_num_batched_tokens": MAX_NUM_BATCHED_TOKENS,
        "max_model_len": MAX_MODEL_LEN,
    }
    return build_engine_over(model, EngineOptions(model=model.name, device="cpu", settings=settings))


class KvscopeEngine:
    """kvscope's engine in this process, with a number of threads."""

    name = "kvscope"

    def __init__(self, engine: LLMEngine, vocab_size: int, num_threads: int) -> None:
        self.num_threads = num_threads
        self._engine = engine
        self._vocab_size = vocab_size

    def run(self, case: Case, seed: int) -> Run:
        """Runs a case."""
        import torch

        torch.set_num_threads(self.num_threads)
        sampling = {"temperature": 0.0, "max_tokens": case.num_tokens, "ignore_eos": True}
        prompts = case.prompts(seed, self._vocab_size)
        begin = time.perf_counter()
        for prompt in prompts:
            self._engine.add_request(prompt, sampling)
        times = []
        while self._engine.has_work:
            self._engine.step()
            times.append(time.perf_counter() - begin)
        return _checked(self.name, case, times)


class PeerProcess:
    """A script of `benchmarks/` with a loaded model, in an interpreter that has the engine."""

    def __init__(self, name: str, python: Path, arguments: Iterable[str], max_num_threads: int) -> None:
        """Starts it, and waits until its model is loaded. Raises `UsageError` where that does not work."""
        self.name = name
        self._python = python
        self._messages = tempfile.TemporaryFile("w+")  # noqa: SIM115  closed with the process
        script = script_folder() / f"{name}_engine.py"
        if not script.is_file():
            raise UsageError(f"--{name} needs {script}: run it from a source checkout (pip install -e)")
        # The limit on spinning that kvscope sets for itself is no setting of a peer's.
        environment = {key: value for key, value in os.environ.items() if key != "GOMP_SPINCOUNT"}
        try:
            self._process = subprocess.Popen(
                [str(python), str(script), *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._messages,
                text=True,
                env=environment | {"OMP_NUM_THREADS": str(max_num_threads)},
            )
        except OSError as error:
            raise UsageError(f"--{name} {python}: {error.strerror}; give a Python interpreter that has it") from error
        versions = self._answer("versions")["versions"]
        self.versions = {str(package): str(version) for package, version in versions.items()}

    def run(self, case: Case, prompts: list[list[int]], num_threads: int) -> Run:
        """Runs a case. Raises `UsageError` where the engine could not."""
        assert self._process.stdin is not None
        question = {"prompts": prompts, "num_tokens": case.num_tokens, "num_threads": num_threads}
        try:
            self._process.stdin.write(json.dumps(question) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise self._failure() from None
        answer = self._answer("step_times_s")
        if answer["num_threads"] != num_threads:
            raise UsageError(f"{self.name} computed with {answer['num_threads']} threads instead of {num_threads}")
        return _checked(self.name, case, answer["step_times_s"])

    def _answer(self, key: str) -> dict[str, Any]:
        """Returns the next answer, which begins with this key."""
        assert self._process.stdout is not None
        for line in self._process.stdout:  # an engine may print lines of its own
            if line.startswith(f'{{"{key}"'):
                answer: dict[str, Any] = json.loads(line)
                return answer
        raise self._failure()

    def _failure(self) -> UsageError:
        self._process.wait()
        self._messages.seek(0)
        lines = [line.strip() for line in self._messages if line.strip()]
        return UsageError(f"--{self.name} {self._python}: {lines[-1] if lines else 'it ended without a word'}")

    def __enter__(self) -> PeerProcess:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()
        self._messages.close()


class PeerEngine:
    """A peer with a number of threads."""

    def __init__(self, process: PeerProcess, vocab_size: int, num_threads: int) -> None:
        self.name = process.name
        self.num_threads = num_threads
        self._process = process
        self._vocab_size = vocab_size

    def run(self, case: Case, seed: int) -> Run:
        """Runs a case."""
        return self._process.run(case, case.prompts(seed, self._vocab_size), self.num_threads)


def fastest(contenders: Sequence[Contender], case: Case, num_tries: int, seed: Callable[[], int]) -> Contender:
    """Returns the one that was quickest in the best of its tries: an engine with several numbers of threads.

    A single one is tried too: an engine's first run of a case may compile, and takes memory that later ones find there.
    """
    best = {id(contender): 0.0 for contender in contenders}
    for _ in range(num_tries):
        for contender in contenders:
            best[id(contender)] = max(best[id(contender)], contender.run(case, seed()).tokens_per_s)
    return max(contenders, key=lambda contender: best[id(contender)])


def peer_folder(model_name: str, cache_folder: Path) -> Path:
    """Returns the model's weights as a Hugging Face folder in bfloat16, made once. Raises `ModelError`."""
    import torch

    from kvscope.engine.model.huggingface_export import write_huggingface_folder
    from kvscope.engine.model.loader import read_weights

    if (Path(model_name) / "config.json").is_file():
        return Path(model_name)
    folder = cache_folder / f"{Path(model_name).stem}-bfloat16"
    if not folder.exists():
        cache_folder.mkdir(parents=True, exist_ok=True)
        unfinished = Path(tempfile.mkdtemp(dir=cache_folder))
        write_huggingface_folder(*read_weights(model_name), unfinished, torch.bfloat16)
        unfinished.rename(folder)
    return folder


def script_folder() -> Path:
    """Returns where the peers' scripts are in a source checkout."""
    import kvscope

    return Path(kvscope.__file__).parent.parent / "benchmarks"


def _checked(name: str, case: Case, step_times_s: object) -> Run:
    """Raises `UsageError` where an engine took other steps than the case is about: its figures would mean nothing."""
    assert isinstance(step_times_s, list)
    if len(step_times_s) != case.num_tokens:
        raise UsageError(f"{name} took {len(step_times_s)} steps for {case.name} instead of {case.num_tokens}")
    return Run(case, step_times_s)
