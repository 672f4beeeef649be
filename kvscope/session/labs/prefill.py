"""The lab on long prompts among answers: computed whole, or in chunks of several sizes."""

from __future__ import annotations

from kvscope.session.labs import figures as fig
from kvscope.session.labs.lab import Expectation, Lab, Look, Variant, arrivals

CHUNKED_PREFILL = Lab(
    name="chunked-prefill",
    title="whole against chunked prefill, and the size of the chunks",
    claim="A long prompt that is computed whole holds up every answer; in chunks it makes way for them. "
    "Chunks that are too small cost the prompt its own first token and the run its throughput.",
    source="request-lifecycle, section 6; scheduling-six-questions, question 3; unified-scheduler-lesson, section 4",
    workload="Three answers of 36 tokens; before step 8 a prompt of 480 tokens arrives. What is varied is the budget "
    "of a step (max_num_batched_tokens).",
    arrivals=(
        *arrivals("decoder", (36, 36, 36), num_own_tokens=8),
        *arrivals("newcomer", (4,), num_own_tokens=480, before_steps=(8,)),
    ),
    settings={"max_num_seqs": 8, "num_gpu_blocks": 65, "max_model_len": 512},
    variants=(
        Variant("whole", {"enable_chunked_prefill": False, "max_num_batched_tokens": 512}),
        *(Variant(f"chunk-{size}", {"max_num_batched_tokens": size}) for size in (256, 128, 64, 32)),
    ),
    figures=(
        fig.STEPS,
        fig.LARGEST_STEP,
        fig.ttft_steps("newcomer"),
        fig.itl("p50", "decoder"),
        fig.itl("p90", "decoder"),
        fig.itl("largest", "decoder"),
        fig.ttft("p50", "newcomer"),
        fig.DURATION,
    ),
    expectations=(
        Expectation(
            sentence="The longest wait of the answers is shorter in chunks of 128 than whole.",
            figure="decoder_itl_largest_ms",
            left="chunk-128",
            right="whole",
        ),
        Expectation(
            sentence="It is shorter still in chunks of 32 than in chunks of 128.",
            figure="decoder_itl_largest_ms",
            left="chunk-32",
            right="chunk-128",
        ),
        Expectation(
            sentence="The long prompt's own first token comes later in chunks of 32 than whole.",
            figure="newcomer_ttft_p50_ms",
            left="whole",
            right="chunk-32",
        ),
        Expectation(
            sentence="The whole run takes longer in chunks of 32 than in chunks of 256.",
            figure="duration_ms",
            left="chunk-256",
            right="chunk-32",
        ),
    ),
    look_at="chunk-64",
    look=(
        Look(":8", "the step's title has the split: 3×1 decode and the first chunk; 0 tokens of the budget are left"),
        Look("l", "step by step: the next chunk, and a token for each decoder beside it"),
        Look(":newcomer-1 :18 enter", "its life has ▓ for every chunk, then ━"),
        Look("t", "in whole-1.db: the largest gap between two tokens is many times the median"),
    ),
    notes=(
        "Chunks spread the same work over more steps: the longest gap gets shorter, and more of the gaps "
        "get longer (p90).",
    ),
)
