"""What the header says of the engine that it stands over."""

from __future__ import annotations

import pytest

from kvscope.events import EngineConfigured
from kvscope.tui.view.header import Chip, HeaderFacts, header_line


def test_of_several_recordings_one_without_a_step_is_named_once() -> None:
    chip = Chip("live", "● LIVE")
    facts = HeaderFacts(config=None, source="new.db", reason="", chip=chip, step=-1, last_step=-1)
    named = HeaderFacts(
        config=None,
        source="new.db",
        reason="",
        chip=chip,
        step=-1,
        last_step=-1,
        recording="2 of 2 by step",
        recording_name="new.db",
    )
    assert [" ".join("".join(span.text for span in header_line(one, 80)).split()) for one in (facts, named)] == [
        "kvscope new.db ● LIVE step —/—",
        "kvscope 2 of 2 by step: new.db ● LIVE step —/—",
    ]


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
