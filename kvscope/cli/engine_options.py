"""Every scheduler and sampling setting as an option under its vLLM name, for the commands that start an engine.

The options are made from the fields of `SchedulerConfig` and `SamplingParams`; a table has the sentence for each. What
an option may be is decided where the settings are checked, not here.
"""

from __future__ import annotations

import datetime
import inspect
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from kvscope.engine.scheduling.config import SchedulerConfig
from kvscope.session.options import DEFAULT_SAMPLING, EngineOptions
from kvscope.session.recordings_folder import claim_recording_path, new_recording_path

MODEL_HELP = {
    "model": "A name of `kvscope models list`, a folder, a GGUF file, or a hub id.",
    "dtype": "bfloat16 or float32; by default what suits the device.",
    "device": "cpu or cuda; by default cuda where there is one.",
}
SCHEDULER_HELP = {
    "num_gpu_blocks": "Blocks in the pool, the null block included; by default chosen from memory.",
    "block_size": "Tokens a block.",
    "max_num_batched_tokens": "Token budget of a step.",
    "max_num_seqs": "Most running requests.",
    "max_model_len": "Most tokens of a request, prompt and output; by default the model's, at most 8192.",
    "enable_prefix_caching": "Keep and find cached prefixes.",
    "enable_chunked_prefill": "Let a prompt be computed in several steps.",
    "policy": "fcfs or priority.",
    "watermark": "Fraction of the pool that admission leaves free while anything runs.",
    "scheduler_reserve_full_isl": "Admit a request only if all its tokens fit, not only its first chunk.",
    "long_prefill_token_threshold": "Most tokens of one request in a step while others are there; 0 is off.",
    "max_num_scheduled_tokens": "Most scheduled tokens of a step, where lower than the budget.",
    "batching": "unified; to compare with: static (batches run to their end), exclusive (a step is prefill or decode).",
}
SAMPLING_HELP = {
    "temperature": "0 is greedy.",
    "top_p": "Sample from the most likely tokens that together reach this probability.",
    "top_k": "Sample from so many most likely tokens; 0 is off.",
    "min_p": "Drop tokens below this share of the most likely one's probability.",
    "repetition_penalty": "1 is off.",
    "presence_penalty": "0 is off.",
    "frequency_penalty": "0 is off.",
    "seed": "Makes sampling repeatable.",
    "stop": "A string that ends the answer; may be given several times.",
    "stop_token_ids": "A token id that ends the answer; may be given several times.",
    "ignore_eos": "Do not end at the model's end-of-sequence token.",
    "max_tokens": "Most tokens of an answer.",
    "min_tokens": "Tokens before any stop is looked at.",
    "logprobs": "Give so many top logprobs with each token.",
}
WITHOUT_OPTION = {
    "num_spec_tokens": "the model runner has no drafter",
    "num_lookahead_tokens": "of use only with drafts",
    "connector": "there is no other engine to load from",
    "kv_load_failure_policy": "of use only with a connector",
}
"""Scheduler settings that a live engine cannot have, and why; `simulate` takes them from its scenario."""

CHOSEN_LATER = {"num_gpu_blocks", "max_model_len"}
"""Settings whose default depends on model and memory."""


def with_engine_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds all options to a command, which gets those that were given as one argument `engine: EngineOptions`."""
    own = [parameter for name, parameter in inspect.signature(command).parameters.items() if name != "engine"]
    hints = typing.get_type_hints(command, include_extras=True)
    own = [parameter.replace(annotation=hints[parameter.name]) for parameter in own]

    def run(**values: Any) -> Any:
        mine = {parameter.name: values.pop(parameter.name) for parameter in own}
        return command(engine=_engine_options(values), **mine)

    run.__signature__ = inspect.Signature([*own, *_parameters()])  # type: ignore[attr-defined]
    run.__doc__ = command.__doc__
    run.__name__ = command.__name__
    return run


def _parameters() -> list[inspect.Parameter]:
    parameters = [_parameter(name, str, text, "Model") for name, text in MODEL_HELP.items()]
    for names, settings, panel in (
        (SCHEDULER_HELP, SchedulerConfig(num_gpu_blocks=2), "Scheduler"),
        (SAMPLING_HELP, DEFAULT_SAMPLING, "Sampling"),
    ):
        types = typing.get_type_hints(type(settings))
        for name, text in names.items():
            default = None if name in CHOSEN_LATER else getattr(settings, name)
            shown = text if default in (None, ()) else f"{text} [default: {default}]"
            parameters.append(_parameter(name, _option_type(types[name]), shown, panel))
    record = "Write the recording here; by default a new file in your data folder."
    parameters.append(_parameter("record", Path, record, "Recording"))
    parameters.append(
        _parameter("force", bool, "Replace the file of --record if there is one.", "Recording", "--force")
    )
    return parameters


def _parameter(name: str, kind: Any, text: str, panel: str, *declarations: str) -> inspect.Parameter:
    option = typer.Option(*declarations, help=text, rich_help_panel=panel, show_default=False)
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind | None, option]
    )


def _option_type(hint: Any) -> Any:
    """Returns the type of the command line's value: words for a choice, a list for a tuple, no None."""
    arguments = typing.get_args(hint)
    if typing.get_origin(hint) is tuple:
        return list[arguments[0]]  # type: ignore[valid-type]
    if typing.get_origin(hint) is typing.Literal:
        return str
    return next((argument for argument in arguments if argument is not type(None)), hint)


def _engine_options(values: dict[str, Any]) -> EngineOptions:
    given = {name: value for name, value in values.items() if value is not None and value != []}
    model = {name: given[name] for name in MODEL_HELP if name in given}
    record: Path | None = given.get("record")
    return EngineOptions(
        **model,
        settings={name: given[name] for name in SCHEDULER_HELP if name in given},
        sampling={name: given[name] for name in SAMPLING_HELP if name in given},
        recording=str(record) if record is not None else None,
        replaces_recording=given.get("force", False),
    )


def recorded_to(options: EngineOptions, now: datetime.datetime) -> EngineOptions:
    """Returns the options with the path of the recording: the one that was asked for, or a new file for this moment.

    Raises `UsageError` where a file is in the way.
    """
    asked = options.recording
    path = Path(asked) if asked is not None else new_recording_path(options.model, now)
    path = claim_recording_path(path, may_replace=options.replaces_recording)
    return msgspec.structs.replace(options, recording=str(path))
