"""Synthetic work for benchmarks: the real scheduler under a load that never ends, tokens by chance, no model.

Everything follows from seeds: two runs of one load take the same decisions. The clock is made up too: a step takes as
long as one of a small model on a GPU would, so that latencies in a recording of it look like some.
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence

from kvscope import events as ev
from kvscope.engine.scheduling.config import SchedulerConfig
from kvscope.engine.scheduling.output import ModelRunnerOutput
from kvscope.engine.scheduling.request import Request, SamplingParams
from kvscope.engine.scheduling.scheduler import Scheduler

VOCABULARY = 8_192
"""Every token has a word of its own, so that text can be searched."""
_NUM_RANDOM_TOKENS = 1 << 20
_SYLLABLES = ("ba", "de", "fi", "go", "ku", "la", "me", "ni", "po", "ru", "sa", "te", "vi", "wo", "xu", "zy")


def words() -> tuple[bytes, ...]:
    """Returns each token's text: a blank and one to four syllables."""
    texts = []
    for token_id in range(VOCABULARY):
        text, rest = "", token_id
        while rest or not text:
            text, rest = text + _SYLLABLES[rest % 16], rest // 16
        texts.append(f" {text}".encode())
    return tuple(texts)


class Load:
    """A scheduler with work. Subclasses say what arrives (`arrive`), before each step."""

    def __init__(self, config: SchedulerConfig, *, seed: int, is_recording: bool = True) -> None:
        self.config = config
        self.random = random.Random(seed)
        self.tokens = self.random.choices(range(VOCABULARY), k=_NUM_RANDOM_TOKENS)
        self.time_ns = 0
        self.scheduler = Scheduler(config, is_recording=is_recording, clock_ns=lambda: self.time_ns)
        self.num_steps = 0
        self.num_tokens = 0
        """Generated so far."""
        self.num_requests = 0
        self.num_preemptions = 0

    def arrive(self) -> None:
        """Adds what arrives before the next step."""
        raise NotImplementedError

    def on_finished(self, requests: Sequence[Request]) -> None:
        """Looks at the requests that have ended."""

    def step(self) -> list[ev.Event]:
        """Runs a step and returns its events; none where nothing is recorded."""
        self.arrive()
        begin = time.perf_counter_ns()
        output = self.scheduler.schedule()
        scheduled = time.perf_counter_ns()
        first = int(self.random.random() * (_NUM_RANDOM_TOKENS - len(output.requests)))
        tokens = self.tokens[first : first + len(output.requests)]
        sampled = [
            [] if request.is_prefill_chunk else [token] for request, token in zip(output.requests, tokens, strict=True)
        ]
        model_output = ModelRunnerOutput(sampled_token_ids=sampled)
        executed = time.perf_counter_ns()
        result = self.scheduler.update_from_output(output, model_output)
        updated = time.perf_counter_ns()
        self.num_steps += 1
        self.num_tokens += len(result.requests)
        self.num_preemptions += len(output.preempted_request_ids)
        if result.finished:
            self.on_finished(result.finished)
        forward_ns = int(self.random.uniform(4e6, 5e6)) + 20_000 * output.total_num_scheduled_tokens
        durations = (scheduled - begin, forward_ns, int(self.random.uniform(2e5, 4e5)), updated - executed)
        self.time_ns += sum(durations)
        events = self.scheduler.take_events()
        if events:
            if self.num_steps == 1:
                texts = ev.TokenTextRecorded(token_ids=tuple(range(VOCABULARY)), token_bytes=words())
                events[:0] = [self._configured(), texts]
            schedule_ns, forward_ns, sample_ns, update_ns = durations
            events.append(
                ev.StepFinished(
                    schedule_ns=schedule_ns, forward_ns=forward_ns, sample_ns=sample_ns, update_ns=update_ns
                )
            )
        return events

    def add(self, prompt: list[int], num_output_tokens: int) -> None:
        """Adds a request."""
        self.scheduler.add_request(
            Request(
                request_id=f"req-{self.num_requests}",
                prompt_token_ids=prompt,
                sampling=SamplingParams(max_tokens=num_output_tokens, temperature=0, ignore_eos=True),
                arrival_time=self.time_ns / 1e9,
                arrival_ns=self.time_ns,
            )
        )
        self.num_requests += 1

    def some_tokens(self, length: int) -> list[int]:
        """Returns a text by chance."""
        first = self.random.randrange(_NUM_RANDOM_TOKENS - length)
        return self.tokens[first : first + length]

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


class SteadyDecode(Load):
    """So many requests decode, always; one that ends is followed by a new one, so that soon every block is recycled."""

    def __init__(self, num_running: int, *, num_output_tokens: int = 1_000, is_recording: bool = True) -> None:
        config = SchedulerConfig(
            num_gpu_blocks=32_768,
            block_size=16,
            max_num_batched_tokens=8_192,
            max_num_seqs=num_running,
            max_model_len=8_192,
        )
        super().__init__(config, seed=1, is_recording=is_recording)
        self._num_output_tokens = num_output_tokens

    def arrive(self) -> None:
        while len(self.scheduler.requests) < self.config.max_num_seqs:
            mean = self._num_output_tokens
            shortest = (
                10 if self.num_requests < self.config.max_num_seqs else mean // 2
            )  # the first ones end one by one
            prompt = self.some_tokens(self.random.randint(64, 512))
            self.add(prompt, self.random.randint(shortest, mean * 3 // 2))


class ServiceDay(Load):
    """Chats over shared system prompts, long reasoning, follow-ups to earlier conversations, and waves of documents.

    72 requests are there at any time: most steps decode them and nothing else. Every 20,000 steps 48 questions about
    documents come at once, which together do not fit beside them: they wait, evict what was cached, and preempt.
    """

    NUM_STEADY = 72
    WAVE_EVERY_STEPS = 20_000
    REQUESTS_A_WAVE = 48
    _MAX_CONVERSATION_TOKENS = 8_000

    def __init__(self) -> None:
        config = SchedulerConfig(
            num_gpu_blocks=32_768,
            block_size=16,
            max_num_batched_tokens=8_192,
            max_num_seqs=128,
            max_model_len=16_384,
        )
        super().__init__(config, seed=7)
        self._system_prompts = [self.some_tokens(self.random.randint(256, 1_024)) for _ in range(8)]
        self._documents = [self.some_tokens(self.random.randint(6_000, 12_000)) for _ in range(100)]
        self._conversations: list[list[int]] = []

    def arrive(self) -> None:
        while len(self.scheduler.requests) < self.NUM_STEADY:
            self._add_conversation()
        if self.num_steps % self.WAVE_EVERY_STEPS == self.WAVE_EVERY_STEPS // 2:
            for _ in range(self.REQUESTS_A_WAVE):
                document = self.random.choice(self._documents)
                self.add(document + self.some_tokens(self.random.randint(16, 64)), self.random.randint(200, 1_500))

    def on_finished(self, requests: Sequence[Request]) -> None:
        for request in requests:
            if request.num_tokens < self._MAX_CONVERSATION_TOKENS:
                self._conversations.append(list(request.all_token_ids))
        del self._conversations[:-32]

    def _add_conversation(self) -> None:
        kind = self.random.random()
        question = self.some_tokens(self.random.randint(16, 400))
        if kind < 0.1 and self._conversations:
            self.add(self.random.choice(self._conversations) + question, self.random.randint(64, 800))
        elif kind < 0.35:
            self.add(self.random.choice(self._system_prompts) + question, self.random.randint(2_000, 12_000))
        else:
            self.add(self.random.choice(self._system_prompts) + question, self.random.randint(128, 2_000))
