"""What the header says of the engine that it stands over."""

from __future__ import annotations

import pytest

from kvscope.events import EngineConfigured
from kvscope.tui.view.header import Chip, HeaderFacts, header_line


@pytest.mark.parametrize(
    ("device", "kernels", "shown"),
    [
        ("cuda:0", "triton+graphs", "toy · cuda:0 triton+graphs · fcfs"),
        ("cuda:0", "triton", "toy · cuda:0 triton · fcfs"),
        ("cuda:0", "torch", "toy · cuda:0 · fcfs"),
        ("cpu", "", "toy · cpu · fcfs"),
    ],
)
def test_kernels_stand_beside_the_gpu_that_they_run_on(device: str, kernels: str, shown: str) -> None:
    config = EngineConfigured(
        model="toy",
        device=device,
        dtype="bfloat16",
        settings={"policy": "fcfs"},
        num_gpu_blocks=9,
        block_size=16,
        watermark_blocks=0,
        kernels=kernels,
    )
    facts = HeaderFacts(config=config, source="", reason="", chip=Chip("live", "● LIVE"), step=3, last_step=3)
    assert shown in "".join(span.text for span in header_line(facts, 120))
