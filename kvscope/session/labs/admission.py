"""Labs on who is let in when blocks are short: the watermark, and room for the whole prompt."""

from __future__ import annotations

from kvscope.session.labs import figures as fig
from kvscope.session.labs.lab import Expectation, Lab, Look, Variant, arrivals

WATERMARK = Lab(
    name="watermark",
    title="the watermark of an admission",
    claim="Blocks that an admission must leave free spare the running requests preemptions.",
    source="scheduling-six-questions, questions 1 and 4",
    workload="Twelve prompts of 40 tokens with answers of 40 tokens, all there from the start; a pool of 32 blocks of "
    "16 tokens, of which each request needs five in the end.",
    arrivals=arrivals("req", [40] * 12, num_own_tokens=40),
    settings={"num_gpu_blocks": 33, "max_num_seqs": 12, "max_model_len": 128},
    variants=tuple(
        Variant(name, {"watermark": share})
        for name, share in (
            ("watermark-0", 0.0),
            ("watermark-10%", 0.1),
            ("watermark-25%", 0.25),
            ("watermark-50%", 0.5),
        )
    ),
    figures=(
        fig.PREEMPTIONS,
        fig.RECOMPUTED_TOKENS,
        fig.STEPS,
        fig.BATCH_SIZE,
        fig.OUTPUT_RATE,
        fig.ttft("p50"),
        fig.itl("p99"),
        fig.end_to_end("p50"),
    ),
    expectations=(
        Expectation(
            sentence="A watermark of 10 % makes preemptions fewer.",
            figure="num_preemptions",
            left="watermark-10%",
            right="watermark-0",
        ),
        Expectation(
            sentence="One of 50 % makes them fewer than 10 %.",
            figure="num_preemptions",
            left="watermark-50%",
            right="watermark-10%",
        ),
        Expectation(
            sentence="Fewer tokens are computed twice with 50 % than without.",
            figure="num_recomputed_tokens",
            left="watermark-50%",
            right="watermark-0",
        ),
    ),
    look_at="watermark-0",
    look=(
        Look("n", "to the next preemption: who gave up how many blocks for whom, and what is computed again"),
        Look("t", "what kept requests waiting (blocks, not the budget), and whose the hits were: the victims' own"),
        Look(":1", "in watermark-50%-1.db: the head needs so many blocks and the watermark, and is not let in"),
    ),
    notes=("The price stands beside it: fewer requests a step, and a longer wait for the first token.",),
    num_rounds=2,
)

RESERVATION = Lab(
    name="reservation",
    title="room for the whole prompt, or for its first chunk (scheduler_reserve_full_isl)",
    claim="An admission that asks only for a prompt's first chunk lets in requests that are soon thrown out again; "
    "asking for room for all of it prevents that.",
    source="unified-scheduler-lesson, section 3",
    workload="Ten prompts of 160 tokens with answers of 24 tokens, all there from the start; chunks of 64 tokens, a "
    "pool of 32 blocks of 16 tokens, of which each request needs twelve in the end.",
    arrivals=arrivals("req", [24] * 10, num_own_tokens=160),
    settings={"num_gpu_blocks": 33, "max_num_batched_tokens": 64, "max_num_seqs": 10, "max_model_len": 256},
    variants=(
        Variant("first-chunk", {"scheduler_reserve_full_isl": False}),
        Variant("whole-prompt", {"scheduler_reserve_full_isl": True}),
    ),
    figures=(
        fig.PREEMPTIONS,
        fig.PREEMPTIONS_IN_PROMPT,
        fig.PREEMPTIONS_AFTER,
        fig.RECOMPUTED_TOKENS,
        fig.STEPS,
        fig.OUTPUT_RATE,
        fig.ttft("p50"),
        fig.itl("p99"),
        fig.end_to_end("p50"),
    ),
    expectations=(
        Expectation(
            sentence="Preemptions are fewer where the whole prompt must fit.",
            figure="num_preemptions",
            left="whole-prompt",
            right="first-chunk",
        ),
        Expectation(
            sentence="Fewer requests are preempted before their first token.",
            figure="num_preemptions_in_prompt",
            left="whole-prompt",
            right="first-chunk",
        ),
        Expectation(
            sentence="Fewer are preempted while they decode.",
            figure="num_preemptions_after_first_token",
            left="whole-prompt",
            right="first-chunk",
        ),
        Expectation(
            sentence="Fewer tokens are computed twice.",
            figure="num_recomputed_tokens",
            left="whole-prompt",
            right="first-chunk",
        ),
    ),
    look_at="first-chunk",
    look=(
        Look(":28", "▲ req-4 preempted in the middle of its prompt, which had been let in by its first chunk"),
        Look("t", "what stands out: preemption cycles, and the heads of the queue that held up others"),
        Look(":8", "in whole-prompt-1.db: ▲ req-3 preempted after its first token; no reservation covers that"),
    ),
    notes=(
        "Room is asked for the tokens that exist at the admission. What an answer will grow to is in neither test, so "
        "requests that decode can still run out of blocks.",
    ),
    num_rounds=2,
)
