"""Records the reference values of this folder with Hugging Face's transformers, in float32 on a CPU.

Run where transformers is installed and kvscope is not (made with transformers 5.24.0 and torch 2.13.0):

    pip install torch==2.13.0 transformers gguf accelerate
    python record_transformers.py FOLDER_OF_THE_SMOLLM2_GGUF

Writes `families.json` (logits of the tiny models in families.py) and `smollm2.json` (greedy tokens).
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import families  # type: ignore[import-not-found]
import torch
import transformers  # type: ignore[import-not-found]

HERE = Path(__file__).parent
NUM_OUTPUT_TOKENS = 28

CHAT_PROMPTS = [
    "What is the capital of France? Answer in one sentence.",
    "Write a haiku about the sea.",
    "你好，请用一句话介绍你自己。",
    "What does the emoji 🎉 mean?",
    "List the numbers 7, 42 and 1234 in words.",
]
RAW_PROMPTS = [
    "The quick brown fox",
    "从前有座山，山里有座庙，",
    "I love pizza 🍕🍕 and",
    "def fibonacci(n):\n    if n < 2:\n        return n\n",
    "  Two  spaces\tand a tab\n\n",
    "A prompt with <|im_end|> inside it, and 3.14159",
]


def main() -> None:
    torch.set_num_threads(1)
    write("families.json", {name: record_family(config) for name, config in families.FAMILIES.items()})
    write("smollm2.json", record_smollm2(Path(sys.argv[1])))


def record_family(config: dict[str, Any]) -> list[list[float]]:
    """Returns logits `[len(POSITIONS), vocab_size]`."""
    model_class = getattr(transformers, config["architectures"][0])
    settings = {name: value for name, value in config.items() if name not in ("architectures", "model_type")}
    model = model_class(model_class.config_class(**settings)).eval()
    state = {name: torch.from_numpy(values) for name, values in families.weights(config).items()}
    if config["tie_word_embeddings"]:
        state["lm_head.weight"] = state["model.embed_tokens.weight"]
    model.load_state_dict(state, strict=True)
    with torch.inference_mode():
        logits = model(torch.tensor([families.token_ids()])).logits[0]
    return [[round(value, 6) for value in logits[position].tolist()] for position in families.POSITIONS]


def record_smollm2(folder: Path) -> list[dict[str, Any]]:
    name = next(folder.glob("*.gguf")).name
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, gguf_file=name)
    loaded = transformers.AutoModelForCausalLM.from_pretrained(folder, gguf_file=name, dtype=torch.float32)
    model = transformers.LlamaForCausalLM(loaded.config).eval()
    model.load_state_dict(loaded.state_dict())
    cases = []
    for is_chat, prompts in ((True, CHAT_PROMPTS), (False, RAW_PROMPTS)):
        for prompt in prompts:
            if is_chat:
                messages = [{"role": "user", "content": prompt}]
                encoded = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=True)
            else:
                encoded = tokenizer(prompt)
            prompt_ids = list(encoded["input_ids"])
            with torch.inference_mode():
                output = model.generate(
                    torch.tensor([prompt_ids]), max_new_tokens=NUM_OUTPUT_TOKENS, do_sample=False, pad_token_id=2
                )
            cases.append(
                {
                    "prompt": prompt,
                    "is_chat": is_chat,
                    "prompt_token_ids": prompt_ids,
                    "output_token_ids": output[0, len(prompt_ids) :].tolist(),
                }
            )
            print(repr(tokenizer.decode(cases[-1]["output_token_ids"])))
    return cases


def write(name: str, value: Any) -> None:
    lines = [json.dumps(item, ensure_ascii=False) for item in (value.items() if isinstance(value, dict) else value)]
    if isinstance(value, dict):
        lines = [f"{json.dumps(key)}: {json.dumps(item)}" for key, item in value.items()]
    opening, closing = "{}" if isinstance(value, dict) else "[]"
    (HERE / name).write_text(f"{opening}\n" + ",\n".join(lines) + f"\n{closing}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
