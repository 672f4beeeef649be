"""The books behind the invariants: they forget what nobody refers to, and nothing else."""

from __future__ import annotations

from kvscope.analysis.check_books import NO_PREFIX, Books, PrefixTree
from tests.builders import scenario


def test_a_prefix_is_known_again_while_a_longer_one_is_kept() -> None:
    """A chain's first block may be evicted before its second: who computes the first anew hits the second."""
    tree = PrefixTree()
    first = tree.child(NO_PREFIX, (1, 2), ())
    tree.keep(first)
    second = tree.child(first, (3, 4), ())
    tree.keep(second)
    tree.let_go(first)
    assert tree.child(tree.child(NO_PREFIX, (1, 2), ()), (3, 4), ()) == second


def test_a_prefix_that_nobody_refers_to_is_forgotten_with_what_led_there() -> None:
    tree = PrefixTree()
    first = tree.child(NO_PREFIX, (1, 2), ())
    second = tree.child(first, (3, 4), ())
    tree.keep(second)
    assert len(tree) == 2
    tree.let_go(second)
    assert len(tree) == 0


def test_of_ended_requests_figures_are_left_but_no_tokens() -> None:
    built = scenario(blocks=9).request("a", "a" * 15, reply="12345678").request("b", "b" * 16, reply="12", at=2)
    books = Books()
    for step, events in built.run().sink.steps:
        books.begin_step(step)
        for event in events:
            books.apply(event)
    digest = books.requests["a"].digest()
    books.begin_step(books.step_number + 1)
    request = books.requests["a"]
    assert (request.token_ids, request.prefix_ids, request.block_hashes) == ([], [], [])
    assert (request.num_prompt_tokens, request.num_output_tokens, request.digest()) == (15, 8, digest)
