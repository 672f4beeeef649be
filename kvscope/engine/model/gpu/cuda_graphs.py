"""Decode batches as CUDA graphs: one for each of few sizes, recorded once, replayed with one call.

A replay runs the recorded kernels with the recorded arguments: the same addresses, the same numbers. So whatever
differs from step to step must lie in buffers that stay where they are, and a batch is padded to the size of its graph.
All graphs share one pool of memory, because only one runs at a time, and what it leaves the graph itself copies out of
the pool.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Protocol

import torch

MAX_GRAPH_SIZE = 512
"""Beyond it a step's kernels take longer than their launches, and a graph gains nothing."""

_NUM_WARM_UPS = 2
"""The first run compiles kernels and lets the libraries choose theirs; neither may happen while recording."""


class Graph(Protocol):
    """Recorded work."""

    def replay(self) -> None:
        """Queues all of it."""
        ...


class GraphBackend(Protocol):
    """Records work."""

    def capture(self, run: Callable[[], None]) -> Graph:
        """Returns a graph of what `run` queues. `run` is called several times and must only touch static buffers."""
        ...


class CudaGraphBackend:
    """CUDA graphs with one memory pool."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._pool = torch.cuda.graph_pool_handle()
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    def capture(self, run: Callable[[], None]) -> Graph:
        """As `GraphBackend.capture`. The warm-up uses the recording stream: libraries keep a workspace for each."""
        current = torch.cuda.current_stream(self._device)
        self._stream.wait_stream(current)
        with torch.cuda.stream(self._stream):
            for _ in range(_NUM_WARM_UPS):
                run()
        current.wait_stream(self._stream)
        graph = torch.cuda.CUDAGraph()
        # Entering waits for the device and frees what the warm-up took. "thread_local": what another thread of the
        # process asks of CUDA meanwhile is none of this recording's business.
        with torch.cuda.graph(graph, pool=self._pool, stream=self._stream, capture_error_mode="thread_local"):
            run()
        return graph


def capture_sizes(max_num_seqs: int) -> tuple[int, ...]:
    """Returns the sizes to record, ascending: 1, 2, 4, 8, then steps of 16, 32 and 64, the last one a full batch.

    Small ones double: reading the weights costs the same for 5 rows as for 8. Steps grow with the size, so that beyond
    16 less than half of a batch is padding, and beyond 64 less than a third.
    """
    largest = min(max_num_seqs, MAX_GRAPH_SIZE)
    sizes = [1, 2, 4, 8, *range(16, 65, 16), *range(96, 257, 32), *range(320, MAX_GRAPH_SIZE + 1, 64)]
    return (*(size for size in sizes if size < largest), largest)


class DecodeGraphs:
    """The graphs of one model runner; there are none before `capture`."""

    def __init__(self, sizes: tuple[int, ...], backend: GraphBackend) -> None:
        self.sizes = sizes
        self._backend = backend
        self._graphs: dict[int, Graph] = {}

    def capture(
        self, prepare: Callable[[int], None], run: Callable[[int], None], on_graph: Callable[[int, int], None]
    ) -> None:
        """Records `run(size)` for every size, the largest first: the smaller ones then find its memory in the pool.

        prepare: makes the static buffers fit for the warm-up of a size; what it does is not recorded.
        on_graph: is told before each how many are done, and of how many.
        """
        for size in sorted(self.sizes, reverse=True):
            on_graph(len(self._graphs), len(self.sizes))
            prepare(size)
            self._graphs[size] = self._backend.capture(functools.partial(run, size))
        on_graph(len(self._graphs), len(self.sizes))

    def size_for(self, num_requests: int) -> int | None:
        """Returns the smallest recorded size that holds so many requests, None where there is none."""
        return next((size for size in self.sizes if size >= num_requests and size in self._graphs), None)

    def replay(self, size: int) -> None:
        """Queues the graph of this size."""
        self._graphs[size].replay()

    def __len__(self) -> int:
        return len(self._graphs)
