"""Block tables: gives requests blocks for their tokens, finds and publishes prefixes, takes tables back.

Rules of vLLM 0.32.0's KVCacheManager with one full-attention group. Knows nothing of queues, budgets or policies.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from kvscope import events as ev
from kvscope.engine.scheduling import hashing, rules
from kvscope.engine.scheduling.block_pool import BlockPool, ReleasedBlocks
from kvscope.engine.scheduling.config import SchedulerConfig
from kvscope.engine.scheduling.request import Request
from kvscope.engine.scheduling.rules import Shortage
from kvscope.engine.scheduling.step_events import StepEvents


class KVCacheManager:
    """Owner of the block pool and, of every request, of the block table and what describes it.

    That is `block_ids`, `block_hashes`, `num_cached_blocks` and `num_settled_tokens`.
    """

    def __init__(self, config: SchedulerConfig, step_events: StepEvents) -> None:
        self.pool = BlockPool(config.num_gpu_blocks)
        self._events = step_events
        self._block_size = config.block_size
        self._max_model_len = config.max_model_len
        self._num_lookahead_tokens = config.num_lookahead_tokens or 0
        self._watermark_blocks = config.watermark_blocks
        self._reserves_full_sequence = config.scheduler_reserve_full_isl
        self._is_caching = config.enable_prefix_caching
        self._published: dict[Request, tuple[int, list[int]]] = {}
        """Who published blocks in this step: from which index of its table on, and which."""

    def begin_step(self) -> None:
        """What was published before counts as computed from now on."""
        self._published.clear()

    def get_computed_blocks(self, request: Request) -> list[int]:
        """Returns the cached blocks that the request's tokens begin with, all but its last token at most.

        Has no side effect on the pool: a lookup does not refresh anything.
        """
        if not self._is_caching:
            return []
        num_blocks = rules.max_hit_blocks(request.num_tokens, self._block_size)
        self._extend_hashes(request, num_blocks)
        return self.pool.find_longest_hit(islice(request.block_hashes, num_blocks))

    def allocate_slots(
        self,
        request: Request,
        num_new_tokens: int,
        hit_block_ids: Sequence[int] = (),
        is_admission: bool = False,
        num_running: int = 0,
    ) -> Shortage | None:
        """Makes room for the request's next tokens, or returns what is missing and changes nothing.

        On success the hits head the block table, new blocks from the head of the free queue follow, and every block
        that will be full of decided tokens after this step is published: before the model has computed it. Draft tokens
        are never published. Blocks are never given back here, even if rejected drafts left more than are needed.

        An admission keeps the watermark (while others run) and, by the setting, must leave room for all its tokens.
        """
        num_total = request.num_computed_tokens + len(hit_block_ids) * self._block_size + num_new_tokens
        num_slots = min(num_total + self._num_lookahead_tokens, self._max_model_len)
        num_held = len(request.block_ids) + len(hit_block_ids)
        num_missing = -(-num_slots // self._block_size) - num_held
        if is_admission or num_missing > len(self.pool.free_queue):
            shortage = self._find_shortage(request, num_slots, hit_block_ids, is_admission, num_running)
            if shortage is not None:
                return shortage
        if hit_block_ids:
            self._adopt_hits(request, hit_block_ids)
        if num_missing > 0:
            self._extend_table(request, num_missing)
        if self._is_caching:
            num_full = min(min(num_total, len(request.all_token_ids)) // self._block_size, len(request.block_ids))
            if num_full > (request.num_cached_blocks or 0):
                self._publish(request, num_full)
        request.num_settled_tokens = self._num_settled_tokens(request)
        return None

    def free(self, request: Request) -> ReleasedBlocks:
        """Takes the request's block table back. The caller writes it down."""
        released = self.pool.release(request.block_ids)
        request.block_ids = []
        request.num_cached_blocks = None
        request.num_settled_tokens = 0
        return released

    def unpublish(self, request: Request) -> tuple[int, ...]:
        """Takes back what the request published in this step, as it will not be computed. Returns the blocks.

        vLLM 0.32.0 leaves them hashed: whoever hits them later reads KV that was never written.
        """
        if request not in self._published:
            return ()
        first, block_ids = self._published.pop(request)
        self.pool.uncache(block_ids)
        if request.num_cached_blocks is not None:
            request.num_cached_blocks = first
        return tuple(block_ids)

    def publishers(self) -> list[Request]:
        """Returns who published blocks in this step."""
        return list(self._published)

    def _num_settled_tokens(self, request: Request) -> int:
        """Returns up to how many tokens `allocate_slots` of a running request would change nothing.

        With blocks of 16 tokens two decodes in 16 have something to allocate or to publish.
        """
        num_slots = len(request.block_ids) * self._block_size - self._num_lookahead_tokens
        if self._is_caching:
            num_slots = min(num_slots, ((request.num_cached_blocks or 0) + 1) * self._block_size - 1)
        return min(num_slots, self._max_model_len - 1)

    def _find_shortage(
        self, request: Request, num_slots: int, hit_block_ids: Sequence[int], is_admission: bool, num_running: int
    ) -> Shortage | None:
        num_full_tokens = min(request.num_tokens, self._max_model_len)
        num_table, num_hits = len(request.block_ids), len(hit_block_ids)
        num_free_hits = self.pool.count_free(hit_block_ids)
        return rules.allocation_shortage(
            need_step=rules.blocks_needed(num_slots, self._block_size, num_table, num_hits, num_free_hits),
            need_full=rules.blocks_needed(num_full_tokens, self._block_size, num_table, num_hits, num_free_hits),
            must_full_fit=is_admission and self._reserves_full_sequence,
            watermark_blocks=rules.applied_watermark(self._watermark_blocks, num_running) if is_admission else 0,
            num_free_blocks=self.pool.num_free_blocks,
        )

    def _adopt_hits(self, request: Request, hit_block_ids: Sequence[int]) -> None:
        self.pool.touch(hit_block_ids)
        request.block_ids.extend(hit_block_ids)
        request.num_cached_blocks = len(hit_block_ids)
        if self._events.is_recording:
            self._events.append(
                ev.BlockTouched(
                    request_id=request.request_id,
                    block_ids=tuple(hit_block_ids),
                    ref_cnts=tuple([self.pool.ref_cnts[block_id] for block_id in hit_block_ids]),
                )
            )

    def _extend_table(self, request: Request, num_blocks: int) -> None:
        taken = self.pool.take(num_blocks)
        request.block_ids.extend(taken.block_ids)
        if self._events.is_recording:
            if taken.evicted_block_ids:
                self._events.append(
                    ev.BlockEvicted(
                        request_id=request.request_id,
                        block_ids=tuple(taken.evicted_block_ids),
                        block_hashes=hashing.short_hashes(taken.evicted_hashes),
                    )
                )
            self._events.append(ev.BlockAllocated(request_id=request.request_id, block_ids=tuple(taken.block_ids)))

    def _publish(self, request: Request, num_full_blocks: int) -> None:
        first = request.num_cached_blocks or 0
        self._extend_hashes(request, num_full_blocks)
        block_ids = request.block_ids[first:num_full_blocks]
        hashes = request.block_hashes[first:num_full_blocks]
        duplicate_of = self.pool.cache(block_ids, hashes, request.request_id)
        request.num_cached_blocks = num_full_blocks
        self._published[request] = (first, block_ids)
        if self._events.is_recording:
            self._events.append(
                ev.BlockCached(
                    request_id=request.request_id,
                    first_index=first,
                    block_ids=tuple(block_ids),
                    block_hashes=hashing.short_hashes(hashes),
                    duplicate_of=tuple(duplicate_of) if any(duplicate_of) else (),
                )
            )

    def _extend_hashes(self, request: Request, num_blocks: int) -> None:
        if len(request.block_hashes) < num_blocks:
            extra = hashing.extra_keys(request.cache_salt, request.lora_name)
            hashing.extend_block_hashes(
                request.block_hashes, request.all_token_ids, num_blocks, self._block_size, extra
            )
