"""Writing: rows to buckets, a bounded buffer, sorted and merged level-0 files (or append files), commit messages.

A writer publishes nothing: its messages go through `lsm_core.commit`. Merging is in `lsm_core.merge`, and the encoding
of data files in `lsm_core.files`. Begin with `table_write`.
"""

from __future__ import annotations

from lsm_core.lazy_names import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__)
