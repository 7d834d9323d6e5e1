"""Pipeline over one bucket: one thread decodes and merges ahead while the caller encodes (kernels.md note 3)."""

from __future__ import annotations

import queue
import threading
from collections.abc import Generator, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

T = TypeVar("T")

DEPTH: Final = 2
"""Number of finished items waiting for the consumer: enough to keep both threads busy, few enough to limit memory."""
_POLL_SECONDS: Final = 0.05


@dataclass(frozen=True)
class _Failed:
    """Last entry of the queue if the source raised an error.

    Attributes:
        error: the error, which is raised in the consumer.
    """

    error: BaseException


class _End:
    """Last entry of the queue if the source ended without an error."""


def ahead(source: Generator[T, None, None], depth: int = DEPTH) -> Iterator[T]:
    """Yield the items of ``source``, which a second thread produces at most ``depth`` items ahead.

    An error of ``source`` is raised in the consumer. If the consumer fails or calls ``close``, the second thread is
    stopped and ``source`` is closed.
    """
    worker = _Producer(source, depth)
    worker.start()
    try:
        yield from worker.items()
    finally:
        worker.stop()


class _Producer(Generic[T]):
    """Second thread that puts the items of ``source`` into a queue of at most ``depth`` items."""

    def __init__(self, source: Generator[T, None, None], depth: int) -> None:
        self._source = source
        self._queue: queue.Queue[T | _Failed | _End] = queue.Queue(depth)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="dredge-merge", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def items(self) -> Iterator[T]:
        while True:
            item = self._queue.get()
            if isinstance(item, _End):
                return
            if isinstance(item, _Failed):
                raise item.error
            yield item
            del item  # released before the next item is awaited, because the consumer no longer needs it

    def stop(self) -> None:
        self._stopped.set()
        while self._thread.is_alive():
            with suppress(queue.Empty):
                self._queue.get_nowait()
            self._thread.join(_POLL_SECONDS)

    def _run(self) -> None:
        try:
            for item in self._source:
                if not self._put(item):
                    return
                del item
            self._put(_End())
        except BaseException as error:  # noqa: BLE001 - it is raised again in the consumer's thread
            self._put(_Failed(error))
        finally:
            self._source.close()

    def _put(self, item: T | _Failed | _End) -> bool:
        while not self._stopped.is_set():
            with suppress(queue.Full):
                self._queue.put(item, timeout=_POLL_SECONDS)
                return True
        return False
