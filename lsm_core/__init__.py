"""The LSM table engine. Its public names are imported on first use, so `import lsm_core` is cheap.

No module of the package imports Dagster, and only `lsm_core.spark` imports pyspark. Begin with `table`, the facade, or
with docs/where.md, which names the file of each term.
"""

from __future__ import annotations

import os

from lsm_core.lazy_names import lazy_names

__version__ = "0.1.0"

# Merging allocates and frees the same few megabytes again and again, for which the C library's allocator is best.
# Arrow's preferred allocator returns them and faults them in again, in huge pages: a tenth of a compaction's time, a
# quarter of its memory. Arrow reads this variable when it is loaded; if that is already done, see `storage.allocator`.
os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")

__getattr__, __dir__, __all__ = lazy_names(__name__)
