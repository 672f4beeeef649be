"""Makes a whole engine from what a user chose: model, pool, recorder, step loop.

The one place where torch, scheduler and storage meet. torch is imported when an engine is built, not before.
"""

from __future__ import annotations

import datetime
import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import kvscope
from kvscope import events as ev
from kvscope.engine import settings
from kvscope.engine.llm_engine import LLMEngine, ModelDescription
from kvscope.engine.scheduling.config import SchedulerConfig
from kvscope.errors import EngineError, UsageError
from kvscope.session.options import DEFAULT_SAMPLING, EngineOptions
from kvscope.session.recordings_folder import remove_recording

if TYPE_CHECKING:
    from kvscope.engine.model.loader import Model

ReportProgress = Callable[[str, float | None], None]
"""Takes what is being loaded, and how far it is from 0 to 1 where that is known."""

MAX_DEFAULT_MODEL_LEN = 8192
"""Models that were made for more get more when it is asked for: one sequence must fit the pool."""

ENGINE_EXTRA = ("torch", "numpy", "tokenizers", "safetensors", "gguf", "jinja2")


@dataclass(frozen=True, slots=True)
class BuiltEngine:
    """An engine, and what must be closed behind it."""

    engine: LLMEngine
    recording_path: Path | None
    close: Callable[[], None]
    """Closes the recording; to be called once, after the last step."""


def missing_packages() -> list[str]:
    """Returns what of the engine's packages is not installed."""
    return [name for name in ENGINE_EXTRA if importlib.util.find_spec(name) is None]


def require_engine_extra() -> None:
    """Raises `EngineError` where the packages that run a model are not installed."""
    if missing := missing_packages():
        raise EngineError(
            f"running a model needs {', '.join(missing)}: pip install 'kvscope[engine]' (recordings open without)"
        )


def build_engine(options: EngineOptions, report: ReportProgress = lambda what, progress: None) -> BuiltEngine:
    """Loads the model, makes the pool and the recorder, and returns an engine that is ready to step.

    Raises:
        ModelError: the model is missing, damaged or not supported.
        UsageError: a setting is wrong, or the recording cannot be written.
        EngineError: the packages that run a model are not installed.
    """
    return build_engine_over(load_chosen_model(options, report), options, report)


def load_chosen_model(options: EngineOptions, report: ReportProgress = lambda what, progress: None) -> Model:
    """Loads the model of these options; several engines may be built over it. Raises as `build_engine`."""
    require_engine_extra()
    check_options(options)
    report("importing torch", None)
    from kvscope.engine.model.loader import load_model

    return load_model(options.model, dtype=options.dtype or "auto", device=choose_device(options), progress=report)


def build_engine_over(
    model: Model, options: EngineOptions, report: ReportProgress = lambda what, progress: None
) -> BuiltEngine:
    """Returns an engine with a pool and a recorder of its own over a loaded model. Raises as `build_engine`."""
    config = choose_config(options, model)
    report(f"making {config.num_gpu_blocks} blocks", None)
    runner = model.new_runner(num_blocks=config.num_gpu_blocks, block_size=config.block_size)
    sink, close = _open_recorder(options)
    engine = LLMEngine(
        config,
        runner,
        model=ModelDescription(
            name=model.name,
            device=model.device,
            dtype=model.dtype,
            kv_bytes_per_token=model.kv_bytes_per_token,
            eos_token_ids=model.eos_token_ids,
            started_at=datetime.datetime.now().astimezone().isoformat(timespec="milliseconds"),
            engine_version=f"kvscope {kvscope.__version__}",
        ),
        codec=model.tokenizer,
        sink=sink,
        default_sampling=settings.sampling_params(options.sampling, DEFAULT_SAMPLING),
    )
    return BuiltEngine(engine, Path(options.recording) if options.recording else None, close)


def _open_recorder(options: EngineOptions) -> tuple[ev.EventSink, Callable[[], None]]:
    if options.recording is None:
        return ev.NullSink(), lambda: None
    from kvscope.recording.recorder import Recorder

    path = Path(options.recording)
    if options.replaces_recording:
        remove_recording(path)
    recorder = Recorder(path)
    return recorder, recorder.close


def check_options(options: EngineOptions) -> None:
    """Raises `UsageError` for what can be seen to be wrong without the model."""
    settings.sampling_params(options.sampling, DEFAULT_SAMPLING)
    settings.check_scheduler_settings(options.settings)


def check_model_is_there(name: str) -> None:
    """Raises `ModelError` where a model of the catalogue is missing or broken; other names are not looked at."""
    from kvscope.engine.model import catalogue

    if name in catalogue.CATALOGUE:
        catalogue.ready_path(catalogue.CATALOGUE[name])


def choose_device(options: EngineOptions) -> str:
    """Returns the device that was asked for, else a GPU where there is one."""
    import torch

    if options.device is not None:
        if options.device.partition(":")[0] not in ("cpu", "cuda"):
            raise UsageError(f"--device must be cpu or cuda, not {options.device!r}")
        if options.device.startswith("cuda") and not torch.cuda.is_available():
            raise EngineError(f"--device {options.device}: torch {torch.__version__} finds no GPU; take --device cpu")
        return options.device
    return "cuda" if torch.cuda.is_available() else "cpu"


def choose_config(options: EngineOptions, model: Model) -> SchedulerConfig:
    """Returns the scheduler's settings, with model length and pool size chosen where they were left open."""
    given = dict(options.settings)
    longest = model.max_model_len
    if given.get("max_model_len", 0) > longest:
        raise settings.SettingError(
            "max_model_len",
            f"max_model_len ({given['max_model_len']}) is more than {model.name} was made for ({longest})",
            have=given["max_model_len"],
            limit=longest,
        )
    given.setdefault("max_model_len", min(longest, MAX_DEFAULT_MODEL_LEN))
    defaults = SchedulerConfig(num_gpu_blocks=2)
    if not given.get("enable_chunked_prefill", True):  # a prompt must fit a step; vLLM's default does the same
        given.setdefault("max_num_batched_tokens", max(defaults.max_num_batched_tokens, given["max_model_len"]))
    if "num_gpu_blocks" not in given:
        block_size = given.get("block_size", defaults.block_size)
        given["num_gpu_blocks"] = model.choose_num_gpu_blocks(block_size, given["max_model_len"])
    return settings.scheduler_config(given)
