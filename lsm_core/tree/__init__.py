"""The LSM tree of a bucket as immutable values: levels, choice of files to compact, and rewrite or upgrade per file.

This package has no I/O, no clock, and no knowledge of merge engines: only sizes, levels and key ranges are used.
Compactions are executed in `lsm_core.compact`. Begin with `model` and `universal`.
"""

from __future__ import annotations

from lsm_core.lazy_names import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__)
