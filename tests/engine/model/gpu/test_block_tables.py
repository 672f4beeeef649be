"""Tables on the device that are kept by differences, against tables rebuilt from nothing."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from kvscope.engine.model.gpu.block_tables import BlockTables
from kvscope.engine.scheduling.request import Request, SamplingParams

NUM_ROWS = 4
NUM_COLUMNS = 6
IDS = st.sampled_from("abcdef")


def request(request_id: str, *block_ids: int) -> Request:
    made = Request(request_id=request_id, prompt_token_ids=[1], sampling=SamplingParams())
    made.block_ids = list(block_ids)
    return made


def send(tables: BlockTables, *requests: Request) -> tuple[list[int], dict[int, int]]:
    """One step: the rows of the requests, and the entries that were sent."""
    update = tables.update(requests)
    tables.apply(torch.from_numpy(update.indices), torch.from_numpy(update.block_ids))
    sent = dict(zip(update.indices.tolist(), update.block_ids.tolist(), strict=True))
    assert len(sent) == len(update.indices)
    return update.rows.tolist(), sent


def test_only_new_blocks_are_sent() -> None:
    tables = BlockTables(2, 4, torch.device("cpu"))
    a, b = request("a", 7, 8), request("b", 9)
    assert send(tables, a, b) == ([0, 1], {0: 7, 1: 8, 4: 9})
    assert send(tables, b, a) == ([1, 0], {})
    b.block_ids.append(3)
    assert send(tables, a, b) == ([0, 1], {5: 3})
    assert tables.on_device.tolist() == [[7, 8, 0, 0], [9, 3, 0, 0]]


def test_a_request_that_comes_back_after_a_preemption_gets_its_table_whole() -> None:
    """Also where nobody said that it was preempted, and where the old table's last block stands where it stood."""
    tables = BlockTables(1, 4, torch.device("cpu"))
    a = request("a", 7, 8)
    send(tables, a)
    a.num_preemptions, a.block_ids = 1, [5, 8, 6]
    assert send(tables, a) == ([0], {0: 5, 1: 8, 2: 6})
    tables.forget(["a", "never seen"])
    a.num_preemptions = 2
    assert send(tables, a) == ([0], {0: 5, 1: 8, 2: 6})


def test_another_request_with_the_same_id_is_another_one() -> None:
    tables = BlockTables(1, 4, torch.device("cpu"))
    send(tables, request("a", 7, 8))
    assert send(tables, request("a", 7, 8, 9)) == ([0], {0: 7, 1: 8, 2: 9})


def test_a_table_that_was_cut_back_is_sent_anew() -> None:
    tables = BlockTables(1, 4, torch.device("cpu"))
    a = request("a", 7, 8, 9)
    send(tables, a)
    a.block_ids = [7, 8]
    assert send(tables, a) == ([0], {0: 7, 1: 8})
    a.block_ids = [7, 4, 5]
    assert send(tables, a) == ([0], {0: 7, 1: 4, 2: 5})


class TablesOnTheDevice(RuleBasedStateMachine):
    """Requests come, grow, are preempted, come back, end and return under the same id; some sit a step out."""

    def __init__(self) -> None:
        super().__init__()
        self.tables = BlockTables(NUM_ROWS, NUM_COLUMNS, torch.device("cpu"))
        self.running: dict[str, Request] = {}
        self.preempted: dict[str, Request] = {}
        self.next_block_id = 1
        self.to_forget: list[str] = []
        self.on_device: dict[str, tuple[int, int]] = {}
        """Row and number of blocks of each request whose table is there."""

    def new_blocks(self, count: int) -> list[int]:
        """Ids repeat after a while, as in a pool."""
        block_ids = [1 + (self.next_block_id + i) % 17 for i in range(count)]
        self.next_block_id += count
        return block_ids

    @rule(request_id=IDS, num_blocks=st.integers(1, NUM_COLUMNS))
    def admit(self, request_id: str, num_blocks: int) -> None:
        if len(self.running) == NUM_ROWS or request_id in self.running or request_id in self.preempted:
            return
        self.running[request_id] = request(request_id, *self.new_blocks(num_blocks))

    @rule(request_id=IDS, num_blocks=st.integers(1, 3))
    def grow(self, request_id: str, num_blocks: int) -> None:
        if (grown := self.running.get(request_id)) is not None:
            grown.block_ids += self.new_blocks(min(num_blocks, NUM_COLUMNS - len(grown.block_ids)))

    @rule(request_id=IDS)
    def preempt(self, request_id: str) -> None:
        if (victim := self.running.pop(request_id, None)) is not None:
            victim.block_ids = []
            victim.num_preemptions += 1
            self.preempted[request_id] = victim
            self.to_forget.append(request_id)

    @rule(request_id=IDS, num_blocks=st.integers(1, NUM_COLUMNS))
    def resume(self, request_id: str, num_blocks: int) -> None:
        if len(self.running) < NUM_ROWS and (back := self.preempted.pop(request_id, None)) is not None:
            back.block_ids = self.new_blocks(num_blocks)
            self.running[request_id] = back

    @rule(request_id=IDS)
    def end(self, request_id: str) -> None:
        gone = self.running.pop(request_id, None) or self.preempted.pop(request_id, None)
        if gone is not None:
            gone.block_ids = []
            self.to_forget.append(request_id)

    @rule(order=st.permutations("abcdef"), num_scheduled=st.integers(0, NUM_ROWS))
    def step(self, order: list[str], num_scheduled: int) -> None:
        """The device has what a full rebuild would put there, and what it had already was not sent again."""
        scheduled = [self.running[request_id] for request_id in order if request_id in self.running][:num_scheduled]
        self.tables.forget(self.to_forget)
        for request_id in self.to_forget:
            self.on_device.pop(request_id, None)
        self.to_forget = []
        rows, sent = send(self.tables, *scheduled)
        expected: dict[int, int] = {}
        for made, row in zip(scheduled, rows, strict=True):
            old_row, num_there = self.on_device.get(made.request_id, (row, 0))
            assert row == old_row
            new = enumerate(made.block_ids[num_there:], row * NUM_COLUMNS + num_there)
            expected.update(new)
            self.on_device[made.request_id] = (row, len(made.block_ids))
            assert self.tables.on_device[row, : len(made.block_ids)].tolist() == made.block_ids
        assert sent == expected
        all_rows = [row for row, _ in self.on_device.values()]
        assert len(set(all_rows)) == len(all_rows)

    @invariant()
    def the_mirror_is_what_the_device_has(self) -> None:
        assert np.array_equal(self.tables.mirror, self.tables.on_device.numpy())


TestTablesOnTheDevice = TablesOnTheDevice.TestCase
TestTablesOnTheDevice.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
