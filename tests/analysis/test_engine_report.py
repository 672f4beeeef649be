"""The engine and its settings as text."""

from __future__ import annotations

from kvscope.analysis.engine_report import engine_report
from kvscope.events import EngineConfigured

CONFIG = EngineConfigured(
    model="smol\x1b[2J",
    device="cpu",
    dtype="bfloat16",
    settings={"num_gpu_blocks": 49, "policy": "fcfs", "max_num_scheduled_tokens": None, "enable_prefix_caching": True},
    num_gpu_blocks=49,
    block_size=16,
    watermark_blocks=0,
)


def test_all_settings_that_are_set_stand_there_and_text_is_shown_not_obeyed() -> None:
    assert engine_report(CONFIG, 60) == [
        "ENGINE    smol␛[2J on cpu in bfloat16",
        "SETTINGS  num_gpu_blocks 49, policy fcfs,",
        "          enable_prefix_caching true",
    ]


def test_who_made_it_when_and_with_whose_kernels() -> None:
    full = EngineConfigured(
        model="m",
        device="cuda",
        dtype="float16",
        settings={"block_size": 16},
        num_gpu_blocks=9,
        block_size=16,
        watermark_blocks=0,
        started_at="2026-11-29T18:49:20+00:00",
        engine_version="kvscope 0.1.0",
        kernels="triton",
    )
    assert engine_report(full, 200) == [
        "ENGINE    m on cuda in float16, triton kernels; kvscope 0.1.0; started 2026-11-29T18:49:20+00:00",
        "SETTINGS  block_size 16",
    ]
