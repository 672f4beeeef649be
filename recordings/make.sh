#!/bin/sh
# Makes the recordings of this folder anew, with the default model. Run it in the repository's root.
set -eu
kvscope=${KVSCOPE:-.venv/bin/kvscope}
here=recordings

system="You are the helpful guide of a small museum of clocks, maps and boats. You answer visitors in plain words, \
in two or three sentences, and you never invent a date. If you do not know something, you say so and name the room \
where the visitor may find it: the clocks are in the first room, the maps in the second, the boats in the yard."

# Three at a time: the first computes the system prompt, all others hit its blocks.
"$kvscope" run --force --record $here/shared_system_prompt.db --prompts-file $here/prompts/questions.txt \
    --system "$system" --max-num-seqs 3 --max-num-batched-tokens 256 --num-gpu-blocks 96 --max-model-len 512 --max-tokens 40

# A budget of 64 tokens: the last prompt is computed in chunks, beside the single tokens of the four before it.
"$kvscope" run --force --record $here/long_prompt_among_decodes.db --prompts-file $here/prompts/one_long_among_short.txt \
    --max-num-batched-tokens 64 --max-num-seqs 8 --num-gpu-blocks 160 --max-model-len 1024 --max-tokens 60

# 48 blocks for eight answers of up to 160 tokens: the last admitted give up their blocks, come back and give up again.
"$kvscope" run --force --record $here/preemption_storm.db --prompts-file $here/prompts/many_questions.txt \
    --system "$system" --max-num-batched-tokens 64 --max-num-seqs 8 --num-gpu-blocks 49 --max-model-len 512 \
    --max-tokens 160 --ignore-eos
