"""The free queue against a mapping that keeps an order, operation by operation."""

from __future__ import annotations

from collections import OrderedDict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvscope.state import FreeQueue
from kvscope.state.free_queue import _FEW_REMOVED

_NUM_BLOCKS = 200


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_any_operations_leave_the_order_that_a_mapping_has(data: st.DataObject) -> None:
    """Blocks that are taken out of the middle come back at either end, before and behind their old places."""
    queue, model = FreeQueue(range(1, _NUM_BLOCKS)), OrderedDict.fromkeys(range(1, _NUM_BLOCKS))
    used: list[int] = []
    for operation in data.draw(
        st.lists(st.sampled_from(["take", "remove", "append", "put_first", "copy"]), max_size=60)
    ):
        count = data.draw(st.integers(1, 60))
        match operation:
            case "take":
                count = min(count, len(model))
                taken = [model.popitem(last=False)[0] for _ in range(count)]
                assert queue.take(count) == taken
                used += taken
            case "remove":
                for block_id in list(model)[:: count + 1]:
                    del model[block_id]
                    queue.remove(block_id)
                    used.append(block_id)
            case "append":
                back, used = used[:count], used[count:]
                queue.append(back)
                model.update(dict.fromkeys(back))
            case "put_first":
                back, used = used[-count:], used[:-count]
                queue.put_first(back)
                model = OrderedDict.fromkeys([*back, *model])
            case "copy":
                before, queue = queue, queue.copy()
                queue.append([0])
                assert list(before) == list(model)
                queue = before
        assert list(queue) == list(model)
        assert len(queue) == len(model)
    assert queue == FreeQueue(model)
    assert queue.take(len(model)) == list(model)
    with pytest.raises(IndexError):
        queue.take(1)


def test_places_that_do_not_count_stay_fewer_than_those_that_do() -> None:
    """Hit again and again at the tail of a queue whose head nobody takes: the queue does not grow."""
    queue = FreeQueue(range(1, 1001))
    for block_id in [*range(500, 520)] * 500:
        queue.remove(block_id)
        queue.append([block_id])
    assert list(queue) == [*range(1, 500), *range(520, 1001), *range(500, 520)]
    assert len(queue._block_ids) <= 2 * 1000 + _FEW_REMOVED


def test_what_is_not_quick_is_not_there() -> None:
    with pytest.raises(TypeError, match="not a container"):
        assert 1 in FreeQueue([1])
