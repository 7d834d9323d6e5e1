"""Memory allocator settings for merges, which allocate and free the same few megabytes for every window."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from functools import cache
from typing import Final, cast

import pyarrow as pa

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # of mallopt(3)
_KEPT_BYTES: Final = 32 * 1024 * 1024
_OWN_PAGES: Final = 8 * 1024 * 1024
"""Arrays of at least this size (bytes) get separate pages, which are returned to the system with the array."""
_USER_SETTINGS: Final = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES")
_POOL_VARIABLE: Final = "ARROW_DEFAULT_MEMORY_POOL"
_JEMALLOC: Final = "jemalloc"
_SYSTEM: Final = "system"


@cache
def keep_small_arrays() -> None:
    """Switch Arrow to the allocator that suits compactions, and let the C library keep up to 32 MiB of freed memory.

    Arrow's preferred allocator faults the memory of every window in again, in huge pages. With jemalloc a compaction
    needs less memory than with any other, up to an eighth, and it is the fastest on two cores (kernels.md 4). If Arrow
    was built without jemalloc, the C library's allocator is the best. Arrow is not switched if the environment variable
    ``ARROW_DEFAULT_MEMORY_POOL`` or `pyarrow.set_memory_pool` chose an allocator. The first compaction of a process
    calls this function; importing `lsm_core` changes nothing.

    The C library's settings are for NumPy's arrays. Settings in the environment take precedence, and C libraries other
    than glibc are not changed.
    """
    is_dredges_choice = keep_read_arrays() and pa.default_memory_pool().backend_name == _SYSTEM
    if is_dredges_choice and _JEMALLOC in pa.supported_memory_backends():
        pa.set_memory_pool(pa.jemalloc_memory_pool())


@cache
def keep_read_arrays() -> bool:
    """Switch Arrow to the C library's allocator, and let it keep up to 32 MiB of freed memory.

    A merge on read takes 6 % more time on one core with jemalloc, which faults five times as many pages in. With
    Arrow's preferred allocator it needs half as much memory again (kernels.md 4). Choices of the user take precedence,
    as for :func:`keep_small_arrays`.

    Returns:
        Whether Arrow was switched.
    """
    is_preferred = pa.default_memory_pool().backend_name == pa.supported_memory_backends()[0]
    is_switched = is_preferred and _POOL_VARIABLE not in os.environ
    if is_switched:
        pa.set_memory_pool(pa.system_memory_pool())
    if any(name in os.environ for name in _USER_SETTINGS):
        return is_switched
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return is_switched
    mallopt(_MMAP_THRESHOLD, _OWN_PAGES)
    mallopt(_TRIM_THRESHOLD, _KEPT_BYTES)
    return is_switched


def release_free_memory() -> None:
    """Return memory that Arrow and the C library have freed, but keep for later, to the system.

    A driver calls it between the steps over the metadata of a large table, whose copies would add up otherwise.
    """
    pa.default_memory_pool().release_unused()
    trim = _find_trim()
    if trim is not None:
        trim(0)


@cache
def _find_trim() -> Callable[[int], int] | None:
    """Return `malloc_trim` of the C library, None if it has none."""
    try:
        return cast("Callable[[int], int]", ctypes.CDLL(None).malloc_trim)
    except (AttributeError, OSError):
        return None
