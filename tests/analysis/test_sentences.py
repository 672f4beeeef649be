"""Every decision of a step as a sentence: whole steps of small scenarios, their figures worked out by hand.

Blocks hold four tokens; `blocks` counts the null block, so blocks=5 leaves four to use.
"""

from __future__ import annotations

from collections.abc import Sequence

from kvscope import events as ev
from kvscope.analysis.sentences import sentences, step_title
from kvscope.analysis.spans import Entity, plain
from tests.analysis.reading import read, read_steps, said
from tests.analysis.runs import preempting
from tests.builders import scenario


def test_a_first_step_says_who_came_and_who_was_admitted_and_how_the_engine_is_set() -> None:
    assert said(preempting(), 0) == [
        "→ a admitted at once: no hit (no block of it is cached), 8 scheduled",
        "→ b admitted at once: no hit (no block of it is cached), 5 scheduled",
        "+ 4 blocks taken from the head of the free queue: a 1 2 · b 3 4",
        "↓ a arrived with 8 prompt tokens",
        "↓ b arrived with 5 prompt tokens",
        "░ 3 full blocks published for prefix hits: a 1 2 · b 3",
        "· scripted on none (none): 4 blocks × 4 tokens, budget 16 tokens, 8 sequences",
    ]


def test_a_preemption_names_the_victim_the_beneficiary_and_what_it_costs() -> None:
    assert said(preempting(), 1) == [
        "▲ b preempted for a, which needed 1 block with 0 free: 2 of 2 blocks freed, 5 tokens thrown away",
        "✗ Nobody admitted: a preempting step admits no one; 2 wait, 1 would fit",
        "+ 1 block taken from the head of the free queue: a 4, just freed by the preemption",
        "= 15 of 16 tokens unused while 2 waited: admission was off after the preemption",
        "↓ c arrived with 2 prompt tokens",
    ]


def test_the_entities_of_a_sentence_are_the_places_that_it_leads_to() -> None:
    timeline = read(preempting())
    preempted, _, taken, *_ = sentences(timeline, timeline.at(1))
    assert preempted.entities == [Entity("request", "b"), Entity("request", "a")]
    assert taken.entities == [Entity("request", "a"), Entity("block", 4)]


def test_a_refusal_says_what_a_hit_in_the_free_queue_costs_and_who_behind_would_fit() -> None:
    """b has 6 tokens, 2 blocks, of which one is a hit that lies in the free queue; block 3 is the only free one."""
    assert said(preempting(), 2) == [
        "✗ b not admitted: needs 2 blocks (all its tokens), 1 is free; "
        "1 block of its hit lies in the free queue and costs as much as a new one; 1 behind it, c would fit",
        "✓ a finished (length), 3 tokens: 3 blocks given back; 2 still hittable",
        "= 15 of 16 tokens unused while 2 waited: no room for b, and nobody behind the head is tried",
    ]


def test_a_resumption_says_how_much_of_what_was_lost_is_hit_and_whose_block_went_for_whom() -> None:
    assert said(preempting(), 3) == [
        "● b resumed after 2 steps: 4 of its 5 lost tokens hit in 1 block of its own (1 from the free queue), "
        "1 to compute again, 2 scheduled",
        "→ c admitted after 2 steps: no hit (2 tokens, less than a block of 4), 2 scheduled",
        "◆ 1 cached block of a evicted for c: 2",
        "✓ c finished (length), 1 token: 1 block given back",
        "+ 2 blocks taken from the head of the free queue: b 4 · c 2",
    ]


def test_the_title_splits_the_budget() -> None:
    timeline = read(preempting())
    assert [plain(step_title(timeline, timeline.at(step))) for step in (0, 1, 3)] == [
        "13 of 16 tokens = 13 prefill of 2 requests + 3 left",
        "1 of 16 tokens = 1×1 decode + 15 left",
        "4 of 16 tokens = 4 prefill of 2 requests + 12 left",
    ]


def test_the_last_in_line_preempts_itself() -> None:
    run = scenario(blocks=6).request("a", "abcdefgh", reply="xy").request("b", "ijklmnop", reply="uv").run(2)
    assert said(run, 1) == [
        "▲ b preempted itself: it was last in line and no block was free; 2 of 2 blocks freed, 8 tokens thrown away",
        "✗ Nobody admitted: a preempting step admits no one; 1 waits, none would fit",
        "✓ a finished (length), 2 tokens: 3 blocks given back; 2 still hittable",
        "+ 1 block taken from the head of the free queue: a 5",
        "= 63 of 64 tokens unused while 1 waited: admission was off after the preemption",
    ]


def test_a_victim_of_priority_gives_back_its_tokens_and_what_it_had_published_in_the_step() -> None:
    """In step 2 low's eighth token fills and publishes block 2, then hi's ninth token needs a block."""
    run = (
        scenario(blocks=5, policy="priority")
        .request("low", "abcdef", reply="uvwx", priority=5)
        .request("hi", "ghijklmn", reply="rst", priority=0, at=1)
        .run(3)
    )
    assert said(run, 1)[2:4] == [
        "↓ hi arrived with 8 prompt tokens; priority 0, place 1 in the queue",
        "░ 2 full blocks published for prefix hits: hi 3 4",
    ]
    assert said(run, 2) == [
        "▲ low preempted for hi, which needed 1 block with 0 free: 2 of 2 blocks freed, 7 tokens thrown away; "
        "1 token of this step back to the budget; priority 5 against 0",
        "░ 1 block of low taken back from the prefix cache, preempted in the step that was to compute it: 2",
        "✗ Nobody admitted: a preempting step admits no one; 1 waits, none would fit",
        "+ 1 block taken from the head of the free queue: hi 2, just freed by the preemption",
        "= 63 of 64 tokens unused while 1 waited: admission was off after the preemption",
    ]


def test_self_preemption_under_priority_leaves_better_requests_with_nothing() -> None:
    """low stands first in running order and is the worst: its failure ends the loop before hi."""
    run = (
        scenario(blocks=5, policy="priority")
        .request("low", "abcdefg", reply="uvwx", priority=5)
        .request("hi", "hijkl", reply="rst", priority=0, at=1)
        .run(3)
    )
    assert said(run, 2) == [
        "! Nothing was scheduled: 1 waits, 1 runs",
        "▲ low preempted itself: it was the least urgent and no block was free; 2 of 2 blocks freed, "
        "8 tokens thrown away",
        "✗ Nobody admitted: a preempting step admits no one; 1 waits, none would fit",
        "= 64 of 64 tokens unused while 1 waited: admission was off after the preemption",
        "╌ hi got nothing: scheduling ended when low preempted itself",
    ]


def test_the_watermark_is_named_where_it_decides() -> None:
    """int(0.1 * 11) = 1 block is kept back; b needs all 4 that are free."""
    run = scenario(blocks=11, watermark=0.1).request("a", "abcdefghijklmnopqrstuvw", reply="xyz")
    assert said(run.request("b", "0123456789ABCDEF", at=1).run(2), 1)[:2] == [
        "✗ b not admitted: needs 4+1 blocks (all its tokens + watermark), 4 are free",
        "= 63 of 64 tokens unused while 1 waited: no room for b",
    ]


def test_without_reservation_only_the_tokens_of_the_step_count() -> None:
    run = scenario(blocks=4, budget=8, scheduler_reserve_full_isl=False).request("a", "abcdefgh", reply="xy")
    assert said(run.request("b", "ijklmnopq", at=1).run(2), 1)[0] == (
        "✗ b not admitted: needs 2 blocks (7 tokens in this step), 0 are free"
    )


def test_a_request_that_no_pool_of_this_size_holds_stalls_the_queue() -> None:
    run = scenario(blocks=5).request("x", "abcdefghijklmnopqrst").run(1)
    assert said(run, 0)[:3] == [
        "! Nothing was scheduled: 1 waits, none run",
        "✗ x not admitted: needs 5 blocks (all its tokens), 4 are free; "
        "it can never be admitted: the pool has 4 blocks",
        "= 64 of 64 tokens unused while 1 waited: no room for x",
    ]
    assert plain(step_title(read(run), read(run).at(0))) == "0 of 64 tokens scheduled"


def test_all_sequences_taken() -> None:
    run = (
        scenario(seqs=2).request("a", "abc", reply="xyz").request("b", "de").request("c", "f").request("d", "g").run(1)
    )
    assert said(run, 0)[0] == (
        "✗ c not admitted: 2 of 2 sequences are running (max_num_seqs); 1 behind it, none would fit"
    )
    assert said(run, 0)[5] == "= 59 of 64 tokens unused while 2 waited: every sequence was taken"


def test_the_budget_used_up() -> None:
    run = scenario(budget=8).request("a", "abcdefghij", reply="xy").request("b", "de").run(2)
    assert said(run, 0)[:2] == [
        "✗ b not admitted: all 8 tokens of the budget are used",
        "→ a admitted at once: no hit (no block of it is cached), 8 scheduled, 2 left",
    ]
    assert said(run, 1)[2] == "▓ a prefill goes on: 2 tokens, done"


def test_running_requests_behind_a_spent_budget_got_nothing() -> None:
    """a's token with its two drafts and b's token use up the four; c keeps its place and its block."""
    run = (
        scenario(budget=4, num_spec_tokens=2)
        .request("a", "a", reply="uvwx", drafts=["vw"])
        .request("b", "b", reply="yz")
        .request("c", "c", reply="yz")
        .run(2)
    )
    assert said(run, 1) == [
        "✓ a finished (length), 4 tokens: 1 block given back",
        "✓ b finished (length), 2 tokens: 1 block given back",
        "≈ 2 of 2 drafts accepted: a 2/2",
        "╌ c got nothing: all 4 tokens of the budget went to those before",
    ]


def test_chunked_prefill_off() -> None:
    run = scenario(budget=16, enable_chunked_prefill=False).request("a", "abcdefghij", reply="xy")
    assert said(run.request("b", "0123456789").request("c", "fgh").run(1), 0)[:4] == [
        "✗ b not admitted: chunked prefill is off, 10 tokens > 6 left; 1 behind it, c would fit",
        "→ a admitted at once: no hit (no block of it is cached), 10 scheduled",
        "+ 3 blocks taken from the head of the free queue: a 1–3",
        "= 6 of 16 tokens unused while 2 waited: the prompt of b may not be cut",
    ]


def test_a_long_prefill_is_capped_while_others_are_there() -> None:
    run = (
        scenario(budget=16, long_prefill_token_threshold=4).request("a", "abcdefghij").request("b", "rst", reply="uvw")
    )
    steps = [said(run.run(2), step)[0] for step in (0, 1)]
    assert steps == [
        "→ a admitted at once: no hit (no block of it is cached), 4 scheduled, 6 left; "
        "capped at 4 (long_prefill_token_threshold)",
        "▓ a prefill goes on: 4 tokens, 2 left; capped at 4 (long_prefill_token_threshold)",
    ]


def test_a_hit_names_its_owner_and_shared_blocks_stay_with_others() -> None:
    run = scenario().request("a", "sysprompt", reply="xy").request("b", "syspromp?!", at=1, reply="uvw").run()
    assert said(run, 1) == [
        "● b admitted at once: 8 tokens hit in 2 blocks of a, 2 scheduled",
        "✓ a finished (length), 2 tokens: 1 block given back, 2 stay with others",
        "+ 1 block taken from the head of the free queue: b 4",
        "↓ b arrived with 10 prompt tokens",
    ]
    assert said(run, 2) == ["· The running request went on; nobody waits, no block changed hands"]


def test_a_hit_may_have_several_owners() -> None:
    """a computes the first block, b the second, c hits both; d has a salt of its own and hits nothing."""
    run = (
        scenario()
        .request("a", "AAAAx")
        .request("b", "AAAABBBBy", at=1)
        .request("c", "AAAABBBBz", at=2)
        .request("d", "AAAABBBBz", at=2, cache_salt="own\n")
        .run()
    )
    assert said(run, 2)[:2] == [
        "● c admitted at once: 8 tokens hit in 1 block of a and 1 of b (2 from the free queue), 1 scheduled",
        "→ d admitted at once: no hit (no block of it is cached), 9 scheduled",
    ]
    assert said(run, 2)[-2] == "↓ d arrived with 9 prompt tokens; cache salt “own⏎”"


def test_without_caching_the_missing_hit_is_explained() -> None:
    run = scenario(enable_prefix_caching=False).request("a", "abcdefgh").run()
    assert said(run, 0)[:2] == [
        "→ a admitted at once: no hit (prefix caching is off), 8 scheduled",
        "✓ a finished (length), 1 token: 2 blocks given back",
    ]


def test_drafts_are_counted_as_accepted_and_rolled_back() -> None:
    run = scenario(num_spec_tokens=2).request("a", "abcd", reply="uvwxyz", drafts=["vw", "yq"]).run()
    timeline = read(run)
    assert plain(step_title(timeline, timeline.at(1))) == "3 of 64 tokens = 1×3 draft + 61 left"
    assert said(run, 1) == [
        "≈ 2 of 2 drafts accepted: a 2/2",
        "+ 1 block taken from the head of the free queue: a 2",
    ]
    assert said(run, 2)[1] == "≈ 1 of 2 drafts accepted, 1 rolled back: a 1/2"


def test_placeholder_drafts_are_no_drafts_of_the_model() -> None:
    """b's single token is padded with two placeholders while a decodes."""
    run = scenario(num_spec_tokens=2).request("a", "abcd", reply="uvw").request("b", "b", at=1).run()
    assert said(run, 1)[0] == (
        "→ b admitted at once: no hit (1 token, less than a block of 4), 1 scheduled + 2 placeholder drafts"
    )
    assert said(run, 1)[2] == "≈ 2 placeholder drafts rejected: they only pad an admission"


def test_aborts_before_and_in_the_middle_of_a_step() -> None:
    run = (
        scenario()
        .request("a", "abcdefgh", reply="uvwxyz", cancel_step=2, cancel_mid=True)
        .request("b", "abcdefghi", reply="uvwxyz", cancel_step=2)
        .run()
    )
    assert said(run, 2) == [
        "× b aborted while it ran: 1 block given back, 2 stay with others",
        "× a aborted while it ran, in the middle of the step (what the model made of it is dropped): "
        "3 blocks given back; 2 still hittable",
    ]


def _failing() -> list[tuple[int, Sequence[ev.Event]]]:
    """A step that raised in its forward pass, after it had scheduled a's fifth token and published its block."""
    steps = scenario().request("a", "abcd", reply="xyz").request("b", "b", at=1, reply="yz").run(2).sink.steps
    decided = steps[1][1]
    end = next(index for index, event in enumerate(decided) if isinstance(event, ev.TokensScheduled)) + 1
    failed = ev.StepFailed(phase="forward", error_type="RuntimeError", message="out\nof [b]memory[/b]")
    return [steps[0], (1, [*decided[:end], failed])]


def test_a_failed_step_says_so_first_and_keeps_what_it_had_decided() -> None:
    timeline = read_steps(_failing())
    moment = timeline.at(1)
    assert plain(step_title(timeline, moment)) == (
        "2 of 64 tokens = 1×1 decode + 1 prefill + 62 left · failed in forward"
    )
    assert list(map(str, sentences(timeline, moment))) == [
        "✖ The step failed in forward: RuntimeError: out⏎of [b]memory[/b]; the engine stopped",
        "→ b admitted at once: no hit (1 token, less than a block of 4), 1 scheduled",
        "+ 2 blocks taken from the head of the free queue: a 2 · b 3",
        "↓ b arrived with 1 prompt token",
    ]


def test_a_clock_is_told_in_the_title() -> None:
    steps = scenario().request("a", "abcd").run().sink.steps
    clock = ev.StepFinished(schedule_ns=400_000, forward_ns=7_500_000, sample_ns=150_000, update_ns=50_000)
    timeline = read_steps([(0, [*steps[0][1][:-1], clock])])
    assert plain(step_title(timeline, timeline.at(0))) == (
        "4 of 64 tokens = 4 prefill + 60 left · 0.6 ms + 7.5 ms forward"
    )


def test_rejections_and_transfers_are_told() -> None:
    steps = scenario().request("a", "abcd").run(1).sink.steps
    extra: list[ev.Event] = [
        ev.RequestRejected(
            request_id="big", reason="max_model_len", have=3000, limit=2048, message="shorten it\x1b[0m"
        ),
        ev.KVTransferStarted(request_id="a", direction="load", block_ids=(4, 5), num_tokens=8),
        ev.KVTransferFinished(request_id="a", direction="load", failed_block_ids=(5,)),
    ]
    timeline = read_steps([(0, [*extra, *steps[0][1]])])
    told = list(map(str, sentences(timeline, timeline.at(0))))
    assert told[0] == "✗ big rejected: 3000 > 2048 (max_model_len); shorten it␛[0m"
    assert [line for line in told if line.startswith("↷")] == [
        "↷ 2 blocks of a (8 tokens) began to be loaded from another engine",
        "↷ KV of a is loaded, but 1 block failed: 5",
    ]


def test_many_of_a_kind_are_put_together() -> None:
    """Five requests of two blocks each fill the pool; the five that follow evict all ten."""
    first = scenario(blocks=11, seqs=10)
    for index in range(5):
        first.request(f"old{index}", f"{index}bcdefgh")
    for index in range(5):
        first.request(f"new{index}", f"{index}BCDEFGH", at=1)
    assert said(first.run(), 1)[5:6] + said(first.run(), 1)[11:12] == [
        "◆ 10 cached blocks of old0, old1, old2 and 2 others evicted for 5 requests: 2 1 4 3 6 5 8 7 10 9",
        "+ 10 blocks taken from the head of the free queue: new0 2 1 · new1 4 3 · new2 6 5 · new3 8 7 · new4 10 9",
    ]
