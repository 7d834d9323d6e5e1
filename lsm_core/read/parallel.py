"""Several splits read at once on threads, with their rows returned in the splits' order and a bound on waiting batches.

Decoding and merging release Python's lock, so threads scale; processes would have to copy every batch.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa

Batches = Generator[pa.RecordBatch, None, None]
Job = Callable[[], Batches]
_AHEAD: Final = 4
"""Jobs per worker that may start before the first of them is returned."""


def usable_cores() -> int:
    """Return the number of processors that this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not available on this system
        return os.cpu_count() or 1


def in_order(jobs: Sequence[Job], workers: int, most_bytes: int | None) -> Batches:
    """Yield the batches of ``jobs``, one job after the other, while up to ``workers`` of them run.

    About ``most_bytes`` of batches wait to be returned. In addition, the current job may have one batch waiting, so
    that it always makes progress, and each worker one. An error of a job is raised at its place. Closing the generator
    stops all workers and waits for them.

    Args:
        jobs: functions that return batches.
        workers: threads to use; less than 2 runs the jobs on this thread.
        most_bytes: bytes of batches that may wait; None for no bound.
    """
    if workers < 2 or len(jobs) < 2:
        for job in jobs:
            with closing(job()) as batches:
                yield from batches
        return
    reading = _Reading(jobs, min(workers, len(jobs)), most_bytes)
    try:
        for number in range(len(jobs)):
            yield from reading.of(number)
    finally:
        reading.stop()


@dataclass(eq=False)
class _Lane:
    """Batches of one job that wait to be returned, in order, and the end of the job."""

    batches: deque[pa.RecordBatch] = field(default_factory=deque)
    done: bool = False
    error: BaseException | None = None


class _Reading:
    """Workers, lanes of the started jobs, and the current job; all shared state is guarded by ``_changed``."""

    def __init__(self, jobs: Sequence[Job], workers: int, most_bytes: int | None) -> None:
        self._jobs, self._most, self._ahead = jobs, most_bytes, _AHEAD * workers
        self._changed = threading.Condition()
        self._lanes: dict[int, _Lane] = {}
        self._head = self._next = self._held = 0
        self._stopped = False
        names = [f"dredge-read-{number}" for number in range(workers)]
        self._threads = [threading.Thread(target=self._work, name=name, daemon=True) for name in names]
        for thread in self._threads:
            thread.start()

    def of(self, number: int) -> Batches:
        """Yield the batches of one job; jobs are read in order."""
        with self._changed:
            self._head = number
            self._changed.notify_all()
        while (batch := self._take(number)) is not None:
            yield batch
        lane = self._lanes.pop(number)
        if lane.error is not None:
            raise lane.error

    def stop(self) -> None:
        """Stop all workers and wait for them."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()
        self._lanes.clear()

    def _take(self, number: int) -> pa.RecordBatch | None:
        """Return the job's next batch, or None at its end."""
        with self._changed:
            while True:
                lane = self._lanes.get(number)
                if lane is not None and lane.batches:
                    batch = lane.batches.popleft()
                    self._held -= batch.nbytes
                    self._changed.notify_all()
                    return batch
                if lane is not None and lane.done:
                    return None
                self._changed.wait()

    def _work(self) -> None:
        while (number := self._begin()) is not None:
            lane = self._lanes[number]
            try:
                with closing(self._jobs[number]()) as batches:
                    for batch in batches:
                        if not self._put(number, lane, batch):
                            return
            except BaseException as error:  # noqa: BLE001 - every error is raised again in the reader
                lane.error = error
            finally:
                with self._changed:
                    lane.done = True
                    self._changed.notify_all()

    def _begin(self) -> int | None:
        """Return the next job's number, or None when all jobs have started."""
        with self._changed:
            while not self._stopped and self._head + self._ahead <= self._next < len(self._jobs):
                self._changed.wait()
            if self._stopped or self._next >= len(self._jobs):
                return None
            number, self._next = self._next, self._next + 1
            self._lanes[number] = _Lane()
            return number

    def _put(self, number: int, lane: _Lane, batch: pa.RecordBatch) -> bool:
        """Add a batch to the job's lane when the bound allows it; return False when the reading was stopped."""
        with self._changed:
            # The current job continues while none of its own batches waits, however much the others hold.
            while (
                not self._stopped
                and (self._most is not None and self._held >= self._most)
                and (number != self._head or lane.batches)
            ):
                self._changed.wait()
            if self._stopped:
                return False
            lane.batches.append(batch)
            self._held += batch.nbytes
            self._changed.notify_all()
            return True
