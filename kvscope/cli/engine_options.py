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

from kvscope.analysis.setting_words import MODEL_HELP, SAMPLING_HELP, SCHEDULER_HELP
from kvscope.engine.scheduling.config import SchedulerConfig
from kvscope.session.options import DEFAULT_SAMPLING, EngineOptions
from kvscope.session.recordings_folder import claim_recording_path, new_recording_path

CHOSEN_LATER = {"num_gpu_blocks", "max_model_len"}
"""Settings whose default depends on model and memory."""

ENFORCE_EAGER_HELP = "Record no CUDA graphs: a GPU's steps run kernel by kernel."
GENERATION_CONFIG_HELP = (
    "vllm: sampling settings that are not given are kvscope's; auto: those that the model recommends."
)


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
    parameters.append(_parameter("enforce_eager", bool, ENFORCE_EAGER_HELP, "Model", "--enforce-eager"))
    for names, settings, panel in (
        (SCHEDULER_HELP, SchedulerConfig(num_gpu_blocks=2), "Scheduler"),
        (SAMPLING_HELP, DEFAULT_SAMPLING, "Sampling"),
    ):
        types = typing.get_type_hints(type(settings))
        for name, text in names.items():
            default = None if name in CHOSEN_LATER else getattr(settings, name)
            shown = text if default in (None, ()) else f"{text} [default: {default}]"
            parameters.append(_parameter(name, _option_type(types[name]), shown, panel))
    parameters.append(_parameter("generation_config", str, f"{GENERATION_CONFIG_HELP} [default: vllm]", "Sampling"))
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
        enforce_eager=given.get("enforce_eager", False),
        settings={name: given[name] for name in SCHEDULER_HELP if name in given},
        sampling={name: given[name] for name in SAMPLING_HELP if name in given},
        generation_config=given.get("generation_config", "vllm"),
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
