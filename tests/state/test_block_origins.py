"""What is known of published blocks, against a mapping."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvscope.state import BlockOrigins, Origin


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 9), st.sampled_from("abc"), st.integers(0, 300))))
def test_it_reads_as_a_mapping_in_the_order_of_block_ids(changes: list[tuple[bool, int, str, int]]) -> None:
    origins = BlockOrigins.of_pool(10)
    model: dict[int, Origin] = {}
    for is_published, block_id, request_id, index in changes:
        if is_published:
            origins.put((block_id,), request_id, index)
            model[block_id] = (request_id, index)
        elif block_id in model:
            assert origins.pop(block_id) == model.pop(block_id)
        else:
            with pytest.raises(KeyError):
                origins.pop(block_id)
    assert list(origins) == sorted(model)
    assert list(origins.items()) == sorted(model.items())
    assert len(origins) == len(model)
    for block_id in range(-10, 20):
        assert (block_id in origins) == (block_id in model)
        assert origins.get(block_id) == model.get(block_id)
    assert origins == BlockOrigins.of_pool(10, model)
    assert origins == BlockOrigins(list(origins.request_ids), list(origins.indexes))


def test_neighbours_of_a_table_are_entered_at_once() -> None:
    origins = BlockOrigins.of_pool(6)
    origins.put((5, 2, 3), "a", 7)
    assert dict(origins.items()) == {5: ("a", 7), 2: ("a", 8), 3: ("a", 9)}
    with pytest.raises(KeyError):
        origins[4]


def test_a_copy_shares_nothing() -> None:
    origins = BlockOrigins.of_pool(3, {1: ("a", 0), 2: ("a", 1)})
    copy = origins.copy()
    copy.pop(2)
    copy.put((1,), "b", 4)
    assert dict(origins.items()) == {1: ("a", 0), 2: ("a", 1)}
    assert (len(origins), len(copy)) == (2, 1)
    assert copy != origins
