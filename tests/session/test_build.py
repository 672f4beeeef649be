"""What an engine is built from, where it can be told without one."""

from __future__ import annotations

import pytest
import torch

from kvscope.errors import EngineError
from kvscope.session.build import choose_device
from kvscope.session.options import EngineOptions


def test_a_gpu_that_is_not_there_is_refused_before_weights_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)

    assert choose_device(EngineOptions(model="toy", device="cuda:1")) == "cuda:1"
    with pytest.raises(EngineError) as caught:
        choose_device(EngineOptions(model="toy", device="cuda:2"))
    assert caught.value.message == "--device cuda:2: torch finds 2 GPUs; the last is cuda:1"
