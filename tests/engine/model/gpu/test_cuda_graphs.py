"""Which graphs are recorded, in which order, and which one a batch is replayed with."""

from __future__ import annotations

import pytest

from benchmarks.gpu.poisoned import RecordingBackend
from kvscope.engine.model.gpu.cuda_graphs import DecodeGraphs, capture_sizes


@pytest.mark.parametrize(
    ("max_num_seqs", "sizes"),
    [
        (1, (1,)),
        (3, (1, 2, 3)),
        (8, (1, 2, 4, 8)),
        (64, (1, 2, 4, 8, 16, 32, 48, 64)),
        (100, (1, 2, 4, 8, 16, 32, 48, 64, 96, 100)),
        (256, (1, 2, 4, 8, 16, 32, 48, 64, 96, 128, 160, 192, 224, 256)),
        (2000, (1, 2, 4, 8, 16, 32, 48, 64, 96, 128, 160, 192, 224, 256, 320, 384, 448, 512)),
    ],
)
def test_sizes_end_with_a_full_batch(max_num_seqs: int, sizes: tuple[int, ...]) -> None:
    assert capture_sizes(max_num_seqs) == sizes


def test_the_largest_is_recorded_first_and_each_replays_its_own_size() -> None:
    prepared: list[int] = []
    runs: list[int] = []
    told: list[tuple[int, int]] = []
    graphs = DecodeGraphs((1, 2, 4, 7), RecordingBackend())
    assert graphs.size_for(1) is None
    graphs.capture(prepared.append, runs.append, lambda num_done, num_all: told.append((num_done, num_all)))
    assert prepared == runs == [7, 4, 2, 1]
    assert told == [(0, 4), (1, 4), (2, 4), (3, 4), (4, 4)]
    assert len(graphs) == 4
    assert [graphs.size_for(n) for n in range(1, 9)] == [1, 2, 4, 4, 7, 7, 7, None]
    runs.clear()
    for size in (2, 7, 1, 4):
        graphs.replay(size)
    assert runs == [2, 7, 1, 4]
