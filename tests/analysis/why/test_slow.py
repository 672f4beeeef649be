"""Where the time went, on runs with a clock that the test sets."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from kvscope import events as ev
from kvscope.analysis.why import explain
from kvscope.analysis.why.slow_records import SlowAnswer
from tests.analysis.reading import read_steps
from tests.builders import CheckedRun, scenario

MS = 1_000_000
SCHEDULE_MS, BETWEEN_MS = 1, 2
"""Every step schedules for 1 ms; 2 ms pass between two steps."""


def _slow(
    run: CheckedRun, request_id: str, forward_ms: Mapping[int, int], *, pause_before: Mapping[int, int] | None = None
) -> SlowAnswer:
    """Gives each step its forward time (10 ms where none is named) and the run a clock that begins at 100 ms.

    Requests are submitted 5 ms before the step in which they arrive: 1 ms of template, 2 ms of tokenization, 2 ms of
    queue.
    """
    now = 100
    steps: list[tuple[int, list[ev.Event]]] = []
    for step, events in run.sink.steps:
        now += (pause_before or {}).get(step, 0)
        forward = forward_ms.get(step, 10)
        timed: list[ev.Event] = []
        for event in events:
            match event:
                case ev.RequestArrived():
                    event = msgspec.structs.replace(
                        event, arrival_ns=(now - 5) * MS, template_ns=1 * MS, tokenize_ns=2 * MS
                    )
                case ev.StepStarted():
                    event = msgspec.structs.replace(event, time_ns=now * MS)
                case ev.StepFinished():
                    event = msgspec.structs.replace(event, schedule_ns=SCHEDULE_MS * MS, forward_ns=forward * MS)
                case _:
                    pass
            timed.append(event)
        steps.append((step, timed))
        now += SCHEDULE_MS + forward + BETWEEN_MS
    return explain(read_steps(steps), request_id).slow


def _ms(duration_ns: int | None) -> float | None:
    return None if duration_ns is None else duration_ns / MS


def test_the_first_token_is_template_tokenization_queue_prefill_and_what_lies_between_chunks() -> None:
    """first takes the whole budget of step 0; long computes 8 of its 12 tokens in step 1 and 4 in step 2."""
    run = scenario(blocks=64, budget=8, seqs=4).request("first", "f" * 8).request("long", "l" * 12, reply="xx").run()
    first = _slow(run, "long", {0: 20, 1: 30, 2: 40}).first_token
    assert (first.arrival_step, first.first_token_step) == (0, 2)
    assert (first.queue_steps, first.prefill_steps, first.between_chunks_steps) == (1, 2, 0)
    # Submitted at 95; first's step is 100 to 121, long's are 123 to 154 and 156 to 197.
    assert (_ms(first.template_ns), _ms(first.tokenize_ns)) == (1, 2)
    assert (_ms(first.queue_ns), _ms(first.prefill_ns), _ms(first.between_chunks_ns)) == (123 - 98, 31 + 41, 2)
    assert _ms(first.ttft_ns) == 197 - 95 == 1 + 2 + 25 + 72 + 2


def test_a_gap_is_split_into_its_own_step_and_what_others_prefill_added() -> None:
    run = scenario(blocks=64, budget=8).request("decoder", "dddd", reply="x" * 8).request("long", "l" * 20, at=2).run()
    slow = _slow(run, "decoder", {2: 50, 3: 40, 4: 30})
    assert (slow.basis, _ms(slow.usual_decode_ns)) == ("median_decode_step", 10)
    worst = slow.gaps[0]
    assert (worst.from_step, worst.to_step, worst.others_prefill_tokens) == (1, 2, {"long": 7})
    # From 113 + 11 = the end of step 1 to the end of step 2: 2 ms between them, 1 of schedule, 50 of forward.
    assert _ms(worst.total_ns) == 53
    assert (_ms(worst.own_ns), _ms(worst.others_prefill_ns), _ms(worst.pause_ns)) == (11, 40, 2)
    assert [_ms(gap.total_ns) for gap in slow.gaps] == [53, 43, 33, 13, 13, 13, 13]
    (shared,) = slow.shared_prefill
    assert (shared.request_id, shared.steps, _ms(shared.added_ns)) == ("long", (2, 3, 4), 40 + 30 + 20)


def test_without_a_usual_decode_step_the_share_of_tokens_decides() -> None:
    run = scenario(blocks=64, budget=8).request("decoder", "dddd", reply="xx").request("long", "l" * 11, at=1).run()
    slow = _slow(run, "decoder", {1: 80})
    assert slow.basis == "share_of_tokens"
    (gap,) = slow.gaps
    assert (gap.others_prefill_tokens, _ms(gap.others_prefill_ns), _ms(gap.own_ns)) == ({"long": 7}, 70, 11)


def test_a_preemption_is_the_queue_and_the_tokens_computed_again() -> None:
    builder = scenario(blocks=7, enable_prefix_caching=False).request("a", "aaa", reply="x" * 12)
    run = builder.request("b", "bbb", reply="y" * 5).request("c", "ccccc", reply="z" * 10).run()
    slow = _slow(run, "c", {})
    record = explain(read_steps(run.sink.steps), "c")
    assert record.request.preemptions == (4, 9)
    worst = slow.gaps[0]
    assert worst.preempted_steps + worst.recompute_steps + worst.own_steps == worst.steps
    assert worst.total_ns is not None
    parts = (worst.own_ns, worst.others_prefill_ns, worst.preemption_ns, worst.skipped_ns, worst.pause_ns)
    assert sum(part or 0 for part in parts) == worst.total_ns
    assert worst.preemption_ns == (worst.preempted_steps + worst.recompute_steps) * 11 * MS


def test_a_pause_of_the_engine_is_nobodys_fault() -> None:
    run = scenario(blocks=64).request("a", "aaaa", reply="x" * 5).run()
    slow = _slow(run, "a", {}, pause_before={3: 500})
    worst = slow.gaps[0]
    assert (worst.to_step, _ms(worst.total_ns), _ms(worst.pause_ns), _ms(worst.own_ns)) == (3, 513, 502, 11)
