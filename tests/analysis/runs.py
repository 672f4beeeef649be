"""Runs that several tests of this folder look at."""

from __future__ import annotations

from tests.builders import CheckedRun, scenario


def preempting() -> CheckedRun:
    """a (8 tokens) and b (5) fill the four blocks; a's ninth token costs b its two; c waits behind b.

    Step 0 admits a and b, 1 preempts b and brings c, 2 refuses b and ends a, 3 admits b and c and ends c, 4 ends b.
    """
    return (
        scenario(blocks=5, budget=16)
        .request("a", "abcdefgh", reply="xyz")
        .request("b", "ijklm", reply="uvw")
        .request("c", "no", at=1)
        .run()
    )


def sharing() -> CheckedRun:
    """b hits a's two full blocks in step 1, while a goes on to step 2."""
    return scenario().request("a", "sysprompt", reply="xyz").request("b", "syspromp?!", at=1, reply="uvw").run()
