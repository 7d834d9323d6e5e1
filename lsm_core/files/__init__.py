"""Data files: readers and writers of key-value and append files, rolling, and spilling to the local disk.

Rows are not merged here, and no snapshot is read or written. Begin with `reader` and `writer`.
"""

from __future__ import annotations

from lsm_core.lazy_names import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__)
