"""The allocators of Arrow and of the C library as merging needs them, which takes and frees the same few megabytes window after window."""

from __future__ import annotations

import ctypes
import os
from functools import cache
from typing import Final

import pyarrow as pa

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # of mallopt(3)
_KEPT_BYTES: Final = 32 * 1024 * 1024
_OWN_PAGES: Final = 8 * 1024 * 1024
"""Arrays from this size on still get pages of their own, which go back when they are freed."""
_CHOSEN_BY_USER: Final = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES")
_SYSTEM: Final = "system"


@cache
def keep_small_arrays() -> None:
    """Let the C library keep up to 32 MiB of freed memory for the next arrays, NumPy's and Arrow's, instead of faulting them in anew.

    Arrow is told to take its memory from there too, where it was loaded before `lsm_core` could say so (``ARROW_DEFAULT_MEMORY_POOL``)
    and still has the allocator that it prefers. Once per process; what the environment says stays, and other C libraries than
    glibc are left as they are.
    """
    preferred = pa.default_memory_pool().backend_name == pa.supported_memory_backends()[0]
    if preferred and os.environ.get("ARROW_DEFAULT_MEMORY_POOL") == _SYSTEM:
        pa.set_memory_pool(pa.system_memory_pool())
    if any(name in os.environ for name in _CHOSEN_BY_USER):
        return
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return
    mallopt(_MMAP_THRESHOLD, _OWN_PAGES)
    mallopt(_TRIM_THRESHOLD, _KEPT_BYTES)


__all__ = ["keep_small_arrays"]
