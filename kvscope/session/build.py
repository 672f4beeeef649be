"""Makes a whole engine from what a user chose: model, pool, recorder, step loop.

The one place where torch, scheduler and storage meet. torch is imported when an engine is built, not before.
"""

from __future__ import annotations

import datetime
import importlib.util
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import kvscope
from kvscope import events as ev
from kvscope.engine import settings
from kvscope.engine.llm_engine import LLMEngine
from kvscope.engine.model_description import ModelDescription
from kvscope.engine.scheduling.config import SchedulerConfig
from kvscope.engine.scheduling.request import SamplingParams
from kvscope.errors import EngineError, UsageError
from kvscope.session.options import DEFAULT_SAMPLING, GENERATION_CONFIGS, KERNELS, EngineOptions
from kvscope.session.recordings_folder import remove_recording, unused_path

if TYPE_CHECKING:
    from kvscope.engine.model.execution import ExecutionPath
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
    sampling: SamplingParams = DEFAULT_SAMPLING
    """What a request gets that does not say otherwise."""
    recommended_sampling: Mapping[str, Any] = field(default_factory=dict)
    """What the model's generation_config.json says, used or not."""
    execution: str = ""
    """How steps are computed, in words."""


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
    from kvscope.engine.model.memory import choose_num_threads

    return load_model(
        options.model,
        dtype=options.dtype or "auto",
        device=choose_device(options),
        num_threads=choose_num_threads(leaves_a_core=options.leaves_a_core),
        progress=report,
    )


def build_engine_over(
    model: Model, options: EngineOptions, report: ReportProgress = lambda what, progress: None
) -> BuiltEngine:
    """Returns an engine with a pool and a recorder of its own over a loaded model. Raises as `build_engine`."""
    from kvscope.engine.model.runner_choice import build_runner, choose_execution

    block_size = options.settings.get("block_size", SchedulerConfig(num_gpu_blocks=2).block_size)
    execution = choose_execution(model, block_size, kernels=options.kernels, enforce_eager=options.enforce_eager)
    config = choose_config(options, model, execution)
    report(f"making {config.num_gpu_blocks} blocks", None)
    runner = build_runner(model, config, execution, report)
    sampling = choose_sampling(options, model.default_sampling)
    sink, close, path = _open_recorder(options)
    engine = LLMEngine(
        config,
        runner.runner,
        model=ModelDescription(
            name=model.name,
            device=model.device,
            dtype=model.dtype,
            kernels=execution.label,
            kv_bytes_per_token=model.kv_bytes_per_token,
            vocab_size=model.config.vocab_size,
            eos_token_ids=model.eos_token_ids,
            started_at=datetime.datetime.now().astimezone().isoformat(timespec="milliseconds"),
            engine_version=f"kvscope {kvscope.__version__}",
        ),
        codec=model.tokenizer,
        sink=sink,
        default_sampling=sampling,
    )
    return BuiltEngine(engine, path, close, sampling, model.default_sampling, execution=str(runner))


def _open_recorder(options: EngineOptions) -> tuple[ev.EventSink, Callable[[], None], Path | None]:
    if options.recording is None:
        return ev.NullSink(), lambda: None, None
    from kvscope.recording.recorder import Recorder

    path = Path(options.recording)
    if options.replaces_recording:
        remove_recording(path)
    elif options.may_take_another_name:
        path = unused_path(path)
    recorder = Recorder(path, in_own_process=True)
    return recorder, recorder.close, path


def check_options(options: EngineOptions) -> None:
    """Raises `UsageError` for what can be seen to be wrong without the model."""
    if options.generation_config not in GENERATION_CONFIGS:
        raise settings.SettingError(
            "generation_config",
            f"generation_config must be {' or '.join(GENERATION_CONFIGS)}, not {options.generation_config!r}",
        )
    if options.kernels not in (None, *KERNELS):
        raise UsageError(f"--kernels must be one of {', '.join(KERNELS)}, not {options.kernels!r}")
    settings.sampling_params(options.sampling, DEFAULT_SAMPLING)
    settings.check_scheduler_settings(options.settings)


def choose_sampling(options: EngineOptions, recommended: Mapping[str, Any]) -> SamplingParams:
    """Returns what requests get that do not say otherwise.

    The model's own recommendation is taken where `generation_config` is "auto", as vLLM does by default. Here it is
    not the default: most of them sample at random, and a run that is looked into must be one that can be had again.
    Raises `SettingError`, also for a recommendation that is out of range.
    """
    own = recommended if options.generation_config == "auto" else {}
    return settings.sampling_params({**own, **options.sampling}, DEFAULT_SAMPLING)


def check_model_is_there(name: str) -> None:
    """Raises `ModelError` where a model of the catalogue is missing or broken; other names are not looked at."""
    from kvscope.engine.model import catalogue

    if name in catalogue.CATALOGUE:
        catalogue.ready_path(catalogue.CATALOGUE[name])


def choose_device(options: EngineOptions) -> str:
    """Returns the device that was asked for, else a GPU where there is one."""
    import torch

    if options.device is not None:
        if not re.fullmatch(r"cpu|cuda(:[0-9]{1,3})?", options.device):
            raise UsageError(f"--device must be cpu, cuda or cuda:1, not {options.device!r}")
        if options.device.startswith("cuda") and not torch.cuda.is_available():
            raise EngineError(f"--device {options.device}: torch {torch.__version__} finds no GPU; take --device cpu")
        if options.device.startswith("cuda:") and int(options.device[5:]) >= (num_gpus := torch.cuda.device_count()):
            raise EngineError(
                f"--device {options.device}: torch finds {num_gpus} GPU{'s' * (num_gpus > 1)}; "
                f"the last is cuda:{num_gpus - 1}"
            )
        return options.device
    return "cuda" if torch.cuda.is_available() else "cpu"


def choose_config(options: EngineOptions, model: Model, execution: ExecutionPath) -> SchedulerConfig:
    """Returns the scheduler's settings, with model length and pool size chosen where they were left open.

    A model length that is left open is at most what the pool holds, as vLLM 0.32.0 chooses it for `max_model_len=-1`: a
    request that could never fit is then refused when it is submitted, instead of waiting for ever. One that was asked
    for stands, though vLLM would not start with it: such a queue is what people come to look at.
    """
    given = dict(options.settings)
    longest = model.max_model_len
    if given.get("max_model_len", 0) > longest:
        raise settings.SettingError(
            "max_model_len",
            f"max_model_len ({given['max_model_len']}) is more than {model.name} was made for ({longest})",
            have=given["max_model_len"],
            limit=longest,
        )
    defaults = SchedulerConfig(num_gpu_blocks=2)
    block_size = given.get("block_size", defaults.block_size)
    if "max_model_len" not in given:
        given["max_model_len"] = int(min(longest, MAX_DEFAULT_MODEL_LEN, _longest_in_pool(given, block_size)))
    if not given.get("enable_chunked_prefill", True):  # a prompt must fit a step; vLLM's default does the same
        given.setdefault("max_num_batched_tokens", max(defaults.max_num_batched_tokens, given["max_model_len"]))
    if "num_gpu_blocks" not in given:
        from kvscope.engine.model.runner_choice import step_bytes

        besides = step_bytes(
            model,
            execution,
            max_num_batched_tokens=given.get("max_num_batched_tokens", defaults.max_num_batched_tokens),
            max_num_seqs=given.get("max_num_seqs", defaults.max_num_seqs),
            num_spec_tokens=given.get("num_spec_tokens", defaults.num_spec_tokens),
        )
        fitting = model.choose_num_gpu_blocks(block_size, given["max_model_len"], step_bytes=besides)
        given["num_gpu_blocks"] = min(fitting, settings.MAX_NUM_GPU_BLOCKS)
    return settings.scheduler_config(given)


def _longest_in_pool(given: Mapping[str, Any], block_size: int) -> float:
    """Returns how many tokens fill the pool that was asked for; without end where it is still to be chosen."""
    return max((given["num_gpu_blocks"] - 1) * block_size, 2) if "num_gpu_blocks" in given else math.inf
