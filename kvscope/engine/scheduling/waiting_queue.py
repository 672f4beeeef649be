"""Requests that wait, in the order in which the policy admits them."""

from __future__ import annotations

import bisect
from collections import deque
from collections.abc import Iterator
from typing import Protocol

from kvscope.engine.scheduling.config import Policy
from kvscope.engine.scheduling.request import Request


class WaitingQueue(Protocol):
    """A queue whose head is the only request that can be admitted. Positions count from the head, 0."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[Request]: ...

    def head(self) -> Request:
        """Returns who is next. There must be somebody."""
        ...

    def pop_head(self) -> Request:
        """Takes out who is next, and returns it."""
        ...

    def add(self, request: Request) -> int:
        """Enqueues an arrival and returns its position."""
        ...

    def put_back(self, request: Request) -> int:
        """Enqueues a preempted request and returns its position."""
        ...

    def remove(self, request: Request) -> None:
        """Takes out a request that is in it, wherever it stands."""
        ...


class FirstComeQueue:
    """Arrivals go to the end, preempted requests to the front: the latest victim is the first to come back."""

    def __init__(self) -> None:
        self._queue: deque[Request] = deque()

    def __len__(self) -> int:
        return len(self._queue)

    def __iter__(self) -> Iterator[Request]:
        return iter(self._queue)

    def head(self) -> Request:
        return self._queue[0]

    def pop_head(self) -> Request:
        return self._queue.popleft()

    def add(self, request: Request) -> int:
        self._queue.append(request)
        return len(self._queue) - 1

    def put_back(self, request: Request) -> int:
        self._queue.appendleft(request)
        return 0

    def remove(self, request: Request) -> None:
        self._queue.remove(request)


class PriorityQueue:
    """Ordered by `(priority, arrival_time, request_id)`, smallest first; a preempted request is sorted in like any."""

    def __init__(self) -> None:
        self._queue: list[Request] = []

    def __len__(self) -> int:
        return len(self._queue)

    def __iter__(self) -> Iterator[Request]:
        return iter(self._queue)

    def head(self) -> Request:
        return self._queue[0]

    def pop_head(self) -> Request:
        return self._queue.pop(0)

    def add(self, request: Request) -> int:
        position = bisect.bisect(self._queue, _rank(request), key=_rank)
        self._queue.insert(position, request)
        return position

    def put_back(self, request: Request) -> int:
        return self.add(request)

    def remove(self, request: Request) -> None:
        self._queue.remove(request)


def _rank(request: Request) -> tuple[int, float, str]:
    return request.priority, request.arrival_time, request.request_id


def waiting_queue(policy: Policy) -> WaitingQueue:
    """Returns an empty queue of the policy."""
    return PriorityQueue() if policy == "priority" else FirstComeQueue()
