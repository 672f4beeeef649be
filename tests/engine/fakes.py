"""A model of prepared answers, a codec of bytes and a clock that stands still: enough to run the step loop exactly."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from kvscope.engine.llm_engine import LLMEngine
from kvscope.engine.model_description import ModelDescription
from kvscope.engine.scheduling.config import SchedulerConfig
from kvscope.engine.scheduling.output import ModelRunnerOutput, SchedulerOutput
from kvscope.engine.scheduling.scripted_runner import Script, ScriptedRunner
from kvscope.events import Event


class HookedRunner(ScriptedRunner):
    """Answers each request with the bytes prepared for it; `before_reply` is called while a step executes."""

    def __init__(self, replies: Mapping[str, bytes], before_reply: Callable[[SchedulerOutput], None] | None) -> None:
        super().__init__()
        self.scripts = {request_id: Script(reply) for request_id, reply in replies.items()}
        self.before_reply = before_reply

    def execute(self, output: SchedulerOutput) -> ModelRunnerOutput:
        if self.before_reply is not None:
            self.before_reply(output)
        return super().execute(output)


class ByteCodec:
    """A token is a byte, "$" a special one. Chat puts `<system|user>` around the messages."""

    special_token_ids = frozenset(b"$")

    def encode(self, text: str) -> list[int]:
        return list(text.encode())

    def render_chat(self, messages: Sequence[Mapping[str, str]]) -> str:
        return "<" + "|".join(message["content"] for message in messages) + ">"

    def encode_rendered_chat(self, text: str) -> list[int]:
        return self.encode(text)

    def token_bytes(self, token_id: int) -> bytes:
        return bytes([token_id])


class ListSink:
    """Keeps each step's events."""

    is_recording = True

    def __init__(self) -> None:
        self.steps: list[list[Event]] = []

    def write_step(self, step: int, events: Sequence[Event]) -> None:
        assert step == len(self.steps)
        self.steps.append(list(events))

    def events(self, kind: type) -> list[Event]:
        """All events of a kind, in order."""
        return [event for step in self.steps for event in step if isinstance(event, kind)]


def scripted_engine(
    replies: Mapping[str, bytes],
    *,
    num_gpu_blocks: int = 20,
    sink: ListSink | None = None,
    before_reply: Callable[[SchedulerOutput], None] | None = None,
    clock_ns: Callable[[], int] = lambda: 0,
    max_num_batched_tokens: int = 8,
) -> LLMEngine:
    """Returns an engine with blocks of four tokens whose end of sequence is the byte "$"."""
    config = SchedulerConfig(
        num_gpu_blocks=num_gpu_blocks,
        block_size=4,
        max_num_batched_tokens=max_num_batched_tokens,
        max_num_seqs=4,
        max_model_len=32,
    )
    return LLMEngine(
        config,
        HookedRunner(replies, before_reply),
        model=ModelDescription(name="scripted", vocab_size=256, eos_token_ids=(ord("$"),)),
        codec=ByteCodec(),
        sink=sink,
        clock_ns=clock_ns,
    )
