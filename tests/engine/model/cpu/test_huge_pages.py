"""Which memory is new, and that advice changes nothing of what lies in it."""

from __future__ import annotations

import torch

from kvscope.engine.model.cpu import huge_pages
from kvscope.engine.model.cpu.huge_pages import new_memory_on_huge_pages, use_huge_pages


def test_new_memory_is_what_was_not_there_before() -> None:
    before = [(10, 20), (30, 40), (50, 60)]
    after = [(5, 25), (30, 40), (55, 70), (80, 90)]
    assert huge_pages._without(after, before) == [(5, 10), (20, 25), (60, 70), (80, 90)]
    assert huge_pages._without(after, []) == after
    assert huge_pages._without([(12, 18)], before) == []


def test_collapsed_memory_keeps_its_values() -> None:
    with new_memory_on_huge_pages():
        numbers = torch.arange(3 << 20, dtype=torch.int32)
    zeros = torch.zeros(3 << 20)
    use_huge_pages(zeros)
    assert bool((numbers == torch.arange(3 << 20, dtype=torch.int32)).all())
    assert not zeros.any()
