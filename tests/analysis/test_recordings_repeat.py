"""What-if on the recordings that come with the sources: runs of the real model."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvscope.analysis.whatif import Reproduction, WhatIfStudy
from kvscope.replay import open_recording

RECORDINGS = sorted((Path(__file__).parents[2] / "recordings").glob("*.db"))


@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: path.stem)
def test_the_own_settings_repeat_every_event(path: Path) -> None:
    with open_recording(path) as timeline:
        study = WhatIfStudy(timeline)
        assert study.reproduce() == Reproduction(timeline.last_step + 1, None)
        assert study.run({}).comparison.first_difference is None


def test_the_storm_ends_where_the_pool_is_ample() -> None:
    with open_recording(next(path for path in RECORDINGS if path.stem == "preemption_storm")) as timeline:
        found = WhatIfStudy(timeline).run({"num_gpu_blocks": 1000}, "steps")
    assert len(found.comparison.base.preemptions) > 0
    assert (found.comparison.changed.preemptions, found.comparison.changed.num_recomputed_tokens) == ([], 0)
    pairs = found.comparison.requests
    # Nobody's output is another one: all tokens are recorded ones.
    assert all(not pair.num_output_tokens.differs for pair in pairs)
    assert found.notes.num_made_up_tokens == {}
