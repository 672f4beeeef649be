"""What goes with every prompt: chat or raw, sampling by vLLM's names, priority, salt, and how many prompts a text is.

Kept for the next prompts until changed. Knows no widget and no engine: the engine's own values come with its status.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from kvscope.analysis.setting_fields import NEUTRAL_SAMPLING, SAMPLING_NAMES, read_sampling
from kvscope.analysis.setting_words import SAMPLING_HELP, settings_line, value_text
from kvscope.control import Submit
from kvscope.tui.view.form import FormField

MAX_PROMPTS = 512

Split = Literal["no", "lines", "paragraphs"]
SPLITS: tuple[Split, ...] = ("no", "lines", "paragraphs")

FIRST_NAMES = ("max_tokens", "temperature", "top_p", "top_k", "seed", "stop")
"""What is changed most stands first."""

MEANINGS = {
    "prompt": "chat: through the model's chat template as a user message; raw: as it is",
    "system": "a system message before each chat prompt",
    "copies": "sends each prompt so many times, all in one step",
    "split": "one prompt, or one of each line or paragraph, all in one step",
    "priority": "smaller is more urgent, under the policy priority",
    "cache_salt": "only prompts with the same salt share cached blocks",
}


@dataclass(slots=True)
class PromptSettings:
    """The settings, and how they are told and edited."""

    is_chat: bool = True
    system: str = ""
    sampling: dict[str, Any] = field(default_factory=dict)
    priority: int = 0
    cache_salt: str = ""
    copies: int = 1
    split: Split = "no"

    # Sending

    def submissions(self, text: str) -> tuple[Submit, ...]:
        """Returns the prompts that a text stands for, copies side by side."""
        return tuple(
            Submit(
                prompt=prompt,
                is_chat=self.is_chat,
                system=self.system or None if self.is_chat else None,
                sampling=dict(self.sampling),
                priority=self.priority,
                cache_salt=self.cache_salt or None,
            )
            for prompt in split_prompts(text, self.split)
            for _ in range(self.copies)
        )

    # Telling

    def line(self, defaults: Mapping[str, Any]) -> str:
        """Returns what is in force, in one line; what differs from the engine's own comes first."""
        parts = []
        if self.copies > 1 or self.split != "no":
            several = f"one of each {self.split[:-1]}" if self.split != "no" else "one"
            parts.append(f"{self.copies} × {several}" if self.copies > 1 else several)
        if self.priority:
            parts.append(f"priority {self.priority}")
        if self.cache_salt:
            parts.append(f"cache_salt {self.cache_salt}")
        if self.system and self.is_chat:
            parts.append("system")
        values = self.sampling | {name: value for name, value in defaults.items() if name not in self.sampling}
        return " · ".join([*parts, *([settings_line(values, " · ")] if values else [])])

    # Editing

    def fields(self, defaults: Mapping[str, Any], recommended: Mapping[str, Any]) -> list[FormField]:
        """Returns a field for each setting."""
        names = (*FIRST_NAMES, *(name for name in SAMPLING_NAMES if name not in FIRST_NAMES))
        own = {"prompt": "chat" if self.is_chat else "raw", "copies": str(self.copies), "split": self.split}
        return [
            FormField(name="prompt", text=own["prompt"], choices=("chat", "raw"), meaning=MEANINGS["prompt"]),
            FormField(name="copies", text=own["copies"], default="1", meaning=MEANINGS["copies"]),
            FormField(name="split", text=own["split"], choices=SPLITS, meaning=MEANINGS["split"]),
            *(self._sampling_field(name, defaults, recommended) for name in names),
            FormField(name="system", text=self.system, default="none", meaning=MEANINGS["system"]),
            FormField(name="priority", text=str(self.priority or ""), default="0", meaning=MEANINGS["priority"]),
            FormField(name="cache_salt", text=self.cache_salt, default="none", meaning=MEANINGS["cache_salt"]),
        ]

    def _sampling_field(self, name: str, defaults: Mapping[str, Any], recommended: Mapping[str, Any]) -> FormField:
        default = defaults.get(name, getattr(NEUTRAL_SAMPLING, name))
        advice = f" (the model recommends {value_text(recommended[name])})" if name in recommended else ""
        return FormField(
            name=name,
            text=_typed(self.sampling.get(name)),
            default=value_text(default) or "none",
            meaning=SAMPLING_HELP[name].rstrip(".") + advice,
            choices=("true", "false") if isinstance(default, bool) else (),
        )

    def take(self, texts: Mapping[str, str], defaults: Mapping[str, Any]) -> dict[str, str]:
        """Takes over what the fields say, or nothing where something is wrong; returns that, by field."""
        found = read_sampling({name: texts[name] for name in SAMPLING_NAMES if name in texts}, defaults)
        errors = dict(found.errors)
        mode, split = texts["prompt"].strip() or "chat", texts["split"].strip() or "no"
        if mode not in ("chat", "raw"):
            errors["prompt"] = f"prompt must be chat or raw, not {mode!r}"
        if split not in SPLITS:
            errors["split"] = f"split must be {', '.join(SPLITS)}, not {split!r}"
        copies = _whole(texts, "copies", 1, errors, low=1, high=MAX_PROMPTS)
        priority = _whole(texts, "priority", 0, errors)
        if not errors:
            self.is_chat, self.split = mode == "chat", next(one for one in SPLITS if one == split)
            self.sampling, self.copies, self.priority = found.values, copies, priority
            self.system, self.cache_salt = texts["system"], texts["cache_salt"].strip()
        return errors


def split_prompts(text: str, split: Split) -> list[str]:
    """Returns the prompts in a text; lines and paragraphs of blanks are none."""
    if split == "no":
        return [text]
    parts = text.split("\n") if split == "lines" else _paragraphs(text)
    return [part for part in parts if part.strip()]


def _paragraphs(text: str) -> list[str]:
    """Returns what stands between empty lines."""
    found: list[list[str]] = [[]]
    for line in text.split("\n"):
        if line.strip():
            found[-1].append(line)
        elif found[-1]:
            found.append([])
    return ["\n".join(lines) for lines in found if lines]


def _typed(value: Any) -> str:
    """Returns a value as its field takes it: several stop strings, and those with quotes or breaks, as JSON."""
    if isinstance(value, list) and value and isinstance(value[0], str):
        is_plain = len(value) == 1 and value[0].isprintable() and value[0][:1] not in '["'
        return value[0] if is_plain else json.dumps(value if len(value) > 1 else value[0], ensure_ascii=False)
    return value_text(value)


def _whole(
    texts: Mapping[str, str],
    name: str,
    default: int,
    errors: dict[str, str],
    low: int | None = None,
    high: int = 1 << 31,
) -> int:
    text = texts[name].strip()
    try:
        value = int(text) if text else default
    except ValueError:
        errors[name] = f"{name} must be a whole number, not {text!r}"
        return default
    if (low is not None and value < low) or abs(value) > high:
        errors[name] = (
            f"{name} must be from {low} to {high}, not {value}" if low is not None else f"{name} is too large"
        )
    return value
