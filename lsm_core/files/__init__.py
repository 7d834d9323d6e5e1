"""Data files: readers and writers of key-value and append files, rolling, and spilling to the local disk.

Rows are not merged here, and no snapshot is read or written. Begin with `kv_reader` and `kv_writer` (tables with a
primary key), or `append_reader` and `append_writer`.
"""

from __future__ import annotations

from lsm_core.lazy_names import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__)
