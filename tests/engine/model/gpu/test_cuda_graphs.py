"""Which graphs are recorded, in which order, and which one a batch is replayed with."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
import torch

from benchmarks.gpu.poisoned import RecordingBackend
from kvscope.engine.model.gpu.cuda_graphs import CudaGraphBackend, DecodeGraphs, capture_sizes


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


class StandInCuda:
    """The part of `torch.cuda` that recording uses, which writes down in which order."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.current = "main"

    def stream(self, name: str) -> SimpleNamespace:
        return SimpleNamespace(name=name, wait_stream=lambda other: self.log.append(f"{name} waits for {other.name}"))

    @contextlib.contextmanager
    def on(self, stream: SimpleNamespace) -> Iterator[None]:
        self.current, before = stream.name, self.current
        yield
        self.current = before

    @contextlib.contextmanager
    def recording(self, graph: str, *, pool: str, stream: SimpleNamespace, capture_error_mode: str) -> Iterator[None]:
        self.log.append(f"{graph} begins, {pool}, {capture_error_mode}")
        with self.on(stream):
            yield
        self.log.append(f"{graph} ends")

    def run(self) -> None:
        self.log.append(f"runs on {self.current}")


def test_kernels_run_on_the_recording_stream_before_they_are_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each stream waits for the other around the warm-up: both read and write the same static buffers."""
    cuda = StandInCuda()
    names = iter(["first graph", "second graph"])
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: "one pool")
    monkeypatch.setattr(torch.cuda, "Stream", lambda device: cuda.stream("side"))
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: cuda.stream("main"))
    monkeypatch.setattr(torch.cuda, "stream", cuda.on)
    monkeypatch.setattr(torch.cuda, "CUDAGraph", lambda: next(names))
    monkeypatch.setattr(torch.cuda, "graph", cuda.recording)
    backend = CudaGraphBackend(torch.device("cuda:0"))
    graphs = [backend.capture(cuda.run), backend.capture(cuda.run)]
    assert [str(graph) for graph in graphs] == ["first graph", "second graph"]
    one_capture = ["side waits for main", "runs on side", "runs on side", "main waits for side"]
    assert cuda.log == [
        *one_capture,
        *("first graph begins, one pool, thread_local", "runs on side", "first graph ends"),
        *one_capture,
        *("second graph begins, one pool, thread_local", "runs on side", "second graph ends"),
    ]
