"""Every kind of event comes back from a recording as it went in, whatever its values."""

from __future__ import annotations

from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvscope import events as ev
from kvscope.recording.packing import MAX_VALUE, pack, pack_token_ids, some_token_ids, unpack, unpack_token_ids
from kvscope.replay import MemoryTimeline

names = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
figures = st.integers(0, 3000) | st.integers(0, (1 << 62))
small = st.integers(0, 70) | st.integers(0, MAX_VALUE + 10)
blocks = st.lists(small, max_size=5).map(tuple)
token_ids = st.lists(st.integers(0, 200) | st.integers(-1, 1 << 25), max_size=6).map(tuple)
hashes = st.integers(0, (1 << 64) - 1)
json_values = st.dictionaries(
    names, st.none() | st.booleans() | st.integers(-5, 5) | names | st.lists(names), max_size=2
)


@st.composite
def block_lists(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Blocks and as many hashes; mostly one block, as decoding has it."""
    block_ids = draw(st.tuples(small) | blocks)
    return block_ids, tuple(draw(st.lists(hashes, min_size=len(block_ids), max_size=len(block_ids))))


@st.composite
def cached(draw: st.DrawFn) -> ev.BlockCached:
    block_ids, block_hashes = draw(block_lists())
    return ev.BlockCached(
        request_id=draw(names),
        first_index=draw(st.integers(0, 9)),
        block_ids=block_ids,
        block_hashes=block_hashes,
        duplicate_of=draw(st.just(()) | blocks),
    )


@st.composite
def recycled(draw: st.DrawFn) -> tuple[ev.Event, ...]:
    """A block evicted for the allocation that follows it, or nearly so."""
    block_ids, block_hashes = draw(block_lists())
    request_id = draw(names)
    evicted = ev.BlockEvicted(request_id=request_id, block_ids=block_ids, block_hashes=block_hashes)
    return evicted, ev.BlockAllocated(request_id=draw(st.just(request_id) | names), block_ids=block_ids)


@st.composite
def scheduled(draw: st.DrawFn) -> ev.TokensScheduled:
    request_ids = tuple(draw(st.lists(names, unique=True, max_size=5)))
    counts = draw(st.lists(st.just(1) | small, min_size=len(request_ids), max_size=len(request_ids)))
    drafts = {name: draw(token_ids.filter(bool)) for name in request_ids if draw(st.booleans())}
    return ev.TokensScheduled(request_ids=request_ids, num_tokens=tuple(counts), draft_token_ids=drafts)


@st.composite
def sampled(draw: st.DrawFn) -> ev.TokensSampled:
    request_ids = tuple(draw(st.lists(names, max_size=5)))
    if draw(st.booleans()):
        counts = tuple(draw(st.lists(st.integers(0, 3), min_size=len(request_ids), max_size=len(request_ids))))
        total = sum(counts)
    else:
        counts, total = None, len(request_ids)
    tokens = draw(st.lists(st.integers(0, 1 << 25), min_size=total, max_size=total))
    return ev.TokensSampled(request_ids=request_ids, token_ids=tuple(tokens), num_tokens=counts)


@st.composite
def touched(draw: st.DrawFn) -> ev.BlockTouched:
    block_ids = draw(blocks)
    ref_cnts = draw(st.lists(small, min_size=len(block_ids), max_size=len(block_ids)))
    return ev.BlockTouched(request_id=draw(names), block_ids=block_ids, ref_cnts=tuple(ref_cnts))


arrivals = st.builds(
    ev.RequestArrived,
    request_id=names,
    prompt_token_ids=token_ids,
    max_tokens=figures | st.integers(1 << 70, 1 << 71),
    arrival_time=st.floats(0, 1e9),
    queue_position=figures,
    priority=st.integers(-9, 9),
    cache_salt=st.none() | names,
    lora_name=st.none() | names,
    prompt=st.none() | names,
    sampling=json_values,
    stop_token_ids=token_ids,
    arrival_ns=figures,
    template_ns=figures,
    tokenize_ns=figures,
)

BY_HAND: dict[type[ev.Event], st.SearchStrategy[Any]] = {
    ev.EngineConfigured: st.builds(
        ev.EngineConfigured,
        model=names,
        device=names,
        dtype=names,
        settings=json_values,
        num_gpu_blocks=st.integers(1, 50),
        block_size=st.integers(1, 16),
        watermark_blocks=small,
        eos_token_ids=token_ids,
    ),
    ev.RequestArrived: arrivals,
    ev.BlockCached: cached(),
    ev.BlockEvicted: recycled(),
    ev.BlockTouched: touched(),
    ev.TokensScheduled: scheduled(),
    ev.TokensSampled: sampled(),
}

FIELDS: dict[Any, st.SearchStrategy[Any]] = {
    str: names,
    int: figures,
    bool: st.booleans(),
    tuple[int, ...]: blocks,
    tuple[bytes, ...]: st.lists(st.binary(max_size=3), max_size=5).map(tuple),
    str | None: st.none() | names,
}


def made(kind: type[ev.Event]) -> st.SearchStrategy[Any]:
    """Returns a strategy for the kind; numbers of any size go into any field."""
    if kind in BY_HAND:
        return BY_HAND[kind]
    types = msgspec.structs.fields(kind)
    fields = {}
    for field in types:
        annotation = field.type
        literal = get_args(annotation) if str(annotation).startswith("typing.Literal") else ()
        fields[field.name] = st.sampled_from(literal) if literal else FIELDS[annotation]
    return st.builds(kind, **fields)


KINDS: tuple[type[ev.Event], ...] = get_args(ev.Event)


def read_back(steps: list[list[ev.Event]]) -> list[list[ev.Event]]:
    """Records the steps and returns what a reader gets."""
    timeline = MemoryTimeline()
    for step, events in enumerate(steps):
        timeline.write_step(step, events)
    found = [list(events) for _, events in timeline.events(0, len(steps))]
    timeline.close()
    return found


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_events_of_a_kind_come_back(kind: type[ev.Event]) -> None:
    @settings(max_examples=8, deadline=None)
    @given(st.lists(made(kind), min_size=1, max_size=12))
    def comes_back(drawn: list[Any]) -> None:
        events = [event for item in drawn for event in (item if isinstance(item, tuple) else (item,))]
        assert read_back([events]) == [events]

    comes_back()


@settings(max_examples=20, deadline=None)
@given(st.lists(st.lists(st.one_of([made(kind) for kind in KINDS]), max_size=6), max_size=4))
def test_steps_of_mixed_events_come_back_in_order(drawn: list[list[Any]]) -> None:
    steps = [[event for item in step for event in (item if isinstance(item, tuple) else (item,))] for step in drawn]
    assert read_back(steps) == steps


def test_text_that_no_file_can_hold_is_written_out() -> None:
    event = ev.RequestFinished(request_id="a", reason="stop", num_output_tokens=1, stop="\udc80")
    assert read_back([[event]]) == [[msgspec.structs.replace(event, stop="\\udc80")]]


@given(st.lists(st.integers(-1, 200) | st.integers(-1, MAX_VALUE)))
def test_packed_numbers_take_one_character_each(values: list[int]) -> None:
    packed = pack(values)
    assert (len(packed), unpack(packed)) == (len(values), tuple(values))
    assert not set(packed) & {"\x00", "\x01"}
    assert packed.encode().decode() == packed  # no surrogates


@pytest.mark.parametrize("value", [-2, MAX_VALUE + 1])
def test_a_number_without_a_character_is_refused(value: int) -> None:
    with pytest.raises(ValueError, match=str(value)):
        pack([value])


@given(st.lists(st.integers(0, 0xFFFF) | st.integers(0, 0xFFFFFF), min_size=1), st.data())
def test_packed_token_ids_can_be_read_from_any_place(values: list[int], data: st.DataObject) -> None:
    packed = pack_token_ids(values)
    assert len(packed) == 1 + len(values) * (2 if max(values) < 1 << 16 else 3)
    assert unpack_token_ids(packed) == tuple(values)
    begin = data.draw(st.integers(0, len(values) - 1))
    count = data.draw(st.integers(0, len(values) - begin))
    assert some_token_ids(packed, begin, count) == tuple(values[begin : begin + count])
