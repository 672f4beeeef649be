"""The menu's workloads on the toy engine: its recording shows what the rehearsal without a model has foretold."""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from pathlib import Path

import pytest

from kvscope.analysis.workload_menu import WORKLOADS, Workload, rehearse
from kvscope.control import Accepted, Shutdown, SubmitPlan
from kvscope.engine.settings import scheduler_config
from kvscope.session.build import build_engine
from kvscope.session.engine_loop import EngineLoop
from kvscope.session.options import EngineOptions

TIMEOUT_S = 60.0
SETTINGS = {"num_gpu_blocks": 25, "max_num_batched_tokens": 40, "max_model_len": 384}
MECHANISM = {
    "shared_prefix": "select count(*) from prefix_cache_hit",
    "long_prefill": "select count(*) from steps where num_prefill_tokens > 0 and num_decode_tokens > 0",
    "preemption_storm": "select count(*) from request_preempted",
    "random_mix": "select count(*) from steps where num_running > 1",
}


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda workload: workload.name)
def test_a_workload_does_on_the_engine_what_its_rehearsal_foretold(workload: Workload, tmp_path: Path) -> None:
    config = scheduler_config(SETTINGS)
    figures = workload.fit(config)
    plan = workload.requests(config, figures)
    foretold = rehearse(config, plan)
    recording = tmp_path / "r.db"
    options = EngineOptions(model="toy", dtype="float32", settings=SETTINGS, recording=str(recording))
    reply = run_to_the_end(options, SubmitPlan(requests=plan, seed=3))
    assert reply.request_ids == tuple(request.request_id for request in plan)
    with contextlib.closing(sqlite3.connect(recording)) as connection:

        def count(sql: str) -> int:
            (found,) = connection.execute(sql).fetchone()
            return int(found or 0)

        assert count(MECHANISM[workload.name]) > 0
        assert {
            "num_steps": count("select count(*) from steps where num_scheduled_tokens > 0"),
            "num_prompt_tokens": count("select sum(num_prompt_tokens) from requests"),
            "num_hit_tokens": count("select sum(num_hit_tokens) from request_admitted"),
            "num_preemptions": count("select sum(num_preemptions) from requests"),
            "num_lost_tokens": count("select sum(num_lost_tokens) from request_preempted"),
        } == {
            "num_steps": foretold.num_steps,
            "num_prompt_tokens": foretold.num_prompt_tokens,
            "num_hit_tokens": foretold.num_hit_tokens,
            "num_preemptions": foretold.num_preemptions,
            "num_lost_tokens": foretold.num_lost_tokens,
        }
        lengths = connection.execute("select request_id, num_prompt_tokens, num_output_tokens from requests").fetchall()
    assert sorted(lengths) == sorted(
        (request.request_id, request.num_shared_tokens + request.num_own_tokens, request.num_output_tokens)
        for request in plan
    )


def run_to_the_end(options: EngineOptions, command: SubmitPlan) -> Accepted:
    """Returns what the engine answered, when it has run everything and closed its recording."""
    changed = threading.Condition()

    def notify() -> None:
        with changed:
            changed.notify_all()

    loop = EngineLoop(lambda report: build_engine(options, report), notify, recording=options.recording or "")
    loop.start()
    try:
        with changed:
            assert changed.wait_for(lambda: loop.status.phase == "idle", TIMEOUT_S), loop.status
        reply = loop.handle(command)
        assert isinstance(reply, Accepted), reply
        return reply
    finally:
        loop.handle(Shutdown(when="idle"))
        loop.join(TIMEOUT_S)
        assert loop.is_closed
