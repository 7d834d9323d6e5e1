"""Cache of one table object for immutable files (footers, indexes, sizes), bounded by bytes with LRU eviction.

functools.lru_cache counts entries, and no dependency has a cache that counts bytes: a footer takes from one kilobyte to
megabytes.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable
from typing import Any, Final

KEPT_BYTES: Final = 64 << 20
"""Default size limit of a table's cache (bytes)."""


class Kept:
    """Thread-safe LRU cache of at most ``limit`` bytes, by weights that callers pass.

    Keys consist of a kind and the path of an immutable file, so entries never become invalid.
    """

    def __init__(self, limit: int = KEPT_BYTES) -> None:
        self._limit = limit
        self._entries: OrderedDict[Hashable, tuple[Any, int]] = OrderedDict()
        self._lock = threading.Lock()
        self.size = 0

    def get(self, key: Hashable) -> Any:
        """Return the value of ``key``, or None if it is absent or was evicted."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is None:
                return None
            self._entries.move_to_end(key)
            return entry[0]

    def put(self, key: Hashable, value: Any, weight: int) -> None:
        """Store a value; the least recently used entries are evicted, and a value above the limit is not stored.

        Args:
            key: kind and path.
            value: the value.
            weight: its approximate size in bytes.
        """
        if weight > self._limit:
            return
        with self._lock:
            previous = self._entries.pop(key, None)
            self.size += weight - (0 if previous is None else previous[1])
            self._entries[key] = (value, weight)
            while self.size > self._limit:
                _, (_, weight_freed) = self._entries.popitem(last=False)
                self.size -= weight_freed
