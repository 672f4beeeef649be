"""Labs on cached prefixes and on the size of the blocks that they are made of."""

from __future__ import annotations

from kvscope.session.labs import figures as fig
from kvscope.session.labs.lab import Expectation, Lab, Look, Variant, arrivals

PREFIX_CACHING = Lab(
    name="prefix-caching",
    title="prefix caching on and off",
    claim="A shared prefix that is cached is not computed again, so followers get their first token sooner; "
    "decoding stays as much work as before.",
    source="request-lifecycle, section 7; scheduling-six-questions, question 5",
    workload="Six prompts, each of 320 shared and 16 own tokens, with answers of 6 tokens, one after another.",
    arrivals=(
        *arrivals("first", (6,), num_own_tokens=16, num_shared_tokens=320),
        *arrivals("follower", [6] * 5, num_own_tokens=16, num_shared_tokens=320, before_steps=(6, 12, 18, 24, 30)),
    ),
    settings={"num_gpu_blocks": 257, "max_model_len": 512},
    variants=(
        Variant("caching-off", {"enable_prefix_caching": False}),
        Variant("caching-on", {"enable_prefix_caching": True}),
    ),
    figures=(
        fig.HIT_TOKENS,
        fig.PREFILL_TOKENS,
        fig.DECODE_TOKENS,
        fig.ttft("p50", "first", head="TTFT first", whose="the first request"),
        fig.ttft("p50", "follower", head="TTFT follower"),
        fig.itl("p50"),
        fig.DURATION,
    ),
    expectations=(
        Expectation(
            sentence="With caching fewer prompt tokens are computed.",
            figure="num_prefill_tokens",
            left="caching-on",
            right="caching-off",
        ),
        Expectation(
            sentence="With caching followers get their first token sooner.",
            figure="follower_ttft_p50_ms",
            left="caching-on",
            right="caching-off",
        ),
        Expectation(
            sentence="Decoding computes the same number of tokens.",
            figure="num_decode_tokens",
            left="caching-on",
            right="caching-off",
            relation="=",
        ),
    ),
    look_at="caching-on",
    look=(
        Look(":6", "● follower-1 admitted: 320 tokens hit in 20 blocks of first-1; 16 tokens scheduled"),
        Look("3", "the pool: 20 blocks ● hit, one + new"),
        Look(":follower-1 enter", "its block table: ● for blocks of first-1, the line where the hit ends, and its own"),
    ),
)

BLOCK_SIZE = Lab(
    name="block-size",
    title="block sizes 8, 16, 32 and 64",
    claim="Large blocks leave more slots unused at the ends of requests and hit less of a shared prefix; "
    "small ones make longer block tables and more work for the scheduler.",
    source="unified-scheduler-lesson, section 4",
    workload="Eight prompts, each of 120 shared and 20 own tokens, with answers of 20 tokens; one every fourth step. "
    "The pool has 2,048 slots in all variants.",
    arrivals=arrivals(
        "req", [20] * 8, num_own_tokens=20, num_shared_tokens=120, before_steps=[4 * number for number in range(8)]
    ),
    settings={"max_num_seqs": 8, "max_model_len": 256},
    variants=tuple(
        Variant(f"block-{size}", {"block_size": size, "num_gpu_blocks": 2048 // size + 1}) for size in (8, 16, 32, 64)
    ),
    figures=(
        fig.UNUSED_SLOTS,
        fig.HIT_TOKENS,
        fig.PREFILL_TOKENS,
        fig.PEAK_BLOCKS,
        fig.PEAK_SLOTS,
        fig.SCHEDULE,
        fig.itl("p50"),
        fig.ttft("p50"),
    ),
    expectations=(
        Expectation(
            sentence="Blocks of 64 leave more slots unused than blocks of 8.",
            figure="unused_slot_share",
            left="block-8",
            right="block-64",
        ),
        Expectation(
            sentence="Blocks of 64 hit fewer tokens of the shared prefix.",
            figure="num_hit_tokens",
            left="block-64",
            right="block-8",
        ),
        Expectation(
            sentence="Blocks of 8 make the tables longer.",
            figure="peak_held_blocks",
            left="block-64",
            right="block-8",
        ),
        Expectation(
            sentence="Blocks of 8 cost the scheduler more time a step.",
            figure="schedule_ms_per_step",
            left="block-64",
            right="block-8",
        ),
        Expectation(
            sentence="Blocks of 8 make the gaps between tokens longer.",
            figure="itl_p50_ms",
            left="block-64",
            right="block-8",
        ),
    ),
    look_at="block-64",
    look=(
        Look(":4", "● req-2 admitted: its hit ends at 64 of 140 tokens, one block, though 120 are shared"),
        Look(
            ":req-2 enter",
            "its block table: the hit ends after one block; the last block has 12 tokens and 52 free slots",
        ),
        Look(":4", "in block-8-1.db: the hit reaches to 120, the last token that is shared"),
    ),
)
