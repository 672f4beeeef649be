"""What callers have asked for and no step has taken in yet: requests, refusals and aborts. From any thread."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator, Sequence

from kvscope import events as ev
from kvscope.engine.input_processor import InputProcessor, Submission, rejected
from kvscope.engine.output_processor import OutputProcessor
from kvscope.engine.request_ids import RequestIds
from kvscope.engine.scheduling.request import Request
from kvscope.errors import EngineError, KvscopeError


class Arrivals:
    """The engine's door: `add` and `abort` for everybody, `take`, `take_aborts` and `close` for its own thread."""

    def __init__(self, inputs: InputProcessor, outputs: OutputProcessor) -> None:
        """Requests are made by `inputs` and followed by `outputs` from the moment on that they come in."""
        self._inputs = inputs
        self._outputs = outputs
        self._lock = threading.Lock()
        """Held while requests come in, and while the door is closed: nobody comes in after that unheard."""
        self._ids = RequestIds()
        self._is_closed = False
        self._came: deque[Request | ev.RequestRejected] = deque()
        self._aborts: deque[str] = deque()

    def add(self, submissions: Sequence[Submission], arrival_ns: int) -> list[str]:
        """Lets several requests in, all of them or none, and returns their ids. Raises as `LLMEngine.add_requests`."""
        self.check_open()
        requests = [self._new_request(number, submissions, arrival_ns) for number in range(len(submissions))]
        with self._lock:
            self.check_open()
            request_ids = self._ids.take([submission.request_id for submission in submissions])
            for request, request_id, submission in zip(requests, request_ids, submissions, strict=True):
                request.request_id = request_id
                self._outputs.track(request, submission.on_update)
            self._came.extend(requests)  # in one go: the step under way finds all of them, or none
        return request_ids

    def _new_request(self, number: int, submissions: Sequence[Submission], arrival_ns: int) -> Request:
        """Returns the request of one submission, without its id; a refusal is to be recorded, with one."""
        submission = submissions[number]
        try:
            return self._inputs.new_request(submission, arrival_ns)
        except KvscopeError as error:
            with self._lock:
                refused_id = self._ids.take_for_refused(submission.request_id)
            self._came.append(rejected(refused_id, error))
            if len(submissions) > 1:
                error.message = f"prompt {number + 1} of {len(submissions)}: {error.message}"
            raise

    def is_known(self, request_id: str) -> bool:
        """True where a request had this id, also a refused one."""
        return self._ids.is_taken(request_id)

    def abort(self, request_id: str) -> bool:
        """Asks for the end of a request. False where no unfinished one has this id."""
        if not self._outputs.is_tracked(request_id):
            return False
        self._aborts.append(request_id)
        return True

    @property
    def is_empty(self) -> bool:
        """Nothing came since the last step."""
        return not self._came and not self._aborts

    @property
    def num_requests(self) -> int:
        """Requests and refusals that the next step takes in."""
        return len(self._came)

    def take(self) -> Iterator[Request | ev.RequestRejected]:
        """Takes out what came, in the order in which it came."""
        while self._came:
            yield self._came.popleft()

    def take_aborts(self) -> list[str]:
        """Takes out the aborts that were asked for until now; of a request that is still to be taken its abort too."""
        return [self._aborts.popleft() for _ in range(len(self._aborts))]

    def close(self) -> None:
        """Lets nobody in any more."""
        with self._lock:
            self._is_closed = True

    def check_open(self) -> None:
        """Raises `EngineError` after `close`."""
        if self._is_closed:
            raise EngineError("the engine has stopped because a step failed: start it again")
