"""Memory allocator settings for merges, which allocate and free the same few megabytes for every window."""

from __future__ import annotations

import ctypes
import os
from functools import cache
from typing import Final

import pyarrow as pa

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # of mallopt(3)
_KEPT_BYTES: Final = 32 * 1024 * 1024
_OWN_PAGES: Final = 8 * 1024 * 1024
"""Arrays of at least this size (bytes) get separate pages, which are returned to the system with the array."""
_USER_SETTINGS: Final = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES")
_SYSTEM: Final = "system"


@cache
def keep_small_arrays() -> None:
    """Let the C library keep up to 32 MiB of freed memory for the next arrays, which avoids page faults.

    If Arrow was imported before `lsm_core` could set ``ARROW_DEFAULT_MEMORY_POOL``, and still has its default
    allocator, Arrow is switched to the C library's memory. The settings apply once per process. Settings in the
    environment take precedence, and C libraries other than glibc are not changed.
    """
    preferred = pa.default_memory_pool().backend_name == pa.supported_memory_backends()[0]
    if preferred and os.environ.get("ARROW_DEFAULT_MEMORY_POOL") == _SYSTEM:
        pa.set_memory_pool(pa.system_memory_pool())
    if any(name in os.environ for name in _USER_SETTINGS):
        return
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return
    mallopt(_MMAP_THRESHOLD, _OWN_PAGES)
    mallopt(_TRIM_THRESHOLD, _KEPT_BYTES)
