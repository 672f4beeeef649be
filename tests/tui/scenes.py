"""Recordings for the screen's tests: scripted runs with text, a fixed clock, and what a real run would have besides."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import textual.events
from textual.pilot import Pilot

from kvscope import events as ev
from kvscope.control import Accepted, Command, Describe, Described, EngineStatus, Refused, Reply, Submit, SubmitTogether
from kvscope.replay import MemoryTimeline
from kvscope.tui.app import KvscopeApp
from tests.builders import CheckedRun, scenario

STEP_NS = 8_100_000
SYSTEM = "You answer in short sentences. "


def told(event: ev.Event, step: int) -> ev.Event:
    """Returns the event with the clock of a run that takes 8.1 ms a step."""
    match event:
        case ev.StepStarted():
            return msgspec.structs.replace(event, time_ns=step * STEP_NS)
        case ev.StepFinished():
            return ev.StepFinished(schedule_ns=600_000, forward_ns=7_500_000)
        case ev.EngineConfigured():
            return msgspec.structs.replace(event, model="SmolLM2-135M", device="cpu", dtype="float32")
        case _:
            return event


def recorded(run: CheckedRun, *, is_finished: bool = True) -> MemoryTimeline:
    """Returns a run as a recording; its tokens stand for the letters that they were made of."""
    letters = sorted(
        {
            token_id
            for request in run.scenario.requests
            for token_id in (*request.prompt_token_ids, *request.output_token_ids)
        }
    )
    text = ev.TokenTextRecorded(token_ids=tuple(letters), token_bytes=tuple(chr(i).encode() for i in letters))
    timeline = MemoryTimeline("scene.db")
    for step, events in run.sink.steps:
        first: list[ev.Event] = [text] if step == 0 else []
        timeline.write_step(step, [*first, *(told(event, step) for event in events)])
    if is_finished:
        timeline.finish()
    return timeline


def empty() -> MemoryTimeline:
    """A recording without a step."""
    return recorded(scenario().start(), is_finished=False)


def one_request() -> MemoryTimeline:
    """One request of 31 prompt tokens; 12 steps."""
    return recorded(scenario(blocks=33).request("req-1", SYSTEM, reply="The capital is Paris.").run(12))


def full_pool() -> MemoryTimeline:
    """Two requests share a beginning, two others fill the pool; the head does not fit, one behind would."""
    built = scenario(blocks=33, block_size=4, budget=64, seqs=8, watermark=0.05)
    prompts = [
        SYSTEM + "Who?",
        SYSTEM + "Why?",
        "Write a story about a pool.",
        "Write a song about a queue.",
        SYSTEM[::-1],
    ]
    for number, prompt in enumerate([*prompts, "Hi"], 1):
        built.request(f"req-{number}", prompt, reply="An answer of some length.", at=number - 1)
    return recorded(built.run(7))


def preempting_run(blocks: int = 24) -> CheckedRun:
    """Requests that grow until the pool is full: the last in line loses its blocks, and comes back with its own hit."""
    built = scenario(blocks=blocks, block_size=4, budget=32, seqs=4, scheduler_reserve_full_isl=False)
    for number in range(1, 5):
        prompt = "Tell me a story. " if number % 2 else f"What is {number} plus {number}?"
        built.request(f"req-{number}", prompt, reply="Once upon a time there was a block.", at=number - 1)
    return built.run()


def preemption() -> tuple[MemoryTimeline, int]:
    """Returns the recording and the step of its first preemption."""
    run = preempting_run()
    return recorded(run), run.all_events(ev.RequestPreempted)[0][0]


def failed_step() -> MemoryTimeline:
    """Two requests run; the last step raised in its forward pass."""
    run = (
        scenario(blocks=33).request("req-1", SYSTEM, reply="Hello there").request("req-2", "Why?", reply="Since").run(3)
    )
    step, events = run.sink.steps[-1]
    kept = [event for event in events if not isinstance(event, ev.TokensSampled | ev.StepFinished | ev.RequestFinished)]
    kept.append(ev.StepFailed(phase="forward", error_type="RuntimeError", message="CUDA error: out of memory [0]"))
    run.sink.steps[-1] = (step, kept)
    return recorded(run)


def many_requests() -> MemoryTimeline:
    """256 requests at once, 64 of which may run; 2,047 blocks."""
    built = scenario(blocks=2048, block_size=4, budget=256, seqs=64)
    for number in range(256):
        built.request(f"req-{number}", f"{number:03d} asks for the time", reply="It is noon in the pool.")
    return recorded(built.run(6))


def wide_text() -> MemoryTimeline:
    """A prompt in Chinese and Japanese, an answer with emoji, some of which are more than one character."""
    reply = "首都是巴黎。🗼 C'est Paris! 👩‍💻 e\u0301te\u0301"
    return recorded(scenario(blocks=33).request("请求-1", "法国的首都是哪里?フランスの首都は?", reply=reply).run(14))


def hostile_text() -> MemoryTimeline:
    """Escape sequences, markup and control characters in an id, a prompt and an answer."""
    prompt = "[bold red]not markup[/] \x1b[31mred\x1b[0m \x1b]0;title\x07\ttab\nline $HOME"
    reply = "\x1b[2J[/][@click=app.quit]x[/]\r\n\u202eevil"
    return recorded(scenario(blocks=33).request("[b]req[/b]\x1b[7m", prompt, reply=reply).run(16))


class FakeEngine:
    """An engine that takes every command and writes it down."""

    def __init__(self, status: EngineStatus, refusal: str | None = None) -> None:
        self.status = status
        self.commands: list[Command] = []
        self._refusal = refusal

    async def send(self, command: Command) -> Reply:
        self.commands.append(command)
        if self._refusal is not None:
            return Refused(message=self._refusal)
        if isinstance(command, Describe):
            config = one_request().config
            assert config is not None
            return Described(config=config)
        if isinstance(command, SubmitTogether):
            return Accepted(request_id="req-9", request_ids=("req-9", "req-10"))
        return Accepted(request_id="req-9") if isinstance(command, Submit) else Accepted()

    async def close(self) -> None:
        """Nothing is open."""


async def settle(pilot: Pilot[None]) -> None:
    """Waits until every message has been heard, those too that came of others, and the life line is complete."""
    app = pilot.app
    assert isinstance(app, KvscopeApp)
    for _ in range(3):
        await pilot.pause()
    while app.model.read_ahead(1_000):
        app.model.version += 1
    app.show_now()
    await pilot.pause()


def paste(text: str) -> textual.events.Paste:
    """Returns a paste into the terminal."""
    return textual.events.Paste(text)


def screen(timeline: MemoryTimeline | None, *, step: int | None = None, is_ascii: bool = False) -> KvscopeApp:
    """Returns the screen over a recording."""
    return KvscopeApp(timeline, initial_step=step, is_ascii=is_ascii)


def live_screen(engine: FakeEngine, timelines: Sequence[MemoryTimeline] = ()) -> KvscopeApp:
    """Returns the screen over an engine; the first timeline is its recording."""
    return KvscopeApp(None, engine, open_timeline=lambda path: timelines[0])


def key(name: str) -> textual.events.Key:
    """Returns a key as a terminal tells it."""
    return textual.events.Key(name, name if len(name) == 1 else None)
