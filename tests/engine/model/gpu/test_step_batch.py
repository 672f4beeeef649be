"""What reaches the device of a step, number by number."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import torch

from benchmarks.gpu.poisoned import PoisonedQueue
from benchmarks.gpu.torch_kernels import TorchKernels
from kvscope.engine.model.gpu.device_queue import HostMark, HostQueue, Mark
from kvscope.engine.model.gpu.device_sampler import DeviceSampler
from kvscope.engine.model.gpu.step_batch import StepBatch, StepBatcher
from kvscope.engine.model.gpu.step_buffer import Section, StepBuffer
from kvscope.engine.model.sampler import Sampler, SamplingRow
from kvscope.engine.scheduling.output import SchedulerOutput
from kvscope.engine.scheduling.request import Request, SamplingParams

BLOCK_SIZE = 4


def request(name: str, tokens: str, num_computed_tokens: int, block_ids: list[int], *, num_prompt: int = 1) -> Request:
    """Letters are tokens; `num_computed_tokens` is where the step under test ends."""
    token_ids = [ord(letter) for letter in tokens]
    made = Request(
        request_id=name, prompt_token_ids=token_ids[:num_prompt], sampling=SamplingParams(temperature=0.5, seed=-1)
    )
    made.all_token_ids = token_ids
    made.num_computed_tokens = num_computed_tokens
    made.block_ids = block_ids
    return made


def fill(output: SchedulerOutput, graph_size: int | None = None) -> tuple[StepBatch, StepBatcher]:
    queue = PoisonedQueue(HostQueue(torch.device("cpu")))
    batcher = StepBatcher(max_num_tokens=16, max_num_seqs=4, max_model_len=16, block_size=BLOCK_SIZE, queue=queue)
    sampler = DeviceSampler(TorchKernels(), Sampler(), queue, 16, entropy=b"fixed")
    queue.poison()
    return batcher.fill(output, lambda num_requests: graph_size, sampler.settings), batcher


def lists(batch: StepBatch) -> dict[str, list[int]]:
    inputs = batch.inputs
    names = ("token_ids", "positions", "slot_mapping", "query_starts", "seq_lens", "table_rows")
    return {name: getattr(inputs, name).tolist() for name in names}


def test_decodes_are_padded_to_their_graph() -> None:
    output = SchedulerOutput(
        step=0,
        requests=[request("r", "abcdef", 6, [3, 1]), request("s", "xyz", 3, [7], num_prompt=2)],
        num_scheduled_tokens=[1, 1],
    )
    batch, batcher = fill(output, graph_size=4)
    assert lists(batch) == {
        "token_ids": [ord("f"), ord("z"), 0, 0],
        "positions": [5, 2, 0, 0],
        "slot_mapping": [1 * 4 + 1, 7 * 4 + 2, -1, -1],
        "query_starts": [0, 1, 2, 2, 2],
        "seq_lens": [6, 3, 0, 0],
        "table_rows": [0, 1, 0, 0],
    }
    assert (batch.graph_size, batch.num_requests, batch.row_indices) == (4, 2, None)
    assert [values.tolist() for values in batch.sampling] == [
        [0.5, 0.5],
        [0, 0],
        [1.0, 1.0],
        [0.0, 0.0],
        [-1, -1],
        [5, 1],
    ]
    assert batcher.tables.on_device[:2].tolist() == [[3, 1, 0, 0], [7, 0, 0, 0]]


def test_chunks_decodes_and_drafts_in_one_step() -> None:
    """A chunk in the middle of a prompt, a decode, and a request with two drafts of which one is a placeholder."""
    output = SchedulerOutput(
        step=0,
        requests=[
            request("chunk", "abcdefgh", 6, [2, 5], num_prompt=8),
            request("decode", "xy", 2, [9]),
            request("drafts", "pq", 4, [1]),
        ],
        num_scheduled_tokens=[3, 1, 3],
        scheduled_spec_tokens={"drafts": [ord("r"), -1]},
    )
    batch, _ = fill(output)
    assert lists(batch) == {
        "token_ids": [*map(ord, "def"), ord("y"), ord("q"), ord("r"), 0],
        "positions": [3, 4, 5, 1, 1, 2, 3],
        "slot_mapping": [2 * 4 + 3, 5 * 4, 5 * 4 + 1, 9 * 4 + 1, 1 * 4 + 1, 1 * 4 + 2, 1 * 4 + 3],
        "query_starts": [0, 3, 4, 7],
        "seq_lens": [6, 2, 4],
        "table_rows": [0, 1, 2],
    }
    assert (batch.graph_size, batch.max_query_len, batch.num_decodes) == (None, 3, 1)
    assert batch.tokens.num_rows == [0, 1, 3]
    assert batch.row_indices is not None
    assert batch.row_indices.tolist() == [3, 4, 5, 6]
    assert batch.sampling[-1].tolist() == [1, 1, 2, 3]


def test_greedy_rows_need_no_settings_and_torchs_rows_are_not_asked() -> None:
    queue = PoisonedQueue(HostQueue(torch.device("cpu")))
    sampler = DeviceSampler(TorchKernels(), Sampler(), queue, 4, entropy=b"fixed")

    def row(**settings: float) -> SamplingRow:
        return SamplingRow(Request("r", [1, 2], SamplingParams(**settings)))  # type: ignore[arg-type]

    assert sampler.settings([row(temperature=0), row(temperature=1, min_tokens=3), row(temperature=0)]) == []
    values = sampler.settings(
        [row(temperature=0), row(temperature=1, top_k=1 << 40, top_p=0.5, min_p=0.1, seed=1 << 63)]
    )
    assert [(list(value), dtype) for value, dtype in values[:4]] == [
        ([0, 1], torch.float32),
        ([0, (1 << 31) - 1], torch.int32),
        ([1.0, 0.5], torch.float32),
        ([0.0, 0.1], torch.float32),
    ]
    seeds, indices = values[4:]
    assert (list(seeds[0])[1], seeds[1]) == (-(1 << 63), torch.int64)
    assert (list(indices[0]), indices[1]) == ([0, 0], torch.int64)


def test_fields_keep_their_bits_and_begin_at_sixteen_bytes() -> None:
    section = Section(4, ((3, torch.int32), (1, torch.int64), (2, torch.float32)))
    words = np.full(20, -7, dtype=np.int32)
    section.fill(words, ([1, 2], [-(1 << 40)], [0.5, float("inf")]), padding=(9, 9, 9))
    buffer = torch.from_numpy(words)
    views = section.views(buffer)
    assert [view.tolist() for view in views] == [[1, 2, 9], [-(1 << 40)], [0.5, float("inf")]]
    assert [(view.data_ptr() - buffer.data_ptr()) for view in views] == [16, 32, 48]
    assert section.end == 16
    assert words[:4].tolist() == [-7] * 4


class LoggedMark(HostMark):
    def __init__(self, log: list[str]) -> None:
        super().__init__()
        self._log = log

    def set(self) -> None:
        self._log.append("set")

    def wait(self) -> None:
        self._log.append("wait")


class LoggedTensor(torch.Tensor):
    reads: ClassVar[list[str]] = []

    def tolist(self) -> list[int]:
        LoggedTensor.reads.append("read")
        return super().tolist()


class LoggedQueue(HostQueue):
    """Writes down when marks are set and waited for, and when the host reads a buffer."""

    def __init__(self) -> None:
        super().__init__(torch.device("cpu"))
        self.log: list[str] = []
        LoggedTensor.reads = self.log

    def host_buffer(self, num_words: int, dtype: torch.dtype) -> torch.Tensor:
        return super().host_buffer(num_words, dtype).as_subclass(LoggedTensor)

    def new_mark(self) -> Mark:
        return LoggedMark(self.log)


def test_the_hosts_words_are_given_out_when_the_last_copy_is_done() -> None:
    """A copy from pinned memory reads it after the call that queued it has returned."""
    queue = LoggedQueue()
    buffer = StepBuffer(8, queue)
    buffer.to_fill()[:] = 5
    assert queue.log == ["wait"]
    buffer.send(4)
    assert queue.log == ["wait", "set"]
    buffer.to_fill()
    assert queue.log == ["wait", "set", "wait"]
    assert buffer.on_device.tolist() == [5, 5, 5, 5, 0, 0, 0, 0]


def test_sampled_tokens_are_read_when_the_device_has_written_them() -> None:
    """One wait a step, also where nothing is sampled: then the step's times are known, and its errors raised."""
    queue = LoggedQueue()

    sampler = DeviceSampler(TorchKernels(), Sampler(), queue, 4)
    rows = [SamplingRow(Request("r", [1, 2], SamplingParams(temperature=0)))]
    assert sampler.sample(torch.tensor([[0.0, 2.0, 1.0]]), rows, []) == ([1], [None])
    assert queue.log == ["set", "wait", "read"]
    queue.log.clear()
    assert sampler.sample(torch.empty(0, 3), [], []) == ([], [])
    assert queue.log == ["set", "wait", "read"]
