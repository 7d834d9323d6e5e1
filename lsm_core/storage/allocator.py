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
_POOL_VARIABLE: Final = "ARROW_DEFAULT_MEMORY_POOL"


@cache
def keep_small_arrays() -> None:
    """Let the C library keep up to 32 MiB of freed memory for the next arrays, which avoids page faults.

    Arrow's preferred allocator returns this memory and faults it in again, in huge pages: a tenth of the time of a
    compaction, a quarter of its memory. So Arrow is switched to the memory of the C library, unless the environment
    variable ``ARROW_DEFAULT_MEMORY_POOL`` or `pyarrow.set_memory_pool` chose an allocator. The first merge of a process
    calls this function; importing `lsm_core` changes nothing. Settings in the environment take precedence, and C
    libraries other than glibc are not changed.
    """
    preferred = pa.default_memory_pool().backend_name == pa.supported_memory_backends()[0]
    if preferred and _POOL_VARIABLE not in os.environ:
        pa.set_memory_pool(pa.system_memory_pool())
    if any(name in os.environ for name in _USER_SETTINGS):
        return
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return
    mallopt(_MMAP_THRESHOLD, _OWN_PAGES)
    mallopt(_TRIM_THRESHOLD, _KEPT_BYTES)
