"""Labs on how a step's batch is made up: static and continuous, exclusive and unified, and how large it may be."""

from __future__ import annotations

from kvscope.session.labs import figures as fig
from kvscope.session.labs.lab import Expectation, Lab, Look, Variant, arrivals

STATIC_BATCHING = Lab(
    name="static-batching",
    title="static against continuous batching",
    claim="A static batch keeps the seats of members that are done, and lets newcomers wait for its slowest one; "
    "continuous batching makes the batch up anew in every step.",
    source="request-lifecycle, section 5",
    workload="Ten prompts of 24 tokens with answers of 6 to 36 tokens; four arrive at first, one more every five "
    "steps. At most four run.",
    arrivals=arrivals(
        "req",
        (36, 6, 12, 6, 6, 12, 36, 6, 12, 6),
        num_own_tokens=24,
        before_steps=(0, 0, 0, 0, 5, 10, 15, 20, 25, 30),
    ),
    settings={"max_num_seqs": 4, "num_gpu_blocks": 129, "max_model_len": 256},
    variants=(Variant("static", {"batching": "static"}), Variant("continuous", {"batching": "unified"})),
    figures=(
        fig.STEPS,
        fig.BATCH_SIZE,
        fig.queue_steps("p50"),
        fig.ttft("p50"),
        fig.ttft("p90"),
        fig.end_to_end("p50"),
        fig.OUTPUT_RATE,
    ),
    expectations=(
        Expectation(
            sentence="Static batching takes more steps for the same tokens.",
            figure="num_steps",
            left="continuous",
            right="static",
        ),
        Expectation(
            sentence="Static batches have fewer requests a step: seats stay empty.",
            figure="mean_batch_size",
            left="static",
            right="continuous",
        ),
        Expectation(
            sentence="Requests wait longer for their first token under static batching.",
            figure="ttft_p50_ms",
            left="continuous",
            right="static",
        ),
        Expectation(
            sentence="Static batching makes fewer tokens a second.",
            figure="output_tokens_per_second",
            left="static",
            right="continuous",
        ),
    ),
    look_at="static",
    look=(
        Look(":20", "✗ req-5 not admitted: one request runs, three seats are free, and the batch is closed"),
        Look("0 n n", "steps 5 and 11: who is done leaves a seat, and nobody takes it before step 36"),
        Look(":req-5 :20 w", "what it waits for, since when, and who behind it would have fitted"),
    ),
)

EXCLUSIVE_BATCHING = Lab(
    name="exclusive-batching",
    title="exclusive against unified steps",
    claim="Where a step is all prefill or all decode, as in vLLM V0, answers stand still while prompts are computed; "
    "unified steps compute both together.",
    source="scheduling-six-questions, question 2; unified-scheduler-lesson, section 1",
    workload="Four answers of 40 tokens; before step 10 four prompts of 250 tokens arrive. The budget is 256 tokens.",
    arrivals=(
        *arrivals("decoder", (40, 40, 40, 40), num_own_tokens=16),
        *arrivals("newcomer", (8, 8, 8, 8), num_own_tokens=250, before_steps=(10, 10, 10, 10)),
    ),
    settings={
        "max_num_batched_tokens": 256,
        "max_num_seqs": 8,
        "num_gpu_blocks": 129,
        "max_model_len": 512,
    },
    variants=(Variant("exclusive", {"batching": "exclusive"}), Variant("unified", {"batching": "unified"})),
    figures=(
        fig.STEPS,
        fig.longest_gap_steps("decoder"),
        fig.ttft_steps("newcomer"),
        fig.itl("p50", "decoder"),
        fig.itl("largest", "decoder"),
        fig.ttft("p50", "newcomer"),
    ),
    expectations=(
        Expectation(
            sentence="A decoder gets a token in every unified step; exclusive steps pass it over.",
            figure="decoder_longest_gap_steps",
            left="unified",
            right="exclusive",
        ),
        Expectation(
            sentence="The longest wait between two tokens is shorter with unified steps.",
            figure="decoder_itl_largest_ms",
            left="unified",
            right="exclusive",
        ),
    ),
    look_at="exclusive",
    look=(
        Look(":10", "the first of the prompt's steps: four decoders run and get nothing (—)"),
        Look(":decoder-1 :14 enter", "its life has ╌╌╌╌, steps that gave it nothing; the step load shows the prompts"),
        Look("w", "its worst gaps: the one over steps 10–14 stands out, nearly all of it skipped"),
    ),
    notes=("Both compute the same prompt tokens. What is spared the decoders is the standing still, not the work.",),
)

BATCH_SIZE = Lab(
    name="batch-size",
    title="batch size against inter-token latency",
    claim="More sequences in a batch give more tokens a second, and make every step, so every gap between two tokens, "
    "longer.",
    source="request-lifecycle, section 3",
    workload="Sixteen prompts of 8 tokens with answers of 8 tokens, all there from the start.",
    arrivals=arrivals("req", [8] * 16, num_own_tokens=8),
    settings={"num_gpu_blocks": 129, "max_model_len": 256},
    variants=tuple(Variant(f"batch-{size}", {"max_num_seqs": size}) for size in (1, 2, 4, 8, 16)),
    figures=(
        fig.STEPS,
        fig.BATCH_SIZE,
        fig.queue_steps("p50"),
        fig.itl("p50"),
        fig.OUTPUT_RATE,
        fig.ttft("p50"),
        fig.end_to_end("p50"),
    ),
    expectations=(
        Expectation(
            sentence="Sixteen at once make more tokens a second than one.",
            figure="output_tokens_per_second",
            left="batch-1",
            right="batch-16",
        ),
        Expectation(
            sentence="Between two tokens of a request more time passes with sixteen than with one.",
            figure="itl_p50_ms",
            left="batch-1",
            right="batch-16",
        ),
        Expectation(
            sentence="So it does with four, compared with one.",
            figure="itl_p50_ms",
            left="batch-1",
            right="batch-4",
        ),
    ),
    look_at="batch-4",
    look=(
        Look("0", "four run, twelve wait: the head's verdict is seqs 4/4"),
        Look("n", "to step 7: four requests end; one step later four others are admitted"),
        Look("t", "the run's figures; a warning says how much of TTFT is waiting for admission"),
    ),
    notes=("TTFT is nearly all queueing here: everything arrives at once.",),
)
