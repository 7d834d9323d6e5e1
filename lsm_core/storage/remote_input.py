"""Reading of a remote file with few requests: one request for its size and end, and joint prefetches of byte ranges.

Arrow's Parquet reader reads 64 KiB of each column in turn, and each read would be a request. With the byte ranges of
each row group known in advance (:func:`ahead`), a file fetches all ranges of one group in parallel and prefetches the
next group. Ranges that are close to each other are fetched together.
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
"""Byte range of a file: start and exclusive end."""
Fetch = Callable[[int, int], Buffer]
"""Function that fetches a range with one request."""

END_BYTES: Final = 64 * 1024
"""Bytes that opening a file fetches from its end, which is the whole footer of most files."""
GROUP_BYTES: Final = 16 << 20
"""Largest row group (bytes) that is fetched as a whole; columns of a larger row group are fetched in parts."""
_JOINED_GAP: Final = 512 * 1024
"""Largest gap (bytes) between two ranges that are fetched with one request, including the gap."""
_PIECE: Final = 8 << 20
"""Largest request (bytes); larger ranges are fetched with several requests in parallel."""
_MIN_STEP: Final = 256 * 1024
_MAX_STEP: Final = 4 << 20
_KEPT_BLOCKS: Final = 4
_AHEAD_BYTES: Final = 64 << 20
"""Limit of prefetched bytes for all files of this process."""
_THREADS: Final = 8


@cache
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_THREADS, thread_name_prefix="dredge-remote-read")


os.register_at_fork(after_in_child=_threads.cache_clear)


class _Allowance:
    """Budget of bytes that may be prefetched at a time, shared by all open files of the process."""

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
    """An open file in an object store for Arrow's readers; reads are sent as requests for byte ranges."""

    def __init__(self, source: _Source, mode: str = "r") -> None:
        del mode  # for the base class, which is already initialised
        self._source = source

    @classmethod
    def opened(
        cls, fetch: Fetch, fetch_end: Callable[[int], tuple[int, Buffer]], size_of: Callable[[], int]
    ) -> RemoteFile:
        """Open a file.

        Args:
            fetch: fetches a range of bytes.
            fetch_end: fetches the file's size and its last bytes.
            size_of: returns the file's size, for stores that do not support ``fetch_end``.

        Returns:
            The open file.

        Raises:
            FileNotFoundError: the file does not exist.
            OSError: a request failed.
        """
        try:
            size, end = fetch_end(END_BYTES)
        except FileNotFoundError:
            raise
        except OSError:  # an empty file has no last byte to request, and some stores do not support suffix ranges
            size = size_of()
            end = fetch(max(0, size - END_BYTES), size) if size else b""
        return cls(_Source(fetch, size, memoryview(end)))

    def planned(self, groups: Sequence[Sequence[Range]]) -> RemoteFile:
        """Return this file for a reader that reads the ranges of each group in turn; this call fetches nothing."""
        return RemoteFile(self._source.planned(groups))


def ahead(source: pa.NativeFile, groups: Sequence[Sequence[Range]]) -> pa.NativeFile:
    """Return a source that prefetches the ranges of each group in turn.

    Args:
        source: the open file.
        groups: byte ranges of each group, in reading order.

    Returns:
        A prefetching copy of a remote file; any other source unchanged.
    """
    return source.planned(groups) if isinstance(source, RemoteFile) else source


def done_in_turn(requests: Iterable[Callable[[], T]], *, at_once: bool) -> Iterator[T]:
    """Yield the results of requests in their order.

    Args:
        requests: functions to call.
        at_once: whether the next few requests run in the background while one result is used.

    Yields:
        The result of each request; the error of a failed request is raised in place of its result.
    """
    if not at_once:
        yield from (request() for request in requests)
        return
    pending: deque[Future[T]] = deque()
    try:
        for request in requests:
            pending.append(_threads().submit(request))
            if len(pending) == _THREADS:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    finally:
        for future in pending:
            future.cancel()


class _Source:
    """File-like object that serves the reads of one Arrow reader by range requests and from prefetched ranges."""

    def __init__(self, fetch: Fetch, size: int, end: memoryview, groups: Sequence[Sequence[Range]] = ()) -> None:
        self._fetch, self._size, self._position, self.closed = fetch, size, 0, False
        self._end = end
        self._blocks: list[tuple[int, memoryview]] = []
        self._step = _MIN_STEP
        self._groups = [_Group(fetch, self._before_end(ranges)) for ranges in groups]
        self._in_order = sorted(
            (low, high, number) for number, group in enumerate(self._groups) for low, high in group.ranges
        )
        self._starts = [low for low, _, _ in self._in_order]
        self._current = -1

    def planned(self, groups: Sequence[Sequence[Range]]) -> _Source:
        return _Source(self._fetch, self._size, self._end, groups)

    def _before_end(self, ranges: Sequence[Range]) -> list[Range]:
        """Return the valid ranges that must be fetched, ascending.

        Ranges inside the end of the file are left out, because the end was fetched when the file was opened.
        """
        end_start = self._size - len(self._end)
        return sorted((low, high) for low, high in ranges if 0 <= low < high <= self._size and low < end_start)

    def read(self, length: int = -1) -> memoryview:
        """Return the next ``length`` bytes (all if negative); fewer only at the end of the file."""
        start = min(self._position, self._size)
        stop = self._size if length is None or length < 0 else min(start + length, self._size)
        data = self._bytes(start, stop) if stop > start else memoryview(b"")
        self._position = stop
        return data

    def _bytes(self, start: int, stop: int) -> memoryview:
        end_start = self._size - len(self._end)
        if start >= end_start:
            return self._end[start - end_start : stop - end_start]
        index = bisect_right(self._starts, start) - 1
        if index >= 0:
            low, high, number = self._in_order[index]
            if low <= start and stop <= high:
                return self._open_group(number).read(low, high, start, stop)
        for low, block in reversed(self._blocks):
            if low <= start and stop <= low + len(block):
                return block[start - low : stop - low]
        is_sequential = bool(self._blocks) and self._blocks[-1][0] + len(self._blocks[-1][1]) == start
        self._step = min(2 * self._step, _MAX_STEP) if is_sequential else _MIN_STEP
        block = memoryview(self._fetch(start, min(max(stop, start + self._step), self._size)))
        self._blocks = [*self._blocks[1 - _KEPT_BLOCKS :], (start, block)]
        return block[: stop - start]

    def _open_group(self, number: int) -> _Group:
        """Return the group with index ``number``, with its requests started.

        The previous group is released, and the next group is prefetched if the budget allows it.
        """
        if number != self._current:
            if 0 <= self._current < len(self._groups):
                self._groups[self._current].drop()
            self._current = number
            self._groups[number].begin()
            if number + 1 < len(self._groups):
                self._groups[number + 1].begin_ahead()
        return self._groups[number]

    def seek(self, offset: int, whence: int = 0) -> int:
        """Set the position for the next read, and return it.

        Args:
            offset: number of bytes from the start point given by ``whence``.
            whence: 0 for the start of the file, 1 for the current position, 2 for the end.
        """
        self._position = max(0, offset + (0, self._position, self._size)[whence])
        return self._position

    def tell(self) -> int:
        """Return the position of the next read in bytes."""
        return self._position

    def close(self) -> None:
        """Release the fetched data."""
        self.closed = True
        self._blocks, self._groups, self._in_order, self._starts = [], [], [], []

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def writable(self) -> bool:
        """Return False."""
        return False


class _Group:
    """Byte ranges that are read at about the same time, such as the columns of one row group.

    A group of at most `GROUP_BYTES` is fetched as a whole; the ranges of a larger group are fetched as they are read.
    """

    def __init__(self, fetch: Fetch, ranges: list[Range]) -> None:
        self._fetch, self.ranges = fetch, ranges
        self._requests: list[Range] = []
        self._answers: list[Future[Buffer]] = []
        self._windows: dict[int, tuple[int, memoryview]] = {}
        self._reserved_bytes = 0
        spans: list[Range] = []
        for low, high in ranges:
            if spans and low - spans[-1][1] <= _JOINED_GAP:
                spans[-1] = (spans[-1][0], max(high, spans[-1][1]))
            else:
                spans.append((low, high))
        self._bytes = sum(high - low for low, high in spans)
        self._whole = self._bytes <= GROUP_BYTES
        self._window = max(_MIN_STEP, GROUP_BYTES // max(len(ranges), 1))
        if self._whole:
            for low, high in spans:
                self._requests += [(at, min(at + _PIECE, high)) for at in range(low, high, _PIECE)]

    def begin(self) -> None:
        """Request all ranges of a small group; a large group is fetched by its reads."""
        if not self._answers:
            self._answers = [_threads().submit(self._fetch, low, high) for low, high in self._requests]

    def begin_ahead(self) -> None:
        """Request all ranges of a small group if the prefetch budget allows it."""
        if self._whole and not self._answers and _AHEAD.take(self._bytes):
            self._reserved_bytes = self._bytes
            self.begin()

    def drop(self) -> None:
        """Release the fetched data."""
        for answer in self._answers:
            answer.cancel()
        self._answers, self._windows = [], {}
        self._give_back()

    def _give_back(self) -> None:
        if self._reserved_bytes:
            _AHEAD.give_back(self._reserved_bytes)
            self._reserved_bytes = 0

    def __del__(self) -> None:
        self._give_back()

    def read(self, low: int, high: int, start: int, stop: int) -> memoryview:
        """Return the bytes from position ``start`` to ``stop`` of the file.

        The error of a failed request is raised here.

        Args:
            low: start of the group's range that contains the bytes.
            high: end of this range.
            start: position of the first byte.
            stop: position after the last byte.
        """
        if not self._whole:
            window_start, window = self._windows.get(low, (0, memoryview(b"")))
            if not (window_start <= start and stop <= window_start + len(window)):
                end = max(stop, start + self._window)
                end = high if high - end < self._window // 2 else end
                window_start, window = start, memoryview(self._fetch(start, end))
                self._windows[low] = (window_start, window)
            return window[start - window_start : stop - window_start]
        parts: list[memoryview] = []
        for (first, last), answer in zip(self._requests, self._answers, strict=True):
            if first < stop and start < last:
                parts.append(memoryview(answer.result())[max(start - first, 0) : min(stop, last) - first])
        return parts[0] if len(parts) == 1 else memoryview(b"".join(parts))
