"""The worked examples of the course texts, as runs of the scheduler."""

from __future__ import annotations

from kvscope import events as ev
from tests.builders import scenario


def test_budget_8_is_split_into_4_and_4() -> None:
    """A running request with 6 of 10 tokens computed, three of them drafts, and a prompt of 7 that has just arrived."""
    run = scenario(budget=8, num_spec_tokens=3).request("decode_or_spec", "prompt", reply="abcde", drafts=["bcd"])
    run.request("prefill", "PROMPT!", at=1)
    steps = run.run(2).dump()
    assert steps[1]["before"]["num_computed_tokens"] == {"decode_or_spec": 6, "prefill": 0}
    assert steps[0]["after_update"]["num_tokens"] == {"decode_or_spec": 7}
    assert steps[1]["scheduled_spec_tokens"] == {"decode_or_spec": [ord("b"), ord("c"), ord("d")]}
    assert steps[1]["num_scheduled_tokens"] == {"decode_or_spec": 4, "prefill": 4}
    assert steps[1]["token_budget_left"] == 0


def test_a_prompt_of_8000_tokens_takes_four_chunks_among_16_decoders() -> None:
    """Each decoder takes its token of the 2,048 first, and none of them ever misses a step."""
    built = scenario(blocks=1024, block_size=16, budget=2048, seqs=32, max_model_len=9000)
    for index in range(16):
        built.request(f"d{index}", chr(index), reply="decode")
    steps = built.request("long", "x" * 8000, reply=".", at=1).run().dump()
    assert [step["num_scheduled_tokens"].get("long", 0) for step in steps] == [0, 2032, 2032, 2032, 1904, 0]
    assert [sum(key[0] == "d" for key in step["num_scheduled_tokens"]) for step in steps] == [16] * 6
    assert [step["sampled"].get("long") for step in steps[1:5]] == [None, None, None, [ord(".")]]


def test_a_system_prompt_of_1000_tokens_is_hit_in_whole_blocks_only() -> None:
    """992 = 62 × 16: the last 8 tokens of the system prompt share block 62 with the question, which differs."""
    system = "".join(chr(1000 + index) for index in range(1000))
    run = scenario(blocks=256, block_size=16, budget=2048, max_model_len=2048)
    run.request("first", system + "q" * 20, reply="ab").request("second", system + "Q" * 30, at=1, reply="ab")
    checked = run.run()
    assert checked.dump()[1]["lookups"] == [["second", 992]]
    assert checked.dump()[1]["num_scheduled_tokens"] == {"first": 1, "second": 1030 - 992}
    (hit,) = checked.events(1, ev.PrefixCacheHit)
    assert (hit.num_hit_tokens, hit.num_own_hit_tokens, hit.block_ids) == (992, 0, tuple(range(1, 63)))
    (touched,) = checked.events(1, ev.BlockTouched)
    assert touched.ref_cnts == (2,) * 62


def test_a_question_right_behind_a_full_block_hits_all_of_the_system_prompt() -> None:
    system = "system prompt of 24 chars"[:24]
    run = scenario(block_size=8).request("a", system + "one").request("b", system + "two", at=1).run()
    assert run.dump()[1]["prefix_hit_tokens"] == {"b": 24}


def test_a_full_hit_computes_its_last_block_again() -> None:
    """Logits are not cached: of 8 cached tokens in two blocks only the first block is hit, though both are there."""
    run = scenario(block_size=4).request("a", "abcdefgh").request("b", "abcdefgh", at=1).run()
    first, second = run.dump()
    assert first["after_schedule"]["cached_blocks"] == [1, 2]
    assert second["prefix_hit_tokens"] == {"b": 4}
    assert second["num_scheduled_tokens"] == {"b": 4}
    assert second["after_schedule"]["block_ids"] == {"b": [1, 3]}
    assert second["after_schedule"]["duplicate_groups"] == [[2, 3]]


def test_a_hit_is_at_most_all_tokens_but_one() -> None:
    run = scenario(block_size=4).request("a", "abcdefgh").request("b", "abcdefghi", at=1).run()
    assert run.dump()[1]["prefix_hit_tokens"] == {"b": 8}
    assert run.dump()[1]["num_scheduled_tokens"] == {"b": 1}


def test_a_preempted_request_comes_back_at_the_head_on_its_own_blocks() -> None:
    """b gives its blocks to a, waits in front of c, which would fit, and resumes on what a has left of its prefix."""
    run = scenario(blocks=9, block_size=4).request("a", "a" * 15, reply="12345678").request("b", "b" * 16, reply="12")
    checked = run.request("c", "cc", at=1).run()
    steps = checked.dump()
    (preempted,) = checked.events(1, ev.RequestPreempted)
    assert preempted == ev.RequestPreempted(
        request_id="b",
        beneficiary_id="b",
        num_freed_blocks=4,
        num_table_blocks=4,
        num_lost_tokens=16,
        num_returned_tokens=0,
        queue_position=0,
    )
    assert steps[1]["after_schedule"]["waiting"] == ["b", "c"]
    assert [step["waiting_stop"] for step in steps[1:8]] == ["preempted"] + ["full_isl"] * 6
    assert steps[8]["resumed"] == ["b"]
    (hit,) = checked.events(8, ev.PrefixCacheHit)
    assert (hit.num_hit_tokens, hit.num_own_hit_tokens) == (8, 8)
    assert steps[8]["num_scheduled_tokens"] == {"b": 17 - 8, "c": 2}


def test_the_watermark_keeps_blocks_free_only_while_something_runs() -> None:
    """20 % of 21 blocks are 4: b's need of 5 is refused with 8 free, and given once nothing runs any more."""
    run = scenario(blocks=21, block_size=4, watermark=0.2).request("a", "a" * 44, reply="12")
    checked = run.request("b", "b" * 20, at=1).run()
    steps = checked.dump()
    (blocked,) = checked.events(1, ev.RequestBlocked)
    assert blocked == ev.RequestBlocked(request_id="b", reason="full_isl_watermark", need=5, have=8, watermark_blocks=4)
    assert steps[2]["new"] == ["b"]


def test_the_watermark_never_stops_a_lone_request() -> None:
    run = scenario(blocks=11, block_size=4, watermark=0.5).request("a", "a" * 40).run()
    assert run.dump()[0]["new"] == ["a"]


def test_the_reservation_looks_at_the_whole_prompt_but_reserves_nothing() -> None:
    """Two prompts of 6 blocks each find 6 of 9 free in successive steps, as each has only taken its first chunk."""
    built = scenario(blocks=10, block_size=4, budget=8, seqs=4, enable_prefix_caching=False)
    run = built.request("a", "a" * 24).request("b", "b" * 24, at=1).request("c", "c" * 24, at=1)
    checked = run.run()
    steps = checked.dump()
    assert steps[0]["new"] == ["a"]
    assert steps[3]["new"] == ["b"]
    (blocked,) = checked.events(4, ev.RequestBlocked)
    assert (blocked.request_id, blocked.reason) == ("c", "budget")


def test_without_the_reservation_only_the_first_chunk_must_fit() -> None:
    """d holds 5 of 8 blocks: a's prompt needs 4, and its first chunk, of the 7 tokens that the budget leaves, 2."""
    for reserves, admitted in ((True, []), (False, ["a"])):
        built = scenario(blocks=9, block_size=4, budget=8, seqs=4, scheduler_reserve_full_isl=reserves)
        step = built.request("d", "d" * 19, reply="123").request("a", "a" * 16, at=3).run(4).dump()[3]
        assert step["before"]["running"] == ["d"]
        assert step["new"] == admitted
