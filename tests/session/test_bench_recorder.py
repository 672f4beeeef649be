"""What recording costs: who takes which turn, and what is counted of whom."""

from __future__ import annotations

from kvscope.session.bench_recorder import Turns, measure_scripted


def test_two_engines_take_turns_and_one_of_them_is_recorded() -> None:
    """16 timed steps a turn come after 2 untimed ones; every other pair begins with the recorded engine."""
    heard: list[str] = []
    turns = Turns(num_pairs=2, num_steps=16)
    times = measure_scripted(
        turns, forward_ms=0.0, num_running=3, on_turn=lambda done, pairs, what: heard.append(f"{done}/{pairs} {what}")
    )
    assert heard == [
        "0/2 warming up",
        *("0/2 recording off", "0/2 recording on"),
        *("1/2 recording on", "1/2 recording off"),
    ]
    assert (len(times.on_us), len(times.off_us), len(times.left_ms)) == (2, 2, 2)
    assert (turns.num_steps_in_all, len(times.hand_over_us), times.num_tokens) == (56, 56, 3 * 56)
    assert times.num_bytes > 0
