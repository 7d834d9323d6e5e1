"""Reading a file over a network in few requests: its end comes with its size, and what will be read is fetched ahead, together.

Arrow's Parquet reader takes 64 KiB of one column after another, each of which would be a request. Told the ranges of each row group
before (:func:`ahead`), a file fetches those of one group at once, neighbours joined, in parallel, and the next group's meanwhile.
"""

from __future__ import annotations

import os
import threading
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from typing import Final, TypeVar

import pyarrow as pa

from lsm_core.storage.file_io import Buffer

T = TypeVar("T")
Range = tuple[int, int]
"""Bytes of a file: the first, and the one after the last."""
Fetch = Callable[[int, int], Buffer]
"""What brings a range: one request."""

END_BYTES: Final = 64 * 1024
"""What opening a file brings: of most files the whole footer."""
GROUP_BYTES: Final = 16 << 20
"""A row group of so many bytes at most is fetched as one; of a larger one every column comes in pieces."""
_JOINED_GAP: Final = 512 * 1024
"""Bytes between two ranges that are fetched with them, rather than by a request more."""
_PIECE: Final = 8 << 20
"""Bytes of a request, at most: larger ranges are fetched as several, in parallel."""
_LEAST: Final = 256 * 1024
_MOST: Final = 4 << 20
_KEPT_BLOCKS: Final = 4
_AHEAD_BYTES: Final = 64 << 20
"""Bytes that all files of this process together fetch before they are asked for."""
_THREADS: Final = 8


@cache
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_THREADS, thread_name_prefix="dredge-remote-read")


os.register_at_fork(after_in_child=_threads.cache_clear)


class _Allowance:
    """Bytes that may be fetched ahead, shared by all files."""

    def __init__(self, left: int) -> None:
        self._left, self._lock = left, threading.Lock()

    def take(self, size: int) -> bool:
        with self._lock:
            if size > self._left:
                return False
            self._left -= size
            return True

    def give_back(self, size: int) -> None:
        with self._lock:
            self._left += size


_AHEAD: Final = _Allowance(_AHEAD_BYTES)


class RemoteFile(pa.PythonFile):
    """An open file whose reads are requests, for Arrow's readers. Closing it ends nothing elsewhere."""

    def __init__(self, source: _Source, mode: str = "r") -> None:
        del mode  # for the base class, which Python made already
        self._source = source

    @classmethod
    def opened(
        cls, fetch: Fetch, fetch_end: Callable[[int], tuple[int, Buffer]], size_of: Callable[[], int]
    ) -> RemoteFile:
        """Open a file: ``fetch_end`` brings the file's size and its last bytes; where the store cannot, ``size_of`` and ``fetch`` do.

        Raises FileNotFoundError, OSError.
        """
        try:
            size, end = fetch_end(END_BYTES)
        except FileNotFoundError:
            raise
        except OSError:  # an empty file has no last byte to ask for, and some stores do not count from the end
            size = size_of()
            end = fetch(max(0, size - END_BYTES), size) if size else b""
        return cls(_Source(fetch, size, memoryview(end)))

    def planned(self, groups: Sequence[Sequence[Range]]) -> RemoteFile:
        """The same file for a reader that takes the ranges of each of ``groups``, group after group. Nothing is fetched yet."""
        return RemoteFile(self._source.planned(groups))


def ahead(source: pa.NativeFile, groups: Sequence[Sequence[Range]]) -> pa.NativeFile:
    """``source`` for a reader that takes the ranges of each of ``groups`` in turn: itself, but where each read would be a request."""
    return source.planned(groups) if isinstance(source, RemoteFile) else source


def done_in_turn(requests: Iterable[Callable[[], T]], *, at_once: bool) -> Iterator[T]:
    """What each of ``requests`` returns, in their order; with ``at_once`` the next few are under way while one is looked at.

    Raises what a request raises, once it is its turn.
    """
    if not at_once:
        yield from (request() for request in requests)
        return
    waiting: deque[Future[T]] = deque()
    try:
        for request in requests:
            waiting.append(_threads().submit(request))
            if len(waiting) == _THREADS:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        for unread in waiting:
            unread.cancel()


class _Source:
    """The file as Python's io has it; one reader at a time (Arrow sees to that)."""

    def __init__(self, fetch: Fetch, size: int, end: memoryview, groups: Sequence[Sequence[Range]] = ()) -> None:
        self._fetch, self._size, self._at, self.closed = fetch, size, 0, False
        self._end = end
        self._blocks: list[tuple[int, memoryview]] = []
        self._step = _LEAST
        self._groups = [_Group(fetch, self._before_end(ranges)) for ranges in groups]
        self._in_order = sorted(
            (low, high, number) for number, one in enumerate(self._groups) for low, high in one.ranges
        )
        self._starts = [low for low, _, _ in self._in_order]
        self._current = -1

    def planned(self, groups: Sequence[Sequence[Range]]) -> _Source:
        return _Source(self._fetch, self._size, self._end, groups)

    def _before_end(self, ranges: Sequence[Range]) -> list[Range]:
        """Those of ``ranges`` that must be fetched: the end of the file is here."""
        here = self._size - len(self._end)
        return sorted((low, high) for low, high in ranges if 0 <= low < high <= self._size and low < here)

    def read(self, length: int = -1) -> memoryview:
        """The next bytes; fewer than ``length`` only at the end of the file."""
        start = min(self._at, self._size)
        stop = self._size if length is None or length < 0 else min(start + length, self._size)
        data = self._bytes(start, stop) if stop > start else memoryview(b"")
        self._at = stop
        return data

    def _bytes(self, start: int, stop: int) -> memoryview:
        here = self._size - len(self._end)
        if start >= here:
            return self._end[start - here : stop - here]
        place = bisect_right(self._starts, start) - 1
        if place >= 0:
            low, high, number = self._in_order[place]
            if low <= start and stop <= high:
                return self._of_group(number).read(low, high, start, stop)
        for low, block in reversed(self._blocks):
            if low <= start and stop <= low + len(block):
                return block[start - low : stop - low]
        follows = bool(self._blocks) and self._blocks[-1][0] + len(self._blocks[-1][1]) == start
        self._step = min(2 * self._step, _MOST) if follows else _LEAST
        block = memoryview(self._fetch(start, min(max(stop, start + self._step), self._size)))
        self._blocks = [*self._blocks[1 - _KEPT_BLOCKS :], (start, block)]
        return block[: stop - start]

    def _of_group(self, number: int) -> _Group:
        """The group, fetched; the one before is let go, and the one after asked for."""
        if number != self._current:
            if 0 <= self._current < len(self._groups):
                self._groups[self._current].drop()
            self._current = number
            self._groups[number].begin()
            if number + 1 < len(self._groups):
                self._groups[number + 1].begin_ahead()
        return self._groups[number]

    def seek(self, offset: int, whence: int = 0) -> int:
        """As in Python's io."""
        self._at = max(0, offset + (0, self._at, self._size)[whence])
        return self._at

    def tell(self) -> int:
        """As in Python's io."""
        return self._at

    def close(self) -> None:
        """Let go of what was fetched."""
        self.closed = True
        self._blocks, self._groups, self._in_order, self._starts = [], [], [], []

    def readable(self) -> bool:
        """Always."""
        return True

    def seekable(self) -> bool:
        """Always."""
        return True

    def writable(self) -> bool:
        """Never."""
        return False


class _Group:
    """Ranges that are read about the same time, one of a row group's columns each: fetched together if they are small."""

    def __init__(self, fetch: Fetch, ranges: list[Range]) -> None:
        self._fetch, self.ranges = fetch, ranges
        self._requests: list[Range] = []
        self._answers: list[Future[Buffer]] = []
        self._windows: dict[int, tuple[int, memoryview]] = {}
        self._taken = 0
        spans: list[Range] = []
        for low, high in ranges:
            if spans and low - spans[-1][1] <= _JOINED_GAP:
                spans[-1] = (spans[-1][0], max(high, spans[-1][1]))
            else:
                spans.append((low, high))
        self._bytes = sum(high - low for low, high in spans)
        self._whole = self._bytes <= GROUP_BYTES
        self._window = max(_LEAST, GROUP_BYTES // max(len(ranges), 1))
        if self._whole:
            for low, high in spans:
                self._requests += [(at, min(at + _PIECE, high)) for at in range(low, high, _PIECE)]

    def begin(self) -> None:
        """Ask for all of it."""
        if not self._answers:
            self._answers = [_threads().submit(self._fetch, low, high) for low, high in self._requests]

    def begin_ahead(self) -> None:
        """Ask for all of it if there is room for more."""
        if self._whole and not self._answers and _AHEAD.take(self._bytes):
            self._taken = self._bytes
            self.begin()

    def drop(self) -> None:
        """Let go of it."""
        for answer in self._answers:
            answer.cancel()
        self._answers, self._windows = [], {}
        self._give_back()

    def _give_back(self) -> None:
        if self._taken:
            _AHEAD.give_back(self._taken)
            self._taken = 0

    def __del__(self) -> None:
        self._give_back()

    def read(self, low: int, high: int, start: int, stop: int) -> memoryview:
        """The bytes from ``start`` to ``stop`` of the range from ``low`` to ``high``. Raises what the request raised."""
        if not self._whole:
            at, window = self._windows.get(low, (0, memoryview(b"")))
            if not (at <= start and stop <= at + len(window)):
                end = max(stop, start + self._window)
                end = high if high - end < self._window // 2 else end
                at, window = start, memoryview(self._fetch(start, end))
                self._windows[low] = (at, window)
            return window[start - at : stop - at]
        found: list[memoryview] = []
        for (first, last), answer in zip(self._requests, self._answers, strict=True):
            if first < stop and start < last:
                found.append(memoryview(answer.result())[max(start - first, 0) : min(stop, last) - first])
        return found[0] if len(found) == 1 else memoryview(b"".join(found))


__all__ = ["END_BYTES", "RemoteFile", "ahead", "done_in_turn"]
