"""The free blocks around an admission, worked back from the end of its step."""

from __future__ import annotations

from kvscope import events as ev
from kvscope.replay.timeline import Moment


class AdmissionBooks:
    """The free blocks around an admission, counted back from the end of the step."""

    def __init__(self, request_id: str, moment: Moment) -> None:
        self.num_freed_before = 0
        """Given back before the step was scheduled."""
        self.num_taken = 0
        self.num_scheduled_from_here = 0
        """Tokens scheduled for it and for those admitted after it."""
        free = moment.state.num_free_blocks
        has_started, is_there, is_past = False, False, False
        changed_from_here = 0
        for event in moment.events:
            change = 0
            match event:
                case ev.StepStarted():
                    has_started = True
                case ev.BlockAllocated():
                    change = -len(event.block_ids)
                case ev.BlockTouched():
                    change = -event.ref_cnts.count(1)
                case ev.BlockReleased():
                    change = len(event.freed_to_head) + len(event.freed_to_tail)
                    if not has_started:
                        self.num_freed_before += change
                case ev.RequestAdmitted() | ev.RequestResumed():
                    is_past = is_past or event.request_id == request_id
                    if is_past:
                        self.num_scheduled_from_here += event.num_scheduled_tokens
                case _:
                    pass
            is_taken = isinstance(event, ev.BlockAllocated | ev.BlockTouched) and event.request_id == request_id
            if is_taken and change < 0 and not is_past:
                is_there = True
                self.num_taken -= change
            if is_there:
                changed_from_here += change
        self.num_free = free - changed_from_here
