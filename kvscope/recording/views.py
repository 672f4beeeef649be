"""Named views over `events`, one for each kind, with real column names: what plain SQL and datasette read.

Lists of numbers come out as JSON arrays, tokens as one row each. Made from the same layouts as the codec.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from kvscope import events as ev
from kvscope.recording import layouts as at
from kvscope.recording.layouts import EVENT_OF, LAST_FREQUENT_KIND, LAYOUTS, Layout
from kvscope.recording.packing import sql_num_token_ids, sql_number, sql_token_id

if TYPE_CHECKING:
    from sqlite_utils import Database


def view_name(event_type: type[ev.Event]) -> str:
    """Returns the view of a kind: `PrefixCacheHit` is `prefix_cache_hit`."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", event_type.__name__).lower()


def create_views(database: Database) -> None:
    """Makes all views."""
    for _, event_type in sorted(EVENT_OF.items()):
        database.create_view(view_name(event_type), _VIEWS.get(event_type) or _json_view(event_type))


def _positions(length_sql: str) -> str:
    """Returns a row source with `key` 0, 1, … below a length: SQLite has no such table built in."""
    zeros = f"replace(printf('%.*c', {length_sql} + 1, 'x'), 'x', ',0')"
    return f"json_each('[' || substr({zeros}, 4) || ']')"


def _number_at(text_sql: str, index_sql: str) -> str:
    """Returns the number at a place, counted from 0."""
    return sql_number(f"substr({text_sql}, {index_sql} + 1, 1)")


def _list(text_sql: str) -> str:
    """Returns the JSON array of a packed text."""
    number = _number_at(f"({text_sql})", "position.key")
    source = _positions(f"length({text_sql})")
    return f"(SELECT json_group_array({number}) FROM {source} AS position)"


def _blocks() -> str:
    return f"CASE WHEN e.block IS NULL THEN {_list('e.data')} ELSE json_array(e.block) END"


def _hashes(blob_sql: str = "e.hashes") -> str:
    """Returns the JSON array of hashes, each as 16 hexadecimal digits."""
    source = _positions(f"(length({blob_sql}) / 8)")
    return (
        f"(SELECT json_group_array(lower(hex(substr({blob_sql}, position.key * 8 + 1, 8)))) FROM {source} AS position)"
    )


def _decoded(number_sql: str, codes: tuple[str | bool, ...] | None) -> str:
    """Returns the name that a number stands for."""
    if codes is None or isinstance(codes[0], bool):
        return number_sql
    cases = " ".join(f"WHEN {code} THEN '{name}'" for code, name in enumerate(codes))
    return f"CASE {number_sql} {cases} END"


def _select(kinds: str, columns: dict[str, str], *, has_request: bool = True) -> str:
    head = {"step": "e.step", "seq": "e.seq"} | ({"request_id": "r.request_id"} if has_request else {})
    listed = ", ".join(f'{sql} AS "{name}"' for name, sql in (head | columns).items())
    join = " LEFT JOIN requests AS r ON r.number = e.request" if has_request else ""
    return f"SELECT {listed} FROM events AS e{join} WHERE {kinds}"


def _kind(event_type: type[ev.Event]) -> str:
    """Returns the condition for a kind, in the words that let SQLite use the index of the rarer kinds."""
    kind = at.KIND_OF[event_type]
    return f"e.kind = {kind}" + (f" AND e.kind > {LAST_FREQUENT_KIND}" if kind > LAST_FREQUENT_KIND else "")


def _or_json(field: str, sql: str) -> str:
    """Reads the field from the row's JSON where an event that did not fit is stored as such."""
    return f"CASE WHEN substr(e.data, 1, 1) = char(1) THEN json_extract(substr(e.data, 2), '$.{field}') ELSE {sql} END"


def _layout_view(event_type: type[ev.Event], layout: Layout) -> str:
    columns: dict[str, str] = {}
    for field, place in ((layout.a, "e.a"), (layout.b, "e.b")):
        if field == "beneficiary_id":
            columns[field] = "(SELECT request_id FROM requests WHERE number = e.a)"
        elif field is not None:
            columns[field] = _decoded(place, layout.codes_of(field))
    for index, field in enumerate(layout.packed):
        columns[field] = _decoded(_number_at("e.data", str(index)), layout.codes_of(field))
    if layout.blocks is not None:
        columns[layout.blocks] = _blocks()
    if layout.numbers is not None:
        columns[layout.numbers] = _list(f"substr(e.data, {len(layout.packed) + 1})")
    columns = {field: _or_json(field, sql) for field, sql in columns.items()}
    return _select(_kind(event_type), columns, has_request=layout.has_request)


def _json_view(event_type: type[ev.Event]) -> str:
    fields = event_type.__struct_fields__
    columns = {name: f"json_extract(substr(e.data, 2), '$.{name}')" for name in fields if name != "request_id"}
    return _select(_kind(event_type), columns, has_request="request_id" in fields)


def _block_steps(which: str, columns: dict[str, str], *, seq: str) -> str:
    """Returns the entries of shared rows (see `rows`) that are of one kind, `seq` counted for those before."""
    entry = "entry.key * 3"
    earlier = _positions("entry.key")
    before = (
        f"(SELECT coalesce(sum({{}}), 0) FROM (SELECT {_number_at('e.data', 'earlier.key * 3')} AS what "
        f"FROM {earlier} AS earlier))"
    )
    hash_at = f"substr(e.hashes, {before.format(f'what <> {at.ALLOCATED}')} * 8 + 1, 8)"
    sql = {
        "step": "e.step",
        "seq": f"e.seq + entry.key + {before.format(f'what = {at.RECYCLED}')}{seq}",
        "request_id": f"(SELECT request_id FROM requests WHERE number = {_number_at('e.data', f'{entry} + 1')})",
        "block_ids": f"json_array({_number_at('e.data', f'{entry} + 2')})",
        "block_hashes": f"json_array(lower(hex({hash_at})))",
        "first_index": f"{_number_at('e.data', entry)} - {at.CACHED}",
        "duplicate_of": "'[]'",
    }
    listed = ", ".join(f'{sql[name]} AS "{name}"' for name in ("step", "seq", "request_id", *columns))
    return (
        f"SELECT {listed} FROM events AS e JOIN {_positions('length(e.data) / 3')} AS entry "
        f"WHERE e.kind = {at.BLOCK_STEPS} AND {_number_at('e.data', entry)} {which}"
    )


def _with_block_steps(event_type: type[ev.Event], which: str, columns: dict[str, str], *, seq: str = "") -> str:
    """Returns the view of a kind whose events of one block share rows with others."""
    own = _select(_kind(event_type), {field: _or_json(field, sql) for field, sql in columns.items()})
    return f"{own} UNION ALL {_block_steps(which, columns, seq=seq)}"


_FIRST_COUNT = _number_at("e.data", "position.key - e.b")
_REQUEST_AT = (
    f"(SELECT request_id FROM requests WHERE number = l.first_request + {_number_at('l.offsets', 'position.key')})"
)

_VIEWS: dict[type[ev.Event], str] = {
    **{event_type: _layout_view(event_type, layout) for event_type, layout in LAYOUTS.items()},
    ev.BlockAllocated: _with_block_steps(
        ev.BlockAllocated,
        f"<= {at.RECYCLED}",
        {"block_ids": _blocks()},
        seq=f" + ({_number_at('e.data', 'entry.key * 3')} = {at.RECYCLED})",
    ),
    ev.BlockEvicted: _with_block_steps(
        ev.BlockEvicted, f"= {at.RECYCLED}", {"block_ids": _blocks(), "block_hashes": _hashes()}
    ),
    ev.BlockCached: _with_block_steps(
        ev.BlockCached,
        f">= {at.CACHED}",
        {
            "first_index": "e.a",
            "block_ids": f"CASE WHEN e.b IS NULL THEN {_blocks()} "
            f"ELSE {_list('substr(e.data, 1, length(e.data) - e.b)')} END",
            "block_hashes": _hashes(),
            "duplicate_of": f"CASE WHEN e.b IS NULL THEN '[]' ELSE {_list('substr(e.data, -e.b)')} END",
        },
    ),
    ev.BlockTouched: _select(
        _kind(ev.BlockTouched),
        {"block_ids": _list("substr(e.data, 1, e.a)"), "ref_cnts": _list("substr(e.data, e.a + 1)")},
    ),
    ev.BlockReleased: _select(
        _kind(ev.BlockReleased),
        {
            "freed_to_head": _list("substr(e.data, 1, e.a)"),
            "freed_to_tail": _list("substr(e.data, e.a + 1, e.b)"),
            "still_held": _list("substr(e.data, e.a + e.b + 1)"),
        },
    ),
    ev.TokensScheduled: (
        f"SELECT e.step, e.seq, {_REQUEST_AT} AS request_id, "
        f"CASE WHEN position.key < e.b THEN 1 ELSE {_FIRST_COUNT} END AS num_tokens "
        f"FROM events AS e JOIN request_lists AS l ON l.id = e.a JOIN {_positions('l.num_requests')} AS position "
        f"WHERE {_kind(ev.TokensScheduled)}"
    ),
    ev.TokensSampled: (
        f"SELECT s.step, {_REQUEST_AT} AS request_id, {sql_token_id('s.token_ids', 'position.key')} AS token_id "
        "FROM sampled_tokens AS s JOIN request_lists AS l ON l.id = s.request_list "
        f"JOIN {_positions('l.num_requests')} AS position WHERE s.num_tokens IS NULL"
        " UNION ALL "
        f"SELECT s.step, {_REQUEST_AT} AS request_id, token.value AS token_id "
        "FROM sampled_tokens AS s JOIN request_lists AS l ON l.id = s.request_list "
        f"JOIN {_positions('l.num_requests')} AS position "
        "JOIN json_each((SELECT json_group_array("
        + sql_token_id("s.token_ids", "before.num + inner_position.key")
        + ") FROM (SELECT coalesce(sum("
        + _number_at("s.num_tokens", "earlier.key")
        + f"), 0) AS num FROM {_positions('position.key')} AS earlier) AS before "
        f"JOIN {_positions(_number_at('s.num_tokens', 'position.key'))} AS inner_position)) AS token "
        "WHERE s.num_tokens IS NOT NULL"
    ),
    ev.StepStarted: "SELECT e.step, e.seq, s.token_budget, s.time_ns FROM events AS e JOIN steps AS s USING (step) "
    f"WHERE {_kind(ev.StepStarted)}",
    ev.StepFinished: "SELECT e.step, e.seq, s.schedule_ns, s.forward_ns, s.sample_ns, s.update_ns, s.record_ns "
    f"FROM events AS e JOIN steps AS s USING (step) WHERE {_kind(ev.StepFinished)}",
    ev.RequestArrived: _select(
        _kind(ev.RequestArrived),
        {
            "queue_position": "e.a",
            **{
                field: f"r.{field}"
                for field in (
                    "prompt",
                    "num_prompt_tokens",
                    "max_tokens",
                    "priority",
                    "cache_salt",
                    "lora_name",
                    "sampling",
                    "stop_token_ids",
                    "arrival_time",
                    "arrival_ns",
                    "template_ns",
                    "tokenize_ns",
                )
            },
            "prompt_token_ids": "(SELECT json_group_array("
            + sql_token_id("p.token_ids", "position.key")
            + f") FROM prompt_tokens AS p JOIN {_positions(sql_num_token_ids('p.token_ids'))} AS position "
            "WHERE p.request = e.request)",
        },
    ),
    ev.RequestFinished: _select(
        _kind(ev.RequestFinished),
        {
            "reason": _decoded("e.b", at.FINISH_REASONS),
            "num_output_tokens": "e.a",
            "stop": "e.data",
        },
    ),
    ev.TokenTextRecorded: _select(
        _kind(ev.TokenTextRecorded), {"token_ids": _or_json("token_ids", _list("e.data"))}, has_request=False
    ),
}
