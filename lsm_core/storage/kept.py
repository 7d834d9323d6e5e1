"""What one table object remembers of files that never change: footers, indexes, sizes; bounded by bytes, oldest use first out.

functools.lru_cache counts entries, and no dependency has a cache that counts bytes: a footer takes from one kilobyte to megabytes.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable
from typing import Any, Final

KEPT_BYTES: Final = 64 << 20
"""Bytes that a table's memory of its files may take."""


class Kept:
    """A cache of at most ``limit`` bytes, by the weights that callers tell; safe to share between threads.

    Keys name what is kept and the path of an immutable file: whatever was read of a file once is true of it for ever.
    """

    def __init__(self, limit: int = KEPT_BYTES) -> None:
        self._limit = limit
        self._held: OrderedDict[Hashable, tuple[Any, int]] = OrderedDict()
        self._lock = threading.Lock()
        self.size = 0

    def get(self, key: Hashable) -> Any:
        """The value kept under ``key``; None where there is none or it was evicted."""
        with self._lock:
            found = self._held.get(key)
            if found is None:
                return None
            self._held.move_to_end(key)
            return found[0]

    def put(self, key: Hashable, value: Any, weight: int) -> None:
        """Keep ``value`` of about ``weight`` bytes; what was used longest ago makes room, and what is too large is not kept."""
        if weight > self._limit:
            return
        with self._lock:
            before = self._held.pop(key, None)
            self.size += weight - (0 if before is None else before[1])
            self._held[key] = (value, weight)
            while self.size > self._limit:
                _, (_, freed) = self._held.popitem(last=False)
                self.size -= freed


__all__ = ["KEPT_BYTES", "Kept"]
