"""Block tables that stay on the device: only what changed in them since the last step is sent.

Each request that is scheduled has a row of its own until it ends or is preempted. `mirror` is what the device has;
block tables only grow while a request runs, so that a step's changes are found without comparing what was sent before.
Knows nothing of attention; the values reach the device with the step's one copy (see `device_batch`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from kvscope.engine.scheduling.request import Request


@dataclass(slots=True)
class _Row:
    """What the device has of one request's table."""

    index: int
    request: Request
    num_preemptions: int
    num_blocks: int = 0
    last_block_id: int = -1

    def is_of(self, request: Request) -> bool:
        """False where the table is another one: of another request with this id, or of a later life of this one.

        The last block is compared too: a table that was cut back and grew again is not what the device has.
        """
        return (
            self.request is request
            and self.num_preemptions == request.num_preemptions
            and (
                self.num_blocks == 0
                or (
                    len(request.block_ids) >= self.num_blocks
                    and request.block_ids[self.num_blocks - 1] == self.last_block_id
                )
            )
        )


@dataclass(frozen=True, slots=True)
class TableUpdate:
    """What a step's tables need: entries of the table seen as one list of `num_rows * num_columns`, each once."""

    rows: NDArray[np.int32]
    """Of the step's requests, in their order."""
    indices: NDArray[np.int32]
    block_ids: NDArray[np.int32]


class BlockTables:
    """`num_rows` tables of `num_columns` blocks, on host and device. Entries behind a table's end are stale."""

    def __init__(self, num_rows: int, num_columns: int, device: torch.device) -> None:
        self.num_rows = num_rows
        self.num_columns = num_columns
        self.mirror = np.zeros((num_rows, num_columns), dtype=np.int32)
        self.on_device = torch.zeros((num_rows, num_columns), dtype=torch.int32, device=device)
        self._rows: dict[str, _Row] = {}
        self._free_rows = list(range(num_rows - 1, -1, -1))

    def forget(self, request_ids: Iterable[str]) -> None:
        """Gives back the rows of requests that ended or were preempted; unknown ids are ignored."""
        for request_id in request_ids:
            if (row := self._rows.pop(request_id, None)) is not None:
                self._free_rows.append(row.index)

    def update(self, requests: Sequence[Request]) -> TableUpdate:
        """Brings the mirror up to date and returns the rows of these requests, and what the device lacks of them.

        The caller must send it before the next update: the mirror counts it as sent.
        """
        rows: list[int] = []
        starts: list[int] = []
        new: list[list[int]] = []
        for request in requests:
            row = self._rows.get(request.request_id)
            if row is None or not row.is_of(request):
                row = self._begin(request, row)
            rows.append(row.index)
            num_blocks = len(request.block_ids)
            assert num_blocks <= self.num_columns, f"{request.request_id} has more than {self.num_columns} blocks"
            if num_blocks > row.num_blocks:
                starts.append(row.index * self.num_columns + row.num_blocks)
                new.append(request.block_ids[row.num_blocks :])
                row.num_blocks = num_blocks
                row.last_block_id = request.block_ids[-1]
        return TableUpdate(np.asarray(rows, dtype=np.int32), *self._write(starts, new))

    def _begin(self, request: Request, old: _Row | None) -> _Row:
        if old is None:
            assert self._free_rows, f"more than {self.num_rows} requests have block tables"
        row = _Row(old.index if old else self._free_rows.pop(), request, request.num_preemptions)
        self._rows[request.request_id] = row
        return row

    def _write(self, starts: list[int], new: list[list[int]]) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        if not new:
            return np.empty(0, dtype=np.int32), np.empty(0, dtype=np.int32)
        counts = np.asarray([len(block_ids) for block_ids in new], dtype=np.int32)
        block_ids = np.concatenate([np.asarray(entries, dtype=np.int32) for entries in new])
        begins = np.cumsum(counts, dtype=np.int32) - counts
        indices = np.arange(len(block_ids), dtype=np.int32) + np.repeat(
            np.asarray(starts, dtype=np.int32) - begins, counts
        )
        self.mirror.reshape(-1)[indices] = block_ids
        return indices, block_ids

    def apply(self, indices: torch.Tensor, block_ids: torch.Tensor) -> None:
        """Writes an update that has reached the device: int32, `[num_entries]` each."""
        if len(indices):
            self.on_device.view(-1).index_copy_(0, indices.long(), block_ids)
