"""A graph backend without CUDA that does what a graph does: the same operations on the same memory, and no Python.

While a graph is recorded, every operation of torch and every launch of a kernel is kept with its tensors. A replay runs
them again, into the tensors that they made then: what was worked out in Python, the size of a batch or a number read
from a tensor, stays as it was. Memory that was taken while recording belongs to the pool, which all graphs share: it is
spoilt before and after each replay.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

import torch
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from kvscope.engine.kernels.launch import Launch

_READS = (torch.ops.aten._local_scalar_dense.default, torch.ops.aten.item.default, torch.ops.aten.nonzero.default)


@dataclass
class ReplayedGraph:
    """What was recorded."""

    operations: list[Callable[[], object]] = field(default_factory=list)
    pool: list[torch.Tensor] = field(default_factory=list)
    num_launches: int = 0
    num_replays: int = 0

    def replay(self) -> None:
        self.num_replays += 1
        self.spoil_pool()
        for operation in self.operations:
            operation()
        self.spoil_pool()

    def spoil_pool(self) -> None:
        for tensor in self.pool:
            tensor.fill_(torch.nan if tensor.is_floating_point() else 0x7F00_0000)


@dataclass
class ReplayBackend:
    """A `GraphBackend`."""

    graphs: list[ReplayedGraph] = field(default_factory=list)

    def capture(self, run: Callable[[], None]) -> ReplayedGraph:
        run()  # the warm-up
        graph = ReplayedGraph()
        launch_now = Launch.run

        def launch(self: Launch) -> None:
            with _disable_current_modes():
                launch_now(self)
            graph.operations.append(lambda: launch_now(self))
            graph.num_launches += 1

        with patch.object(Launch, "run", launch), _Recording(graph):
            run()
        graph.spoil_pool()
        self.graphs.append(graph)
        return graph


class _Recording(TorchDispatchMode):  # type: ignore[no-untyped-call]
    def __init__(self, graph: ReplayedGraph) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._graph = graph

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        assert func not in _READS, f"{func} reads a value on the host, which a graph cannot"
        out = func(*args, **kwargs)
        (returned,) = func._schema.returns
        if returned.alias_info is None:  # a new tensor
            self._graph.pool.append(out)
            if not func.__name__.startswith(("empty", "new_empty")):
                self._graph.operations.append(lambda: out.copy_(func(*args, **kwargs)))
        elif returned.alias_info.is_write:
            self._graph.operations.append(lambda: func(*args, **kwargs))
        return out
