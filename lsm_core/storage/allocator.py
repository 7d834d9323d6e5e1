"""The C library's allocator as merging needs it, which takes and frees the same few megabytes window after window."""

from __future__ import annotations

import ctypes
import os
from functools import cache
from typing import Final

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # of mallopt(3)
_KEPT_BYTES: Final = 32 * 1024 * 1024
_OWN_PAGES: Final = 8 * 1024 * 1024
"""Arrays from this size on still get pages of their own, which go back when they are freed."""
_CHOSEN_BY_USER: Final = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES")


@cache
def keep_small_arrays() -> None:
    """Let the C library keep up to 32 MiB of freed memory for NumPy's next arrays instead of faulting them in page by page.

    Once per process; does nothing where the environment already says how, or on another C library than glibc.
    """
    if any(name in os.environ for name in _CHOSEN_BY_USER):
        return
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return
    mallopt(_MMAP_THRESHOLD, _OWN_PAGES)
    mallopt(_TRIM_THRESHOLD, _KEPT_BYTES)


__all__ = ["keep_small_arrays"]
